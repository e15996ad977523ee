"""A key of walking a recorded graph back, with the hot path that answers its plain replays.

A walk is a call like any other, made by autograd, on a thread of its own where the device is a GPU. What its
wrapper does around a call of the forward (:mod:`...api.paths`) is done here: once a walk was replayed, a
function is written that makes the next one, and it is asked first.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ...base import NotReplayedError
from ...hazards import findings_of
from ..arguments import NOT_MINE, Call
from ..memory import Holding
from ..program import REPLAYED, Result
from ..reads.trace import Output
from ..recording import Recording
from ..recording.contest import NEVER
from ..replay import HotPath
from .guard_reasons import strict_reasons

if TYPE_CHECKING:
    from .specialization import Specialization


class Walked:
    """Makes the walks of one key."""

    def __init__(self, entry: Specialization) -> None:
        self._entry = entry
        self._hot: HotPath | None = None

    @property
    def dead(self) -> bool:
        """Whether the key can no longer be used."""
        return self._entry.counts.dead

    def answer(self, args: tuple[Any, ...]) -> Any:
        """Make a walk that is a plain replay; the device's lock is not held.

        Returns:
            The value that :meth:`make` would have; NOT_MINE if it has to decide.
        """
        hot = self._hot  # another thread may release it meanwhile
        return hot.call(args, {}) if hot is not None else NOT_MINE

    def make(self, call: Call) -> Result:
        """Make one walk, with the device's lock held.

        Raises:
            NotReplayedError: In strict mode, after the warm-up, if it would not be replayed from graphs.
            VerificationError: A replay of it was checked and is wrong.
        """
        entry, log = self._entry, self._entry.log
        if log.strict and entry.counts.calls >= entry.limits.warmup + 2:
            recording, reasons = entry.would_replay(call)
            if recording is None or reasons:
                listed = "\n  ".join(str(why) for why in reasons)
                text = f"{entry.name} would not be replayed wholly from graphs (strict mode):\n  {listed}"
                raise NotReplayedError(text, findings_of(reasons, entry.name))
        if log.checks is not None:
            return log.checks.run(entry, call, sys._getframe(1), ())
        result = entry.run(call, sys._getframe(1))
        if result.how is REPLAYED and result.recording is not None:
            entry.subject.ledger.add_replays(1)
            self._learn(result.recording, call)
        else:
            self._hot = None
        return result

    def _learn(self, recording: Recording, call: Call) -> None:
        """A walk was replayed: the next one like it need not come this way."""
        entry, log = self._entry, self._entry.log
        if log.strict and strict_reasons(recording, entry.limits):
            return
        recording.compare_at(NEVER)  # walks are not measured against plain ones
        self._hot = entry.generate(recording, call, None, log, log.finish, sorts=False) or self._hot

    def holdings(self) -> list[Holding]:
        """The memory of its recordings."""
        return self._entry.holdings()

    def output(self) -> list[Output]:
        """What its recorded walks wrote to the standard streams."""
        return self._entry.output()

    def release(self) -> None:
        """Free everything."""
        self._hot = None
        self._entry.release()
