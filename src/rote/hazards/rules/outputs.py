"""Outputs: values that a replay can't hand out as the plain call does."""

from __future__ import annotations

from ..finding import Severity
from .rule import Finder, Group, Rule

OPAQUE_OUTPUT = Rule(
    "RT501",
    "output of a type that cannot be rebuilt",
    "Return tensors in tuples, lists, dicts or dataclasses.",
    Severity.WRONG,
    Group.OUTPUTS,
    Finder.TRIAL | Finder.RUNTIME,
    """
    The result holds an object that cannot be made again unnoticed, or is a generator. Such an object has a
    class with ``__del__``, or one made in C; or it is there twice, or was there before the call.

    Why: A replay has to make the result without running Python; it can put tensors into containers, and into
    objects that are their attributes and nothing else.

    Limits: An object that is an argument, such as a cache, is handed back as it is. Classes registered with
    ``torch.utils._pytree`` are no containers here.

    Bad::

        class Result:
            def __init__(self, value):
                self.value = value

            def __del__(self):
                self.value = None

    Good::

        @dataclass
        class Result:
            value: torch.Tensor
    """,
)
OUTPUT_DIFFERS = Rule(
    "RT502",
    "Python value in the output differs between calls",
    "Return it as a tensor.",
    Severity.WRONG,
    Group.OUTPUTS,
    Finder.TRIAL | Finder.RUNTIME,
    """
    The result has a Python number or text that is another one in every call.

    Why: A replay hands out the value of the recording.

    Limits: Values that follow from a host read belong to a path and are right.

    Bad::

        return x + 1, numbers.get()

    Good::

        return x + 1, number
    """,
)
CONTAINER_RETURNED = Rule(
    "RT505",
    "argument container returned",
    "Return a new container.",
    Severity.WRONG,
    Group.OUTPUTS,
    Finder.TRIAL | Finder.RUNTIME,
    """
    The result is, or holds, a list or dict that came in as an argument or that the callable keeps.

    Why: A replay would have to return that object with its present contents; it makes new containers.

    Limits: rote's own replays return an argument that is a list, a dict or an object as that very argument.
    Tuples have no identity that anybody relies on, and are not reported.

    Bad::

        return states

    Good::

        return list(states)
    """,
)
