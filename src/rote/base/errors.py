"""Exceptions, by blame.

    RoteError
    ├── MisuseError          the caller asked for something that cannot mean anything
    │   └── OptionError      an option has an impossible value
    ├── EnvironmentError_    the machine or the PyTorch build cannot do it
    │   └── CaptureError     a device refused an operation while a segment was being captured
    │       └── MemoryShortageError  the device had no memory left
    ├── NotReplayedError     strict mode: a guard did not match, or nothing could be recorded
    └── InternalError        our bug; please report it
        └── VerificationError  the self-check: a replay differs from the plain call

After a raise nothing half-recorded is kept, the current stream and the random number generators are as the
plain callable would have left them, and the wrapper can be called again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class RoteError(Exception):
    """Base of every exception of rote's own. Exceptions of the wrapped callable pass through unchanged."""


class MisuseError(RoteError):
    """The caller asked for something that cannot work; change the calling code."""


class OptionError(MisuseError, ValueError):
    """An option has a value it cannot take. The message names the option and the allowed values."""


class EnvironmentError_(RoteError):
    """The machine, the driver or this PyTorch build cannot do what was asked."""


class CaptureError(EnvironmentError_):
    """A device refused an operation during a capture.

    The runtime turns it into an island: users see it only when they drive a backend by hand.
    """


class MemoryShortageError(CaptureError):
    """The device had no memory left for a recording. Its ``__cause__`` is PyTorch's error.

    The runtime frees memory, tries again, and then runs the call eagerly: users see it only when they drive a
    backend by hand.
    """


class NotReplayedError(RoteError):
    """Strict mode: the call would not have been replayed wholly from graphs.

    It is raised before the callable runs, so the call had no effect.

    Attributes:
        findings: The reasons, in the form of ``g.findings()`` and ``rote.check``: code, place, message,
            remedy.
    """

    def __init__(self, message: str = "", findings: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.findings = findings


class InternalError(RoteError):
    """An invariant of rote does not hold. This is a bug in rote; please report it."""


class VerificationError(InternalError):
    """The self-check (``verify=``) found that a replay differs from the plain callable.

    Either rote has a bug, or the callable reads a value that rote cannot see. The state is that of one plain
    call, and the recording is gone, so later calls do not repeat the wrong answer.

    Attributes:
        output: The first value that differs: ``result['logits']``, ``args[0]``, ``model.weight.grad``.
        difference: The largest absolute difference in it; infinite where only one of the two is NaN, None
            where the difference is not one of numbers.
        operation: The first operation whose result differs, None if it is not known.
        where: ``file:line`` of the cause, None if it is not known.
        cause: The likely cause, with its rule code.
        findings: The cause as a finding, in the form of ``rote.check``.
    """

    def __init__(
        self,
        message: str,
        *,
        output: str = "",
        difference: float | None = None,
        operation: str | None = None,
        where: str | None = None,
        cause: str = "",
        findings: Sequence[Any] = (),
    ) -> None:
        super().__init__(message)
        self.findings = findings
        self.output = output
        self.difference = difference
        self.operation = operation
        self.where = where
        self.cause = cause
