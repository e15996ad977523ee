"""Where the callable is at the moment: the user's line and column, and the lines that led there."""

from __future__ import annotations

import sys
from itertools import islice
from types import FrameType
from typing import NamedTuple

from ...base import NOWHERE, Site, is_internal, is_own

BOUNDARY = "run_once"
"""Name of rote's function that calls the callable; frames outside of it are not the callable's."""

DEPTH = 24
"""Lines of a call path that are kept, the innermost ones."""


class CodePlace(NamedTuple):
    """A place in the user's program.

    Attributes:
        site: The innermost line outside of PyTorch and rote.
        column: Column of the expression there, from 1; 0 if it is not known.
        path: The user's lines that led there, outermost first.
    """

    site: Site
    column: int
    path: tuple[Site, ...]


def here(frame: FrameType | None = None) -> CodePlace:
    """The place from which the caller, or a frame, was reached."""
    at = sys._getframe(1) if frame is None else frame
    inner: FrameType | None = None
    path: list[Site] = []
    while at is not None:
        code = at.f_code
        if code.co_name == BOUNDARY and is_own(code.co_filename):
            break
        if not is_internal(code.co_filename):
            inner = inner or at
            path.append(Site(code.co_filename, at.f_lineno, code.co_name))
        at = at.f_back
    if inner is None:
        return CodePlace(NOWHERE, 0, ())
    return CodePlace(path[0], _column(inner), tuple(reversed(path[:DEPTH])))


def _column(frame: FrameType) -> int:
    """Column of the expression that a frame is at, from 1; 0 if Python does not know."""
    if frame.f_lasti < 0:
        return 0
    position = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), None)
    return position[2] + 1 if position is not None and position[2] is not None else 0
