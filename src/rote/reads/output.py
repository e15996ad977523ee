"""Output to the standard streams: a replay does not repeat it, and that prevents no replay.

What is read to decide on output, such as the level of a logger, is a condition like any other. What only says
when and by whom something was written is none: the clock, the process and the caller's frame, where a library
reads them whose business is output.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from ..base.location import NOWHERE, Site, is_internal
from ..signature.snapshot import ITEM
from .noted import Output
from .trace import Trace

_LIBRARIES = frozenset({"logging", "rich", "tqdm"})
"""Libraries that read clocks and frames for what they write."""

SAID_OF_OUTPUT = frozenset({"clock", "environment", "shared"})
"""Rows of the table that say nothing of a result where such a library calls them: a lock around its lines is
one that processes share."""


_WRITING = frozenset({"write", "writelines"})
_HARMLESS = frozenset({"fileno", "flush", "isatty", "readable", "seekable", "writable"})
"""Methods of streams that write nothing."""


def writes(trace: Trace, name: str, stream: Any = None) -> None:
    """The call writes to a standard stream.

    Args:
        trace: Of the call.
        name: The function that it calls.
        stream: The stream; that of ``print`` if None.
    """
    stream = sys.stdout if stream is None else stream
    if trace.wrote(ITEM, vars(sys), "stdout") and not trace.has(stream):
        return  # the call has made it, and put it into the place of the standard one
    at = trace.frame()
    while at is not None and (is_internal(at.f_code.co_filename) or _library(at) in _LIBRARIES):
        name, at = _library(at) if _library(at) in _LIBRARIES else name, at.f_back
    site = Site(at.f_code.co_filename, at.f_lineno, at.f_code.co_name) if at is not None else NOWHERE
    trace.writes_output(Output(name, site))


def writes_by_method(trace: Trace, stream: Any, method: str) -> bool:
    """A method of a standard stream is called; False if it is none by which output is written."""
    if method in _WRITING:
        writes(
            trace, f"sys.{'stdout' if stream in (sys.stdout, sys.__stdout__) else 'stderr'}.{method}", stream
        )
    return method in _WRITING or method in _HARMLESS


def is_for_output(trace: Trace) -> bool:
    """Whether the code that runs now belongs to a library whose business is output."""
    frame = trace.frame()
    return frame is not None and _library(frame) in _LIBRARIES


def _library(frame: FrameType) -> str:
    """The package whose code runs in a frame."""
    name = frame.f_globals.get("__name__")
    return name.partition(".")[0] if isinstance(name, str) else ""
