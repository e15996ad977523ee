"""One operation of a call, as data."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

from ...numbers import Computed
from ...operators import Facts, facts_of, overload_named, without_dropout, written_values
from ..storages import Token
from .host_data import HostBytes, HostValues
from .operands import Drawn, Number, Operand, number_of, numbers_in, rebuilt, tokens_in
from .results import Structure

CAPTURED, VIEWED, ISLAND, EARLY, READ, SHAPED, ANYWHERE, CONST, HOST, LIST = (
    "captured", "view", "island", "early", "read", "shaped", "anywhere", "constant", "host data", "list",
)  # fmt: skip
_OF_THE_HOST = frozenset({CONST, HOST, LIST})

_tuple = tuple.__new__  # half the time of a named tuple's own constructor, at every operation


class _At(int):
    """The position of a tensor operand, where the tensor would stand."""


class Operation(NamedTuple):
    """One operation of a call.

    Before it has run it has no results; see :meth:`ended`.

    Attributes:
        kind: Where it ran, one of the names above: in a segment (``CAPTURED``, ``VIEWED`` if it only looks
            at memory of its operands), between two or before one (``ISLAND``, ``EARLY``), at the end of a
            stretch (``READ``, ``SHAPED``, ``LIST``), or whenever Python runs (``ANYWHERE``). Host data become
            tensors of fixed content (``CONST``), or are read again at each replay (``HOST``).
        name: The qualified name of its overload; the name of the function that makes host data a tensor, or
            a tensor host data.
        results: In order: a token, a reference to a tensor operand, a value that is no tensor, or None.
    """

    kind: str
    name: str
    operands: tuple[Operand, ...]
    named: tuple[tuple[str, Operand], ...]
    results: tuple[Any, ...]
    structure: Structure
    site: Any

    @staticmethod
    def called(
        kind: str,
        name: str,
        operands: tuple[Operand, ...],
        named: tuple[tuple[str, Operand], ...],
        site: Any,
    ) -> Operation:
        """An operation that is about to run."""
        return _tuple(Operation, (kind, name, operands, named, (), "none", site))

    def ended(self, structure: Structure, results: tuple[Any, ...], kind: str | None = None) -> Operation:
        """The same operation once it has run; ``kind`` is where it ran, if that is known only now."""
        was, name, operands, named, _, _, site = self
        return _tuple(Operation, (kind or was, name, operands, named, results, structure, site))

    # ------------------------------------------------------------------ compared with another call's

    def is_called_as(self, other: Operation) -> bool:
        """Whether another operation is the same one on the same operands."""
        return self.name == other.name and self.operands == other.operands and self.named == other.named

    def agrees(self, other: Operation) -> bool:
        """Whether it has the same results, too."""
        return (
            self.name == other.name
            and self.operands == other.operands
            and self.results == other.results
            and self.named == other.named
        )

    # ------------------------------------------------------------------ what it takes

    @property
    def every_operand(self) -> tuple[Operand, ...]:
        """All operands, those with names behind the others."""
        return (*self.operands, *[operand for _, operand in self.named]) if self.named else self.operands

    @property
    def computes(self) -> bool:
        """Whether replays compute some of its numbers."""
        return any([_is_computed(each) for each in self.every_operand])

    def resolved(self) -> Operation:
        """The same operation, with the numbers that it computes in the present call."""
        if not self.computes:
            return self
        return self._replace(
            operands=tuple([_resolved(each) for each in self.operands]),
            named=tuple([(name, _resolved(each)) for name, each in self.named]),
        )

    @property
    def tokens(self) -> list[Token]:
        """The tensor operands in order, lists opened."""
        return tokens_in(self.every_operand)

    @property
    def numbers(self) -> list[Number]:
        """The numbers in order, lists opened; a number's place among them is its index."""
        return numbers_in(self.every_operand)

    @property
    def generator(self) -> Drawn | None:
        """The generator that it was given, if it was given one."""
        return next((each for each in self.every_operand if isinstance(each, Drawn)), None)

    def arguments(self, leaf: Callable[[Operand], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The operands as the overload takes them; ``leaf`` makes each that is no list, in order."""
        positional = tuple([rebuilt(operand, leaf) for operand in self.operands])
        return positional, {name: rebuilt(operand, leaf) for name, operand in self.named}

    # ------------------------------------------------------------------ what its schema and the table say

    @property
    def is_of_aten(self) -> bool:
        """Whether it is an overload, and no function that turns host data into tensors or back."""
        return self.kind not in _OF_THE_HOST

    @property
    def overload(self) -> Any:
        """The overload itself."""
        return overload_named(self.name)

    @property
    def facts(self) -> Facts:
        """What is known of the overload."""
        return facts_of(self.overload)

    @property
    def written(self) -> tuple[int, ...]:
        """Which of the tensor operands it writes."""
        if not self.is_of_aten or not self.facts.written:
            return ()
        numbered = count()
        args, kwargs = self.arguments(
            lambda each: _At(next(numbered)) if type(each) is Token else _plain(each)
        )
        return tuple([int(each) for each in written_values(self.facts, args, kwargs) if type(each) is _At])

    @property
    def draws(self) -> bool:
        """Whether it may draw random numbers, from :attr:`generator` or the default one."""
        if not self.is_of_aten or not self.facts.seeded:
            return False
        return not without_dropout(self.facts, *self.arguments(_plain))


def _is_computed(operand: Operand) -> bool:
    kind = type(operand)
    if kind is HostValues:
        return _is_computed(operand.values)
    if kind is HostBytes:
        return _is_computed(operand.content)
    return kind is Computed or (kind is tuple and any([_is_computed(each) for each in operand]))


def _resolved(operand: Operand) -> Operand:
    kind = type(operand)
    if kind is HostValues:
        return operand._replace(values=_resolved(operand.values))
    if kind is HostBytes:
        known = type(operand.content) is Computed
        return operand._replace(content=operand.content.value.tobytes()) if known else operand
    if kind is tuple:
        return tuple([_resolved(each) for each in operand])
    return number_of(operand.value) if kind is Computed else operand


def _plain(operand: Operand) -> Any:
    return operand.value if type(operand) in (Number, Computed) else operand
