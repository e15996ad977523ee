"""Functions that run other code while a call is traced.

A function's ``__code__`` is what the interpreter runs, and everybody sees it. So it is replaced when the
traced call first comes to the function, and put back when the call is over, however it ends. Two calls may be
traced at once, on two threads: then the code goes back with the later one. In between other threads run the
same replaced code, whose notes find no tracer for them and return.

A function that Dynamo may have compiled gets code of its own that chooses what runs (:mod:`.redirect`); it is
kept for the next traced call. While Dynamo compiles, every function has its own code.

One function may have a prologue (:mod:`.prologue`), which is no code of its own: a traced call runs it
without.

Functions are held weakly: one that the call itself made dies when it would.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from ....base import identity
from ...pytorch import compiled_frames, is_hint, is_switching, leave_alone
from ...state import our_profiler
from .instrument import NOTES_ALONE, Around, OpaqueError, instrument
from .prologue import MODULE_CALL, Answering, with_prologue
from .redirect import choosing, silent, switching
from .turns import Turns


class Replaced(NamedTuple):
    """A function that runs other code."""

    function: weakref.ref[FunctionType]
    code: CodeType
    instrumented: CodeType


class Swaps:
    """Which functions run instrumented code, and all code that was ever instrumented."""

    def __init__(self, notes: Any, tracking: Any = None, around: Around = NOTES_ALONE) -> None:
        self._notes = notes
        self._around = around
        self._tracking = tracking  # notes that tell what becomes of numbers as well, with their ``around``
        self._lock = threading.RLock()
        # by the identity of the code, and whether it tells what becomes of numbers
        self._made: dict[tuple[int, bool], tuple[CodeType, CodeType | None, str]] = {}
        self._tracks = set[int]()  # instrumented code that tells that, by identity
        self._originals: dict[int, CodeType] = {}  # by the identity of instrumented code
        self._replaced: dict[int, Replaced] = {}  # by the identity of the function
        # functions whose code chooses what runs, by identity, and whether it tells what becomes of numbers
        self._redirected: dict[tuple[int, bool], Replaced] = {}
        self._hidden = set[int]()  # instrumented code that Dynamo knows of, by identity
        self._users = 0
        self._prologue: tuple[CodeType, CodeType] | None = None  # of MODULE_CALL: its own code, and with it
        self._preceded = 0  # those who want the prologue
        self._turns = Turns(self._interrupt)

    def begin(self) -> None:
        """A traced call begins."""
        self._turns.begin()
        with self._lock:
            self._users += 1

    def end(self) -> None:
        """A traced call is over; with the last one every function has its own code again."""
        with self._lock:
            self._users -= 1
            if not self._users:
                self._put_back()
        self._turns.end()

    def _put_back(self) -> None:
        replaced, self._replaced = self._replaced, {}
        _exchange([(each.function(), each.instrumented, each.code) for each in replaced.values()])

    def _interrupt(self) -> None:
        """Another thread compiles while calls are traced: it has to find every function as it is."""
        self._notes.interrupt()
        with self._lock:
            self._put_back()

    def is_instrumented(self, code: CodeType) -> bool:
        """Whether code was made here."""
        return identity(code) in self._originals

    def is_tracking(self, code: CodeType) -> bool:
        """Whether code was made here, and tells what becomes of numbers."""
        return identity(code) in self._tracks

    def original(self, code: CodeType) -> CodeType:
        """The original of code that may be instrumented, or have a prologue."""
        return self._without_prologue(self._originals.get(identity(code), code))

    def _without_prologue(self, code: CodeType) -> CodeType:
        known = self._prologue
        return known[0] if known is not None and code is known[1] else code

    def _untraced(self, function: FunctionType, code: CodeType) -> CodeType:
        """What a function with this original code runs outside of traced calls."""
        known = self._prologue
        applies = known is not None and self._preceded and function is MODULE_CALL and code is known[0]
        return known[1] if known is not None and applies else code

    def precede(self, answering: Answering, nothing: Any) -> bool:
        """Calls of modules are asked about first, until :meth:`leave` was called as often as this.

        Args:
            answering: Who is asked; the same one each time.
            nothing: What they give for a call that they do not answer.

        Returns:
            Whether that is so; False where the code cannot be made.
        """
        with self._lock:
            if self._prologue is None:
                own = self.original(MODULE_CALL.__code__)
                code = with_prologue(MODULE_CALL, own, answering, nothing)
                if code is None:
                    return False
                self._prologue = own, code
            self._preceded += 1
            self._renew_prologue()
            return True

    def leave(self) -> None:
        """One of those who asked for the prologue needs it no more."""
        with self._lock:
            self._preceded -= 1
            self._renew_prologue()

    def _renew_prologue(self) -> None:
        """Put the prologue in place or take it away, also where a call is being traced."""
        if self._prologue is None or self.original(MODULE_CALL.__code__) is not self._prologue[0]:
            return  # somebody else has given it other code
        untraced, held = self._untraced(MODULE_CALL, self._prologue[0]), identity(MODULE_CALL)
        replaced = self._replaced.get(held)
        if replaced is not None:
            self._replaced[held] = replaced._replace(code=untraced)
        else:
            MODULE_CALL.__code__ = untraced

    def replace(self, function: FunctionType, *, chooses: bool = False, tracks: bool = False) -> str | None:
        """Let a function run instrumented code from now on.

        Args:
            chooses: Ask at each call what runs, also if Dynamo has not compiled the function's code yet.
            tracks: Tell what becomes of numbers. Code that is instrumented already stays what it is.

        Returns:
            Why its code is opaque, or None.
        """
        code = function.__code__
        redirected = self._redirected.get((identity(function), tracks))
        if identity(code) in self._originals:
            if not chooses or (redirected is not None and redirected.instrumented is code):
                return None
            code = self._originals[identity(code)]
        code = self._without_prologue(code)
        with self._lock:
            if chooses or is_switching(code) or is_hint(code) or compiled_frames(code, None):
                _, instrumented, why = self._redirect(function, code, tracks)
            else:
                _, instrumented, why = self._made.get((identity(code), tracks)) or self._make(code, tracks)
            if instrumented is None:
                return why
            self._hide(instrumented)
            if self.original(function.__code__) is code:  # no other thread was quicker
                untraced = self._untraced(function, code)
                self._replaced[identity(function)] = Replaced(weakref.ref(function), untraced, instrumented)
                function.__code__ = instrumented
            return None

    def copy(self, function: FunctionType, code: CodeType, own: CodeType) -> tuple[FunctionType, str]:
        """A function with other code that notes what it reads, and why that code is opaque, if it is.

        To all who ask, what runs is the code ``own``: that of Dynamo may have constants without a hash.
        """
        with self._lock:
            _, instrumented, why = self._made.get((identity(code), False)) or self._make(code)
            if instrumented is not None:
                self._originals[identity(instrumented)] = own
                self._hide(instrumented)
        return copied(function, instrumented or code), why

    @contextmanager
    def withdrawn(self) -> Generator[None]:
        """A context in which every function has its own code."""
        with self._lock:
            replaced = [*self._replaced.values()]
            _exchange([(each.function(), each.instrumented, each.code) for each in replaced])
        try:
            with self._turns.aside():
                yield
        finally:
            with self._lock:
                _exchange([(each.function(), each.code, each.instrumented) for each in replaced])

    def _hide(self, instrumented: CodeType) -> None:
        """Dynamo can make nothing of notes, and may be at work around a traced call."""
        if identity(instrumented) not in self._hidden and leave_alone(instrumented):
            self._hidden.add(identity(instrumented))

    def _redirect(
        self, function: FunctionType, code: CodeType, tracks: bool
    ) -> tuple[CodeType, CodeType | None, str]:
        """Code that chooses what runs each time the function is called."""
        place = identity(function), tracks
        known = self._redirected.get(place)
        if known is not None and known.code is code:
            return code, known.instrumented, ""
        which, notes = weakref.ref(function, partial(self._forget, place)), self._notes
        try:
            if is_switching(code):
                made = switching(code, notes.entering(which, code), notes.leaving)
            elif is_hint(code):  # an attribute of a tensor, new in each call; without it results are the same
                made = silent(code)
            else:
                made = choosing(code, notes.choosing(which, code))
            instrumented = self._instrumented(made, tracks)
        except OpaqueError as error:
            return code, None, str(error)
        self._forget(place)
        self._redirected[place] = Replaced(which, code, instrumented)
        self._originals[identity(instrumented)] = code
        return code, instrumented, ""

    def _instrumented(self, code: CodeType, tracks: bool) -> CodeType:
        """Instrumented code, which is noted if it tells what becomes of numbers."""
        tracking = self._tracking if tracks else None
        if tracking is None:
            return instrument(code, self._notes, self._around)
        made = instrument(code, tracking, tracking.around)
        self._tracks.add(identity(made))
        return made

    def _forget(self, function: tuple[int, bool], *_: Any) -> None:
        """A function is gone, or gets other code."""
        known = self._redirected.pop(function, None)
        if known is not None:
            self._originals.pop(identity(known.instrumented), None)
            self._hidden.discard(identity(known.instrumented))
            self._tracks.discard(identity(known.instrumented))

    def _make(self, code: CodeType, tracks: bool = False) -> tuple[CodeType, CodeType | None, str]:
        profiler = our_profiler()
        if profiler is not None:  # it need not watch this, and would make it ten times as slow
            sys.setprofile(None)
        try:
            instrumented: CodeType | None = self._instrumented(code, tracks)
            why = ""
        except OpaqueError as error:
            instrumented, why = None, str(error)
        finally:
            if profiler is not None:
                sys.setprofile(profiler)
        if instrumented is not None:
            self._originals[identity(instrumented)] = code
        made = self._made[identity(code), tracks] = (code, instrumented, why)
        return made


def copied(function: FunctionType, code: CodeType) -> FunctionType:
    """A function that runs other code with the same globals, defaults and closure."""
    around, name = function.__globals__, function.__name__
    made = FunctionType(code, around, name, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__qualname__ = function.__qualname__
    return made


def _exchange(changes: list[tuple[FunctionType | None, CodeType, CodeType]]) -> None:
    """Give functions other code, where they still have what they had."""
    for function, now, then in changes:
        if function is not None and function.__code__ is now:
            function.__code__ = then
