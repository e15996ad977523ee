"""The report of a graphed callable, as frozen values that serialise to JSON."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from ..base import Site
from ..hazards import Findings, finding_at
from ..hazards.rules import NOT_YET, Finding, Reason
from ..plans import PlanReport
from ..runtime.recording import FusedOperations
from .parts import PartReport

SHOWN = 16
"""Recordings, and lines with output, that the text lists; the report has them all."""

INPUTS, LONGEST_KEY = 12, 1_000
"""Arguments that the text lists for a recording, and characters of its key: a compiled model has hundreds."""

KERNELS = {"inductor": "Inductor's, with its rounding", "aten": "ATen's, those of eager"}
"""Whose kernels compiled code runs, as text."""

_BETWEEN = re.compile(r", (?=args\[|kwargs\[)")

MOST_EARLY = 1024
"""Keys without a recording whose reasons are remembered."""

_Place = tuple[str, Site | None]


@dataclass(frozen=True)
class IslandReport:
    """An operation that runs between two segments.

    Attributes:
        operation: Its name.
        where: ``file:line`` of the user's line.
        code: Code of the rule behind it.
    """

    operation: str
    where: str
    code: str


@dataclass(frozen=True)
class InputReport:
    """A tensor argument of a recording.

    Attributes:
        name: ``args[0]``, ``kwargs['mask']``.
        kind: ``"not mutated"``, ``"parameter or buffer"`` or ``"another tensor"`` (a mutated one).
        placement: ``"in place"``, or ``"copied"`` to the recording's memory (and back, if it is mutated).
        mutated: ``file:line`` of the first line that writes it, empty if none does.
    """

    name: str
    kind: str
    placement: str
    mutated: str


@dataclass(frozen=True)
class LeftAloneReport:
    """A stretch of a recording that is not optimised.

    Attributes:
        reason: Why.
        operations: How many operations it has.
    """

    reason: str
    operations: int


@dataclass(frozen=True)
class NearReport:
    """What is calculated in another way than PyTorch does (``numerics="near"``).

    Attributes:
        operator: The operators' name.
        alternative: What stands for them.
        operations: How many operations.
        error: The largest root of a mean square error among them, against results in 64 bits.
        own: The largest one of the operators themselves.
    """

    operator: str
    alternative: str
    operations: int
    error: float
    own: float


@dataclass(frozen=True)
class TierReport:
    """What stands in the place of what was captured, with the same bits (``numerics="exact"``).

    Attributes:
        used: Replays use it.
        before: Operations that launched something, in the stretches that could be looked at.
        after: Operations and kernels that do now.
        removed: How many of them each rule has removed: ``dead``, ``recomputed`` (as a loop does),
            ``repeated``, ``copies``, ``constants`` (computed once).
        shown: Copies that were added, to where others read results.
        outside: Operations left that depend on parameters and other state alone. They are computed in every
            replay, since nobody can know that the contents are the same.
        left: Stretches that stay as they were captured, or as they were before an attempt.
        fused: What kernels calculate; None if they calculate nothing.
        near: What is calculated in another way, so that bits differ; empty with ``numerics="exact"``.
        kept: Operations that keep their operator although it has an alternative, by reason.
        compiling: Stretches whose kernels are on their way.
        exact_us: Microseconds of a replay, if it was measured against the tier before.
        plain_us: Microseconds of a replay of the tier before.
    """

    used: bool
    before: int
    after: int
    removed: dict[str, int]
    shown: int
    outside: int
    left: tuple[LeftAloneReport, ...]
    fused: FusedOperations | None = None
    near: tuple[NearReport, ...] = ()
    kept: dict[str, int] = field(default_factory=dict[str, int])
    compiling: int = 0
    exact_us: float | None = None
    plain_us: float | None = None


@dataclass(frozen=True)
class RecordingReport:
    """One recording.

    Attributes:
        key: Its arguments.
        segments: Number of segments (CUDA graphs).
        operations: Captured operations on all paths.
        paths: Ways through it, by the values the host reads.
        islands: Operations between the segments, host reads included.
        bytes_held: Bytes of pool memory and static inputs. Memory shared with other recordings is divided in
            proportion to the estimates, so the figures add up to the memory held.
        estimate: Bytes that the recording was expected to need alone, before it was made: the peak of the
            observed calls, the memory they left at the end, and the arguments.
        replays: Calls answered by it.
        evictions: How often it gave its memory back for a budget, and was made again.
        inputs: Its tensor arguments.
        replay_us: Microseconds of a replay, if it was measured against plain calls: the median of the last
            round, of host or device, whichever is busy for longer.
        plain_us: Microseconds of a plain call.
        with_backward: Both include the walk back through the results.
        tier: What was optimised, and what was not; None before the recording has paid for a look.
    """

    key: str
    segments: int
    operations: int
    paths: int
    islands: tuple[IslandReport, ...]
    bytes_held: int
    replays: int
    estimate: int = 0
    evictions: int = 0
    inputs: tuple[InputReport, ...] = ()
    replay_us: float | None = None
    plain_us: float | None = None
    with_backward: bool = False
    tier: TierReport | None = None


@dataclass(frozen=True)
class ReasonReport:
    """Why calls were not replayed wholly from graphs.

    Attributes:
        code: Code of the rule.
        message: What happened, the last time.
        where: ``file:line`` of the user's line, empty if none is known.
        remedy: What to do.
        count: Number of these calls.
        warm_up: All came before the first recording of their keys, so the reason has settled by itself.
    """

    code: str
    message: str
    where: str
    remedy: str
    count: int
    warm_up: bool = False

    def finding(self) -> Finding:
        """The reason in the form of the findings of ``rote.check``."""
        return finding_at(self.code, self.where, self.message, self.remedy)


@dataclass(frozen=True)
class OutputReport:
    """Output of recorded calls to a standard stream, which replays do not repeat.

    Attributes:
        what: ``"print"``, ``"sys.stderr.write"``, ``"warnings.warn"``, or the library: ``"logging"``.
        where: ``file:line`` of the user's line.
    """

    what: str
    where: str


@dataclass(frozen=True)
class Report:
    """The whole report.

    Attributes:
        name: The callable.
        calls: All calls.
        replayed: Calls answered from a recording.
        eager: Calls that ran the callable, for observation and recording too.
        recorded: Calls that made a recording or added a path to one.
        backwards: Backward passes through results of recordings.
        backwards_replayed: Backward passes that were replayed.
        backwards_verified: Backward passes whose replay was compared with a plain one (``verify=``).
        verified: Replayed calls that also ran plainly and were found equal (``verify=``).
        recordings: The recordings that exist now.
        budget: Bytes they may hold on each device by the wrapper's own budget; None for no such limit.
        reasons: Why calls were not replayed, most frequent first, warm-up last.
        output: Lines that write output, which replays do not repeat; each once.
        kernels: Whose kernels compiled code runs: ``"inductor"``, with the compiler's rounding, or
            ``"aten"``, those of eager. Empty for a callable that no compiler made.
        parts: Modules that are graphed in eager calls, those with most time first.
        plan: What earlier processes have found (``plans=``); None where nothing is kept.
    """

    name: str
    calls: int
    replayed: int
    eager: int
    recorded: int
    backwards: int
    backwards_replayed: int
    backwards_verified: int
    verified: int
    recordings: tuple[RecordingReport, ...]
    reasons: tuple[ReasonReport, ...]
    budget: int | None = None
    output: tuple[OutputReport, ...] = ()
    kernels: str = ""
    parts: tuple[PartReport, ...] = ()
    plan: PlanReport | None = None

    @property
    def bytes_held(self) -> int:
        """Bytes held by all recordings, those of parts included."""
        own = sum(recording.bytes_held for recording in self.recordings)
        return own + sum(part.report.bytes_held for part in self.parts if not part.given_up)

    def findings(self) -> Findings:
        """The islands and the reasons in the form of the findings of ``rote.check``."""
        islands = {
            (island.code, island.where): (f"{island.operation} runs between two segments", "")
            for recording in self.recordings
            for island in recording.islands
        }
        found = [
            finding_at(code, where, message, remedy, island=True)
            for (code, where), (message, remedy) in islands.items()
        ]
        found += [each.finding() for each in self.reasons if (each.code, each.where) not in islands]
        return Findings(found, target=self.name)

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, lists and values."""
        return asdict(self)

    def to_json(self, *, indent: int | None = 2) -> str:
        """The report as JSON."""
        return json.dumps(self.to_dict(), indent=indent)


class ReasonCounts:
    """Counts reasons by code and line; the text is that of the last occurrence.

    A reason that a key met before its first recording, and not since, was its warm-up.
    """

    def __init__(self) -> None:
        self._found: dict[_Place, tuple[Reason, int]] = {}
        self._early: dict[_Place, Counter[Any]] = {}  # by the keys that have no recording yet
        self._warm: Counter[_Place] = Counter()

    def add(self, reasons: list[Reason], early: Any = None, calls: int = 1) -> None:
        """Count the reasons of one or more calls; ``early`` is their key if it has no recording yet."""
        for reason in {(reason.code, reason.where): reason for reason in reversed(reasons)}.values():
            place = (reason.code, reason.where)
            self._found[place] = (reason, self._found.get(place, (reason, 0))[1] + calls)
            if early is not None:
                keys = self._early.setdefault(place, Counter())
                if len(keys) >= MOST_EARLY:  # most are never recorded
                    keys.clear()
                keys[early] += 1

    def settle(self, key: Any) -> None:
        """A key has its first recording."""
        for place, keys in self._early.items():
            self._warm[place] += keys.pop(key, 0)

    def reports(self) -> tuple[ReasonReport, ...]:
        """All reasons, most frequent first; warm-up and keys still under observation come last."""

        def order(item: tuple[_Place, tuple[Reason, int]]) -> tuple[bool, int, bool]:
            place, (reason, count) = item
            return count == self._warm[place], -count, reason.code == NOT_YET.code

        return tuple(
            ReasonReport(
                reason.code, reason.message, reason.place, reason.remedy, count, count == self._warm[place]
            )
            for place, (reason, count) in sorted(self._found.items(), key=order)
        )

    def clear(self) -> None:
        """Forget everything."""
        self._found.clear()
        self._early.clear()
        self._warm.clear()


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
    tier = _explain_tier(recording.tier) if recording.tier is not None else []
    return [head, *tier, *repeated, *places]


def _explain_tier(tier: TierReport) -> list[str]:
    """What an exact tier has removed, and what was left alone."""
    lines: list[str] = []
    if tier.used:
        rules = ", ".join([f"{count} {rule}" for rule, count in tier.removed.items() if count])
        times = ""
        if tier.exact_us is not None and tier.plain_us is not None:
            times = f"; {tier.exact_us:.1f} us each, {tier.plain_us:.1f} us before"
        lines.append(f"  exact tier: {tier.after} operations instead of {tier.before} ({rules}){times}")
    if tier.fused is not None:
        launches, kernels = _counted(tier.fused.launches, "launch"), _counted(tier.fused.distinct, "kernel")
        lines.append(f"  fused: {tier.fused.operations} operations into {launches} of {kernels}")
        lines += [f"  not fused: {count} {what}" for what, count in tier.fused.refused.items()]
    for each in tier.near:
        told = f"  near: {each.operations} {each.operator} as {each.alternative}"
        lines.append(f"{told}; error {each.error:.3g}, its own {each.own:.3g}")
    lines += [f"  not near: {count} {what}" for what, count in tier.kept.items()]
    if tier.compiling:
        lines.append("  kernels are being compiled, and proved in the next replays")
    lines += [f"  left as captured: {each.operations} operations, {each.reason}" for each in tier.left]
    return lines


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
    end = f"; given up: {part.given_up}" if part.given_up else ""
    return f"{head}{times}{end}"


def explain_reasons(reasons: Iterable[ReasonReport]) -> list[str]:
    """Two lines for each reason: what happened, and what to do."""
    lines: list[str] = []
    for reason in reasons:
        at = f" at {reason.where}" if reason.where else ""
        when = " in the warm-up" if reason.warm_up else ""
        lines.append(f"{reason.code}{at}, {reason.count} calls{when}: {reason.message}")
        lines.append(f"  {reason.remedy}")
    return lines
