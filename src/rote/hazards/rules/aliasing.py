"""Mutation and aliasing: arguments and state that are written, reshaped or share memory."""

from __future__ import annotations

from ..finding import Severity
from .rule import Finder, Group, Rule

INPUT_MOVED = Rule(
    "RT331",
    "argument used in place lies elsewhere",
    "Pass the same tensor at every call (allocate caches once and update them in place), or accept a copy.",
    Severity.SPEED,
    Group.ALIASING,
    Finder.RUNTIME,
    """
    An argument that the call writes was recorded where it lay, and another tensor came later.

    Why: The graph has the address. rote makes a recording that copies the argument in and out.

    Limits: Nothing is wrong; it costs two copies.

    Unchecked: Where arguments lie is known when they come, from call to call.

    Bad::

        for cache in (first, first, first, first, second, second):
            g(cache, x)

    Good::

        for cache in (first, first, first, first, first, first):
            g(cache, x)
    """,
)
INPUT_IS_STATE = Rule(
    "RT332",
    "argument shares memory with state of the callable",
    "Nothing is wrong: such calls have recordings of their own. Pass a clone if they should not.",
    Severity.SPEED,
    Group.ALIASING,
    Finder.RUNTIME,
    """
    An argument is a parameter or buffer that the callable uses itself, or a view of one.

    Why: Writing one writes the other, so the two can't be recorded apart.

    Limits: Nothing is wrong; such calls have recordings of their own.

    Unchecked: The arguments of a check are copies that stand for any others; which memory the next ones share
    is not known.

    Bad::

        for _ in range(4):
            g(buffer)

    Good::

        for _ in range(4):
            g(buffer.clone())
    """,
)
ARGUMENT_MUTATED = Rule(
    "RT333",
    "argument changed in place",
    "Work on a new tensor (x * 2 instead of x.mul_(2)), or pass the same tensor at every call.",
    Severity.SPEED,
    Group.ALIASING,
    Finder.SCAN | Finder.TRIAL,
    """
    ``x.mul_(2)``, ``x += y``, ``x[0] = 0`` where ``x`` is an argument.

    Why: A graph made by hand changes its static copy, not the caller's tensor, and changes it again from its
    own last result. rote is right: it writes the result back, which costs a copy each way, or records the
    argument where it lies.

    Limits: A cache that is meant to be written in place is reported as well; pass the same one each time. A
    name that was bound anew before (``x = x.clone()``) is not an argument any more.

    Bad::

        x.mul_(2)
        return x.sum()

    Good::

        y = x * 2
        return y.sum()
    """,
)
ALIASED_MUTATION = Rule(
    "RT503",
    "input mutated that shares memory with another",
    "Pass the base tensor once and take views inside.",
    Severity.WRONG,
    Group.ALIASING,
    Finder.RUNTIME,
    """
    Two arguments share memory in a way that a recording can't keep, and one is written.

    Why: Copied into static tensors they would no longer share, and the write would not show. So it is with
    views of several types, a tensor and its lazy conjugate or negative, and views that require grad. So it is
    with an argument in the memory of a numpy array that becomes a tensor inside, whether written or not.

    Limits: Views of one type are recorded together and not reported; so is one tensor that is passed twice.

    Unchecked: The arguments of a check stand for any others; which memory the next ones share is not known.

    Bad::

        g(x, x.view(torch.int32))

    Good::

        g(x, y)
    """,
)
RESHAPED = Rule(
    "RT504",
    "tensor made outside reshaped in place",
    "Take a view (x.t()) instead of x.t_().",
    Severity.WRONG,
    Group.ALIASING,
    Finder.SCAN | Finder.TRIAL | Finder.RUNTIME,
    """
    ``x.t_()``, ``x.unsqueeze_(0)``, ``x.resize_(n)``, ``x.set_(...)`` on an argument or on state.

    Why: The shape of a tensor is kept on the host. A replay changes bytes on the device and no shapes, so the
    caller's tensor keeps its old one.

    Limits: The scan sees arguments and attributes; a local tensor may be reshaped as one likes.

    Bad::

        return x.t_() * 2

    Good::

        return x.t() * 2
    """,
)
