"""Reports of several processes as one text: what all have in common, and what is so on some of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .report import Report
from .text import SHOWN, explain


def explain_ranks(reports: Sequence[Report]) -> str:
    """The reports of all ranks, in their order, as text; that of a process alone is as ever."""
    if len(reports) == 1:
        return explain(reports[0])
    calls, replayed = _span([each.calls for each in reports]), _span([each.replayed for each in reports])
    lines = [f"{reports[0].name} on {len(reports)} ranks: {calls} calls, {replayed} replayed"]
    backwards = [each.backwards for each in reports]
    if any(backwards):
        walked = _span([each.backwards_replayed for each in reports])
        lines.append(f"backward: {_span(backwards)} passes, {walked} replayed")
    held = [f"{each.bytes_held / 1e6:.1f}" for each in reports]
    lines.append(f"recordings: {_span([len(each.recordings) for each in reports])}, {_span(held)} MB")
    return "\n".join([*lines, *_parts(reports)[:SHOWN], *_reasons(reports)])


def _parts(reports: Sequence[Report]) -> list[str]:
    """A line for each part: what the ranks have replayed that have it."""
    found: dict[tuple[str, str], dict[int, str]] = {}
    for rank, report in enumerate(reports):
        for part in report.parts:
            told = f"{part.replayed} of {part.calls}" + f"; given up: {part.given_up}" * bool(part.given_up)
            found.setdefault((part.name, part.where), {})[rank] = told
    return [
        f"part {name}, called at {where}{_on(ranks, reports)}: {_span(ranks.values())} calls replayed"
        for (name, where), ranks in found.items()
    ]


def _reasons(reports: Sequence[Report]) -> list[str]:
    """Two lines for each reason; those that some ranks have, and others have not, come first."""
    found: dict[tuple[str, str, str], dict[int, int]] = {}
    texts: dict[tuple[str, str, str], str] = {}
    for rank, report in enumerate(reports):
        for each in report.reasons:
            key = each.code, each.where, each.remedy
            found.setdefault(key, {})[rank] = each.count
            texts.setdefault(key, each.message)
    lines: list[str] = []
    for key, ranks in sorted(found.items(), key=lambda pair: len(pair[1]) == len(reports)):
        code, where, remedy = key
        at = f" at {where}" if where else ""
        lines.append(f"{code}{at}{_on(ranks, reports)}, {_span(ranks.values())} calls: {texts[key]}")
        lines.append(f"  {remedy}")
    return lines


def _on(ranks: Iterable[int], reports: Sequence[Report]) -> str:
    """Which ranks, if not all."""
    some = sorted(ranks)
    if len(some) == len(reports):
        return ""
    return f" on rank{'s' * (len(some) > 1)} {', '.join(map(str, some))}"


def _span(values: Iterable[int | str]) -> str:
    """Values of several ranks: one, or the range of them."""
    found = sorted(set(values), key=lambda value: (len(str(value)), str(value)))
    return str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"
