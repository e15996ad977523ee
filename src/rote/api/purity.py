"""Callables that somebody declares to depend on their arguments alone."""

from __future__ import annotations

from types import ModuleType
from typing import Any, TypeVar

from ..base import MisuseError
from ..runtime.reads import WATCH

Thing = TypeVar("Thing")


def pure(thing: Thing, *others: Any) -> Thing:
    """Declare that callables give the same for the same arguments, and do nothing else.

    A call that runs code of which it is not known what it reads is not recorded (RT218). Where you know it,
    say so: ``rote.pure(library.function)``, a class (its methods are meant), a whole module, or
    ``@rote.pure`` above a function of your own. What is declared is not looked into from then on, in all
    graphed callables of the process; what it is given still counts. ``verify=`` compares replays with plain
    calls, so it finds a declaration that is not true.

    Args:
        thing: A function, a class, or a module.
        others: Further ones.

    Returns:
        The first one.

    Raises:
        MisuseError: One of them can be called by nobody.
    """
    for number, each in enumerate((thing, *others)):
        if not callable(each) and not isinstance(each, ModuleType):
            raise MisuseError(
                f"pure(): argument {number} is {each!r}, which is no callable and no module. Hand over the "
                "function itself, not what it returns."
            )
    WATCH.declare((thing, *others))
    return thing
