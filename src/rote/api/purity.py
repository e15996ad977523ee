"""Callables that a user declares to depend on their arguments alone."""

from __future__ import annotations

from types import ModuleType
from typing import Any, TypeVar

from ..base import MisuseError
from ..runtime.reads import WATCH

Thing = TypeVar("Thing")


def pure(thing: Thing, *others: Any) -> Thing:
    """Declare that callables give the same for the same arguments, and do nothing else.

    A call that runs code whose reads are not known is not recorded (RT218). Where you know it, say so:
    ``rote.pure(library.function)``, a class (for its methods), a whole module, or ``@rote.pure`` above a
    function of your own. From then on no graphed callable of the process looks into it; its arguments still
    count. ``verify=`` compares replays with plain calls, so it finds a declaration that is not true.

    Args:
        thing: A function, a class, or a module.
        others: Further ones.

    Returns:
        The first one.

    Raises:
        MisuseError: One of them cannot be called.
    """
    for number, each in enumerate((thing, *others)):
        if not callable(each) and not isinstance(each, ModuleType):
            raise MisuseError(
                f"pure(): argument {number} is {each!r}, which is no callable and no module. Hand over the "
                "function itself, not what it returns."
            )
    WATCH.declare((thing, *others))
    return thing
