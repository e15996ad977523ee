"""Cuts what is left of a stretch into groups that kernels calculate (``docs/design.md``).

What comes between pointwise operations that wait, and needs none of them, runs first. Nothing is written in
between, so what they read is the same; random numbers are drawn in their order, since no such operation
waits. An operation in place waits as well, as a value with a place (:mod:`.versions`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..fusion import Fusible, GroupPlans, NoKernelError, Written
from ..operators import short
from ..program import EXTERNAL, INPUT, Operation, Origin, Token
from .shortening import ShortRun, ShortStretch
from .versions import InPlaceStore, Versions, Whole

Item = int | Written
"""An operation, by index, or a kernel."""

Refusal = Callable[[Fusible], str | None]
"""Why no kernel may calculate an operation."""


@dataclass(frozen=True)
class Schedule:
    """What replays a stretch.

    Attributes:
        runs: What runs in each segment, in order.
        calculated: The operations that kernels calculate.
        refused: Why operations run alone that are of a kind that kernels calculate, by index.
    """

    runs: tuple[tuple[Item, ...], ...]
    calculated: tuple[Fusible, ...]
    refused: Mapping[int, str]

    @classmethod
    def plain(cls, short: ShortStretch) -> Schedule:
        """Each operation by itself."""
        return cls(tuple([run.operations for run in short.runs]), (), {})

    def stored(self, short: ShortStretch) -> frozenset[Origin]:
        """The results that kernels store where others read them, so that nothing copies them there."""
        made = [token.origin for kernel in self.kernels for token in targets_of(kernel, short)]
        return frozenset(filter(short.is_shown, made))

    def after(self, short: ShortStretch) -> int:
        """How many operations are left of a stretch, launches and copies included."""
        copies = short.shown(self.stored(short)) - short.shown()
        return short.after - len(self.calculated) + len(self.kernels) + copies

    @property
    def kernels(self) -> list[Written]:
        """The kernels, in order."""
        return [item for run in self.runs for item in run if isinstance(item, Written)]


def schedule(short: ShortStretch, refusal: Refusal, whole: Whole, *, on_host: bool) -> Schedule:
    """Put the operations of a stretch into kernels.

    Args:
        refusal: Why no kernel may calculate an operation.
        whole: The same as :data:`.versions.Whole`, of memory from outside.
    """
    return _Scheduling(short, refusal, whole, on_host=on_host).run()


def targets_of(kernel: Written, short: ShortStretch) -> list[Token]:
    """The tensors that a kernel stores its results into, in their order."""
    operations = [short.effects.operations[index] for index in kernel.stores]
    return [each.tokens[each.written[0]] if each.written else each.results[0] for each in operations]


class _Scheduling:
    """Goes through the segments of a stretch."""

    def __init__(self, short: ShortStretch, refusal: Refusal, whole: Whole, *, on_host: bool) -> None:
        self._short = short
        self._on_host = on_host
        self._effects = short.effects
        self._refusal = refusal
        self._readers = _readers(short)
        self._shows = Counter([short.home(origin) for run in short.runs for origin in run.shown])
        self._shown = self._shows.keys()
        self._fusible: dict[int, Fusible] = {}
        self._refused: dict[int, str] = {}
        self._whole = whole
        self._stores: dict[int, InPlaceStore] = {}
        self._plans = GroupPlans(short.home, on_host=on_host)

    def run(self) -> Schedule:
        runs = tuple([tuple(self._run(run)) for run in self._short.runs])
        covered = {
            index for run in runs for item in run if isinstance(item, Written) for index in item.covers
        }
        calculated = tuple([each for index, each in sorted(self._fusible.items()) if index in covered])
        return Schedule(runs, calculated, self._refused)

    def _run(self, run: ShortRun) -> Iterator[Item]:
        waiting: list[Fusible] = []
        results = set[Origin]()
        for index in run.operations:
            each = self._look(index)
            if each is not None:
                waiting.append(each)
                store = self._stores.get(index)
                results.add(each.result.origin if store is None else store.target.origin)
                continue
            touched = self._effects.touched[index]
            needs = not results.isdisjoint([self._short.home(token.origin) for token in touched.reads])
            if needs or touched.writes:
                yield from self._group(waiting)
                waiting, results = [], set()
            yield index
        yield from self._group(waiting)

    def _look(self, index: int) -> Fusible | None:
        """An operation, if a kernel may calculate it."""
        operation, touched = self._effects.operations[index], self._effects.touched[index]
        if not operation.is_of_aten or operation.computes:  # a kernel's numbers are those of its launch
            return None
        if touched.writes:
            return self._look_in_place(index, operation)
        try:
            each = Fusible.of(index, operation)
        except NoKernelError:
            return None  # matrix products and the like
        if each.result.look.on_host is not self._on_host:
            return None
        made = each.result.origin
        others = [origin for origin in touched.makes if origin != made]
        if made not in touched.makes or any(map(self._is_used, others)):
            return None
        return self._allowed(each, operation)

    def _look_in_place(self, index: int, operation: Operation) -> Fusible | None:
        store = InPlaceStore.of(index, operation, self._is_whole)
        if store is None or store.target.look.on_host is not self._on_host:
            return None
        each = self._allowed(store.value, operation)
        if each is not None:
            self._stores[index] = store
        return each

    def _is_whole(self, token: Token) -> bool:
        """Whether a tensor is all of a memory that has no other name."""
        effects, origin = self._effects, token.origin
        if origin not in effects.made:
            return origin[0] in (INPUT, EXTERNAL) and self._whole(token)
        return self._shows[origin] <= 1 and effects.reach[origin] == token.nbytes

    def _stays(self, origin: Origin) -> bool:
        """Whether somebody knows a memory by where it lies."""
        return origin not in self._effects.made or origin in self._shown

    def _allowed(self, each: Fusible, operation: Operation) -> Fusible | None:
        why = self._refusal(each)
        if why is not None:
            self._refused[each.index] = f"{short(operation.name)}: {why}"
            return None
        self._fusible[each.index] = each
        return each

    def _group(self, waiting: Sequence[Fusible]) -> Iterator[Item]:
        """What runs for a group."""
        stores = {
            each.index: store for each in waiting if (store := self._stores.get(each.index)) is not None
        }
        found = self._with_stores(waiting, stores) if stores else self._without_stores(waiting)
        if found is not None:
            yield from found
            return
        between: list[Fusible] = []
        for each in waiting:
            if each.index in stores:
                yield from self._without_stores(between)
                yield each.index
                between = []
            else:
                between.append(each)
        yield from self._without_stores(between)

    def _with_stores(
        self, waiting: Sequence[Fusible], stores: Mapping[int, InPlaceStore]
    ) -> list[Item] | None:
        """What runs for a group with operations in place, if kernels can store what these write."""
        versions, inside = Versions(waiting, stores, self._stays), {each.index for each in waiting}
        stored = [
            index
            for origin, index in versions.last.items()
            if self._stays(origin) or self._is_read_outside(origin, inside)
        ]
        passing = versions.replaced.union(stores)
        needed = [
            each.index
            for each in versions.group
            if each.index in stored or (each.index not in passing and self._is_needed(each, inside))
        ]
        try:
            planned = self._plans.plan(versions.group, needed)
        except NoKernelError:
            return None
        found = versions.settled(planned)
        return found if found is not None and len(found) < len(waiting) else None

    def _without_stores(self, group: Sequence[Fusible]) -> list[Item]:
        alone: list[Item] = [each.index for each in group]
        inside = {each.index for each in group}
        needed = [each.index for each in group if self._is_needed(each, inside)]
        try:
            planned = self._plans.plan(group, needed)
        except NoKernelError as why:
            self._refused.update({each.index: f"{short(each.operation.name)}: {why}" for each in group})
            return alone
        found: list[Item] = [each if isinstance(each, Written) else each.index for each in planned]
        pays = len(found) < len(alone) or (len(found) == len(alone) and not self._on_host)
        return found if pays else alone

    def _is_used(self, origin: Origin) -> bool:
        """Whether somebody reads a result, or it is shown."""
        return origin in self._shown or bool(self._readers.get(origin))

    def _is_needed(self, each: Fusible, inside: set[int]) -> bool:
        """Whether somebody reads a result who is not in the group."""
        return self._is_read_outside(each.result.origin, inside)

    def _is_read_outside(self, origin: Origin, inside: set[int]) -> bool:
        return origin in self._shown or not self._readers.get(origin, set()) <= inside


def _readers(short: ShortStretch) -> dict[Origin, set[int]]:
    """The operations that read each storage."""
    found: dict[Origin, set[int]] = {}
    for run in short.runs:
        for index in run.operations:
            for token in short.effects.touched[index].reads:
                found.setdefault(short.home(token.origin), set()).add(index)
    return found
