"""A program: all that the calls of a recording did, as data.

It is a tree of stretches. A stretch is a row of operations. It ends with the result, or where the host reads
a value or a shape that leads to the next stretch. Inputs, storages and numbers are read off one *way* through
the tree: the edges that were read, from the start.

Tensors are known by their tokens. What a token does not show is no part of a program: the history of a
tensor, and whether it is lazily conjugated or negated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..arguments import Spec
from .operations import Drawn, Number, Operation, Reference
from .storages import EXTERNAL, INPUT, Origin, Token
from .template import Template

Edge = Any
"""A value or shapes that the host has read, as keys of the tree."""


@dataclass(frozen=True)
class ResultLeaf:
    """One leaf of a result.

    Attributes:
        kind: Where it comes from, as in a template.
        token: The tensor; any other leaf is compared by it.
        index: Argument leaf, earlier leaf of the result, or branch of the arguments, depending on the kind.
        tracked: Backward may be called on it.
    """

    kind: str
    token: Any
    index: int = -1
    tracked: bool = False
    value: Any = field(default=None, compare=False)


@dataclass(frozen=True)
class Ending:
    """What comes out of a call.

    Attributes:
        again: Containers in it that are the same as an earlier one.
        gradients: The gradient slots that change, by name: the tensor put there, or ``"cleared"``.
    """

    spec: Spec
    leaves: tuple[ResultLeaf, ...]
    again: tuple[tuple[int, int], ...] = ()
    gradients: tuple[tuple[str, Token | str], ...] = ()

    @classmethod
    def of(cls, template: Template, gradients: Sequence[tuple[str, Token | str]]) -> Ending:
        """What a template says, without memory of a recording."""
        leaves = [
            ResultLeaf(leaf.kind, leaf.token, leaf.index, leaf.tracked, leaf.value)
            for leaf in template.bare().leaves
            if not leaf.hidden  # they are behind the others
        ]
        return cls(template.spec, tuple(leaves), template.again, tuple(gradients))

    @property
    def tokens(self) -> list[Token]:
        """The tensors in the result and in the gradient slots, in order."""
        found = [*[leaf.token for leaf in self.leaves], *[token for _, token in self.gradients]]
        return [token for token in found if isinstance(token, Token)]


class Way(NamedTuple):
    """How a call goes on behind a read: the edge that was read, and the stretch that follows."""

    edge: Edge
    stretch: Stretch


@dataclass(frozen=True)
class Stretch:
    """A part of a call without a read of the host.

    Attributes:
        operations: Its operations; the last one is the read, if the stretch ends in one.
        arrived: Tensors that the read before it gave, on an edge of shapes.
        ways: How it goes on, by what was read.
        ending: What comes out, if the call ends with it.
    """

    operations: tuple[Operation, ...]
    arrived: tuple[Token, ...] = ()
    ways: tuple[Way, ...] = ()
    ending: Ending | None = None

    def behind(self, edge: Edge) -> Stretch:
        """The stretch that a value leads to.

        Raises:
            LookupError: None is known.
        """
        for way in self.ways:
            if way.edge == edge:
                return way.stretch
        raise LookupError(f"no call went on with {edge!r} here")


class NumberPlace(NamedTuple):
    """Where a number of Python's is an operand on one way.

    Attributes:
        operation: Index of the operation.
        position: Position among the operation's numbers.
    """

    operation: int
    position: int
    number: Number


@dataclass(frozen=True)
class Program:
    """What the calls of a recording did.

    Attributes:
        start: The stretch that every call begins with.
    """

    start: Stretch

    def ways(self) -> list[tuple[Edge, ...]]:
        """All ways from the start to an end that is known."""
        return list(_ways(self.start))

    def stretches(self, way: Sequence[Edge] = ()) -> list[Stretch]:
        """The stretches on a way.

        Raises:
            LookupError: There is no such way.
        """
        found = [self.start]
        for edge in way:
            found.append(found[-1].behind(edge))
        return found

    def operations(self, way: Sequence[Edge] = ()) -> list[Operation]:
        """The operations on a way, in order."""
        return [operation for stretch in self.stretches(way) for operation in stretch.operations]

    def ending(self, way: Sequence[Edge] = ()) -> Ending | None:
        """What comes out at the end of a way; None if no call has reached it."""
        return self.stretches(way)[-1].ending

    def taken(self, way: Sequence[Edge] = ()) -> list[Token]:
        """Tensors of arguments and from outside, in the order in which operations meet them.

        Each way to look at their memory is one tensor.
        """
        known, found = set[Token](), dict[Token, None]()
        for stretch in self.stretches(way):
            known.update(stretch.arrived)
            for operation in stretch.operations:
                found.update(dict.fromkeys([each for each in operation.tokens if each not in known]))
                for result in operation.results:
                    token = result.token if isinstance(result, Reference) else result
                    if isinstance(token, Token):
                        known.add(token)
                        _take_memory(token, operation, found)
            if stretch.ending is not None:
                found.update(dict.fromkeys([each for each in stretch.ending.tokens if each not in known]))
        return list(found)

    def inputs(self, way: Sequence[Edge] = ()) -> list[Token]:
        """The tensors of :meth:`taken` that lie in arguments."""
        return [token for token in self.taken(way) if token.origin[0] == INPUT]

    def externals(self, way: Sequence[Edge] = ()) -> list[Token]:
        """The tensors of :meth:`taken` that were made outside."""
        return [token for token in self.taken(way) if token.origin[0] == EXTERNAL]

    def storages(self, way: Sequence[Edge] = ()) -> dict[Origin, list[Token]]:
        """All tensors on a way by their storage, in the order in which operations meet them.

        Arguments that share memory have one storage, but are told apart by which argument they look at.
        """
        found: dict[Origin, dict[Token, None]] = {}
        for stretch in self.stretches(way):
            tokens = list(stretch.arrived)
            for operation in stretch.operations:
                results = [each.token if isinstance(each, Reference) else each for each in operation.results]
                tokens += operation.tokens + [each for each in results if isinstance(each, Token)]
            for token in tokens + (stretch.ending.tokens if stretch.ending is not None else []):
                found.setdefault(token.origin, {})[token] = None
        return {origin: list(tokens) for origin, tokens in found.items()}

    def written(self, way: Sequence[Edge] = ()) -> list[Origin]:
        """The storages that operations on a way write."""
        found: dict[Origin, None] = {}
        for operation in self.operations(way):
            tokens = operation.tokens
            found.update(dict.fromkeys([tokens[position].origin for position in operation.written]))
        return list(found)

    def generators(self, way: Sequence[Edge] = ()) -> list[Drawn]:
        """The generators that operations on a way were given, each once."""
        return list(dict.fromkeys([each.generator for each in self.operations(way) if each.generator]))

    def numbers(self, way: Sequence[Edge] = ()) -> list[NumberPlace]:
        """The numbers of Python's that are operands on a way."""
        return [
            NumberPlace(index, position, number)
            for index, operation in enumerate(self.operations(way))
            for position, number in enumerate(operation.numbers)
        ]


def _take_memory(token: Token, operation: Operation, found: dict[Token, None]) -> None:
    """Note memory of an array from outside that a function of the host gives: it was there before."""
    if not operation.is_of_aten and token.origin[0] == EXTERNAL:
        found[token] = None


def _ways(stretch: Stretch) -> Iterator[tuple[Edge, ...]]:
    left: list[tuple[Stretch, tuple[Edge, ...]]] = [(stretch, ())]
    while left:
        each, way = left.pop()
        if each.ending is not None or not each.ways:
            yield way
        left.extend([(further.stretch, (*way, further.edge)) for further in reversed(each.ways)])
