"""Verification: what ``verify=`` finds when a replay is not what the plain call gives."""

from __future__ import annotations

from ..finding import Severity
from .rule import Finder, Group, Rule

REPLAY_DIFFERS = Rule(
    "RT321",
    "replay differs from the plain call",
    "See the VerificationError; once its cause is gone, reset() lets the callable be recorded again.",
    Severity.WRONG,
    Group.VERIFICATION,
    Finder.RUNTIME,
    """
    A check by ``verify=`` found a difference; the key runs eagerly from then on.

    Why: The recording is wrong for this call. The error names the operation, the line and the likely cause.

    Limits: Only calls that are checked can be found.

    Unchecked: It compares replays, and a check makes none.

    Bad::

        return x * hidden.get()

    Good::

        return x * factor
    """,
)
HIDDEN_VALUE = Rule(
    "RT322",
    "value that cannot be seen",
    "Pass the value in as an argument, keep it in an attribute of the module, or compute it on the device.",
    Severity.WRONG,
    Group.VERIFICATION,
    Finder.RUNTIME,
    """
    An operation got another number than in the recording, from something that rote can't look into.

    Why: The number was equal while the calls were observed and changed later: a file, a foreign object.

    Limits: Found by ``verify=`` only.

    Unchecked: It compares replays, and a check makes none.

    Bad::

        return x * hidden.get()

    Good::

        return x * factor
    """,
)
HIDDEN_BRANCH = Rule(
    "RT323",
    "branch on something that cannot be seen",
    "Make what the branch depends on an argument; do not replace functions or code after the first call.",
    Severity.WRONG,
    Group.VERIFICATION,
    Finder.RUNTIME,
    """
    The plain call runs other operations than the recording, and nothing that rote guards has changed.

    Why: The branch depends on something that rote can't look into.

    Limits: Found by ``verify=`` only.

    Unchecked: It compares replays, and a check makes none.

    Bad::

        return x.exp() if hidden.get() else x.tanh()

    Good::

        return x.exp() if flag else x.tanh()
    """,
)
HIDDEN_STATE = Rule(
    "RT324",
    "Python state changed by some calls only",
    "Keep what changes in a tensor that is updated in place, or change it outside of the callable.",
    Severity.WRONG,
    Group.VERIFICATION,
    Finder.RUNTIME,
    """
    The plain call changes Python state, and did not while it was observed: every hundredth call logs.

    Why: Replays do not make the change.

    Limits: Found by ``verify=`` only.

    Unchecked: It compares replays, and a check makes none.

    Bad::

        if hidden.get():
            log.append("here")
        return x * 2

    Good::

        return x * 2
    """,
)
NOT_REPEATABLE = Rule(
    "RT325",
    "plain call does not repeat its own values",
    "Use torch.use_deterministic_algorithms(True), or allow a difference with verify_tolerance.",
    Severity.WRONG,
    Group.VERIFICATION,
    Finder.RUNTIME,
    """
    Two plain calls from the same state differ, so a replay can't be compared with them.

    Why: A kernel with atomic additions, fresh memory that is read, or a value from outside.

    Limits: Found by ``verify=`` only.

    Unchecked: It compares values of two calls, and the trial computes none.

    Bad::

        hand_over(1)  # another thread adds to total
        wait()
        return x * 2 + total

    Good::

        total.add_(1)
        return x * 2 + total
    """,
)
HIDDEN_WRITE = Rule(
    "RT326",
    "memory written out of sight",
    "Write with PyTorch operations in the thread that calls, or outside of the callable.",
    Severity.WRONG,
    Group.VERIFICATION,
    Finder.RUNTIME,
    """
    The plain call writes a tensor by no operation that can be seen: through numpy, or in another thread.

    Why: Replays do not write it.

    Limits: Found by ``verify=`` only.

    Unchecked: It compares replays, and a check makes none.

    Bad::

        hand_over(1)  # another thread adds to total
        wait()
        return x * 2 + total

    Good::

        total.add_(1)
        return x * 2 + total
    """,
)
OBSERVER_DIFFERS = Rule(
    "RT327",
    "observation changes the way",
    "Switch the fast path off that PyTorch takes only unobserved "
    "(torch.backends.mha.set_fastpath_enabled(False)), or run it outside of the callable.",
    Severity.WRONG,
    Group.VERIFICATION,
    Finder.RUNTIME,
    """
    The callable computes something else when it is observed.

    Why: PyTorch has fast paths that it takes only when nobody looks; their rounding differs from that of the
    recording.

    Limits: Found by ``verify=`` only.

    Unchecked: It compares observed calls with others; all calls of a check are observed.

    Bad::

        return x * 3 if is_observed() else x * 2

    Good::

        return x * 2
    """,
)
STALE_RECORDING = Rule(
    "RT328",
    "recording no longer right",
    "Nothing that rote can see has changed; please report it with the program.",
    Severity.WRONG,
    Group.VERIFICATION,
    Finder.RUNTIME,
    """
    A fresh recording of the same call is right, so the old one went stale and no guard noticed.

    Why: Something that a recording depends on is not guarded, its memory was written by somebody else, or an
    operation is recorded wrongly (the example stands for one, ``tanh``).

    Limits: Found by ``verify=`` only.

    Unchecked: It compares replays, and a check makes none.

    Bad::

        return (x + 1).tanh()

    Good::

        return (x + 1).sin()
    """,
)
PLAIN_RAISES = Rule(
    "RT329",
    "plain call raises where the replay does not",
    "Checks on values belong outside of the callable; a replay runs no Python.",
    Severity.WRONG,
    Group.VERIFICATION,
    Finder.RUNTIME,
    """
    The plain call raises for something that a replay does not check.

    Why: The check depends on something that rote can't look into.

    Limits: Found by ``verify=`` only.

    Unchecked: It compares replays, and a check makes none.

    Bad::

        if hidden.get():
            raise ValueError("too late")
        return x * 2

    Good::

        return x * 2
    """,
)
