"""Facts about one key: what a process has found, for those that come after it.

They are text and numbers, and hold no tensor, no address and no code. Nothing follows from them but when
something is tried: a recording is made from what its own process has observed, whatever they say.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ....base import Site, cut
from ....hazards.rules import Reason

MOST_TEXT = 1_000
"""Characters of a text that are kept."""


@dataclass(frozen=True)
class ReasonFacts:
    """A reason of an earlier process.

    Attributes:
        message: What happened, with the values that mattered.
        where: ``file:line`` of the user's line, as it was then; empty if it was not known.
        remedy: What to do about it.
    """

    code: str
    message: str
    where: str
    remedy: str

    @classmethod
    def of(cls, why: Reason) -> ReasonFacts:
        """A reason of this process."""
        texts = [cut(each, MOST_TEXT) for each in (why.message, why.place, why.remedy)]
        return cls(why.code, *texts)

    def __str__(self) -> str:
        place = f" at {self.where}" if self.where else ""
        return f"{self.code}{place}: {self.message}. {self.remedy}"


@dataclass(frozen=True)
class VerdictFacts:
    """A key came to nothing.

    Attributes:
        price: What a traced call has cost, in plain calls.
    """

    reason: ReasonFacts
    price: float


@dataclass(frozen=True)
class StateFacts:
    """What was recorded for one state that calls found.

    Attributes:
        ways: A digest of the operations on each way: operators, operands, shapes, types and sources.
        operations: The operations of the first way as text, as many as are kept.
        conditions: Plain values and tensors that calls found, by source.
        islands: What runs between two segments, with its line and the code of the rule.
        exact: The exact tier has won.
        kernels: How many kernels of rote's own it launches.
        replay_us: What a replay took; None if it was not measured.
        plain_us: What a plain call took.
    """

    ways: tuple[str, ...]
    operations: tuple[str, ...]
    count: int
    conditions: dict[str, str]
    islands: tuple[str, ...] = ()
    segments: int = 0
    exact: bool = False
    kernels: int = 0
    replay_us: float | None = None
    plain_us: float | None = None

    def difference(self, other: StateFacts) -> str:
        """What another observation does differently; empty if it is one that these facts are about."""
        for name, value in other.conditions.items():
            was = self.conditions.get(name, value)
            if was != value:
                return f"{name} was {was} and is {value}"
        if other.ways[0] in self.ways:
            return ""
        for number, (was, now) in enumerate(zip(self.operations, other.operations, strict=False)):
            if was != now:
                return f"operation {number} was {was} and is {now}"
        return f"the call has other operations than the {self.count} that were recorded"


@dataclass(frozen=True)
class KeyFacts:
    """All that is known of one key.

    Attributes:
        calls: Calls until it was first recorded; 0 if it never was.
        states: What was recorded, the last one first.
        verdict: Why it came to nothing; None if it did not.
        lines: Lines that read numbers that change from call to call.
        slots: Names of slots that hold such numbers.
        leaves: Argument leaves that are such numbers.
    """

    key: str
    calls: int = 0
    states: tuple[StateFacts, ...] = ()
    verdict: VerdictFacts | None = None
    lines: tuple[Site, ...] = ()
    slots: tuple[str, ...] = ()
    leaves: tuple[int, ...] = ()
    reasons: tuple[ReasonFacts, ...] = ()

    def trusting(self, *, code: bool) -> KeyFacts:
        """Without what nothing checks before it is used, unless it is about the same code."""
        return self if code else replace(self, verdict=None, lines=(), slots=(), leaves=())
