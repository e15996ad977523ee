"""Output to the standard streams: a replay does not repeat it, and that prevents no replay.

What is read to decide on output, such as the level of a logger, is a condition like any other. What only says
when and by whom something was written is none: the clock, the process and the caller's frame, where a library
reads them whose business is output.
"""

from __future__ import annotations

import sys
from dis import opmap
from sysconfig import get_path
from types import FrameType, FunctionType
from typing import Any

from ....base import NOWHERE, Site, identity, is_internal
from ...objects import said_module, said_name
from ...state import ITEM
from ..table import NAMES, lookup
from .noted import Output
from .trace import Trace

_LIBRARIES = NAMES["libraries"]
_WRITES = NAMES["writing_functions"]
_WHEN = NAMES["times"]

_TELLS = frozenset({"update"})
"""Those that return whether something was shown this time, which the clock says."""

_HOMES = tuple({f"{get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")})
"""Where such libraries lie; a user's own file may have the name of one."""

SAID_OF_OUTPUT = NAMES["said_of_output"]
_WRITING = NAMES["writing_methods"]
_HARMLESS = NAMES["harmless_methods"]

_POP, _CACHE = opmap["POP_TOP"], opmap["CACHE"]
_CALLS = frozenset(opmap[name] for name in ("CALL", "CALL_KW", "CALL_FUNCTION_EX") if name in opmap)
_CACHED = 8
"""How many bytes a frame's position may be past a call instruction during the call."""


def writes(trace: Trace, name: str, stream: Any = None) -> None:
    """The call writes to a standard stream, by a function; to that of ``print`` if none is given."""
    stream = sys.stdout if stream is None else stream
    if trace.writes.wrote(ITEM, vars(sys), "stdout") and not trace.outside.has(stream):
        return  # the call has made it, and put it into the place of the standard one
    at = trace.running.frame()
    while at is not None and (is_internal(at.f_code.co_filename) or _is_of_library(at)):
        name, at = _package(at) if _is_of_library(at) else name, at.f_back
    site = Site(at.f_code.co_filename, at.f_lineno, at.f_code.co_name) if at is not None else NOWHERE
    trace.writes_output(Output(name, site))


def writes_by_method(trace: Trace, stream: Any, method: str) -> bool:
    """A method of a standard stream is called; False if it is none by which output is written."""
    if method in _WRITING:
        writes(
            trace, f"sys.{'stdout' if stream in (sys.stdout, sys.__stdout__) else 'stderr'}.{method}", stream
        )
    return method in _WRITING or method in _HARMLESS


def prints(trace: Trace) -> None:
    """``print`` is called by the instruction behind the note."""
    frame = trace.running.frame()
    if frame is not None:
        code = frame.f_code.co_code
        at = next((at for at in range(frame.f_lasti + 2, len(code), 2) if code[at] in _CALLS), len(code))
        trace.printing = identity(frame), at


def is_shown(trace: Trace) -> bool:
    """Whether the text that is made now is that of something which ``print`` or such a library was given."""
    frame = trace.running.frame()
    while frame is not None and is_internal(frame.f_code.co_filename) and not _is_of_library(frame):
        frame = frame.f_back
    if frame is None:
        return False
    where, at = trace.printing or (0, 0)
    return (identity(frame) == where and 0 <= frame.f_lasti - at <= _CACHED) or is_for_output(trace, frame)


def is_for_output(trace: Trace, at: FrameType | None = None) -> bool:
    """Whether what runs now writes output: code of such a library, called to write and not to tell.

    Between the library's frames and those of the user's may lie frames of Python's own libraries.
    """
    entry = frame = at or trace.running.frame()
    if entry is None or not _is_of_library(entry):
        return False
    while frame is not None:
        if _is_of_library(frame):
            entry = frame
        elif not is_internal(frame.f_code.co_filename):
            break
        frame = frame.f_back
    name = entry.f_code.co_name
    return name in _WRITES and (name not in _TELLS or _drops_result(entry.f_back))


def _drops_result(caller: FrameType | None) -> bool:
    """Whether a frame discards the result of the call that it is in."""
    if caller is None:
        return False
    behind = caller.f_code.co_code[caller.f_lasti + 2 :: 2]
    return next((each == _POP for each in behind if each != _CACHE), False)


def is_called_by_output(trace: Trace) -> bool:
    """Whether a library that writes output has called what runs now: what it gives may say when that is."""
    return library_of_output(trace) != ""


def library_of_output(trace: Trace) -> str:
    """The package of a library that has called what runs now to write output; empty without one."""
    frame = trace.running.frame()
    while frame is not None and not _is_of_library(frame):
        frame = frame.f_back
    return _package(frame) if frame is not None else ""


def tells_when(trace: Trace, kind: type, name: str) -> bool:
    """Whether an attribute may say when something was written: to read it is for output only, or a use."""
    if name == "write":
        _hands_text(trace, kind)
    if name not in _WHEN or not any(_is_library(said_module(each)) for each in kind.__mro__):
        return False
    if not is_for_output(trace):
        text = f"{said_name(kind)}.{name}"
        trace.running.refuse(text, f"reads {text}, which says when something was written")
    return True


def _hands_text(trace: Trace, kind: type) -> None:
    """The library is about to write by a method of the user's: the text may say when that is."""
    found = lookup.find(kind, "write").value
    if type(found) is not FunctionType or not _is_of_library(trace.running.frame()):
        return
    if not (_is_library(found.__globals__.get("__name__")) or is_internal(found.__code__.co_filename)):
        text = f"{said_name(kind)}.write"
        trace.running.refuse(text, f"has a text that may hold the time written by {text}")


def _package(frame: FrameType) -> str:
    """The package whose code runs in a frame."""
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def _is_of_library(frame: FrameType | None) -> bool:
    if frame is None or not _is_library(frame.f_globals.get("__name__")):
        return False
    return frame.f_code.co_filename.startswith((*_HOMES, "<"))


def _is_library(module: Any) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in _LIBRARIES
