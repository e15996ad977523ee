"""Output to the standard streams: a replay does not repeat it, and that prevents no replay.

What is read to decide on output, such as the level of a logger, is a condition like any other. What only says
when and by whom something was written is none: the clock, the process and the caller's frame, where a library
reads them whose business is output.
"""

from __future__ import annotations

import sys
from typing import Any

from .trace import Trace

_LIBRARIES = frozenset({"logging", "tqdm"})
"""Libraries that read clocks and frames for what they write."""

SAID_OF_OUTPUT = frozenset({"clock", "environment"})
"""Rows of the table that say nothing of a result where such a library calls them."""


def is_standard(stream: Any) -> bool:
    """Whether a stream is one of those that a program writes to by default."""
    return any(stream is each for each in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__))


def is_for_output(trace: Trace) -> bool:
    """Whether the code that runs now belongs to a library whose business is output."""
    frame = trace.frame()
    name = frame.f_globals.get("__name__") if frame is not None else None
    return isinstance(name, str) and name.partition(".")[0] in _LIBRARIES
