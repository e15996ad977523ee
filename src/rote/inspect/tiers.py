"""The part of a report on what stands in the place of what was captured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..base import NOWHERE, Site
from ..runtime.operators import short
from ..runtime.optimize import ALTERNATIVES, RULES
from ..runtime.program import Operation
from ..runtime.recording import AlternativeUse, ExactStretch, Launched, Node, Recording, Tiers, TierTrial
from .report import (
    FusedReport,
    LeftAloneReport,
    LineReport,
    NearReport,
    OfferedReport,
    TierReport,
    TrialReport,
)


def tier_report(recording: Recording) -> TierReport | None:
    """What was optimised, and what was not; None before the recording has paid for a look."""
    tiers = recording.tiers
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
        near=_replaced(tiers),
        kept=_added(_counted(_refused(each)) for each in tiers.newest),
        offered=_offered(recording),
        trials=tuple([_trial(each) for each in tiers.trials]),
        lines=_lines(recording),
        compiling=len(tiers.waiting),
        exact_us=figures.replay_s * 1e6 if figures is not None else None,
        plain_us=figures.plain_s * 1e6 if figures is not None else None,
    )


def _fused(tiers: Tiers) -> FusedReport | None:
    found = [each.fused for each in tiers.newest if each.fused is not None]
    if not found:
        return None
    return FusedReport(
        launches=sum(each.launches for each in found),
        distinct=sum(each.distinct for each in found),
        operations=sum(each.operations for each in found),
        refused=_added(Counter(each.refused.values()) for each in found),
        probed=sum(each.probed for each in found),
    )


def _added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Counts of the same things, the most frequent first."""
    found = Counter[str]()
    for each in counts:
        found.update(each)
    return dict(found.most_common())


def _refused(stretch: ExactStretch) -> dict[int, list[str]]:
    """Why alternatives of an operation are not used, by its index."""
    refused = stretch.others.refused if stretch.others is not None else {}
    return {index: [f"{name}: {why}" for name, why in found.items()] for index, found in refused.items()}


def _counted(refused: Mapping[int, Iterable[str]]) -> Counter[str]:
    return Counter([why for found in refused.values() for why in found])


def _replaced(tiers: Tiers) -> tuple[NearReport, ...]:
    groups: dict[tuple[str, str, str], list[AlternativeUse]] = {}
    for uses in [stretch.others for stretch in tiers.newest if stretch.others is not None]:
        for each in uses.replaced.values():
            groups.setdefault((each.operator, each.alternative, uses.how), []).append(each)
    return tuple([
        NearReport(
            operator,
            alternative,
            len(found),
            max([each.error for each in found if each.error is not None], default=None),
            max([each.own for each in found if each.own is not None], default=None),
            how,
        )
        for (operator, alternative, how), found in groups.items()
    ])  # fmt: skip


def _offered(recording: Recording) -> tuple[OfferedReport, ...]:
    """What exists for the operators of a recording."""
    found = Counter([
        (operation.name, all([each.look.on_host for each in operation.tokens]))
        for node in recording.root.walk()
        for index in _captured(node)
        if (operation := node.operations[index]).is_of_aten
    ])  # fmt: skip
    offered = [
        (name, count, ALTERNATIVES.of(name, on_host=on_host))
        for (name, on_host), count in found.most_common()
    ]
    return tuple([
        OfferedReport(short(name), count, tuple([each.name for each in alternatives]))
        for name, count, alternatives in offered
        if alternatives
    ])  # fmt: skip


def _trial(each: TierTrial) -> TrialReport:
    figures = each.figures
    return TrialReport(
        each.tier,
        each.what,
        figures.replay_s * 1e6 if figures is not None else None,
        figures.plain_s * 1e6 if figures is not None else None,
        each.kept,
    )


# ------------------------------------------------------------------ by line


@dataclass
class _Line:
    """What is known of one line."""

    before: int = 0
    tiers: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[str] = field(default_factory=Counter[str])


def _lines(recording: Recording) -> tuple[LineReport, ...]:
    """What is launched for each line; lines whose operations nothing has changed, and nobody refused, too."""
    found: dict[Site, _Line] = {}
    newest = {id(each.node): each for each in recording.tiers.newest}
    for node in recording.root.walk():
        captured = _captured(node)
        for index in captured:
            found.setdefault(_site(node.operations[index]), _Line()).before += 1
        stretch = newest.get(id(node))
        for each in (
            _launched(stretch) if stretch is not None else [Launched((n,), "plain") for n in captured]
        ):
            site = _site(node.operations[each.operations[-1]])
            found.setdefault(site, _Line()).tiers[each.how] += 1
        for index, reasons in (_all_refused(stretch) if stretch is not None else {}).items():
            found.setdefault(_site(node.operations[index]), _Line()).refused.update(reasons)
    lines = [
        LineReport(
            str(site) if site.line else "", site.text, each.before, each.tiers.total(),
            dict(each.tiers), dict(each.refused.most_common()),
        )
        for site, each in found.items()
    ]  # fmt: skip
    return tuple(sorted(lines, key=lambda each: -each.before))


def _captured(node: Node) -> list[int]:
    """The operations of a stretch that launch something, as they were captured."""
    captured = node.captured
    found = [index for each in captured.segments for index in each.modes] if captured is not None else []
    return [index for index in found if not _is_blank(node.operations[index])]


def _is_blank(operation: Operation) -> bool:
    return operation.is_of_aten and operation.facts.blank


def _launched(stretch: ExactStretch) -> list[Launched]:
    operations = stretch.node.operations
    found = [each for _, launched in stretch.contents for each in launched]
    return [
        each
        for each in found
        if not (len(each.operations) == 1 and _is_blank(operations[each.operations[0]]))
    ]


def _all_refused(stretch: ExactStretch) -> dict[int, list[str]]:
    found = _refused(stretch)
    for index, why in stretch.fused.refused.items() if stretch.fused is not None else ():
        found.setdefault(index, []).append(why)
    return found


def _site(operation: Operation) -> Site:
    return operation.site if isinstance(operation.site, Site) else NOWHERE
