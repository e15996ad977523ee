"""Functions that run other code while a call is traced.

A function's ``__code__`` is what the interpreter runs, and everybody sees it. So it is replaced when the
traced call first comes to the function, and put back when the call is over, however it ends. Two calls may be
traced at once, on two threads: then the code goes back with the later one. In between other threads run the
same replaced code, whose notes find no tracer for them and return.

Functions are held weakly: one that the call itself made dies when it would.
"""

from __future__ import annotations

import sys
import threading
import weakref
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from ....base import identity
from ...state import our_profiler
from .instrument import OpaqueError, instrument


class Replaced(NamedTuple):
    """A function that runs other code."""

    function: weakref.ref[FunctionType]
    code: CodeType
    instrumented: CodeType


class Swaps:
    """Which functions run instrumented code, and all code that was ever instrumented."""

    def __init__(self, notes: Any) -> None:
        self._notes = notes
        self._lock = threading.RLock()
        self._made: dict[int, tuple[CodeType, CodeType | None, str]] = {}  # by the identity of the code
        self._originals: dict[int, CodeType] = {}  # by the identity of instrumented code
        self._replaced: dict[int, Replaced] = {}  # by the identity of the function
        self._users = 0

    def begin(self) -> None:
        """A traced call begins."""
        with self._lock:
            self._users += 1

    def end(self) -> None:
        """A traced call is over; with the last one every function has its own code again."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            replaced, self._replaced = self._replaced, {}
            for each in replaced.values():
                function = each.function()
                if function is not None and function.__code__ is each.instrumented:
                    function.__code__ = each.code

    def is_instrumented(self, code: CodeType) -> bool:
        """Whether code was made here."""
        return identity(code) in self._originals

    def original(self, code: CodeType) -> CodeType:
        """The original of code that may be instrumented."""
        return self._originals.get(identity(code), code)

    def replace(self, function: FunctionType) -> str | None:
        """Let a function run instrumented code from now on.

        Returns:
            Why its code is opaque, or None.
        """
        code = function.__code__
        if identity(code) in self._originals:
            return None
        with self._lock:
            made = self._made.get(identity(code)) or self._make(code)
            _, instrumented, why = made
            if instrumented is None:
                return why
            if function.__code__ is code:  # no other thread was quicker
                self._replaced[identity(function)] = Replaced(weakref.ref(function), code, instrumented)
                function.__code__ = instrumented
            return None

    def _make(self, code: CodeType) -> tuple[CodeType, CodeType | None, str]:
        profiler = our_profiler()
        if profiler is not None:  # it need not watch this, and would make it ten times as slow
            sys.setprofile(None)
        try:
            instrumented: CodeType | None = instrument(code, self._notes)
            why = ""
        except OpaqueError as error:
            instrumented, why = None, str(error)
        finally:
            if profiler is not None:
                sys.setprofile(profiler)
        if instrumented is not None:
            self._originals[identity(instrumented)] = code
        made = self._made[identity(code)] = (code, instrumented, why)
        return made
