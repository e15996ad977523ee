"""Which Python code a call runs: the roots from which its state is found.

The first observed call runs under ``sys.setprofile``; each Python function it enters outside PyTorch and
the standard library is noted with its globals. That is exact where a static scan would have to guess, and
it costs nothing after the observation. It does not see code run by other threads, and it stands aside when
another profiler is active (then only the callable itself is a root).
"""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Any

from ..base.location import is_internal


class ExecutedCode:
    """The code objects a callable was seen to run, each with the globals it reads."""

    def __init__(self) -> None:
        self.globals: dict[CodeType, dict[str, Any]] = {}
        self._active = False

    def __enter__(self) -> ExecutedCode:
        if sys.getprofile() is None:
            self._active = True
            sys.setprofile(self._note)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._active:
            self._active = False
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code not in self.globals and code.co_name != "<module>" and not is_internal(code.co_filename):
            self.globals[code] = frame.f_globals

    def add_function(self, function: Any) -> None:
        """Add a function that is known to run (the callable itself)."""
        code = getattr(function, "__code__", None)
        if code is not None and not is_internal(code.co_filename):
            self.globals.setdefault(code, function.__globals__)

    def reads(self) -> list[tuple[dict[str, Any], str]]:
        """Every global name that the executed code mentions, as ``(globals, name)``."""
        found: dict[tuple[int, str], tuple[dict[str, Any], str]] = {}
        for code, namespace in self.globals.items():
            for name in _names(code):
                if name in namespace:
                    found.setdefault((id(namespace), name), (namespace, name))
        return list(found.values())

    def attribute_names(self) -> set[str]:
        """Every name mentioned by the executed code (to look into Python modules selectively)."""
        return {name for code in self.globals for name in code.co_names}


def _names(code: CodeType) -> list[str]:
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names.extend(_names(constant))
    return names
