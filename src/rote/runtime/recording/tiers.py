"""The tiers of a recording: the plain one that was captured, and the exact one that may stand in its place.

A stretch of the exact tier leaves the same bits in the same memory, so a stretch goes from one tier to the
other between two calls by another list of steps, and the others never know. The plain steps stay: the exact
ones may lose the contest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from ..backends.protocol import Session
from .contest import FIRST_ROUND, NEVER, Contest
from .tree import Node, Step

FIRST_TIER = 2 * FIRST_ROUND
"""Replays before a recording is optimised: the first round against plain calls is over then."""


@dataclass(frozen=True)
class Removed:
    """What was removed from a stretch.

    Attributes:
        before: Operations that launched something.
        after: What is left of them, with the copies to where others read their results.
        shown: Those copies.
        by_rule: Operations that each rule has removed.
        outside: Operations left that depend on parameters and other state alone.
    """

    before: int
    after: int
    shown: int
    by_rule: Mapping[str, int]
    outside: int


@dataclass(frozen=True)
class ExactStretch:
    """What may stand for the steps of one stretch.

    Attributes:
        node: The stretch.
        plain: Its steps as they were captured.
        exact: The steps that leave the same bits in the same memory.
        removed: What is missing from them.
        session: The capture of those.
        kept: Memory of what was computed once.
    """

    node: Node
    plain: list[Step]
    exact: list[Step]
    removed: Removed
    session: Session
    kept: tuple[torch.UntypedStorage, ...]


class Tiers:
    """The tiers of one recording.

    Attributes:
        due: Replays from which on the general path looks at them.
        stretches: Those with an exact tier.
        whole: Those from which nothing can be removed.
        left: Those without, with the reason.
        lost: Why there is no exact tier any more.
        contest: Its replays, timed against those of the plain tier.
        decided: That has said which one stays.
    """

    def __init__(self) -> None:
        self.due = NEVER
        self.clear()

    def clear(self) -> None:
        """The recording is released; what was optimised with it is gone."""
        self.due = NEVER
        self.stretches: list[ExactStretch] = []
        self.whole: list[tuple[Node, Removed]] = []
        self.left: list[tuple[Node, str]] = []
        self.lost: str | None = None
        self.contest = Contest()
        self.decided = False

    def knows(self, node: Node) -> bool:
        """Whether a stretch was looked at, as it is now."""
        steps = node.steps
        found = any([steps is each.plain or steps is each.exact for each in self.stretches])
        return found or any([node is other for other, _ in (*self.left, *self.whole)])

    def add(self, stretch: ExactStretch) -> None:
        """A stretch has an exact tier, which replays use from now on."""
        self.stretches.append(stretch)
        self.contest, self.decided = Contest(), False
        stretch.node.steps = stretch.exact

    def keep_whole(self, node: Node, removed: Removed) -> None:
        """Nothing can be removed from a stretch that was looked at."""
        self.whole.append((node, removed))

    def leave(self, node: Node, why: str) -> None:
        """A stretch stays as it is."""
        self.left.append((node, why))

    @property
    def exact(self) -> bool:
        """Whether there is an exact tier."""
        return bool(self.stretches)

    @property
    def open(self) -> bool:
        """Whether it is not known yet which tier is faster."""
        return self.exact and not self.decided

    def following(self, replays: int, root: Node) -> int:
        """After how many replays the tiers are looked at again."""
        if self.open:
            return replays
        more = any([node.steps is not None and not self.knows(node) for node in root.walk()])
        return replays + FIRST_TIER if more and self.lost is None else NEVER

    def use(self, *, exact: bool) -> None:
        """Replays use one of the tiers from now on."""
        for each in self.stretches:
            now, then = (each.plain, each.exact) if exact else (each.exact, each.plain)
            if each.node.steps is now:
                each.node.steps = then

    def decide(self) -> None:
        """The exact tier stays."""
        self.decided = True

    def drop(self, why: str) -> list[Session]:
        """The plain tier alone is used from now on; returns the captures that nobody needs any more."""
        self.use(exact=False)
        sessions = [each.session for each in self.stretches]
        self.left += [(each.node, why) for each in self.stretches]
        self.stretches, self.lost, self.decided = [], why, True
        return sessions
