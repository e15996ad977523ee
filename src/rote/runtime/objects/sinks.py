"""Streams of text to which a call may write without a look at what lies there: buffers and files.

A replay writes what the call would, by the same methods. A call that is attempted once more takes back what
it has written, so only the end of what can be cut off is known: no pipe, and no place within a file.
"""

from __future__ import annotations

import csv
import gc
import io
import os
from contextlib import suppress
from types import BuiltinMethodType
from typing import Any

from .iterators import is_standard
from .members import keys

_WRITER: type = type(csv.writer(io.StringIO()))
_METHODS = frozenset({"write", "flush", "writerow", "writerows"})
_BUFFERS = frozenset({io.BufferedWriter, io.BufferedRandom})
_WRITTEN = frozenset({int, float, bool, str, type(None)})
"""Types of what becomes text in one way only."""


def sink_of(value: Any) -> Any:
    """The stream to which text is written by an object of C; None if it is none, or unknown."""
    if type(value) is _WRITER:
        methods = [each for each in gc.get_referents(value) if type(each) is BuiltinMethodType]
        value = methods[0].__self__ if len(methods) == 1 and methods[0].__name__ == "write" else None
    if type(value) is io.StringIO:
        return value
    known = type(value) is io.TextIOWrapper and not is_standard(value) and not value.closed
    of_c = known and type(value.buffer) in _BUFFERS and type(getattr(value.buffer, "raw", None)) is io.FileIO
    return value if of_c else None


def end_of(sink: Any) -> int | None:
    """Where the next text goes, if that is the end of all; None if it is not, or cannot be told."""
    with suppress(OSError, ValueError):
        place = sink.tell()
        if type(sink) is io.StringIO:
            return place if place == len(sink.getvalue()) else None
        sink.flush()
        return place if place == os.fstat(sink.fileno()).st_size else None
    return None


def cut_off(sink: Any, end: int) -> None:
    """What was written behind an end is gone."""
    sink.seek(end)
    sink.truncate()


def can_tell(function: Any, args: tuple[Any, ...]) -> bool:
    """Whether a function only writes what it is given, as text in which no code of the user's has a part."""
    known = function is print or getattr(function, "__name__", None) in _METHODS
    return known and all(map(_is_written, args))


def _is_written(value: Any, depth: int = 2) -> bool:
    if type(value) in (list, tuple) and depth:
        return all([_is_written(each, depth - 1) for each in keys(value)])
    return type(value) in _WRITTEN
