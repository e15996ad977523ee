"""The tiers of a recording: the plain one that was captured, and those that may stand in its place.

A stretch of another tier leaves its results in the same memory, so a stretch goes from one tier to the other
between two calls by another list of steps, and the others never know. The plain steps stay: what is new may
lose the contest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol

import torch

from ..backends.protocol import Segment, Session
from .contest import FIRST_ROUND, NEVER, Contest, Figures
from .tree import Node, Step

ELSEWHERE, MOST_ELSEWHERE = 64, 4096
"""Replays between two looks for one that goes another way; each look in vain doubles them."""

FIRST_TIER = 2 * FIRST_ROUND
"""Replays before a recording is optimised: the first round against plain calls is over then."""


class Numerics(IntEnum):
    """What may stand in the place of what was captured; each allows what those before it do."""

    PLAIN = 0
    EXACT = 1
    PROBED = 2
    NEAR = 3


@dataclass(frozen=True)
class Removed:
    """What was removed from a stretch.

    Attributes:
        before: Operations that launched something.
        after: What is left of them, with the copies to where others read their results.
        by_rule: Operations that each rule has removed.
        outside: Operations left that depend on parameters and other state alone.
    """

    before: int
    after: int
    shown: int
    by_rule: Mapping[str, int]
    outside: int


@dataclass(frozen=True)
class FusedOperations:
    """Pointwise operations that kernels of rote's calculate, several at once, with the same bits.

    Attributes:
        launches: How often such a kernel is launched.
        refused: Why no kernel may calculate an operation, by its index: what is not proved to give the same
            bits on this device runs alone.
        probed: How many of the operations are not proved, but probed.
    """

    launches: int
    distinct: int
    operations: int
    refused: Mapping[int, str]
    probed: int = 0


@dataclass(frozen=True)
class AlternativeUse:
    """An operation that is calculated in another way.

    Attributes:
        error: The root of the mean square error of that, against the exact result; None if its bits are the
            operator's.
        own: The same of the operator itself.
    """

    operator: str
    alternative: str
    error: float | None = None
    own: float | None = None


@dataclass(frozen=True)
class AlternativeUses:
    """What of a stretch is calculated in other ways.

    Attributes:
        replaced: The operations, by index.
        refused: Why alternatives are not used, by index: a reason for the name of each.
        numerics: Whether the bits were proved to be the same, were so where they were probed, or are near.
        trial: What this differs in from the tier before, if that had alternatives as well; else empty.
    """

    replaced: Mapping[int, AlternativeUse]
    refused: Mapping[int, Mapping[str, str]]
    numerics: Numerics
    trial: str = ""

    @property
    def how(self) -> str:
        """How the operations are calculated, in a word."""
        return {Numerics.EXACT: "proved", Numerics.PROBED: "probed"}.get(self.numerics, "near")


class Launched(NamedTuple):
    """What an exact segment runs as one.

    Attributes:
        operations: The operations of the stretch that it stands for, by index; none if it shows a result.
        how: ``"exact"`` as the operation itself, ``"fused"`` by a kernel, ``"proved"`` in another way that
            was proved, ``"probed"`` by a kernel of which not all is proved, or in another way with the same
            bits, ``"near"`` in another way.
    """

    operations: tuple[int, ...]
    how: str


@dataclass(frozen=True)
class ExactStretch:
    """What may stand for the steps of one stretch.

    Attributes:
        plain: Its steps before: as they were captured, or those of an earlier exact stretch.
        exact: The steps that leave the same bits in the same memory.
        removed: What is missing from them.
        kept: Memory of what was computed once.
        contents: What each of its own segments runs, in order.
        fused: What kernels calculate; None if each operation runs by itself.
        others: What is calculated in other ways; None if nothing is.
    """

    node: Node
    plain: list[Step]
    captured: list[Step]
    exact: list[Step]
    removed: Removed
    session: Session
    kept: tuple[torch.UntypedStorage, ...]
    contents: tuple[tuple[Segment, tuple[Launched, ...]], ...]
    fused: FusedOperations | None = None
    others: AlternativeUses | None = None

    @property
    def tier(self) -> str:
        """What is new in it."""
        if self.others is not None:
            return self.others.how
        if self.fused is None:
            return "exact"
        return "probed" if self.fused.probed else "fused"


@dataclass(frozen=True)
class TierTrial:
    """What was timed in the place of what was there before.

    Attributes:
        tier: What is new: operations left out (``"exact"``), kernels (``"fused"``), what is ``"proved"``,
            ``"probed"`` or ``"near"``.
        what: What it differs in from the tier before, if it is of the same kind.
        figures: Both times; None if nothing was measured.
    """

    tier: str
    what: str
    figures: Figures | None
    kept: bool


class Waiting(Protocol):
    """Kernels of a stretch that are being compiled and proved."""

    @property
    def node(self) -> Node:
        """The stretch."""
        ...

    @property
    def idle(self) -> bool:
        """Whether nothing can be done for it but wait."""
        ...


class Tiers:
    """The tiers of one recording.

    A stretch may get one after another: first one without some of its operations, then one whose operations
    are calculated by fewer kernels. A new one is a candidate until it has won the contest against the one
    before.

    Attributes:
        due: Replays from which on the general path looks at them.
        settled: Stretches with an exact tier that stays.
        candidates: Those whose exact tier is new.
        waiting: Kernels on their way.
        whole: Stretches from which nothing can be removed.
        left: Those without, or without kernels, with the reason.
        lost: Why there are no further ones.
        contest: Replays of the candidates, timed against those of the tier before.
        trials: What has come of candidates, in order.
        awaited: A contest against plain calls was put off for them.
    """

    def __init__(self) -> None:
        self.due = NEVER
        self.clear()

    def clear(self) -> None:
        """The recording is released; what was optimised with it is gone."""
        self.due = NEVER
        self.settled: list[ExactStretch] = []
        self.candidates: list[ExactStretch] = []
        self.waiting: list[Waiting] = []
        self.whole: list[tuple[Node, Removed]] = []
        self.left: list[tuple[Node, str]] = []
        self.lost: str | None = None
        self.contest = Contest()
        self.trials: list[TierTrial] = []
        self.awaited = False
        self._elsewhere = ELSEWHERE

    def knows(self, node: Node) -> bool:
        """Whether a stretch was looked at, as it is now."""
        steps = node.steps
        found = any([steps is each.plain or steps is each.exact for each in self.stretches])
        return found or any([node is other for other, _ in (*self.left, *self.whole)])

    def add(self, stretch: ExactStretch) -> None:
        """A stretch has a new exact tier, which replays use from now on."""
        self.candidates.append(stretch)
        self.contest = Contest(challenges=stretch.others is not None and bool(stretch.others.trial))
        stretch.node.steps = stretch.exact

    def keep_whole(self, node: Node, removed: Removed) -> None:
        """Nothing can be removed from a stretch that was looked at."""
        self.whole.append((node, removed))

    def leave(self, node: Node, why: str) -> None:
        """A stretch stays as it is."""
        self.left.append((node, why))

    def wait(self, kernels: Waiting) -> None:
        """Kernels of a stretch are being compiled."""
        self.waiting.append(kernels)

    def arrived(self, kernels: Waiting) -> None:
        """They are captured, or there will be none."""
        self.waiting.remove(kernels)

    @property
    def stretches(self) -> list[ExactStretch]:
        """The stretches with an exact tier, the newest of each last."""
        return [*self.settled, *self.candidates]

    @property
    def newest(self) -> list[ExactStretch]:
        """The newest exact tier of each stretch."""
        return list({id(each.node): each for each in self.stretches}.values())

    @property
    def exact(self) -> bool:
        """Whether there is an exact tier."""
        return bool(self.settled or self.candidates)

    @property
    def open(self) -> bool:
        """Whether it is not known yet which tier is faster."""
        return bool(self.candidates)

    @property
    def challenged(self) -> bool:
        """Whether a version is being timed that has others of its kind beside it."""
        return any([each.others is not None and bool(each.others.trial) for each in self.candidates])

    @property
    def is_on_the_way(self) -> bool:
        """Whether the candidates are steps to kernels, of which an earlier process may know that they pay."""
        return bool(self.waiting) and all([each.others is None for each in self.candidates])

    @property
    def final(self) -> bool:
        """Whether nothing will change any more, as far as is known."""
        return self.due == NEVER and not self.waiting and not self.open

    def wants(self, root: Node) -> bool:
        """Whether a look at the recording after a replay would find something to do."""
        if self.open:
            return False
        return any([not each.idle for each in self.waiting]) or self._has_new(root)

    def following(self, replays: int, root: Node, while_idle: int, way: Sequence[Node] = ()) -> int:
        """After how many replays the tiers are looked at again.

        Args:
            while_idle: Replays between two looks at kernels that are being compiled.
            way: The stretches that were replayed, if it was looked at what is to be done for them.
        """
        if self.open:
            return replays
        if any([each.node in way and not each.idle for each in self.waiting]):
            self._elsewhere = ELSEWHERE
            return replays
        if self.waiting and all([each.idle for each in self.waiting]):
            return replays + while_idle
        if self.waiting:
            pause, self._elsewhere = self._elsewhere, min(2 * self._elsewhere, MOST_ELSEWHERE)
            return replays + pause
        return replays + FIRST_TIER if self._has_new(root) else NEVER

    def _has_new(self, root: Node) -> bool:
        """Whether there are stretches that nobody has looked at."""
        if self.lost is not None:
            return False
        return any([node.steps is not None and not self.knows(node) for node in root.walk()])

    def use(self, *, exact: bool) -> None:
        """Replays use the candidates from now on, or what was there before them."""
        for each in self.candidates:
            now, then = (each.plain, each.exact) if exact else (each.exact, each.plain)
            if each.node.steps is now:
                each.node.steps = then

    def decide(self) -> list[Session]:
        """The candidates stay; returns the captures that nobody needs any more."""
        nodes = {id(each.node) for each in self.candidates}
        self._note(kept=True)
        replaced = [each.session for each in self.settled if id(each.node) in nodes]
        kept = [each for each in self.settled if id(each.node) not in nodes]
        self.settled, self.candidates = [*kept, *self.candidates], []
        return replaced

    def drop(self, why: str) -> list[Session]:
        """What was there before the candidates is used from now on; returns the captures of those."""
        self.use(exact=False)
        self._note(kept=False)
        dropped, self.candidates = self.candidates, []
        whole = [each for each in dropped if each.others is None or not each.others.trial]
        self.left += [(each.node, why) for each in whole]
        if any([each.fused is None and each.others is None for each in whole]):
            self.lost = why
        return [each.session for each in dropped]

    def _note(self, *, kept: bool) -> None:
        """Note what comes of the candidates, once for all that were timed together."""
        found = {
            (each.tier, each.others.trial if each.others is not None else ""): each
            for each in self.candidates
        }
        self.trials += [TierTrial(*key, self.contest.figures, kept) for key in found]
