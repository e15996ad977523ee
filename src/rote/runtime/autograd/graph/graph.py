"""The autograd graph below a call's results: where gradients go, and what the graph keeps alive.

Attention's memory-efficient kernel returns its seed and offset on the host in eager, on the device in a
capture, and its backward reads them in the same way: outside of a capture it dereferences them on the host. A
recorded forward that is walked back by plain autograd has them on the device, so they are copied to the host
first (seen in torch 2.11; a crash without it).
"""

from __future__ import annotations

import weakref
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from operator import call
from typing import Any, cast

import torch
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import GradientEdge, get_gradient_edge

from ...numbers import Computed
from ...operators import facts_of
from ...program import history_of, node_age
from ...pytorch import DispatchMode, has_memory, is_wrapped, resolve_lazily
from .accumulators import ParameterAliases
from .contexts import Contexts
from .packing import Gradients, Packing, pack, unpack


def seeds_on_host(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The operands of an operation that runs outside of a capture."""
    if not isinstance(func, torch._ops.OpOverload) or "seeds" not in (row := facts_of(func).row):
        return args, kwargs
    seeds = row["seeds"].split()
    names = [argument.name for argument in func._schema.arguments]
    moved = tuple(value.cpu() if name in seeds else value for name, value in zip(names, args, strict=False))
    return moved, {name: value.cpu() if name in seeds else value for name, value in kwargs.items()}


class HostSeeds(DispatchMode):
    """Mode in which the graph of a recorded call can be walked by plain autograd."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        resolve_lazily()
        args, kwargs = seeds_on_host(func, args, kwargs or {})
        return func(*args, **kwargs)


@dataclass(frozen=True)
class SavedNumber:
    """A number that changes from call to call, where the graph keeps it: autograd makes a tensor of it.

    Attributes:
        node: The node of the graph, by its name and its place in the order in which nodes were made.
        operand: The number, as the operation of the node calls it.
        memory: That tensor, of no dimensions, on the host, as an array over its memory.
    """

    node: tuple[str, int]
    operand: str
    memory: Any
    number: Computed

    def write(self) -> None:
        """Have the graph keep that of this replay. Autograd is not told, as of nothing that replays write."""
        self.memory[...] = self.number.value


Node = Any
"""A ``grad_fn``."""
_FREED = "backward through the graph a second time"
"""What PyTorch says to whoever asks a node for a saved tensor that it has no more."""


def newest_age() -> int:
    """The age of a node made now; nodes of a later call are younger (their number is higher)."""
    with torch.enable_grad():
        probe = torch.empty(0, requires_grad=True).view(0)
    return node_age(probe.grad_fn)


def nodes_below(results: Iterable[torch.Tensor], ends: frozenset[Node] = frozenset()) -> Iterator[Node]:
    """Every node that the results depend on, each once; not below ``ends``, which are left out."""
    queue: list[Node] = [node for result in results if (node := history_of(result)) is not None]
    seen: set[Node] = set(ends)
    while queue:
        node = queue.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        queue.extend(parent for parent, _ in node.next_functions if parent is not None)


def leaves_below(results: Iterable[torch.Tensor]) -> list[Node]:
    """The nodes that accumulate into leaves; the leaf is ``node.variable``."""
    return [node for node in nodes_below(results) if hasattr(node, "variable")]


def is_freed(result: torch.Tensor) -> bool:
    """Whether each way from a result to a leaf passes a node that a backward has freed, and there is one.

    It reads saved tensors, as :func:`kept_storages` does.
    """
    queue: list[Node] = [history_of(result)]
    seen, freed = {cast("Node", None)}, False
    while queue:
        node = queue.pop()
        if node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            return False
        if _is_freed(node):
            freed = True
        else:
            queue.extend([parent for parent, _ in node.next_functions])
    return freed


def passes_freed(result: torch.Tensor) -> bool:
    """Whether a backward has freed a node below a result: one that saves nothing may be walked again."""
    return any(map(_is_freed, nodes_below([result])))


def _is_freed(node: Node) -> bool:
    for name in _saved_names(node):
        try:
            getattr(node, name)
        except RuntimeError as error:
            if _FREED in str(error):
                return True
    return False


def is_whole(node: Node) -> bool:
    """Whether nothing that a node has saved is gone, or was written since."""
    try:
        for name in _saved_names(node):
            getattr(node, name)
    except RuntimeError:
        return False
    return True


def adds_up(results: Iterable[torch.Tensor], ends: frozenset[Node] = frozenset()) -> bool:
    """Whether gradients of several operations are added up in a leaf, or in one place of the ``ends``."""
    met: set[tuple[Node, int]] = set()
    for node in nodes_below(results, ends):
        for edge in node.next_functions:
            if edge[0] in ends or hasattr(edge[0], "variable"):
                if edge in met:
                    return True
                met.add(edge)
    return False


def older_node(results: Iterable[torch.Tensor], ends: frozenset[Node], age: int) -> Node | None:
    """A node that was there before the call, or None if the call made the whole graph."""
    for node in nodes_below(results, ends):
        if not hasattr(node, "variable") and node_age(node) <= age:
            return node
    return None


def contexts_of(results: Iterable[torch.Tensor], ends: frozenset[Node] = frozenset()) -> list[Node]:
    """The nodes that are Python code (a ``torch.autograd.Function``); each is the ``ctx`` of its backward."""
    return [node for node in nodes_below(results, ends) if isinstance(node, BackwardCFunction)]


def kept_storages(results: Iterable[torch.Tensor], ends: frozenset[Node]) -> set[int]:
    """Handles of storages that the graph saves for its backward.

    It reads the saved tensors of every node. So it must not be asked of a graph made under saved-tensor
    hooks, which reading would run (activation checkpointing would compute everything again).
    """
    found: set[int] = set()
    for node in nodes_below(results, ends):
        for value in _kept_by(node):
            if isinstance(value, torch.Tensor) and has_memory(value):
                found.add(value.untyped_storage()._cdata)
    return found


def memory_below(results: Iterable[torch.Tensor]) -> set[int]:
    """The same, and those of the leaves in which the graph ends and of their gradients."""
    results = [*results]
    leaves = [node.variable for node in leaves_below(results)]
    found = [*leaves, *[each.grad for each in leaves if each.grad is not None]]
    own = {each.untyped_storage()._cdata for each in found if has_memory(each)}
    return kept_storages(results, frozenset()) | own


def _kept_by(node: Node) -> Iterator[Any]:
    """The saved tensors of one node; of a node in Python also what it keeps as attributes."""
    values: list[Any] = []
    for name in _saved_names(node):
        with suppress(RuntimeError):  # modified in place since: its backward will say so, as in eager
            values.append(getattr(node, name))
    values.extend(vars(node).values() if isinstance(node, BackwardCFunction) else ())
    for value in values:
        yield from value if isinstance(value, (tuple, list)) else (value,)


def _saved_names(node: Node) -> list[str]:
    """The attributes of a node that hold what it saves; the classes are asked, as ``dir`` sorts all names."""
    names = [name for kind in type(node).__mro__ for name in vars(kind) if name.startswith("_saved_")]
    return [*names, "saved_tensors"] if isinstance(node, BackwardCFunction) else names


@contextmanager
def _without_hooks(leaves: list[torch.Tensor]) -> Generator[None]:
    """Autograd would run a leaf's hooks where its gradient is only computed; the caller's graph runs them."""
    hooked = [tensor._backward_hooks for tensor in leaves if tensor._backward_hooks]
    kept = [dict(hooks) for hooks in hooked]
    for hooks in hooked:
        hooks.clear()
    try:
        yield
    finally:
        for hooks, own in zip(hooked, kept, strict=True):
            hooks.update(own)


@contextmanager
def ending_at(results: Iterable[torch.Tensor]) -> Generator[None]:
    """Stop gradients at some results meanwhile; the gradients that arrive there can be asked for."""
    with ExitStack() as stack:
        for result in results:
            node: Node = result.grad_fn
            stack.callback(node.register_prehook(partial(_ended, result.output_nr)).remove)
        yield


def _ended(number: int, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*gradients[:number], None, *gradients[number + 1 :])


class GradientWalk:
    """Computes gradients through a recorded call's graph, any number of times.

    Args:
        leaves: The static arguments and parameters that they stand for; parameters are held weakly.
        arguments: How many of them are static arguments; these come first.
        memory: Handles of the storages that replays write; a gradient that lies there is copied.
        stand_ins: What the graph has instead of parameters.
        numbers: Those that it keeps and that change from call to call.
    """

    __name__ = "backward"

    def __init__(
        self,
        results: list[torch.Tensor],
        targets: list[Node],
        leaves: list[torch.Tensor],
        arguments: int,
        memory: frozenset[int],
        stand_ins: ParameterAliases,
        numbers: Sequence[SavedNumber] = (),
    ) -> None:
        self.numbers = numbers
        self.contexts = Contexts(contexts_of(results))
        self._stand_ins = stand_ins if self.contexts else None
        self.results = results
        self._static: list[Any] = leaves[:arguments]
        self._parameters: list[Any] = [weakref.ref(leaf) for leaf in leaves[arguments:]]
        self.memory = memory
        self._edges = [GradientEdge(node, 0) for node in targets]
        self._packed: dict[Any, Packing] = {}

    @property
    def targets(self) -> int:
        """How many tensors gradients go to."""
        return len(self._edges)

    @property
    def parameters(self) -> list[torch.Tensor]:
        """The parameters, all of which are alive as long as a result waits for its backward."""
        return list(map(call, self._parameters))

    def __call__(
        self, needed: int, numbers: tuple[Any, ...], *gradients: torch.Tensor | None
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Gradients of the targets, as few tensors."""
        del numbers
        alone, flats, packing = pack(self._compute(needed, gradients))
        self._packed[needed, _pattern(gradients)] = packing
        return alone, flats

    def numbers_in(self, leaves: Sequence[Any]) -> list[tuple[SavedNumber, Any]]:
        """The numbers that change, among the leaves of a call."""
        return [*zip(self.numbers, leaves[1 : 1 + len(self.numbers)], strict=True)]

    def unpack(
        self, made: tuple[list[torch.Tensor], list[torch.Tensor]], needed: int, gradients: Gradients
    ) -> Gradients:
        """The gradients one by one, from what a call or its replay returned."""
        return unpack(*made, self._packed[needed, _pattern(gradients)])

    def plainly(self, needed: int, *gradients: torch.Tensor | None) -> Gradients:
        """Gradients of the targets by plain autograd, neither traced nor captured."""
        with HostSeeds() if self.results[0].is_cuda else nullcontext():
            return self._compute(needed, gradients)

    def parted(self, number: int, gradient: torch.Tensor, ends: Sequence[int]) -> tuple[Gradients, Gradients]:
        """Gradients of the results that one is computed from, and of the targets past them; not captured."""
        others = [self.results[end] for end in ends]
        edges = [*map(get_gradient_edge, others), *self._edges]
        with HostSeeds() if self.results[0].is_cuda else nullcontext(), ending_at(others):
            made = tuple(map(self._own, self._walk([(self.results[number], gradient)], edges)))
        return made[: len(others)], made[len(others) :]

    def _compute(self, needed: int, gradients: Gradients) -> Gradients:
        found: list[torch.Tensor | None] = [None] * len(self._edges)
        wanted = [number for number in range(len(self._edges)) if needed >> number & 1]
        pairs = [pair for pair in zip(self.results, gradients, strict=True) if pair[1] is not None]
        if not wanted or not pairs:
            return tuple(found)
        made = self._walk(pairs, [self._edges[number] for number in wanted])
        for number, gradient in zip(wanted, made, strict=True):
            found[number] = self._own(gradient)
        return tuple(found)

    def _walk(
        self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor | None]], edges: list[GradientEdge]
    ) -> Sequence[torch.Tensor | None]:
        leaves = [leaf for leaf in (*self._static, *self.parameters) if leaf is not None]
        placed = self._stand_ins.placed_again(leaves) if self._stand_ins is not None else nullcontext()
        with placed, _without_hooks(leaves):
            return torch.autograd.grad(
                [result for result, _ in pairs],
                edges,
                [gradient for _, gradient in pairs],
                retain_graph=True,
                allow_unused=True,
            )

    def _own(self, gradient: torch.Tensor | None) -> torch.Tensor | None:
        if gradient is None:
            return gradient
        if is_wrapped(gradient):
            return _copied(gradient)
        if gradient.is_cuda:
            _belongs_here(gradient)
        # The indices of a sparse one may be a view of an argument.
        copies = gradient.layout is not torch.strided or gradient.untyped_storage()._cdata in self.memory
        return gradient.clone() if copies else gradient


def _copied(gradient: torch.Tensor) -> torch.Tensor:
    """A batch of gradients (``is_grads_batched=True``), in memory of its own: what it is in is not shown."""
    kept = gradient.clone()
    if gradient.is_cuda and not torch.cuda.is_current_stream_capturing():
        torch.cuda.current_stream(gradient.device).synchronize()  # before the original's memory is free
    return kept


def _belongs_here(gradient: torch.Tensor) -> None:
    """It was allocated on the stream of the graph's nodes, that of the capture; the current one reads it."""
    here = torch.cuda.current_stream(gradient.device)
    if torch.cuda.is_current_stream_capturing():
        return
    if gradient.layout is torch.strided:
        gradient.record_stream(here)
    elif gradient.layout is torch.sparse_coo:
        gradient._indices().record_stream(here)
        gradient._values().record_stream(here)


def _pattern(gradients: Gradients) -> Any:
    """Which results have a gradient, and its type. This decides which gradients are made."""
    return tuple([None if gradient is None else gradient.dtype for gradient in gradients])
