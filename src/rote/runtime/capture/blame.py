"""Why a capture failed: the call that did it and its line, besides the status of the device.

A refused operation comes through the dispatcher, and so its name is known. Everything else (a wait for the
device, a stream, an allocation by hand) raises somewhere below the callable's own code, always with the same
text. The traceback has the callable's line and the function that it called there. It does not tell two calls
in one line apart where Python has no columns.
"""

from __future__ import annotations

import linecache
from itertools import islice
from types import CodeType, FrameType

from ...base import NOWHERE, Site, cut, is_internal, is_own, traceback_site
from ...hazards import rules
from ...hazards.rules import Reason, reason
from ..program import Operation

WIDEST = 60
"""Characters of a source text that are shown."""


def of_error(error: BaseException, last: Operation | None) -> tuple[str, Site]:
    """Blame what the callable called when an exception came: what happened, and the callable's line."""
    status = f"{type(error).__name__}: {first_line(str(error))}"
    called = _called(error)
    text = f"{called} raised {status}" if called else status
    return text + _after(last), traceback_site(error.__traceback__)


def of_segment(status: str, last: Operation | None) -> tuple[str, Site]:
    """Blame the last operation that was captured for a segment that the device refused as a whole."""
    return first_line(status) + _after(last), last.site if last is not None else NOWHERE


def first_line(text: str) -> str:
    """The first line of a text; CUDA's errors continue with advice on environment variables."""
    lines = text.strip().splitlines()
    return lines[0] if lines else "the device gave no reason"


def _after(last: Operation | None) -> str:
    return f"; the last operation captured was {last.name}" if last is not None else ""


def _called(error: BaseException) -> str:
    """What the callable's innermost line called: a function of PyTorch's, or the line's expression."""
    found, inner, at, traceback = "", None, 0, error.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        code = frame.f_code
        if not is_internal(code.co_filename):
            found, inner, at = "", frame, traceback.tb_lasti
        elif inner is not None and not found and not is_own(code.co_filename):
            found = f"{frame.f_globals.get('__name__', '')}.{code.co_qualname}()"
        traceback = traceback.tb_next
    return found or (_expression(inner, at) if inner is not None else "")


def _expression(frame: FrameType, at: int) -> str:
    """The source of the expression at an offset of the bytecode."""
    position = _position(frame.f_code, at)
    if position is None:
        return ""
    line, first, last = position
    text = linecache.getline(frame.f_code.co_filename, line).encode()[first:last].decode(errors="replace")
    return cut(text, WIDEST)


def _position(code: CodeType, at: int) -> tuple[int, int, int] | None:
    """Line and columns of an instruction; None if its source has several lines."""
    line, end, first, last = next(islice(code.co_positions(), at // 2, None), (None, None, None, None))
    if line is None or end != line or first is None or last is None:
        return None
    return line, first, last


def out_of_memory(text: str, site: Site) -> Reason:
    """Making room did not help."""
    return reason(rules.OUT_OF_MEMORY, text.strip().splitlines()[0] if text.strip() else "no memory", site)
