"""Dynamo, at the moment in which it traces the call of a graphed callable.

``torch._dynamo.comptime`` calls a function while Dynamo traces, and hands out Dynamo's objects under names
that promise nothing for later versions. All that is asked of these objects stands here. Every name was seen
in torch 2.11 and 2.13. The module is imported by programs that compile nothing, so it finds Dynamo only when
it is called, which is by Dynamo.
"""

from __future__ import annotations

import enum
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType
from typing import Any, NoReturn

import torch
from torch.fx import Node

from ..runtime.pytorch import transforms
from .body import Traced, fake_of
from .call import EnclosedCall, ModesAtCall, Operands
from .operators import function_of, try_on_fakes

_PLAIN = (
    bool, int, float, complex, str, bytes, type(None), type(...), slice, range, enum.Enum, torch.dtype,
    torch.device, torch.layout, torch.memory_format,
)  # fmt: skip
"""Values that are the same in each call of compiled code: Dynamo compares them."""
_KNOWN_BY_IDENTITY = (torch.nn.Module, FunctionType, BuiltinFunctionType, type)
"""Objects that a guard can hold, and that programs do not make anew for each call."""
_CONTEXTS = frozenset({"GradModeVariable", "AutocastModeVariable", "NullContextVariable"})
"""Contexts that :class:`ModesAtCall` repeats."""


@dataclass(frozen=True)
class _Mark:
    """Where Dynamo was when the plain callable was not yet traced.

    Attributes:
        versions: How often each tensor had been written.
        randoms: How many random numbers of Python's had been drawn.
        hooks: How many hooks had been put on tensors.
    """

    last: Any
    versions: Mapping[Node, int]
    randoms: int
    hooks: int
    modes: ModesAtCall


_BEGUN = weakref.WeakKeyDictionary[Any, _Mark]()
"""By Dynamo's object for the frame of ``enclose``: calls that are being traced."""


class Tracing:
    """A call of a graphed callable that Dynamo traces."""

    def __init__(self, context: Any, translator: Any) -> None:
        self._context = context
        self._translator = translator
        self._output: Any = translator.output

    @classmethod
    def of(cls, context: Any) -> Tracing:
        """The call in which Dynamo has come to a function for compile time."""
        return cls(context, context._i_will_not_complain_if_bc_breaks_InstructionTranslator())

    def refuse(self, why: str) -> NoReturn:
        """Break the graph at the call."""
        name = getattr(self._value("graphed"), "__qualname__", "a callable")
        self._context.graph_break(f"rote: {name} is called between two graphs, where it replays: {why}")
        raise AssertionError("Dynamo goes on behind a graph break")

    # ------------------------------------------------------------------ before the plain callable is traced

    def begin(self) -> None:
        """Note where Dynamo is, or break the graph."""
        self.leave_frames_alone()
        inside = self._output.current_tracer.parent is not None or transforms() is not None
        if self._output.export or inside:
            return  # the callable is the plain one there
        why = self._unsettled()
        if why:
            self.refuse(why)
        nodes = [*self._output.graph.nodes]
        versions = {node: _version(node) for node in nodes}
        randoms, hooks = len(self._output.random_calls), len(self._output.side_effects.tensor_hooks)
        _BEGUN[self._translator] = _Mark(
            nodes[-1] if nodes else None, versions, randoms, hooks, ModesAtCall.now()
        )

    def leave_frames_alone(self) -> None:
        """Have Dynamo run rote's frames as they are, where it is not tracing them from a caller's."""
        dynamo: Any = sys.modules["torch._dynamo"]
        frame, root = self._translator, None
        while frame is not None and frame.f_globals.get("__name__", "").startswith("rote."):
            strategy = dynamo.types.FrameExecStrategy(
                dynamo.types.FrameAction.SKIP, dynamo.types.FrameAction.SKIP
            )
            dynamo.eval_frame.set_code_exec_strategy(frame.f_code, strategy)
            frame, root = frame.parent, frame
        if frame is None and root is not None:
            raise dynamo.exc.SkipFrame("a graphed callable runs as it is")

    def _unsettled(self) -> str:
        """What the compiled function has done, and compiled code does later; empty if that is nothing."""
        pending = [*self._pending()]
        if pending:
            return f"the compiled function has changed {pending[0]} before"
        if any(node.op == "placeholder" and _version(node) for node in self._output.graph.nodes):
            return "the compiled function has written an input before"
        set_data: Any = torch._C._autograd._get_data_attr  # pyright: ignore
        if any(node.target is set_data for node in self._output.graph.nodes):
            return "the compiled function takes .data of a tensor before"
        if self._translator.symbolic_torch_function_state.mode_stack:
            return "a function mode is active"
        frame = self._translator
        while frame is not None:
            for block in frame.block_stack:
                kind = type(block.with_context).__name__
                if block.with_context is not None and kind not in _CONTEXTS:
                    return f"it stands in a context ({kind})"
            frame = frame.parent
        return ""

    def _pending(self) -> Iterator[str]:
        """What is there outside of the compiled function, and is changed when its graph has run."""
        effects = self._output.side_effects
        for variable in [*effects.id_to_variable.values()]:
            kind = type(variable.mutation_type).__name__
            if kind in ("AttributeMutationExisting", "ValueMutationExisting") and effects.is_modified(
                variable
            ):
                yield _name_of(getattr(variable, "source", None))

    # ------------------------------------------------------------------ behind it

    def finish(self) -> None:
        """Put a call in the place of what was traced, or break the graph."""
        mark = _BEGUN.pop(self._translator.parent, None)
        if mark is None:
            return
        given, before = self._leaves("operands"), self._leaves("operands_after")
        self._check_effects(mark, given, before)
        recipe = self._recipe(given)
        nodes = self._traced(mark)
        results = [self._node(each, "a result") for each in self._leaves("results")]
        traced = Traced.of(nodes, recipe.nodes, results)
        self._check_tensors(mark, traced, results)
        owner = self._owner()
        self._guard("graphed")
        for each in recipe.held:
            self._install(each)
        if not traced.results:
            return  # the graph goes on with what was traced; it may draw random numbers
        try:
            body = traced.body(self._output.nn_modules)
        except KeyError as missing:
            self.refuse(f"it uses {missing}")
        operands = recipe.operands(traced.inputs)
        try:
            with self._output.fake_mode:
                call = EnclosedCall.of(
                    self._value("graphed"), owner, operands, traced, body, results, mark.modes
                )
                function = function_of(call)
                try_on_fakes(call, [fake_of(each) for each in traced.inputs])
        except Exception as error:  # whatever an operation may raise on fake tensors
            self.refuse(f"PyTorch does not find out what it returns ({type(error).__name__}: {error})")
        traced.replace(function)

    def _check_effects(self, mark: _Mark, given: Sequence[Any], after: Sequence[Any]) -> None:
        pending = [*self._pending()]
        if pending:
            self.refuse(f"it changes {pending[0]}")
        same = len(given) == len(after) and all(
            one is other
            or (_node_of(one) is not None and _node_of(one) is _node_of(other))
            or _equal(one, other)
            for one, other in zip(given, after, strict=True)
        )
        structures = [self._constant(name) for name in ("structure", "structure_after")]
        if not same or structures[0] != structures[1]:
            self.refuse("it changes an argument")
        if len(self._output.random_calls) != mark.randoms:
            self.refuse("it draws random numbers of Python's")
        if len(self._output.side_effects.tensor_hooks) != mark.hooks:
            self.refuse("it puts a hook on a tensor")
        if mark.modes != ModesAtCall.now():
            self.refuse("it changes a mode")

    def _check_tensors(self, mark: _Mark, traced: Traced, results: Sequence[Node]) -> None:
        """That nothing outside is written, and that results lie in memory of their own."""
        for node in traced.inputs[: traced.tensors]:
            if _version(node) != mark.versions.get(node, 0):
                self.refuse("it writes a tensor that it has not made")
        for node in traced.inputs[traced.tensors :]:
            if not isinstance(fake_of(node), torch.SymInt | int):
                self.refuse(f"it uses a {type(fake_of(node)).__name__} of the graph")
        symbols: Any = sys.modules["torch.fx.experimental.symbolic_shapes"]
        if any(symbols.free_unbacked_symbols(fake_of(node)) for node in traced.nodes if _has_sizes(node)):
            self.refuse("it reads the values of a tensor")
        lying = {_memory(node) for node in traced.inputs[: traced.tensors]}
        for node in traced.results:
            if node.op not in ("call_function", "call_method", "call_module"):
                self.refuse("a result is a constant of the graph")
            memory = _memory(node)
            if memory in lying:
                self.refuse("a result shares memory with an argument, a parameter or another result")
            lying.add(memory)
        kept, inside = set(traced.results), set(traced.nodes)
        for node in self._reachable("result"):
            if node in inside and node not in kept:
                self.refuse("the result holds a tensor or a size where it is not found")

    def _traced(self, mark: _Mark) -> list[Node]:
        nodes = [*self._output.graph.nodes]
        if mark.last is not None:
            nodes = nodes[nodes.index(mark.last) + 1 :]
        return [node for node in nodes if node.op != "placeholder"]

    # ------------------------------------------------------------------ Dynamo's variables

    def _variable(self, name: str) -> Any:
        found = self._context.get_local(name)._i_will_not_complain_if_bc_breaks_VariableTracker()
        return found.realize() if hasattr(found, "realize") else found

    def _value(self, name: str) -> Any:
        return getattr(self._variable(name), "value", None)

    def _constant(self, name: str) -> Any:
        try:
            return self._variable(name).as_python_constant()
        except Exception as error:  # Dynamo has many ways to say that it is none
            self.refuse(f"the structure of its arguments is not known ({type(error).__name__})")

    def _leaves(self, name: str) -> list[Any]:
        return [each.realize() for each in self._variable(name).items]

    def _node(self, variable: Any, what: str) -> Node:
        node = _node_of(variable)
        if node is None or type(variable).__name__ != "TensorVariable":
            self.refuse(f"{what} is a {type(variable).__name__}, which the graph does not hold")
        return node

    def _recipe(self, given: Sequence[Any]) -> _Recipe:
        """How arguments are put together when compiled code runs."""
        leaves: list[Node | _Constant] = []
        held: list[Any] = []
        for each in given:
            node = _node_of(each)
            if node is not None:
                kind = type(each).__name__
                if kind not in ("TensorVariable", "SymNodeVariable"):
                    self.refuse(f"an argument is a {kind}, which the graph does not hold")
                leaves.append(node)
                continue
            value = _value_of(each)
            if isinstance(value, _PLAIN):
                leaves.append(_Constant(value))
            elif isinstance(value, _KNOWN_BY_IDENTITY) and each.source is not None:
                held.append(each)
                leaves.append(_Constant(weakref.ref(value)))
            else:
                self.refuse(f"an argument is a {type(value).__name__}, which the graph does not hold")
        return _Recipe(leaves, held, self._constant("structure"))

    def _owner(self) -> Any:
        """The instance of a graphed method; None for other callables."""
        variable = self._variable("owner")
        if variable.is_python_constant() and variable.as_python_constant() is None:
            return None
        self._guard("owner")
        return variable.value

    def _guard(self, name: str) -> None:
        variable = self._variable(name)
        if variable.source is None:
            self.refuse("it is made in the compiled function")
        self._install(variable)

    def _install(self, variable: Any) -> None:
        guards: Any = sys.modules["torch._dynamo.guards"]
        guards.install_guard(variable.source.make_guard(guards.GuardBuilder.ID_MATCH))

    def _reachable(self, name: str) -> set[Node]:
        """The nodes of all that lies in a variable, however deep."""
        found = set[Node]()
        effects, waiting = self._output.side_effects, [self._variable(name)]
        seen = dict[int, Any]()

        def visit(variable: Any) -> None:
            node = _node_of(variable)
            if node is not None:
                found.add(node)
            waiting.extend(effects.store_attr_mutations.get(variable, {}).values())

        while waiting:
            variable = waiting.pop()
            type(variable).visit(visit, variable, seen)
        return found


@dataclass(frozen=True)
class _Constant:
    value: Any


@dataclass(frozen=True)
class _Recipe:
    """How arguments are put together.

    Attributes:
        leaves: Nodes of the graph, and values.
        held: Dynamo's variables of objects that have to be the same ones.
        structure: How the leaves lie in positional and keyword arguments.
    """

    leaves: Sequence[Node | _Constant]
    held: Sequence[Any]
    structure: Any

    @property
    def nodes(self) -> list[Node]:
        """The leaves that are nodes."""
        return [each for each in self.leaves if isinstance(each, Node)]

    def operands(self, inputs: Sequence[Node]) -> Operands:
        """The same, in terms of the inputs of the call."""
        places = {node: number for number, node in enumerate(inputs)}
        values = [each.value if isinstance(each, _Constant) else None for each in self.leaves]
        numbers = {n: places[each] for n, each in enumerate(self.leaves) if isinstance(each, Node)}
        return Operands(values, numbers, self.structure)


def _node_of(variable: Any) -> Node | None:
    proxy = getattr(variable, "proxy", None)
    node = getattr(proxy, "node", None)
    return node if isinstance(node, Node) else None


def _value_of(variable: Any) -> Any:
    if variable.is_python_constant():
        return variable.as_python_constant()
    return getattr(variable, "value", variable)


def _equal(one: Any, other: Any) -> bool:
    values = _value_of(one), _value_of(other)
    return values[0] is values[1] or (isinstance(values[0], _PLAIN) and values[0] == values[1])


def _has_sizes(node: Node) -> bool:
    return isinstance(fake_of(node), torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool)


def _version(node: Node) -> int:
    fake = fake_of(node)
    return fake._version if isinstance(fake, torch.Tensor) and not fake.is_inference() else 0


def _memory(node: Node) -> Any:
    fake: Any = fake_of(node)
    return fake.untyped_storage()._cdata


def _name_of(source: Any) -> str:
    """Dynamo's name for what it reads; the cells of functions have none."""
    try:
        name = source.name if source is not None else "a variable"
        return str(name() if callable(name) else name)  # a method in older versions
    except NotImplementedError:
        return "a variable"
