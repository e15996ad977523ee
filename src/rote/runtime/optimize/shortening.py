"""A stretch without the operations that give nothing new: exact by construction, in milliseconds.

An operation is removed only if the bits that it would have given are there already. Two operations give equal
bits if

- they are one overload, which is known to give equal bits for equal operands (``fixed`` in the table of
  operators, and all pointwise operators), run under equal modes;
- their operands are the same memory, looked at in the same way (type, sizes, strides, offset), and nothing
  has written it in between. Equal values in another layout are not enough: kernels add in the order in which
  elements lie;
- their numbers are the same bits, and their other operands are equal;
- their results look the same, and nobody writes either of them later.

What is removed:

- *dead*: results that nobody reads, of operators that raise for no values;
- *recomputed*: what an operation at the same line has given before. In an unrolled trace these are the
  invariants of a loop;
- *repeated*: what an operation at another line has given before;
- *copies*: copies with the layout of what they copy, where nobody writes either;
- *constants*: what depends on numbers and literals alone is computed once, when the stretch is captured anew,
  and kept: masks, positions, tables of time steps. No condition is needed, since nothing that it was made of
  can change.

**What depends on parameters alone** (``1 + weight.float()``, casts, tables) is computed in every replay, and
only once in it. To keep it from one replay to the next takes proof that the contents of the parameters are
the same. There is none that costs nothing. A version counter does not see ``.data``, numpy, DLPack, kernels
launched past the dispatcher, other processes; a fused optimizer step, ``load_state_dict`` and a replay of
another recording write in place at unchanged addresses. To compare the contents reads as much memory as to
compute the value anew, which is what such an operation costs on a GPU, and more for a cast to a smaller type.
A recording that is wrong after an unseen write is silently wrong. So their number is reported (``outside``),
and they stay.

Islands, and writes to any argument or state, are a barrier for all memory from outside: two names may be one
memory. Memory that a stretch makes has known writers, and nobody else's name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..operators import Facts
from ..program import EXTERNAL, ArrayMemory, Opaque, Operand, Operation, Origin, Token
from ..program.operations import CONST, HOST
from ..recording import KernelModes
from .copies import copied_together
from .effects import Effects

DEAD, RECOMPUTED, REPEATED, COPIES, CONSTANTS = "dead", "recomputed", "repeated", "copies", "constants"
RULES = (DEAD, RECOMPUTED, REPEATED, COPIES, CONSTANTS)
"""In the order of the report."""

_COPIES = frozenset({"clone", "_to_copy"})


@dataclass(frozen=True)
class ShortRun:
    """What is left of one segment.

    Attributes:
        operations: The operations that still run, by index.
        shown: Storages that are read besides by others, and that the segment has made or written.
    """

    operations: tuple[int, ...]
    shown: tuple[Origin, ...]


@dataclass(frozen=True)
class ShortStretch:
    """What is left of a stretch.

    Attributes:
        once: Operations whose results are kept, by index.
        same: The storage that has the contents of another one, which is not made.
        before: How many operations there were.
        removed: How many each rule has removed.
        outside: How many of those left depend on memory from outside alone, but not on arguments.
    """

    effects: Effects
    once: tuple[int, ...]
    runs: tuple[ShortRun, ...]
    same: Mapping[Origin, Origin]
    before: int
    removed: Counter[str]
    outside: int

    @property
    def after(self) -> int:
        """How many operations are left, those that show results to others included."""
        return self.before - self.removed.total() + self.shown()

    def shown(self, stored: Collection[Origin] = ()) -> int:
        """How many operations copy results to where others read them; some may be stored there at once."""
        return sum([len(self.copies(run, stored)) for run in self.runs])

    def copies(self, run: ShortRun, stored: Collection[Origin]) -> list[tuple[Origin, ...]]:
        """The storages that each of the copies at the end of a segment copies."""
        return copied_together(run.shown, stored, self.effects.reach)

    def is_shown(self, origin: Origin) -> bool:
        """Whether others read what a storage contains where it lies."""
        return origin in self._origins_shown

    @cached_property
    def _origins_shown(self) -> frozenset[Origin]:
        return frozenset([origin for run in self.runs for origin in run.shown])

    def home(self, origin: Origin) -> Origin:
        """The storage that has the contents of a storage."""
        return self.same.get(origin, origin)


def shorten(effects: Effects, modes: Mapping[int, KernelModes], public: Collection[Origin]) -> ShortStretch:
    """Shorten a stretch.

    Args:
        modes: The modes that each captured operation ran under.
        public: Storages that somebody reads besides the stretch's own segments.
    """
    return _Shortening(effects, modes, frozenset(public)).run()


class _Shortening:
    """Goes through a stretch, first back and then forward."""

    def __init__(self, effects: Effects, modes: Mapping[int, KernelModes], public: frozenset[Origin]) -> None:
        self._effects = effects
        self._modes = modes
        self._public = public
        self._same: dict[Origin, Origin] = {}
        self._versions = Counter[Origin]()
        self._received = list(effects.received)
        self._barriers = 0  # passed so far
        self._known: dict[Any, int] = {}
        self._constant = set[Origin]()
        self._outside = set[Origin]()
        self._removed = Counter[str]()
        self._once: list[int] = []

    def run(self) -> ShortStretch:
        effects, removed = self._effects, self._removed
        launching = [index for index in effects.each() if self._launches(index)]
        alive = self._alive()
        removed[DEAD] = sum([index not in alive for index in launching])
        runs: list[ShortRun] = []
        outside = 0
        for number, run in enumerate(effects.runs):
            self._barriers += bool(number)
            self._receive(run)
            kept = [index for index in run if index in alive and self._stays(index)]
            outside += sum([self._depends_on_outside(index) for index in kept])
            touched = [effects.touched[index] for index in run]
            shown = [origin for each in touched for origin in (*each.makes, *each.writes)]
            runs.append(ShortRun(tuple(kept), tuple(dict.fromkeys([o for o in shown if o in self._public]))))
        same = {origin: self._home(origin) for origin in self._same}
        return ShortStretch(effects, tuple(self._once), tuple(runs), same, len(launching), +removed, outside)

    def _receive(self, run: Sequence[int]) -> None:
        """Collectives before a segment have written what they receive."""
        while run and self._received and self._received[0][0] < run[0]:
            self._versions.update(self._received.pop(0)[1])

    def _launches(self, index: int) -> bool:
        operation = self._effects.operations[index]
        return not (operation.is_of_aten and operation.facts.blank)

    # ------------------------------------------------------------------ back: what is read by nobody

    def _alive(self) -> set[int]:
        """The operations that somebody needs, or that may raise."""
        effects = self._effects
        needed, found = set(self._public), set[int]()
        for index in reversed(list(effects.each())):
            reads, makes, writes = effects.touched[index]
            if needed.isdisjoint((*makes, *writes)) and self._may_go(index):
                continue
            found.add(index)
            needed.update([token.origin for token in reads])
        return found

    def _may_go(self, index: int) -> bool:
        """Whether nobody notices that an operation is missing whose results nobody reads."""
        operation = self._effects.operations[index]
        if not operation.is_of_aten:
            return True  # a tensor made of data
        facts = operation.facts
        return facts.blank or (facts.fixed and facts.total)

    # ------------------------------------------------------------------ forward: what is there already

    def _stays(self, index: int) -> bool:
        """Whether an operation has to run in every replay."""
        operation, touched = self._effects.operations[index], self._effects.touched[index]
        stays = operation.kind == CONST or self._is_new(index, operation)
        if stays and self._is_constant(index, operation):
            if self._launches(index):
                self._removed[CONSTANTS] += 1
            self._once.append(index)
            self._constant.update(touched.makes)
            stays = False
        self._versions.update(touched.writes)
        self._barriers += not self._effects.changes.isdisjoint(touched.writes)
        return stays

    def _is_new(self, index: int, operation: Operation) -> bool:
        """Whether no earlier operation has given what this one gives; otherwise that stands for it."""
        makes, fixed = self._effects.touched[index].makes, operation.kind == HOST or operation.facts.fixed
        if not fixed or not makes or not all(map(self._effects.is_settled, makes)):
            return True
        if len(makes) != sum([each is not None for each in operation.results]):
            return True  # some of its results lie in memory that was there
        if operation.is_of_aten and self._copies(operation, makes[0]):
            return False
        key = self._key_of(index, operation)
        known = self._known.setdefault(key, index) if key is not None else index
        if known == index:
            return True
        other = self._effects.touched[known].makes
        self._same.update(zip(makes, other, strict=True))
        again = self._effects.operations[known].site == operation.site
        rule = RECOMPUTED if again else REPEATED
        self._removed[rule] += 1
        return False

    def _copies(self, operation: Operation, made: Origin) -> bool:
        """Whether an operation copies what nobody writes, as it lies; the original stands for the copy."""
        facts, result = operation.facts, operation.results[0]
        if facts.short not in _COPIES or operation.structure != "one" or not isinstance(result, Token):
            return False
        source = operation.tokens[0]
        same = source.look == result.look and source.offset == result.offset == 0
        if not same or not self._effects.is_settled(source.origin):
            return False
        self._same[made] = source.origin
        self._removed[COPIES] += 1
        return True

    def _key_of(self, index: int, operation: Operation) -> Any:
        """What two operations have in common that give equal bits; None if that cannot be told."""
        operands = [self._place(each) for each in operation.operands]
        named = [(name, self._place(each)) for name, each in operation.named]
        if any(map(_is_unclear, _flat((*operands, *[each for _, each in named])))):
            return None
        looks = tuple([(each.look, each.offset) if isinstance(each, Token) else each
                       for each in operation.results])  # fmt: skip
        key = (operation.name, tuple(operands), tuple(named), operation.structure, looks, self._modes[index])
        try:
            hash(key)
        except TypeError:
            return None
        return key

    def _place(self, operand: Operand) -> Any:
        """An operand with the storage that has its contents, and how often that was written."""
        if type(operand) is tuple:
            return tuple([self._place(each) for each in operand])
        if type(operand) is not Token:
            return operand
        home = self._home(operand.origin)
        version = self._versions[home] if home in self._effects.made else ("outside", self._barriers)
        return (home, version, operand.look, operand.offset)

    def _home(self, origin: Origin) -> Origin:
        while origin in self._same:
            origin = self._same[origin]
        return origin

    # ------------------------------------------------------------------ what depends on what

    def _is_constant(self, index: int, operation: Operation) -> bool:
        """Whether an operation depends on numbers and literals alone, and its results are worth keeping."""
        reads, makes, writes = self._effects.touched[index]
        if writes or not makes or not all(map(self._effects.is_settled, makes)):
            return False
        if operation.computes:
            return False
        if not operation.is_of_aten:
            return True
        facts = operation.facts
        if not facts.fixed or any(map(_is_unclear, _flat(operation.every_operand))):
            return False
        if not reads and self._public.issuperset(makes):
            return False  # a copy for others would take as long
        return _is_closed(operation, facts) and all([self._home(t.origin) in self._constant for t in reads])

    def _depends_on_outside(self, index: int) -> bool:
        """Whether an operation that stays depends on memory from outside alone; notes its results."""
        reads, makes, writes = self._effects.touched[index]
        homes = [self._home(token.origin) for token in reads]
        outside = [home[0] == EXTERNAL or home in self._outside for home in homes]
        if writes or not any(outside):
            return False
        if not all([known or home in self._constant for known, home in zip(outside, homes, strict=True)]):
            return False
        self._outside.update(makes)
        return True


def _is_closed(operation: Operation, facts: Facts) -> bool:
    """Whether an operation without tensor operands depends on its numbers alone."""
    return bool(operation.tokens) or "made" in facts.row


def _is_unclear(operand: Operand) -> bool:
    """Whether equal operands may be unequal objects: memory of the host, and objects of other classes."""
    return isinstance(operand, (Opaque, ArrayMemory))


def _flat(operands: Sequence[Any]) -> Iterator[Any]:
    for each in operands:
        if type(each) is tuple:
            yield from _flat(each)
        else:
            yield each
