"""The part of a report on each recording."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from ..inspect import (
    InputReport,
    IslandReport,
    LeftAloneReport,
    NearReport,
    OutputReport,
    RecordingReport,
    TierReport,
)
from ..runtime.backends import PROCESS
from ..runtime.engine import Specialization
from ..runtime.memory import BUDGETS, Account
from ..runtime.optimize import RULES
from ..runtime.program import InputFacts
from ..runtime.recording import FusedOperations, NearOperation, Recording, Tiers


def recording_reports(entries: Iterable[Specialization], account: Account) -> tuple[RecordingReport, ...]:
    """The recordings of all keys."""
    held = _bytes_held(account)
    return tuple(
        _report(entry, variant, sum(held.get(id(holding), 0) for holding in variant.holdings()))
        for entry in entries
        for variant in entry.recordings
        if variant.recorded
    )


def output_reports(entries: Iterable[Specialization]) -> tuple[OutputReport, ...]:
    """The lines of recorded calls that write to the standard streams."""
    found = dict.fromkeys(each for entry in entries for each in entry.output())
    return tuple(OutputReport(each.what, str(each.site)) for each in found)


def _report(entry: Specialization, variant: Recording, nbytes: int) -> RecordingReport:
    parts = (*variant.islands(), *variant.branches())
    figures = variant.contest.figures
    return RecordingReport(
        key=entry.description,
        segments=len(variant.segments()),
        operations=variant.operations(),
        paths=variant.recorded_paths(),
        islands=tuple(IslandReport(part.operation, str(part.site), part.code) for part in parts),
        bytes_held=nbytes,
        replays=variant.replays,
        estimate=variant.estimate,
        evictions=variant.evictions.count,
        inputs=tuple(_input(fact) for fact in variant.facts),
        replay_us=figures.replay_s * 1e6 if figures is not None else None,
        plain_us=figures.plain_s * 1e6 if figures is not None else None,
        with_backward=figures is not None and figures.walked,
        tier=_tier(variant.tiers),
    )


def _tier(tiers: Tiers) -> TierReport | None:
    if not (tiers.exact or tiers.left or tiers.whole):
        return None
    removed = [each.removed for each in tiers.newest]
    removed += [each for node, each in tiers.whole if all([node is not other.node for other in tiers.newest])]
    figures = tiers.contest.figures
    by_rule = _added(each.by_rule for each in removed)
    fused = _fused(tiers)
    saved = fused.operations - fused.launches if fused is not None else 0
    return TierReport(
        used=tiers.exact,
        before=sum(each.before for each in removed),
        after=sum(each.after for each in removed) - saved,
        removed={rule: by_rule.get(rule, 0) for rule in RULES},
        shown=sum(each.shown for each in removed),
        outside=sum(each.outside for each in removed),
        left=tuple(LeftAloneReport(why, len(node.operations)) for node, why in tiers.left),
        fused=fused,
        near=_near(tiers),
        kept=_added(each.near.refused for each in tiers.newest if each.near is not None),
        compiling=len(tiers.waiting),
        exact_us=figures.replay_s * 1e6 if figures is not None else None,
        plain_us=figures.plain_s * 1e6 if figures is not None else None,
    )


def _fused(tiers: Tiers) -> FusedOperations | None:
    found = [each.fused for each in tiers.newest if each.fused is not None]
    if not found:
        return None
    return FusedOperations(
        launches=sum(each.launches for each in found),
        distinct=sum(each.distinct for each in found),
        operations=sum(each.operations for each in found),
        refused=_added(each.refused for each in found),
    )


def _added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Counts of the same things, the most frequent first."""
    found = Counter[str]()
    for each in counts:
        found.update(each)
    return dict(found.most_common())


def _near(tiers: Tiers) -> tuple[NearReport, ...]:
    groups: dict[tuple[str, str], list[NearOperation]] = {}
    for stretch in tiers.newest:
        for each in stretch.near.replaced if stretch.near is not None else ():
            groups.setdefault((each.operator, each.alternative), []).append(each)
    return tuple([
        NearReport(*names, len(found), max([each.error for each in found]), max([each.own for each in found]))
        for names, found in groups.items()
    ])  # fmt: skip


def _input(fact: InputFacts) -> InputReport:
    place = "in place" if fact.in_place else "copied"
    return InputReport(fact.name, fact.kind, place, str(fact.mutated) if fact.mutated is not None else "")


def _bytes_held(account: Account) -> dict[int, int]:
    """Bytes of every recording of an account, by identity of its holding."""
    found: dict[int, int] = {}
    for backend, budget in BUDGETS.all():
        taken = PROCESS.take(backend.lock)  # another thread that traces a call may wait for this one
        try:
            found.update({id(holding): nbytes for holding, nbytes in budget.by_recording(account).items()})
        finally:
            if taken:
                backend.lock.release()
    return found
