"""Objects that C copies or pickles: everything they hold is read."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

from ...objects import is_python, said_name
from ..table import NAMES, lookup
from ..trace import Trace, is_in_c, is_readable
from .attributes import everything
from .containers import content, find_held, whole

TAKING = NAMES["parts"]
_ASKED = (*sorted(TAKING), "__iter__", "items")
"""Methods that C calls while it copies or pickles an object."""


def taken_apart(trace: Trace, value: Any) -> None:
    """Note that C reads the attributes, members and position of an object, to copy or pickle it."""
    everything(trace, value)
    for name in _ASKED:
        trace.callables.run(trace.classes.read(type(value), name))
    if is_python(type(value)) or issubclass(type(value), SimpleNamespace):
        return  # its attributes are all there is; its identity does not matter
    content(trace, value, inside=False)
    if trace.outside.has(value) and _moves_in_c(trace, value):
        find_held(trace, value, 3)
        for each in gc.get_referents(value):
            if is_readable(each) and not issubclass(type(each), tuple):
                whole(trace, each)


def pickled(trace: Trace, value: Any) -> None:
    """Note that C pickles an object and everything in it; it does not report which objects it reaches."""
    for each in content(trace, value):
        if issubclass(type(each), BaseException) or _moves_in_c(trace, each) or _has_attributes(each):
            name = said_name(type(each))
            trace.running.refuse(name, f"has a {name} pickled by C, which does not say what it reads of it")


def _has_attributes(value: Any) -> bool:
    return bool(lookup.attributes_of(value) or (not is_readable(value) and lookup.slots(type(value))))


def _moves_in_c(trace: Trace, value: Any) -> bool:
    found = trace.classes.look_up(type(value), "__next__")
    return found is not lookup.MISSING and is_in_c(found)
