"""What the captured operations of a stretch make, read and write, storage by storage.

A rule may only touch what is known here. So a stretch in which anything is not known is left alone as a
whole, and the report says why. A stretch is known if

- its captured operations are PyTorch's own, with PyTorch's kernels: no Python code runs in them; or kernels
  that the call launches itself;
- those that draw random numbers draw from the default generator. They stay, in their order;
- they write memory that they have made, arguments, or state, but not what an earlier stretch or an island has
  made;
- none of them reads memory that ``empty`` has made and nothing that is known has written: then a kernel that
  was launched past the dispatcher has, and it would be missing. (Code that could launch one is known to the
  recording as code of which it is only said what it does, and on a GPU leaves all its stretches alone. On the
  host no replay runs such code.)
- tensors are what their tokens say: no token shows whether a tensor is lazily conjugated or negated;
- what runs between its segments is PyTorch's own, too, and writes nothing; or it is a collective, which
  writes what it says.

Views launch nothing, and tokens say what they look at, so they are no operations here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..operators import short
from ..program import EXTERNAL, INPUT, NEW, Operation, Origin, Reference, Token
from ..program import operations as ops

_METADATA = frozenset({"as_strided_", "t_", "transpose_", "unsqueeze_", "squeeze_", "swapaxes_", "swapdims_"})
"""Operations that only change how a tensor looks at its memory, which the tokens behind them show."""

_OUTSIDE = (INPUT, EXTERNAL)
_LAZY = frozenset({"_neg_view", "_conj", "_conj_physical", "conj"})


class LeftAloneError(Exception):
    """A stretch is not optimised; the message says why."""


class OtherBitsError(LeftAloneError):
    """What has been captured, or run, gives other bits than the replay before it."""


class Touched(NamedTuple):
    """What one operation touches.

    Attributes:
        reads: The tensors that it takes, written ones included.
        makes: The storages that are its results.
        writes: Storages that it writes besides.
    """

    reads: tuple[Token, ...]
    makes: tuple[Origin, ...]
    writes: tuple[Origin, ...]


@dataclass(frozen=True)
class Effects:
    """The effects of a stretch.

    Attributes:
        runs: Its captured operations that launch something or make memory, by segment, as indices.
        made: The operation that makes each storage.
        written: How often each storage is written besides.
        draws: Operations that draw random numbers.
        received: What collectives between the segments write: their indices, and the storages.
        changes: Storages of arguments and of state that are written.
        reach: Of each storage, the bytes up to the last one that any tensor looks at. Behind them lies what a
            kernel needed for itself, as ``mse_loss`` does: no two runs leave the same there.
    """

    operations: Sequence[Operation]
    runs: tuple[tuple[int, ...], ...]
    touched: dict[int, Touched] = field(default_factory=dict[int, Touched])
    made: dict[Origin, int] = field(default_factory=dict[Origin, int])
    written: Counter[Origin] = field(default_factory=Counter[Origin])
    draws: list[int] = field(default_factory=list[int])
    received: list[tuple[int, tuple[Origin, ...]]] = field(
        default_factory=list[tuple[int, tuple[Origin, ...]]]
    )
    changes: set[Origin] = field(default_factory=set[Origin])
    reach: dict[Origin, int] = field(default_factory=dict[Origin, int])

    @classmethod
    def of(
        cls, operations: Sequence[Operation], segments: Sequence[Collection[int]], refused: Collection[int]
    ) -> Effects:
        """Look at a stretch.

        Args:
            segments: The operations captured into each of its segments, by index.
            refused: Operations that a capture refused, so that they run between two segments.

        Raises:
            LeftAloneError: Something in it is not known.
        """
        runs = tuple([tuple(_launching(operations, sorted(each))) for each in segments])
        found = cls(operations, runs)
        captured = set[int]().union(*segments)
        unwritten = set[Origin]()
        for index, operation in enumerate(operations):
            found._note_reach(operation)
            if operation.kind == ops.VIEWED:
                _check_known(operation, operation.tokens)
            elif index in captured:
                found._look_at(index, operation, unwritten)
            elif operation.kind == ops.CAPTURED and operation.is_of_aten and operation.facts.blank:
                # its segment launches nothing
                unwritten.update([each.origin for each in _results(operation)])
            elif operation.kind == ops.CAPTURED and index not in refused:
                raise LeftAloneError(f"{_told(operation)} is in no segment that is known")
            else:
                found._look_between(index, operation, unwritten)
        return found

    def each(self) -> Iterator[int]:
        """The captured operations, in order."""
        for run in self.runs:
            yield from run

    def is_settled(self, origin: Origin) -> bool:
        """Whether a storage is made by the stretch, and not written afterwards."""
        return origin in self.made and not self.written[origin]

    # ------------------------------------------------------------------ one operation

    def _look_at(self, index: int, operation: Operation, unwritten: set[Origin]) -> None:
        if not operation.is_of_aten:  # a constant is copied, or a tensor is made of numbers
            self._note(index, (), [operation.results[0].origin], ())
            return
        facts, tokens = operation.facts, operation.tokens
        _check_known(operation, tokens)
        if operation.draws:
            self.draws.append(index)
        if facts.relocates:
            return
        written = [tokens[position] for position in operation.written]
        for token in written:
            if token.origin[0] in _OUTSIDE:
                self.changes.add(token.origin)
            elif token.origin not in self.made:
                raise LeftAloneError(f"{_told(operation)} writes memory that no segment has made")
        overwritten = written if facts.overwrites else []
        for token in tokens:
            if token.origin in unwritten and token not in overwritten:
                raise LeftAloneError(f"{_told(operation)} reads memory that no operation has written")
        unwritten.difference_update([token.origin for token in written])
        made = [each.origin for each in operation.results if type(each) is Token]
        if facts.blank:
            unwritten.update(made)
        self._note(index, tuple(tokens), made, [token.origin for token in written])

    def _note(
        self, index: int, reads: tuple[Token, ...], results: list[Origin], writes: Sequence[Origin]
    ) -> None:
        makes = [origin for origin in results if origin[0] is NEW and origin not in self.made]
        self.made.update(dict.fromkeys(makes, index))
        self.written.update(writes)
        self.touched[index] = Touched(reads, tuple(dict.fromkeys(makes)), tuple(dict.fromkeys(writes)))

    def _note_reach(self, operation: Operation) -> None:
        for token in (*operation.tokens, *_results(operation)):
            self.reach[token.origin] = max(self.reach.get(token.origin, 0), _end_of(token))

    def _look_between(self, index: int, operation: Operation, unwritten: set[Origin]) -> None:
        """Look at what runs between segments, or at the end of the stretch."""
        if not operation.is_of_aten or operation.kind == ops.ANYWHERE:  # no replay runs those
            return
        if operation.facts.transfers:
            origins = tuple([operation.tokens[position].origin for position in operation.written])
            unwritten.difference_update(origins)
            self.written.update(origins)
            self.changes.update([each for each in origins if each[0] in _OUTSIDE])
            self.received.append((index, origins))
            return
        if operation.overload.namespace != "aten":
            raise LeftAloneError(f"{_told(operation)} runs between two segments, and is not PyTorch's own")
        if operation.written:
            raise LeftAloneError(f"{_told(operation)} writes memory between two segments")


def writes_outside(operations: Iterable[Operation]) -> bool:
    """Whether any of some operations writes an argument or state."""
    return any([
        operation.tokens[position].origin[0] in _OUTSIDE
        for operation in operations
        for position in operation.written
    ])  # fmt: skip


def _launching(operations: Sequence[Operation], indices: list[int]) -> Iterator[int]:
    for index in indices:
        operation = operations[index]
        relocates = operation.is_of_aten and operation.facts.relocates
        if operation.kind != ops.VIEWED and not relocates:
            yield index


def _check_known(operation: Operation, tokens: list[Token]) -> None:
    facts = operation.facts
    name = facts.short
    if not (facts.own or facts.functional or facts.launches):
        raise LeftAloneError(
            f"{_told(operation)} is not PyTorch's own, and no functional operator of a library"
        )
    if operation.generator is not None:
        raise LeftAloneError(f"{_told(operation)} draws from a generator that it is given")
    if facts.relocates and name not in _METADATA:
        raise LeftAloneError(f"{_told(operation)} changes which memory a tensor has")
    looks = [token.look for token in (*tokens, *_results(operation))]
    if name in _LAZY or any([look.dtype.is_complex for look in looks]):
        raise LeftAloneError(f"{_told(operation)} takes or gives complex numbers, which may be lazy")


def _results(operation: Operation) -> Iterator[Token]:
    for each in operation.results:
        token = each.token if isinstance(each, Reference) else each
        if isinstance(token, Token):
            yield token


def _end_of(token: Token) -> int:
    """The byte of its storage behind the last one that a tensor looks at."""
    if 0 in token.shape:
        return 0
    last = sum([(size - 1) * step for size, step in zip(token.shape, token.stride, strict=True)])
    return (token.offset + last + 1) * token.dtype.itemsize


def _told(operation: Operation) -> str:
    return f"{short(operation.name)} at {operation.site}"
