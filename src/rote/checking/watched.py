"""Which Python code a call runs, watched in a process where nobody else may be tracing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from ..signature.executed import ExecutedCode


class WatchedCode(ExecutedCode):
    """As its base, with ``sys.settrace`` where Python has no ``sys.monitoring``.

    A profile function is told of each call and return, of C functions too; a trace function that wants no
    lines only of calls of Python functions. That makes the watched call about three times as fast. A debugger
    of the caller's is not disturbed: it is in another process.
    """

    def _start_profile(self) -> Callable[[], None] | None:
        seen: set[CodeType] = set()

        def called(frame: FrameType, event: str, argument: Any) -> None:
            code = frame.f_code
            if code not in seen:
                seen.add(code)
                self._note(code, frame)

        sys.settrace(called)
        return lambda: sys.settrace(None)
