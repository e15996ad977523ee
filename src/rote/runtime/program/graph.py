"""A way through a program as an FX graph of ATen calls.

The graph is the way as it ran: operations in place stay in place, views stay views, and nothing is left out.
Tensors that the operations did not make are placeholders, one for each way to look at memory. Who runs the
graph gives tensors that share memory as the program's storages say. What a graph cannot tell (the storage of
a result, where an operation ran, the user's line) stands in ``node.meta["rote"]``. :mod:`.of_graph` reads it.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy
import torch
from torch.fx import Graph, GraphModule, Node

from .edges import Raised, value_of
from .operations import (
    ANYWHERE,
    CONST,
    HOST,
    LIST,
    SHAPED,
    Drawn,
    HostBytes,
    HostValues,
    Number,
    NumpyScalar,
    Opaque,
    Operand,
    Operation,
    Reference,
    Structure,
    operand_of,
)
from .program import Edge, NumberPlace, Program, Stretch
from .storages import EXTERNAL, NEW, Origin, Token
from .template import AGAIN, PASSED, VALUE

META = "rote"
"""The key of the facts beside a node."""

TENSOR, ARGUMENT, GENERATOR, ARRAY, NUMBER = "tensor", "argument", "generator", "array", "number"

_aten = torch.ops.aten
_LAZY = frozenset({"aten::_conj", "aten::_neg_view"})
"""Views with the token of their operand."""
_CONSTANTS = (int, float, bool, complex, str, type(None), torch.dtype, torch.device)


class GivenNode(NamedTuple):
    """Beside a placeholder: what it stands for.

    Attributes:
        sort: A ``TENSOR`` that operations take, an ``ARGUMENT`` that is handed through to the result, a
            ``GENERATOR``, a tensor over an ``ARRAY`` of the host, or a ``NUMBER``.
        what: The token, the argument leaf, the generator, the index of the operation that copies the array,
            or the place of the number.
    """

    sort: str
    what: Any


class RanNode(NamedTuple):
    """Beside an operation: what its call does not tell.

    Attributes:
        operation: The operation; its operands are those of the node, unless it is one of the host.
        before: Operations without tensors of the call that came before it.
        edge: A tuple with the value read, if the operation ends a stretch; otherwise empty.
        arrived: The tensors with which the next stretch begins.
    """

    operation: Operation
    before: tuple[Operation, ...] = ()
    edge: tuple[Edge, ...] = ()
    arrived: tuple[Token, ...] = ()


class PartNode(NamedTuple):
    """Beside a node that is no operation: the token of a part of a result, or of a new look at memory."""

    token: Token


class EndNode(NamedTuple):
    """Beside the output.

    Attributes:
        ending: What comes out of the call; None if no call has reached the end of the way.
        before: Operations without tensors of the call that came last.
    """

    ending: Any
    before: tuple[Operation, ...]


def expect(read: Any, expected: Any) -> None:
    """Check what the host reads, to the bit.

    Raises:
        ValueError: It is not the value that the graph is for.
    """
    if operand_of(read, _no_tensor) != operand_of(expected, _no_tensor):
        raise ValueError(f"the host read {read!r}, and the graph is for {expected!r}")


def expect_sizes(tensor: torch.Tensor, expected: Sequence[int]) -> None:
    """Check a shape that depends on values.

    Raises:
        ValueError: It is not the shape that the graph is for.
    """
    if tuple(tensor.shape) != tuple(expected):
        raise ValueError(f"a result has shape {tuple(tensor.shape)}, and the graph is for {tuple(expected)}")


def as_list(tensor: torch.Tensor, name: str) -> Any:
    """What the host reads of a tensor's elements: its list, or its text, which no graph needs."""
    return tensor.tolist() if name == "tolist" else None


def to_fx(
    program: Program, way: Sequence[Edge] = (), *, lifted: Collection[NumberPlace] = (), asserted: bool = True
) -> GraphModule:
    """Write a way through a program as a graph.

    The graph returns a pair: the leaves of the result in order, with ``None`` for leaves that are neither
    tensors of the call nor plain values, and the tensors that are left in gradient slots.

    Args:
        way: What the host has read, from the start.
        lifted: Numbers that become placeholders with themselves as defaults; see :meth:`.Program.numbers`.
        asserted: Check that the host reads what it has read on this way.

    Raises:
        LookupError: There is no such way, or no library that is loaded has an operator.
        ValueError: An operand cannot stand in a graph.
    """
    return _GraphWriter(program, way, lifted, asserted).write()


class _GraphWriter:
    """Writes one graph; see :func:`to_fx`."""

    def __init__(
        self, program: Program, way: Sequence[Edge], lifted: Collection[NumberPlace], asserted: bool
    ) -> None:
        self._program, self._way, self._asserted = program, list(way), asserted
        self._graph = Graph()
        self._constants: dict[str, torch.Tensor] = {}
        self._tensors: dict[Token, Node] = {}
        self._newest: dict[tuple[Origin, torch.dtype], Node] = {}
        self._generators: dict[Drawn, Node] = {}
        self._arguments: dict[int, Node] = {}
        self._arrays: dict[int, Node] = {}
        self._lifted: dict[tuple[int, int], Node] = {}
        self._named: Counter[str] = Counter()
        self._index = 0
        self._aside: list[Operation] = []
        self._place(lifted)

    def write(self) -> GraphModule:
        """The graph, as a module that runs it."""
        stretches = self._program.stretches(self._way)
        for number, stretch in enumerate(stretches):
            end = number == len(stretches) - 1
            last = len(stretch.operations) if end else len(stretch.operations) - 1
            for operation in stretch.operations[:last]:
                self._write(operation)
            if not end:
                self._read(stretch.operations[-1], self._way[number], stretches[number + 1])
        self._end(stretches[-1])
        self._graph.lint()
        return GraphModule(self._constants, self._graph)

    # ------------------------------------------------------------------ placeholders

    def _place(self, lifted: Collection[NumberPlace]) -> None:
        program, way = self._program, self._way
        for token in program.taken(way):
            if token.origin[0] != NEW:
                kind, number = token.origin
                self._know(token, self._placeholder(f"{kind}_{number}", GivenNode(TENSOR, token)))
        ending = program.ending(way)
        for leaf in ending.leaves if ending is not None else ():
            if leaf.kind == PASSED and isinstance(leaf.token, int) and leaf.index not in self._arguments:
                given = GivenNode(ARGUMENT, leaf.index)
                self._arguments[leaf.index] = self._placeholder(f"argument_{leaf.index}", given)
        for drawn in program.generators(way):
            self._generators[drawn] = self._placeholder("generator", GivenNode(GENERATOR, drawn))
        for index, operation in enumerate(program.operations(way)):
            if operation.kind == HOST and operation.results[0].origin[0] != EXTERNAL:
                self._arrays[index] = self._placeholder("array", GivenNode(ARRAY, index))
        for place in lifted:
            name, value = f"number_{place.operation}_{place.position}", place.number.value
            node = self._placeholder(name, GivenNode(NUMBER, place), value)
            self._lifted[place.operation, place.position] = node

    def _placeholder(self, name: str, given: GivenNode, *default: Any) -> Node:
        self._named[name] += 1
        count = self._named[name]
        node = self._graph.placeholder(name if count == 1 else f"{name}_again_{count}", None, *default)
        node.meta[META] = given
        return node

    # ------------------------------------------------------------------ operations

    def _write(self, operation: Operation) -> None:
        if operation.name in _LAZY:
            text = f"{operation.name} at {operation.site} gives a tensor that is not told from its operand"
            raise ValueError(text)
        if operation.kind == ANYWHERE:
            self._aside.append(operation)
        else:
            node = self._called(operation, RanNode(operation, tuple(self._aside)))
            self._aside.clear()
            self._note_results(operation, node)
        self._index += 1

    def _read(self, operation: Operation, edge: Edge, following: Stretch) -> None:
        """Write an operation that ends a stretch, and the checks of its value."""
        node = self._called(operation, RanNode(operation, tuple(self._aside), (edge,), following.arrived))
        self._aside.clear()
        self._index += 1
        value = value_of(edge)
        if operation.kind == SHAPED:
            tensors = iter(following.arrived)
            parts = [next(tensors) if isinstance(part, tuple) else None for part in edge[1]]
            nodes = self._spread(node, edge[2], parts)
            for part, found in zip(parts, nodes, strict=True):
                if part is not None and found is not None:
                    self._know(part, found)
                    self._check(expect_sizes, found, list(part.shape))
        elif not (isinstance(value, Raised) or value is None or operation.name == "repr"):
            self._check(expect, node, value.thaw() if hasattr(value, "thaw") else value)

    def _check(self, check: Any, node: Node, expected: Any) -> None:
        if self._asserted:
            self._graph.call_function(check, (node, expected))

    def _called(self, operation: Operation, ran: RanNode) -> Node:
        if operation.kind == CONST:
            node = self._constant(operation)
        elif operation.kind == HOST:
            taken = self._arrays.get(self._index)
            array = self._tensors[operation.results[0]] if taken is None else taken
            copied = _aten.alias.default if taken is None else _aten.clone.default
            node = self._graph.call_function(copied, (array,))
        elif operation.kind == LIST:
            node = self._graph.call_function(as_list, (self._tensor(operation.operands[0]), operation.name))
        else:
            args, kwargs = self._arguments_of(operation)
            node = self._graph.call_function(operation.overload, args, kwargs)
        node.meta[META] = ran
        site = operation.site
        node.meta["stack_trace"] = f'  File "{site.file}", line {site.line}, in {site.function}'
        return node

    def _arguments_of(self, operation: Operation) -> tuple[tuple[Any, ...], dict[str, Any]]:
        position = -1

        def leaf(operand: Operand) -> Any:
            nonlocal position
            if type(operand) is Token:
                return self._tensor(operand)
            if type(operand) is Number:
                position += 1
                return self._lifted.get((self._index, position), operand.value)
            if isinstance(operand, Drawn):
                return self._generators[operand]
            if isinstance(operand, Opaque):
                text = f"{operation.name} at {operation.site} was given {operand!r}, which no graph can hold"
                raise ValueError(text)
            return operand

        return operation.arguments(leaf)

    def _constant(self, operation: Operation) -> Node:
        name, token = f"constant_{len(self._constants)}", operation.results[0]
        self._constants[name] = _tensor_of(operation, token)
        return self._graph.call_function(_aten.clone.default, (self._graph.get_attr(name),))

    # ------------------------------------------------------------------ results

    def _note_results(self, operation: Operation, node: Node) -> None:
        tokens = operation.tokens
        parts: list[Token | None] = []
        for result in operation.results:
            if isinstance(result, Reference):
                parts.append(result.token or tokens[result.operand])
            else:
                parts.append(result if isinstance(result, Token) else None)
        for part, found in zip(parts, self._spread(node, operation.structure, parts), strict=True):
            if part is not None and found is not None:
                self._know(part, found)

    def _spread(self, node: Node, structure: Structure, parts: list[Token | None]) -> list[Node | None]:
        """A node for each tensor among the results."""
        if structure == "one":
            return [node]
        nested = isinstance(structure, tuple)
        lengths = structure[1] if isinstance(structure, tuple) else (None,) * len(parts)
        found: list[Node | None] = []
        for position, length in enumerate(lengths):
            for inner in range(1 if length is None else length):
                token = parts[len(found)]
                if token is None:
                    found.append(None)
                    continue
                item = self._graph.call_function(operator.getitem, (node, position))
                if nested and length is not None:
                    item = self._graph.call_function(operator.getitem, (item, inner))
                item.meta[META] = PartNode(token)
                found.append(item)
        return found

    def _know(self, token: Token, node: Node) -> None:
        self._tensors[token] = self._newest[token.origin, token.dtype] = node

    def _tensor(self, token: Token) -> Node:
        found = self._tensors.get(token)
        if found is None:  # no operation shows how another tensor on its memory became this one
            other = self._newest.get((token.origin, token.dtype))
            if other is None:
                raise ValueError(f"nothing on this way makes {token.origin[0]} {token.origin[1]}")
            look = (list(token.shape), list(token.stride), token.offset)
            found = self._graph.call_function(_aten.as_strided.default, (other, *look))
            found.meta[META] = PartNode(token)
            self._know(token, found)
        return found

    def _end(self, last: Stretch) -> None:
        leaves: list[Any] = []
        gradients: list[Any] = []
        if last.ending is not None:
            for leaf in last.ending.leaves:
                if isinstance(leaf.token, Token):
                    leaves.append(self._tensor(leaf.token))
                elif leaf.kind == PASSED:
                    leaves.append(self._arguments.get(leaf.index))
                elif leaf.kind == AGAIN:
                    leaves.append(leaves[leaf.index])
                else:
                    plain = leaf.kind == VALUE and type(leaf.value) in _CONSTANTS
                    leaves.append(leaf.value if plain else None)
            tokens = [token for _, token in last.ending.gradients]
            gradients = [self._tensor(token) if isinstance(token, Token) else None for token in tokens]
        node = self._graph.output((tuple(leaves), tuple(gradients)))
        node.meta[META] = EndNode(last.ending, tuple(self._aside))


def _tensor_of(operation: Operation, token: Token) -> torch.Tensor:
    """What host data become."""
    data = operation.operands[0]
    if isinstance(data, HostValues):
        made = torch.tensor(_python(data.values, operation), dtype=data.dtype, device=data.device)
    elif isinstance(data, HostBytes) and isinstance(data.content, bytes):
        made = _content(data, data.content).to(data.device or "cpu", data.dtype)
    else:
        raise ValueError(f"{operation.name} at {operation.site} was given {data!r}, which no graph can hold")
    kept = torch.empty_strided(token.shape, token.stride, dtype=token.dtype, device=made.device)
    return kept.copy_(made)


def _content(data: HostBytes, content: bytes) -> torch.Tensor:
    if isinstance(data.source, str):
        array = numpy.frombuffer(bytearray(content), data.source)
        return torch.from_numpy(array).view(data.shape)
    if not content:
        return torch.empty(data.shape, dtype=data.source)
    return torch.frombuffer(bytearray(content), dtype=data.source).view(data.shape)


def _python(values: Operand, operation: Operation) -> Any:
    if type(values) is tuple:
        return [_python(each, operation) for each in values]
    if isinstance(values, Number):
        return values.value
    if isinstance(values, NumpyScalar):
        return numpy.frombuffer(values.content, values.dtype)[0]
    raise ValueError(f"{operation.name} at {operation.site} was given {values!r}, which no graph can hold")


def _no_tensor(tensor: torch.Tensor) -> Token:
    raise ValueError(f"the host read a {type(tensor).__name__}")
