"""Cuts what is left of a stretch into groups that kernels calculate.

Pointwise operations wait until somebody needs one of their results: an operation that no kernel can
calculate, or the end of the segment. What comes in between and needs none of them runs first. So the
operations between two matrix products are one group, also where those of several products are mixed. Nothing
is written in between, so what they read is the same; random numbers are drawn in their order, since no such
operation waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..fusion import Fusible, NoKernelError, Written, plan_group
from ..operators import short
from ..program import Origin
from .shortening import ShortRun, ShortStretch

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
        refused: How many operations of each kind run alone, with the reason.
    """

    runs: tuple[tuple[Item, ...], ...]
    calculated: tuple[Fusible, ...]
    refused: Counter[str]

    @classmethod
    def plain(cls, short: ShortStretch) -> Schedule:
        """Each operation by itself."""
        return cls(tuple([run.operations for run in short.runs]), (), Counter())

    def stored(self, short: ShortStretch) -> int:
        """How many results kernels store where others read them, so that nothing copies them there."""
        return sum([short.is_shown(origin) for kernel in self.kernels for origin in made_by(kernel, short)])

    def after(self, short: ShortStretch) -> int:
        """How many operations are left of a stretch, launches and copies included."""
        return short.after - len(self.calculated) + len(self.kernels) - self.stored(short)

    @property
    def kernels(self) -> list[Written]:
        """The kernels, in order."""
        return [item for run in self.runs for item in run if isinstance(item, Written)]


def schedule(short: ShortStretch, refusal: Refusal, *, on_host: bool) -> Schedule:
    """Put the operations of a stretch into kernels.

    Args:
        short: The stretch.
        refusal: Why no kernel may calculate an operation.
        on_host: The kernels are for the host.
    """
    return _Scheduling(short, refusal, on_host=on_host).run()


def made_by(kernel: Written, short: ShortStretch) -> list[Origin]:
    """The storages that a kernel stores its results into, in their order."""
    return [short.effects.touched[index].makes[0] for index in kernel.stores]


class _Scheduling:
    """Goes through the segments of a stretch."""

    def __init__(self, short: ShortStretch, refusal: Refusal, *, on_host: bool) -> None:
        self._short = short
        self._on_host = on_host
        self._effects = short.effects
        self._refusal = refusal
        self._readers = _readers(short)
        self._shown = {short.home(origin) for run in short.runs for origin in run.shown}
        self._fusible: dict[int, Fusible] = {}
        self._refused = Counter[str]()

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
                results.add(each.result.origin)
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
        if not operation.is_of_aten:
            return None
        try:
            each = Fusible.of(index, operation)
        except NoKernelError:
            return None  # matrix products and the like
        if each.result.look.on_host is not self._on_host:
            return None
        alone = not touched.writes and touched.makes == (each.result.origin,)
        if not alone or not self._effects.is_settled(each.result.origin):
            return None
        why = self._refusal(each)
        if why is not None:
            self._refused[f"{short(operation.name)}: {why}"] += 1
            return None
        self._fusible[index] = each
        return each

    def _group(self, group: Sequence[Fusible]) -> list[Item]:
        alone: list[Item] = [each.index for each in group]
        inside = {each.index for each in group}
        needed = [each.index for each in group if self._is_needed(each, inside)]
        try:
            planned = plan_group(group, needed, self._short.home, on_host=self._on_host)
        except NoKernelError as why:
            self._refused.update([f"{short(each.operation.name)}: {why}" for each in group])
            return alone
        found: list[Item] = [each if isinstance(each, Written) else each.index for each in planned]
        return found if len(found) < len(alone) else alone

    def _is_needed(self, each: Fusible, inside: set[int]) -> bool:
        """Whether somebody reads a result who is not in the group."""
        origin = each.result.origin
        return origin in self._shown or not self._readers.get(origin, set()) <= inside


def _readers(short: ShortStretch) -> dict[Origin, set[int]]:
    """The operations that read each storage."""
    found: dict[Origin, set[int]] = {}
    for run in short.runs:
        for index in run.operations:
            for token in short.effects.touched[index].reads:
                found.setdefault(short.home(token.origin), set()).add(index)
    return found
