"""The report as text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from .report import (
    InputReport,
    LineReport,
    NearReport,
    OfferedReport,
    PartReport,
    ReasonReport,
    RecordingReport,
    Report,
    TierReport,
    TrialReport,
)

SHOWN = 16
"""Recordings, and lines with output, that the text lists; the report has them all."""

INPUTS, LONGEST_KEY = 12, 1_000
"""Arguments that the text lists for a recording, and characters of its key: a compiled model has hundreds."""

LINES = 6
"""Lines that the text lists for a recording."""

KERNELS = {"inductor": "Inductor's, with its rounding", "aten": "ATen's, those of eager"}
"""Whose kernels compiled code runs, as text."""

_BETWEEN = re.compile(r", (?=args\[|kwargs\[)")


def _explain_recording(number: int, recording: RecordingReport) -> list[str]:
    expected = f" ({recording.estimate / 1e6:.1f} MB expected)" if recording.estimate else ""
    head = (
        f"recording {number} for {_shortened(recording.key)}: {recording.operations} operations in "
        f"{recording.segments} segment{'s' * (recording.segments != 1)}, {recording.paths} "
        f"path{'s' * (recording.paths != 1)}, {recording.bytes_held / 1e6:.1f} MB{expected}, "
        f"{recording.replays} replays{_measured(recording)}"
    )
    islands = Counter(f"{each.operation} at {each.where} ({each.code})" for each in recording.islands)
    inputs = [given for given in recording.inputs if given.mutated or given.placement == "in place"]
    places = [_explain_input(given) for given in inputs[:INPUTS]]  # the others are the usual case
    if len(inputs) > INPUTS:
        places.append(f"  and {len(inputs) - INPUTS} more in place or mutated")
    repeated = [f"  island: {text}{f', {n} times' * (n > 1)}" for text, n in islands.items()]
    tier = explain_tier(recording.tier) if recording.tier is not None else []
    return [head, *tier, *repeated, *places]


def explain_tier(tier: TierReport) -> list[str]:
    """What an exact tier has removed, and what was left alone."""
    lines: list[str] = []
    if tier.used:
        rules = ", ".join([f"{count} {rule}" for rule, count in tier.removed.items() if count])
        times = ""
        if tier.exact_us is not None and tier.plain_us is not None:
            times = f"; {tier.exact_us:.1f} us each, {tier.plain_us:.1f} us before"
        told = f" ({rules})" if rules else ""
        lines.append(f"  {_name(tier)} tier: {tier.after} operations instead of {tier.before}{told}{times}")
    if tier.fused is not None:
        launches, kernels = _counted(tier.fused.launches, "launch"), _counted(tier.fused.distinct, "kernel")
        probed = f"; {tier.fused.probed} of them probed" if tier.fused.probed else ""
        lines.append(f"  fused: {tier.fused.operations} operations into {launches} of {kernels}{probed}")
        lines += [f"  not fused: {count} {what}" for what, count in tier.fused.refused.items()]
    lines += map(_explain_replaced, tier.near)
    lines += [f"  refused: {count} {what}" for what, count in tier.kept.items()]
    if not ([each for each in tier.near if each.how != "proved"] or tier.kept):
        lines += map(_explain_offered, tier.offered)
    lines += [_explain_trial(each) for each in tier.trials if each.us is not None]
    if tier.compiling:
        lines.append("  kernels are being compiled, and proved in the next replays")
    lines += [f"  left as captured: {each.operations} operations, {each.reason}" for each in tier.left]
    return [*lines, *_explain_lines(tier.lines)]


def _name(tier: TierReport) -> str:
    """What replays are, as a whole."""
    ways = {each.how for each in tier.near}
    if "near" in ways:
        return "near"
    return "probed" if "probed" in ways or (tier.fused is not None and tier.fused.probed) else "exact"


def _explain_replaced(each: NearReport) -> str:
    told = f"{each.operations} {each.operator} as {each.alternative}"
    if each.error is None or each.own is None:
        return f"  {each.how}: {told}; the same bits"
    return f"  near: {told}; error {each.error:.3g}, its own {each.own:.3g}"


def _explain_offered(each: OfferedReport) -> str:
    ways = _counted(len(each.alternatives), "alternative")
    return f'  numerics="near" would try {ways} for {each.operations} {each.operator}'


def _explain_trial(each: TrialReport) -> str:
    what = f"{each.tier}: {each.what}" if each.what else each.tier
    end = "kept" if each.kept else "dropped"
    return f"  timed, {what}: {each.us:.1f} us each, {each.before_us:.1f} us before, {end}"


def _explain_lines(lines: Sequence[LineReport]) -> list[str]:
    """The lines of which most is left out or fused, and those where something was refused."""
    told = sorted([each for each in lines if each.refused], key=lambda each: -each.after)
    told += sorted(
        [each for each in lines if not each.refused and each.before > each.after],
        key=lambda each: each.after - each.before,
    )
    return [
        f"  at {each.where or 'a line that is not known'}: {each.after} of {each.before} operations"
        f"{''.join([f'; not {what}' for what in list(each.refused)[:1]])}"
        for each in told[:LINES]
    ]


def _counted(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}{'es' if word.endswith('ch') else 's'}"


def _explain_input(given: InputReport) -> str:
    mutated = f", mutated at {given.mutated}" if given.mutated else ""
    return f"  {given.name}: {given.kind}, {given.placement}{mutated}"


def _shortened(key: str) -> str:
    """A key of so many arguments that nobody reads them all, cut between two of them."""
    ends = [match.start() for match in _BETWEEN.finditer(key) if match.start() <= LONGEST_KEY]
    return key if len(key) <= LONGEST_KEY or not ends else f"{key[: ends[-1]]}, ...)"


def _measured(recording: RecordingReport) -> str:
    if recording.replay_us is None or recording.plain_us is None:
        return ""
    walked = ", walks back included" if recording.with_backward else ""
    return f", {recording.replay_us:.1f} us each, {recording.plain_us:.1f} us plainly{walked}"


def explain(report: Report, instances: int = 0) -> str:
    """The report as text: what replays, what does not, why, where, and what to do.

    ``instances`` objects have been called with it as their method; their calls are not in the report.
    """
    checked = f", {report.verified} verified" if report.verified else ""
    lines = [
        f"{report.name}: {report.calls} calls, {report.replayed} replayed, {report.eager} eager "
        f"({report.recorded} of them recorded){checked}"
    ]
    if report.kernels:
        lines.append(f"kernels: {KERNELS[report.kernels]}")
    if report.backwards:
        checked = f", {report.backwards_verified} verified" if report.backwards_verified else ""
        lines.append(f"backward: {report.backwards} passes, {report.backwards_replayed} replayed{checked}")
    if report.budget is not None:
        lines.append(f"budget: {report.bytes_held / 1e6:.1f} of {report.budget / 1e6:.1f} MB held")
    for number, recording in enumerate(report.recordings[:SHOWN], 1):
        lines.extend(_explain_recording(number, recording))
    rest = report.recordings[SHOWN:]
    if rest:
        lines.append(f"and {len(rest)} more recordings with {sum(each.replays for each in rest)} replays")
    if not report.recordings:
        lines.append("no recording yet")
    lines += [_explain_part(part) for part in report.parts[:SHOWN]]
    lines += [
        f"output at {each.where}, not repeated by replays: {each.what}" for each in report.output[:SHOWN]
    ]
    if instances:
        name = report.name.rpartition(".")[2]
        lines.append(f"as a method of {instances} with a report of its own each: instance.{name}.explain()")
    lines += report.plan.lines() if report.plan is not None else []
    return "\n".join([*lines, *explain_reasons(report.reasons)])


def _explain_part(part: PartReport) -> str:
    """One line: how a module replays, or why it does not."""
    head = f"part {part.name}, called at {part.where}: {part.calls} calls, {part.replayed} replayed"
    times = f", {part.plain_us:.1f} us plainly"
    measured = [each for each in part.report.recordings if each.replay_us is not None]
    if measured:
        most = max(measured, key=lambda each: each.replays)
        times = f", {most.replay_us:.1f} us each, {most.plain_us:.1f} us plainly"
    walked = part.report.backwards_replayed
    back = f", {walked} of {part.report.backwards} backward passes replayed" if part.report.backwards else ""
    end = f"; given up: {part.given_up}" if part.given_up else ""
    return f"{head}{back}{times}{end}"


def explain_reasons(reasons: Iterable[ReasonReport]) -> list[str]:
    """Two lines for each reason: what happened, and what to do."""
    lines: list[str] = []
    for reason in reasons:
        at = f" at {reason.where}" if reason.where else ""
        when = " in the warm-up" if reason.warm_up else ""
        lines.append(f"{reason.code}{at}, {reason.count} calls{when}: {reason.message}")
        lines.append(f"  {reason.remedy}")
    return lines
