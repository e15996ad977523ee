"""How long a key is tried: traced calls have to lead to replays.

A traced call takes longer than a plain one, many times as long where operations are small. That pays if what
it met comes again. So the calls are counted that met something new, a state or a value read on the host that
no call before had met, unless at least ``PAYS`` replays lie between one and the next. After too many in a row
the key rests: it runs plainly, and is looked at again when the rest is over, which is ever longer
(:mod:`.states`). So a program that settles after n calls is picked up before call 3n or so.

Keys that do not come again have nothing to rest from: see :mod:`...api.newcomers`.

What does not work: to measure traced calls against plain ones, as replays are (:mod:`..recording.contest`).
Every one of them would lose; what they are worth is known only later.
"""

from __future__ import annotations

from ...hazards.rules import Reason
from ..capture.path import UnseenValue
from ..recording import Recording
from .states import PATIENCE, Life
from .subject import Limits

PAYS = 4
"""Replays that pay for a call that met something new."""

MAX_OBSERVED = 8
"""Variants of a key that were observed but never recorded; the oldest is forgotten beyond that."""


class Patience:
    """What one key's traced calls have led to.

    Args:
        life: The key's.
        limits: Bounds.
        recordings: The key's list.
    """

    def __init__(self, life: Life, limits: Limits, recordings: list[Recording]) -> None:
        self._life = life
        self._limits = limits
        self._recordings = recordings
        self._replays = self._settled = 0

    def settled(self) -> bool:
        """Whether enough was replayed since the last call that was not steady."""
        before, self._settled = self._settled, sum(recording.replays for recording in self._recordings)
        return self._settled >= before + PAYS

    def paid(self) -> bool:
        """Whether enough was replayed since the last call that asked."""
        before, self._replays = self._replays, sum(recording.replays for recording in self._recordings)
        return self._replays >= before + PAYS

    def spend(self, unseen: UnseenValue) -> Reason | None:
        """A call read a value that none before had; why the key rests from now on, if it does.

        With ``keep=True`` it never does: the values that may be kept are the only bound then.
        """
        if self._limits.keep:
            return None
        count = self._life.unseen(max(PATIENCE, self._limits.max_paths // 2))
        return unseen.give_up(count, self._life.resting) if count else None
