"""Instrumented code calls notes; each note goes to the trace of its thread, if the thread has one.

Instrumented code outlives a call: later calls, generators, functions and other threads use it again. So it is
not bound to a trace, and a note that finds no trace returns. While a note is at work, its thread has no
trace, because the standard library's functions that the note calls may be instrumented, too.

Most notes say nothing new. They ask the trace and return at once; see :mod:`.known`.
"""

from __future__ import annotations

import sys
import weakref
from _thread import get_ident
from collections.abc import Callable
from functools import partial
from inspect import signature
from types import CodeType, FunctionType, MethodType
from typing import Any

from ....base import InternalError, identity
from ...pytorch import is_worker
from ...state import PROFILE
from ..bytecode import copied
from ..table import lookup
from ..trace import CONTAINERS, Trace
from . import attributes, calls, containers, frames, importing, known, names

_NOTES: dict[str, tuple[Callable[..., None], Callable[..., bool]]] = {
    "super_attribute": (attributes.super_attribute, known.is_known_super),
    "store_attribute": (attributes.store_attribute, known.is_known_store),
    "delete_attribute": (attributes.delete_attribute, known.is_known_deletion),
    "store_name": (names.store_name, known.is_new),
    "delete_name": (names.store_name, known.is_new),
    "cell": (names.cell, known.is_known_cell),
    "store_cell": (names.store_cell, known.is_new),
    "delete_cell": (names.store_cell, known.is_new),
    "imported": (importing.imported, known.is_new),
    "item": (containers.item, known.is_known_member),
    "contains": (containers.contains, known.is_known_key),
    "sliced": (containers.sliced, known.is_new),
    "store_item": (containers.store_item, known.is_new),
    "store_slice": (containers.store_slice, known.is_new),
    "delete_item": (containers.delete_item, known.is_new),
    "iterate": (containers.iterate, known.is_known_whole),
    "merged": (containers.merged, known.is_known_whole),
    "advance": (containers.advance, known.is_known_step),
    "length": (containers.length, known.is_plain),
    "truth": (containers.truth, known.is_known_truth),
    "compare": (containers.compare, known.are_plain_operands),
    "binary": (containers.binary, known.are_plain_operands_of),
    "unary": (containers.unary, known.is_plain),
    "same": (containers.same, known.is_known_identity),
    "text": (containers.text, known.is_plain_text),
    "pairs": (containers.paired, known.are_known_pairs),
    "members": (containers.keyed, known.are_known_keys),
    "bounds": (containers.bounds, known.are_plain_operands),
    "sent": (containers.sent, known.is_known_receiver),
    "enter": (containers.enter, known.is_new),
    "call_spread": (calls.called_spread, known.is_known_spread),
    "raised": (calls.raised, known.is_known_raise),
    "caught": (calls.caught, known.is_known_error),
    "match_kind": (containers.match_kind, known.is_new),
    "match_keys": (containers.match_keys, known.is_new),
    "match_class": (calls.match_class, known.is_new),
}
"""The handler of each note by its name, and the question whether the note says nothing new."""

NOTE_NAMES = frozenset({*_NOTES, "attribute", "name", "call"})
"""The names of all notes."""
_AS_THEY_ARE = frozenset(CONTAINERS)
"""Types of arguments after ``*`` whose members can be read without running code."""
_NO_TYPES = frozenset[type]()
_PROFILED = not hasattr(sys, "monitoring")
"""Whether a profiler watches the code (before Python 3.12); it is called for every function here."""
_thread, _get_profile, _set_profile = partial(get_ident), partial(sys.getprofile), partial(sys.setprofile)
"""C functions behind ``partial``: Python does not call the profiler for what a partial calls."""


class _Traces(dict[int, Trace | None]):
    """Traces by thread; ``adopt`` finds one for a thread that has none."""

    def __init__(self, adopt: Callable[[], Trace | None]) -> None:
        super().__init__()
        self._adopt = adopt

    def __missing__(self, thread: int) -> Trace | None:
        return self._adopt()


class Notes:
    """The notes: one attribute for each name in :data:`..bytecode.opcodes.NOTED`, and ``gather``."""

    def __init__(self) -> None:
        self._traces = _Traces(self._adopt)
        self._calls: dict[int, Trace] = {}  # traces by thread, also while a note is at work
        self._adopting: set[int] = (
            set()
        )  # threads in ``_adopt`` or in a note: both may run instrumented code, whose notes find no trace
        for note, (function, is_known) in _NOTES.items():
            setattr(self, note, self._note(function, is_known))
        self.attribute, self.name, self.call = self._attribute(), self._name(), self._call()
        self._gathered = self._note(calls.gathered, known.is_new)

    def send_to(self, trace: Trace | None) -> Trace | None:
        """Send the notes of this thread to a trace, or nowhere; returns the previous trace."""
        thread = get_ident()
        before = self._traces.pop(thread, None)
        for worker in [each for each, of in self._traces.items() if of is before]:
            del self._traces[worker]
        self._calls.pop(thread, None)
        if trace is not None:
            self._traces[thread] = self._calls[thread] = trace
        return before

    def gather(self, args: Any) -> Callable[[], Any]:
        """A C function that makes a tuple of the arguments after ``*``, so that rote adds no frame."""
        if type(args) in _AS_THEY_ARE or lookup.find(type(args), "__iter__").owner is None:
            return partial((args,).__getitem__, 0)
        self._gathered(args)
        return partial(tuple, args)

    def choosing(
        self, function: weakref.ref[FunctionType], code: CodeType
    ) -> Callable[[dict[str, Any]], Callable[..., Any]]:
        """What tells redirected code which function to run; ``code`` is the code that it had."""

        def choose(variables: dict[str, Any]) -> Callable[..., Any]:
            return self._chosen(frames.choose, function, code, variables)

        return choose

    def entering(
        self, wrapper: weakref.ref[FunctionType], code: CodeType
    ) -> Callable[[Any], Callable[..., Any]]:
        """What tells the redirected code of a wrapper which function to run."""

        def enter(function: Any) -> Callable[..., Any]:
            return self._chosen(frames.enter, wrapper, code)

        return enter

    def trace(self) -> Trace | None:
        """The trace of this thread; None without one, and while a note is at work."""
        return self._traces[_thread()]

    def interrupt(self) -> None:
        """Functions are about to get their own code back: nothing more is noted of the calls in progress."""
        for trace in list(self._calls.values()):
            trace.refuse("torch.compile", "runs while another thread compiles, and cannot be followed")

    def leaving(self, function: Any) -> None:
        """What a wrapper has called is over."""
        trace = self._traces[_thread()]
        if trace is not None:
            trace.switch_back(function)

    def _chosen(
        self, handler: Callable[..., Any], which: weakref.ref[FunctionType], code: CodeType, *given: Any
    ) -> Callable[..., Any]:
        """What a handler gives; without a trace, and where the handler fails, the function as it was."""
        function, trace = which(), self._traces[_thread()]
        if function is None:
            raise InternalError("a function runs that is gone")
        chosen = self._take(handler, trace, function, code, *given) if trace is not None else None
        return copied(function, code) if chosen is None else chosen

    def _note(self, function: Callable[..., None], is_known: Callable[..., bool]) -> Callable[..., None]:
        """One note; a fixed number of parameters takes half the time of ``*given``."""
        traces, take = self._traces, self._take
        # Numbers, strings and tensors say nothing new, except to a note that is always taken.
        plain = _NO_TYPES if is_known is known.is_new else known.PLAIN_OR_TENSOR

        def of_one(first: Any) -> None:
            if type(first) in plain:
                return
            trace = traces[_thread()]
            if trace is not None and not is_known(trace, first):
                take(function, trace, first)

        def of_two(first: Any, second: Any) -> None:
            trace = traces[_thread()]
            if trace is not None and not is_known(trace, first, second):
                take(function, trace, first, second)

        def of_three(first: Any, second: Any, third: Any) -> None:
            trace = traces[_thread()]
            if trace is not None and not is_known(trace, first, second, third):
                take(function, trace, first, second, third)

        def of_many(*given: Any) -> None:
            trace = traces[_thread()]
            if trace is not None and not is_known(trace, *given):
                take(function, trace, *given)

        given = signature(is_known).parameters.values()
        written = all(
            [each.kind is each.POSITIONAL_OR_KEYWORD and each.default is each.empty for each in given]
        )
        return {1: of_one, 2: of_two, 3: of_three}.get(len(given) - 1 if written else 0, of_many)

    def _attribute(self) -> Callable[[str, Any], None]:
        """Like :meth:`_note`, with the question inlined: half of all notes are this one or the next."""
        traces, take, is_known = self._traces, self._take, known.is_known_attribute

        def note(name: str, value: Any) -> None:
            trace = traces[_thread()]
            if trace is None:
                return
            which = identity(value)
            if (which if which in trace.outside else type(value), name) in trace.seen and (
                type(value) is not super or is_known(trace, name, value)
            ):
                return
            take(attributes.attribute, trace, name, value)

        return note

    def _name(self) -> Callable[[str, dict[str, Any]], None]:
        """Like :meth:`_attribute`, for a global."""
        traces, take = self._traces, self._take

        def note(name: str, table: dict[str, Any]) -> None:
            trace = traces[_thread()]
            if trace is not None and (identity(table), name, "global") not in trace.seen:
                take(names.name, trace, name, table)

        return note

    def _call(self) -> Callable[..., None]:
        """Like :meth:`_attribute`, for a call."""
        traces, take, by_type, of_others = self._traces, self._take, known.KNOWN_CALLS, known.is_known_call

        def note(names: tuple[str, ...], function: Any, *args: Any) -> None:
            trace = traces[_thread()]
            if trace is None or identity(function) in trace.called:
                return
            asks = by_type[type(function)] if type(function) in by_type else of_others  # noqa: SIM401
            if not asks(trace, function, args):
                take(calls.called, trace, names, function, *args)

        return note

    def _adopt(self) -> Trace | None:
        """The traced call for which one of PyTorch's threads works; with several calls, each is refused."""
        thread = get_ident()
        if not self._calls or thread in self._calls or thread in self._adopting:
            return None
        self._adopting.add(thread)
        try:
            calls = list(self._calls.values()) if is_worker() else []
            for each in calls if len(calls) > 1 else ():
                each.refuse("torch.autograd", "runs a backward on a device while another thread is traced")
        finally:
            self._adopting.discard(thread)
        return calls[0] if calls else None

    def _take(self, function: Callable[..., Any], trace: Trace, *given: Any) -> Any:
        profiler: Any = _get_profile() if _PROFILED else None
        profiled = type(profiler) is MethodType and profiler.__func__ is PROFILE  # ``our_profiler``, inlined
        if profiled:  # off before the first call here and on after the last: each would call the profiler
            _set_profile(None)
        thread = _thread()
        self._traces.pop(thread, None)
        self._adopting.add(thread)
        before, trace.at_work = trace.at_work, True
        try:
            return function(trace, *given)
        except Exception as error:  # a fault in a note must not reach the user's call
            trace.failed(f"note {function.__name__}", error)
            return None
        finally:
            trace.at_work = before
            self._adopting.discard(thread)
            self._traces[thread] = trace
            if profiled:
                _set_profile(profiler)
