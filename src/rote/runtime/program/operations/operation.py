"""One operation of a call, as data.

Calls that differ in whole numbers and in sizes of tensors do the same at other lengths, or do something else.
They do the same if their operations differ in nothing else either: each is the same one, at the same line, in
the same place, and takes and gives what lies in the same memory of the call.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple, cast

from ....base import cut
from ...numbers import Computed
from ...operators import Facts, facts_of, overload_named, without_dropout, written_values
from ..storages import Token
from .operands import Drawn, HostBytes, HostValues, Number, Operand, number_of, numbers_in, rebuilt, tokens_in
from .results import Reference, Structure, Value

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
        kind: str, name: str, operands: tuple[Operand, ...], named: tuple[tuple[str, Operand], ...], site: Any
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
        """The same operation, with the numbers that it computes in the present call.

        PyTorch does not tell of operands that are what the schema gives in their place.
        """
        if not self.computes:
            return self
        operands = [_resolved(each) for each in self.operands]
        named = [(name, _resolved(each)) for name, each in self.named]
        if self.is_of_aten:
            given = self.overload._schema.arguments
            while operands and _is_default(operands[-1], given[len(operands) - 1]):
                operands.pop()
            by_name = {each.name: each for each in given}
            named = [(name, each) for name, each in named if not _is_default(each, by_name[name])]
        return self._replace(operands=tuple(operands), named=tuple(named))

    def seen(self, change: Callable[[Token], Token]) -> Operation:
        """The same operation, with its tensors told in another way."""
        return self._replace(
            operands=tuple([_seen(each, change) for each in self.operands]),
            named=tuple([(name, _seen(each, change)) for name, each in self.named]),
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
        """The overload itself.

        Raises:
            LookupError: It is none, or no library that is loaded has it.
        """
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


def _is_default(operand: Operand, argument: Any) -> bool:
    """Whether an operand is what the schema gives in its place."""
    if not argument.has_default_value():
        return False
    value: Any = argument.default_value
    known = type(operand) is Number and type(value) in (int, float)
    return operand == number_of(value) if known else operand is value


def _seen(operand: Operand, change: Callable[[Token], Token]) -> Operand:
    if type(operand) is tuple:
        return tuple([_seen(each, change) for each in operand])
    return change(operand) if type(operand) is Token else operand


def _plain(operand: Operand) -> Any:
    return operand.value if type(operand) in (Number, Computed) else operand


WIDEST = 80
"""Characters of an operand that are shown."""


def first_difference(was: Operation, now: Operation) -> str | None:
    """Say in which operand two calls of one operation differ, or None if the operation itself differs."""
    if was.name != now.name:
        return None
    pair = _descend((*was.operands, *was.named), (*now.operands, *now.named))
    if pair is None:
        return _other_value(was, now)
    return f"an operand of {now.name} was {_text(pair[0])} and is {_text(pair[1])}"


def _other_value(was: Operation, now: Operation) -> str | None:
    for before, after in zip(was.results, now.results, strict=False):
        if isinstance(before, Value) and isinstance(after, Value) and before != after:
            return f"{now.name} gave {before.value!r} and gives {after.value!r}"
    return None


def _descend(was: Any, now: Any) -> tuple[Any, Any] | None:
    if was == now:
        return None
    whole = isinstance(was, (Token, Number)) or isinstance(now, (Token, Number))
    if not whole and isinstance(was, tuple) and isinstance(now, tuple) and len(was) == len(now):
        for before, after in zip(was, now, strict=True):
            pair = _descend(before, after)
            if pair is not None:
                return pair
    return was, now


def _text(value: Any) -> str:
    if isinstance(value, Token):
        dtype = str(value.dtype).removeprefix("torch.")
        return f"a {dtype}{list(value.shape)} tensor ({value.origin[0]} {value.origin[1]})"
    return cut(repr(value), WIDEST)


def is_like(was: Operation, now: Operation) -> bool:
    """Whether an operation of a call is that of another one, at another length."""
    return (
        was.kind == now.kind
        and was.name == now.name
        and was.site == now.site
        and was.structure == now.structure
        and are_like(was.operands, now.operands)
        and are_like(was.named, now.named)
        and are_like(was.results, now.results)
    )


def are_like(was: Operand, now: Operand) -> bool:
    """Whether two operands or results differ in whole numbers and in how long tensors are, at most."""
    kind = type(was)
    if kind is not type(now):
        return False
    if kind is Token:
        return _look_alike(was, now)
    if kind is Number:
        return was.kind is now.kind and (was.kind is int or was.bits == now.bits)
    if kind is tuple or kind is HostValues or kind is Reference:
        one, other = cast("tuple[Any, ...]", was), cast("tuple[Any, ...]", now)
        return len(one) == len(other) and all(map(are_like, one, other))
    return bool(was == now)


def _look_alike(was: Token, now: Token) -> bool:
    return (
        was.origin == now.origin
        and was.dtype == now.dtype
        and was.on_host == now.on_host
        and len(was.shape) == len(now.shape)
    )
