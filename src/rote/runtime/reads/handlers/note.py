"""The code of a note, written for its parameters and its question.

A note is called before each instruction that may read, so its code is laid out by what that costs: a fixed
number of parameters takes half the time of ``*given``, and where rote watches by a profiler, that is told of
each function that is called, of rote's as well. So what settles most notes stands in the note itself, and
nothing is called before the profiler is off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any

from ....base import identity
from ...state import PROFILE, get_profile, set_profile
from . import known

_TEXT = """
def note({parameters}):
    if {plain}:
        return
    trace = traces[thread()]
    if trace is None or {says_nothing}:
        return
    profiler = get_profile()
    if type(profiler) is not MethodType or profiler.__func__ is not PROFILE:
        {take}
        return
    set_profile(None)
    try:
        {take}
    finally:
        set_profile(profiler)
"""
_NAMES: dict[str, Any] = {
    "PROFILE": PROFILE, "MethodType": MethodType, "identity": identity, "PLAIN": known.PLAIN_OR_TENSOR,
    "CONTAINERS": known.CONTAINERS_OF_PYTHON, "STEPPING": known.STEPPING, "KEYS": known.KEYS,
    "CALLED": known.CALLED, "get_profile": get_profile, "set_profile": set_profile,
}  # fmt: skip


def write_note(
    parameters: str, plain: str, question: str, also: Callable[..., bool] | None, names: Mapping[str, Any]
) -> Callable[..., None]:
    """The function of a note.

    Args:
        plain: Which of that may be of plain types; if all are, the note says nothing new.
        question: An expression that says whether the note says nothing new.
        also: What is asked, with the trace and what the note is told, where the expression says no.
        names: What takes the note (``take``), the ``handler`` that it takes it to, the ``traces`` by thread,
            and what tells which thread it is (``thread``).
    """
    given = parameters.replace("=None", "")
    take = f"take(handler, trace, {given})"
    text = _TEXT.format(
        parameters=parameters,
        plain=" and ".join([f"type({each}) in PLAIN" for each in plain.split()]) or "False",
        says_nothing=f"({question})",
        take=take if also is None else f"asks(trace, {given}) or {take}",
    )
    found: dict[str, Any] = {**_NAMES, **names, "asks": also}
    exec(compile(text, __file__, "exec", dont_inherit=True), found)
    return found["note"]
