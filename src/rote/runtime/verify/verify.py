"""The self-check: some replayed calls run plainly as well, and everything a user can see is compared.

A checked call goes so:

1. Before the replay, copies are taken of what the recording is known to change: the arguments, the external
   tensors it writes, the gradients it replaces, the state of the random generators (:mod:`.surface`).
2. The replay runs as always. What it changed is copied too.
3. Everything is put back, and the callable runs plainly, in the caller's modes and with the caller's
   tensors: no tracer, no function mode, no graph. Its code tells what it writes, as in a traced call.
   Wrappers inside are plain calls. (Autocast's cache of cast weights is emptied around it, as around a
   recording: what it keeps would outlive the call and hide the put-back weights.)
   Version counters stay as the replay left them, for the sake of a backward that the caller still wants.
4. Compared are: the result (values, shapes, strides, what shares memory, attributes set on tensors), the
   arguments, the external tensors written, every gradient slot, the random generators, and whether the plain
   call wrote a tensor, changed Python state or a mode that the replay left alone. Of Python state that is
   what is under guard, and whatever else the code of the plain call wrote and left changed.
5. If all is equal, what the replay left is put back, so the caller's tensors and gradients are those of a
   replay. If not, what the plain call left stays, the key runs eagerly from then on, the other recordings of
   the callable are released, :mod:`.locate` looks for the operation, and ``VerificationError`` is raised.

Backward passes through recorded calls are checked in the same way, by a count of their own: the replayed walk
of the recorded graph is compared with a walk by autograd, gradient by gradient.

The values are compared to the bit. Kernels that add with atomics on CUDA do not repeat their own; use
deterministic algorithms there, or a tolerance.

What it costs: one plain call, one copy of the arguments and of what the recording writes before the replay
and one after it, two to put them back, and a wait for the device. Twice the size of what a call changes is
held meanwhile (for a training step: parameters, gradients and optimizer state). Where there is no memory for
that, the call is not checked, and a warning is logged.

Other threads must not use what the call changes while it is checked, PyTorch's random generators included:
they would see the same numbers twice.

What it cannot see:

- calls that ran the callable (observed, recorded, eager): there is nothing to compare them with;
- the calls between two checks, and paths or states that happen to come up only then;
- what is done to things other than tensors by functions that are declared pure, or to files and streams. The
  plain run does it, as the plain callable would; the replays in between do not;
- writes past version counters (``.data``, other libraries) into tensors that the recording does not write;
- what a backward started by the caller does besides replaying (hooks, accumulation, the caller's own graph);
- draws from Python's and numpy's generators while other threads are alive, which may have drawn as well;
- a replay that raises, and a race that both runs win.
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

    Args:
        every: Check the first replay of each recording, and every so many replays of a key.
        tolerance: Relative and absolute difference that floating-point values may have.
    """

    def __init__(self, every: int, tolerance: float) -> None:
        self._every = every
        self._tolerance = tolerance
        self.verified = 0

    def run(
        self, entry: Specialization, call: Call, caller: FrameType, entries: Iterable[Specialization]
    ) -> Answer:
        """Make one call, and check it if it is a replay whose turn it is.

        Args:
            entry: The key of the call.
            call: The arguments.
            caller: The caller's frame.
            entries: All keys of the wrapper; after a failed check their recordings go too.

        Raises:
            VerificationError: The replay gave something else than the plain callable.
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
            for other in entries:  # what was hidden from one recording was hidden from the others
                other.release()
            raise
        return result

    def _due(self, entry: Specialization, call: Call) -> Recording | None:
        """The recording that will answer the call, if that is to be checked."""
        turn = sum(recording.replays for recording in entry.recordings) % self._every == 0
        if not turn and all(recording.replays or not recording.recorded for recording in entry.recordings):
            return None
        recording = entry.choice.find(call) if entry.life.state is not State.EAGER else None
        if recording is None or not recording.recorded:
            return None
        return recording if turn or not recording.replays else None
