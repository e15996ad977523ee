"""A graph in two parts: what does not depend on sizes that change, and what does.

PyTorch's compiler writes sizes that change as symbols. So a graph says of each node whether its result has
such a size, be it one of an input or one that values decide (``nonzero``, indexing by a mask). All nodes that
need none of these run first, and do the same for every size: they are recorded once. The rest runs plainly.

To move a node before others is right only where nobody sees it. So a node stays where it is, with all that
need it, if it writes a tensor, reads behind a write, or is no operator with a schema. Nodes that draw random
numbers move only if all of them do, since the numbers would come in another order.

What does not work: the same for what Inductor compiles. It notes strides of results and devices for one graph
at a time, and a backward is compiled by what it notes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType
from typing import Any

import torch
from torch import fx

from ...runtime.operators import facts_of

Function = Callable[..., Any]

_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)


def has_symbols(value: Any) -> bool:
    """Whether a value is a size that changes, or a tensor with one, or holds such."""
    if isinstance(value, (list, tuple)):
        members: Iterable[Any] = value
        return any(map(has_symbols, members))
    if not isinstance(value, torch.Tensor):
        return isinstance(value, _SYMBOLS)
    if value.layout is not torch.strided:
        return True
    numbers: tuple[Any, ...] = (*value.shape, *value.stride(), value.storage_offset())
    return any([isinstance(number, _SYMBOLS) for number in numbers])


@dataclass(frozen=True)
class PartedGraph:
    """The two parts.

    Attributes:
        static: Makes of some inputs what the other part needs; it returns a tuple.
        inputs: The numbers of those inputs.
        rest: Makes the results, of all inputs and what the first part has made.
    """

    static: fx.GraphModule
    inputs: tuple[int, ...]
    rest: fx.GraphModule

    @classmethod
    def of(cls, graph: fx.GraphModule) -> PartedGraph | None:
        """Part a graph; None if no size in it changes, or nothing in it is free of those that do."""
        nodes = list(graph.graph.nodes)
        moving = _free(nodes, draws=True)
        draws = [node in moving for node in nodes if _draws(node)]
        if any(draws) and not all(draws):
            moving = _free(nodes, draws=False)
        work = [node for node in nodes if node in moving and node.op == "call_function"]
        if not work or all([node in moving for node in nodes if node.op in ("placeholder", "call_function")]):
            return None
        return _parted(graph, nodes, moving)

    def joined(self, static: Function) -> Callable[[list[Any]], Any]:
        """A function of a list of inputs, where something else stands for the first part."""
        inputs, rest = self.inputs, self.rest

        def run(given: list[Any]) -> Any:
            values = tuple(given)
            given.clear()  # as compiled code does, so that what is needed no more is freed
            return rest(*values, *static(*[values[number] for number in inputs]))

        return run


def _free(nodes: Sequence[fx.Node], *, draws: bool) -> set[fx.Node]:
    """The nodes that may run before all others; with ``draws`` also those that draw random numbers."""
    free, written = set[fx.Node](), False
    for node in nodes:
        if node.op == "output":
            continue
        if node.target is operator.getitem:  # it goes with what it takes apart
            free.update([node] if node.all_input_nodes[0] in free else [])
            continue
        written = written or (node.op == "call_function" and not _is_pure(node.target))
        known = "val" in node.meta or node.op == "get_attr"
        if written or not known or has_symbols(node.meta.get("val")) or (_draws(node) and not draws):
            continue
        if node.op == "call_function" and _reads_values(node.target):
            continue
        if all([each in free for each in node.all_input_nodes]):
            free.add(node)
    return free


def _is_pure(target: Any) -> bool:
    if isinstance(target, BuiltinFunctionType):  # arithmetic with sizes
        return True
    return isinstance(target, torch._ops.OpOverload) and not (
        facts_of(target).written or facts_of(target).mutable or facts_of(target).collective
    )


def _reads_values(target: Any) -> bool:
    """Whether the host waits for values, so that no graph could hold it."""
    facts = facts_of(target) if isinstance(target, torch._ops.OpOverload) else None
    return facts is not None and (facts.reads or facts.checks or facts.dynamic)


def _draws(node: fx.Node) -> bool:
    target: Any = node.target
    return isinstance(target, torch._ops.OpOverload) and facts_of(target).seeded


def _parted(graph: fx.GraphModule, nodes: Sequence[fx.Node], moving: set[fx.Node]) -> PartedGraph:
    placeholders = [node for node in nodes if node.op == "placeholder"]
    first = [node for node in nodes if node in moving and node.op != "placeholder"]
    handed = [node for node in first if node.op == "call_function" and _is_needed(node, moving)]
    inputs = [each for each in placeholders if any([user in moving for user in each.users])]
    static, rest = fx.Graph(), fx.Graph()
    made = dict(_copied(static, [*inputs, *first]))
    static.output(tuple([made[node] for node in handed]))
    known = dict(_copied(rest, placeholders))
    for node in handed:
        known[node] = rest.placeholder(f"static_{node.name}")
        known[node].meta.update(node.meta)
    constants = [node for node in first if node.op == "get_attr"]
    others = [node for node in nodes if node not in moving and node.op != "placeholder"]
    for node in [*constants, *others]:
        known[node] = rest.node_copy(node, known.__getitem__)
    numbers = [placeholders.index(each) for each in inputs]
    return PartedGraph(fx.GraphModule(graph, static), tuple(numbers), fx.GraphModule(graph, rest))


def _is_needed(node: fx.Node, moving: set[fx.Node]) -> bool:
    """Whether the other part, or the caller, needs a node of the first one."""
    return any([user not in moving for user in node.users])


def _copied(graph: fx.Graph, nodes: Iterable[fx.Node]) -> Iterator[tuple[fx.Node, fx.Node]]:
    known = dict[fx.Node, fx.Node]()
    for node in nodes:
        known[node] = graph.node_copy(node, known.__getitem__)
        yield node, known[node]
