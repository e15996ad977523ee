"""The report of a graphed callable, as frozen values that serialise to JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from ..hazards import Findings, finding_at
from ..hazards.rules import Finding
from ..plans import PlanReport


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
    """What is calculated in another way than PyTorch does.

    Attributes:
        operator: The operators' name.
        alternative: What stands for them.
        operations: How many operations.
        error: The largest root of a mean square error among them, against results in 64 bits; None if the
            bits are PyTorch's.
        own: The largest one of the operators themselves.
        how: ``"proved"`` to have PyTorch's bits, ``"probed"``, or ``"near"``.
    """

    operator: str
    alternative: str
    operations: int
    error: float | None = None
    own: float | None = None
    how: str = "near"


@dataclass(frozen=True)
class OfferedReport:
    """Alternatives that exist for an operator of a recording, whether they are used or not.

    Attributes:
        operator: The operators' name.
        operations: How many operations.
        alternatives: What may stand for them with ``numerics="near"``, if it fits and passes its gate.
    """

    operator: str
    operations: int
    alternatives: tuple[str, ...]


@dataclass(frozen=True)
class TrialReport:
    """A version of a recording that was timed in the place of the one before.

    Attributes:
        tier: What was new: ``"exact"`` operations left out, ``"fused"`` kernels, what is calculated in
            another way that is ``"proved"``, ``"probed"`` or ``"near"``.
        what: What it differed in from one of the same tier; else empty.
        us: Microseconds of a replay; None if nothing was measured.
        before_us: The same of the version before.
        kept: It stays; what does not is gone.
    """

    tier: str
    what: str
    us: float | None
    before_us: float | None
    kept: bool


@dataclass(frozen=True)
class LineReport:
    """What the tiers have made of the operations of one line.

    Attributes:
        where: ``file:line`` of the user's line.
        text: That line.
        before: Operations that were captured, views not counted.
        after: Operations and kernels that are launched instead; a kernel counts where its last operation is.
        tiers: How many of those are of which tier: ``"plain"``, ``"exact"``, ``"fused"``, ``"proved"``,
            ``"probed"``, ``"near"``.
        refused: What no kernel and no alternative calculates, by reason.
    """

    where: str
    text: str
    before: int
    after: int
    tiers: dict[str, int]
    refused: dict[str, int]


@dataclass(frozen=True)
class FusedReport:
    """Pointwise operations that kernels calculate, several at once, with the same bits.

    Attributes:
        launches: How often such a kernel is launched.
        distinct: How many of them there are.
        operations: Operations that they calculate.
        refused: How many operations no kernel may calculate, by kind and reason.
        probed: How many of the operations are not proved, but probed (``numerics="probed"``).
    """

    launches: int
    distinct: int
    operations: int
    refused: dict[str, int]
    probed: int = 0


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
        near: What is calculated in another way; with ``numerics="exact"`` where that is proved.
        kept: Alternatives that do not stand for an operation although they fit, by reason.
        offered: The alternatives that ``numerics="near"`` would try, by operator.
        trials: The versions that were timed, in order.
        lines: The lines of the user's, those with most operations first.
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
    fused: FusedReport | None = None
    near: tuple[NearReport, ...] = ()
    kept: dict[str, int] = field(default_factory=dict[str, int])
    offered: tuple[OfferedReport, ...] = ()
    trials: tuple[TrialReport, ...] = ()
    lines: tuple[LineReport, ...] = ()
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
class PartReport:
    """A module that is graphed by itself, since the callable that calls it is not replayed.

    Attributes:
        name: The class of the module.
        where: ``file:line`` of the line that called it when it was graphed.
        calls: Its calls since then.
        replayed: Those of them that replays have answered.
        plain_us: The shortest plain call before it was graphed, in microseconds.
        given_up: Why its calls are plain again, and modules in it may be parts; empty if they are not.
        report: Its report, a :class:`~rote.Report`.
    """

    name: str
    where: str
    calls: int
    replayed: int
    plain_us: float
    given_up: str
    report: Report


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
