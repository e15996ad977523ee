"""The self-check: some replayed calls also run plainly, and everything that a user can see is compared.

``docs/design.md`` has the steps, what a check costs and what it cannot see. Of the plain call: wrappers
inside are plain calls, too. Autocast's cache of cast weights is emptied around it, as around a recording: it
would outlive the call and hide the put-back weights. Version counters stay as the replay left them, for a
later backward of the caller. Python state is the state under guard, and all that the code of the plain call
wrote and left changed. After a difference the key runs eagerly, and the other recordings of the callable are
released.

Backward passes through recorded calls are checked in the same way, by a count of their own: the replayed walk
of the recorded graph is compared with a walk by autograd, gradient by gradient. Without memory for the copies
a call is not checked, and a warning is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from types import FrameType

from ...base import VerificationError, user_site
from ..arguments import Call
from ..engine import Answer, Specialization, State
from ..program import REPLAYED
from ..recording import Recording
from .check import OUT_OF_MEMORY, Check

_log = logging.getLogger("rote")


class Verifier:
    """Makes the calls of one wrapper, or the backward passes through them, and checks some of the replays.

    It checks the first replay of each recording, and every so many replays of a key.
    """

    def __init__(self, every: int, tolerance: float) -> None:
        self._every = every
        self._tolerance = tolerance
        self.verified = 0

    def run(
        self, entry: Specialization, call: Call, caller: FrameType, entries: Iterable[Specialization]
    ) -> Answer:
        """Make one call, and check it if it is a replay whose turn it is.

        ``entries`` are all keys of the wrapper: after a failed check their recordings go too.

        Raises:
            VerificationError: The replay differs from the plain callable.
        """
        recording = self._due(entry, call)
        if recording is None:
            return entry.run(call, caller)
        try:
            check = Check(entry, recording, call, entry.prepare(call), self._tolerance)
        except OUT_OF_MEMORY as error:
            _log.warning("%s: call %d is not checked: %s", entry.name, entry.calls + 1, error)
            return entry.run(call, caller)
        result = entry.run(call, caller)
        if result.how != REPLAYED or result.recording is not recording:
            return result
        try:
            check.compare(result.value, user_site(caller))
            self.verified += 1
        except OUT_OF_MEMORY as error:
            _log.warning("%s: call %d is not checked: %s", entry.name, entry.calls, error)
        except VerificationError:
            for other in entries:  # the cause was hidden from all recordings
                other.release()
            raise
        return result

    def _due(self, entry: Specialization, call: Call) -> Recording | None:
        """The recording that will answer the call, if its turn to be checked has come."""
        turn = sum(recording.replays for recording in entry.recordings) % self._every == 0
        if not turn and all(recording.replays or not recording.recorded for recording in entry.recordings):
            return None
        recording = entry.choice.find(call) if entry.life.state is not State.EAGER else None
        if recording is None or not recording.recorded or recording.acts or recording.shards:
            return None
        return recording if turn or not recording.replays else None
