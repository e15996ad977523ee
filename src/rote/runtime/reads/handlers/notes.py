"""Instrumented code calls notes; each note goes to the trace of its thread, if the thread has one.

Instrumented code outlives a call: later calls, generators, functions and other threads use it again. So it is
not bound to a trace, and a note that finds no trace returns. While a note is at work, its thread has no
trace, because the standard library's functions that the note calls may be instrumented, too.

Most notes say nothing new. They ask the trace and return at once; see :mod:`.note` and :mod:`.known`.
"""

from __future__ import annotations

import weakref
from _thread import get_ident
from collections.abc import Callable
from functools import partial
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from ....base import InternalError
from ...pytorch import is_worker
from ...state import our_profiler, set_profile
from ..bytecode import copied
from ..table import lookup
from ..trace import CONTAINERS, Trace
from . import attributes, calls, containers, frames, importing, known, names
from .note import write_note


class _Row(NamedTuple):
    """One note: what it is told, who takes it, and what says that it says nothing new."""

    parameters: str
    handler: Callable[..., None]
    question: str = "False"  # an expression that says that the note says nothing new
    plain: str = ""  # the parameters that say nothing if all of them are plain
    also: Callable[..., bool] | None = None  # what is asked where it says no


_OUTSIDE = "identity(value) in trace.outside"
_OWN = "identity(value) not in trace.outside"
_MET = "identity(value) in trace.outside.tensors"
_NOTES: dict[str, _Row] = {
    "attribute": _Row(
        "name, value", attributes.attribute,
        f"(identity(value) if {_OUTSIDE} or {_MET} else type(value), name) in trace.seen"
        " and type(value) is not super",
        also=known.is_known_through_super,
    ),
    "name": _Row("name, table", names.name, "(identity(table), name, 'global') in trace.seen"),
    "call": _Row(
        "names, function, *args", calls.called, "identity(function) in trace.callables.called",
        also=known.is_known_call,
    ),
    "super_attribute": _Row(
        "name, function, kind, value", attributes.super_attribute, "(kind, type(value), name) in trace.seen"
    ),
    "store_attribute": _Row(
        "name, new, value", attributes.store_attribute,
        f"{_OWN} and (type(value), name, '__setattr__') in trace.seen and type(new) not in CALLED",
    ),
    "delete_attribute": _Row(
        "name, value", attributes.delete_attribute,
        f"{_OWN} and (type(value), name, '__delattr__') in trace.seen",
    ),
    "store_name": _Row("name, table, *new", names.store_name),
    "delete_name": _Row("name, table, *new", names.delete_name),
    "cell": _Row(
        "value", names.cell, f"{_OWN} or ('cell', identity(value)) in trace.seen",
    ),
    "store_cell": _Row("cell, *new", names.store_cell),
    "delete_cell": _Row("cell, *new", names.store_cell),
    "imported": _Row("*given", importing.imported),
    "item": _Row(
        "value, key", containers.item,
        "type(key) in KEYS and ((identity(value), key) in trace.outside.members"
        f" or (type(value) in CONTAINERS and {_OWN}))",
        plain="value key", also=known.is_known_member,
    ),
    "contains": _Row(
        "key, value", containers.contains,
        "type(key) is str and ((identity(value), key) in trace.outside.members"
        f" or (type(value) in CONTAINERS and {_OWN}))",
        plain="value key", also=known.is_known_key,
    ),
    "sliced": _Row("value, start, end", containers.sliced),
    "store_item": _Row("new, value, key", containers.store_item),
    "store_slice": _Row("new, value, start, end", containers.store_slice),
    "delete_item": _Row("value, key", containers.delete_item),
    "iterate": _Row(
        "value", containers.iterate, f"{_OWN} and type(value) in CONTAINERS", plain="value",
        also=known.is_known_whole,
    ),
    "hashed": _Row("value", containers.hashed, plain="value"),
    "merged": _Row(
        "value", containers.merged, f"{_OWN} and type(value) in CONTAINERS", plain="value",
        also=known.is_known_whole,
    ),
    "advance": _Row(
        "value", containers.advance, f"{_OWN} and (type(value) in STEPPING or type(value) in PLAIN)"
    ),
    "length": _Row("value", containers.length, plain="value"),
    "truth": _Row(
        "value", containers.truth,
        "type(value) in STEPPING or ('truth', identity(value)) in trace.seen"
        f" or (type(value) in CONTAINERS and {_OWN})",
        plain="value",
    ),
    "compare": _Row("left, right", containers.compare, plain="left right"),
    "binary": _Row("operator, left, right", containers.binary, plain="left right"),
    "unary": _Row("value", containers.unary, plain="value"),
    "same": _Row(
        "left, right", containers.same, "type(left) is not type(right)", also=known.is_known_identity
    ),
    "text": _Row("how, value, *form", containers.formatted, also=known.is_plain_text),
    "joined": _Row("*given", containers.joined, "True"),
    "pairs": _Row("*given", containers.paired, also=known.are_known_pairs),
    "members": _Row("*given", containers.keyed, also=known.are_known_keys),
    "bounds": _Row("*given", containers.bounds, also=known.are_plain),
    "sent": _Row("receiver, value", containers.sent, also=known.is_known_receiver),
    "enter": _Row("value", containers.enter),
    "given_back": _Row(
        "value", calls.given_back, plain="value", also=known.is_given_to_python
    ),
    "call_spread": _Row("function, args, kwargs=None", calls.called_spread, also=known.is_known_spread),
    "raised": _Row("count, *values", calls.raised, also=known.is_known_raise),
    "caught": _Row("error, kinds", calls.caught, also=known.is_known_error),
    "match_kind": _Row("value", containers.match_kind),
    "match_keys": _Row("value, keys", containers.match_keys),
    "match_class": _Row("count, value, kind, names", calls.match_class),
}  # fmt: skip

NOTE_NAMES = frozenset(_NOTES)
"""The names of all notes."""
_AS_THEY_ARE = frozenset(CONTAINERS)
"""Types of arguments after ``*`` whose members can be read without running code."""
_thread = partial(get_ident)
"""A C function behind ``partial``: Python does not call the profiler for what a partial calls."""


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
        # threads in ``_adopt`` or in a note: both may run instrumented code, whose notes find no trace
        self._adopting: set[int] = set()
        for name, row in _NOTES.items():
            setattr(self, name, self._note(row))
        self._gathered = self._note(_Row("args", calls.gathered))

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
            trace.running.refuse(
                "torch.compile", "runs while another thread compiles, and cannot be followed"
            )

    def leaving(self, function: Any) -> None:
        """What a wrapper has called is over."""
        trace = self._traces[_thread()]
        if trace is not None:
            trace.callables.switch_back(function)

    def _chosen(
        self, handler: Callable[..., Any], which: weakref.ref[FunctionType], code: CodeType, *given: Any
    ) -> Callable[..., Any]:
        """What a handler gives; without a trace, and where the handler fails, the function as it was."""
        function, trace = which(), self._traces[_thread()]
        if function is None:
            raise InternalError("a function runs that is gone")
        profiler = our_profiler()
        if profiler is not None:  # what is compiled in there would be told, too
            set_profile(None)
        try:
            chosen = self._take(handler, trace, function, code, *given) if trace is not None else None
        finally:
            if profiler is not None:
                set_profile(profiler)
        return copied(function, code) if chosen is None else chosen

    def _note(self, row: _Row) -> Callable[..., None]:
        return self.write(row.parameters, self._take, row.handler, row.plain, row.question, row.also)

    def write(
        self,
        parameters: str,
        take: Callable[..., None],
        handler: Any,
        plain: str = "",
        question: str = "False",
        also: Callable[..., bool] | None = None,
    ) -> Callable[..., None]:
        """A note that finds the trace of its thread; see :func:`.note.write_note`."""
        names = {"traces": self._traces, "thread": _thread, "take": take, "handler": handler}
        return write_note(parameters, plain, question, also, names)

    def _adopt(self) -> Trace | None:
        """The traced call for which one of PyTorch's threads works; with several calls, each is refused."""
        thread = get_ident()
        if not self._calls or thread in self._calls or thread in self._adopting:
            return None
        self._adopting.add(thread)
        try:
            calls = list(self._calls.values()) if is_worker() else []
            for each in calls if len(calls) > 1 else ():
                each.running.refuse(
                    "torch.autograd", "runs a backward on a device while another thread is traced"
                )
        finally:
            self._adopting.discard(thread)
        return calls[0] if calls else None

    def _take(self, function: Callable[..., Any], trace: Trace, *given: Any) -> Any:
        thread = _thread()
        self._traces.pop(thread, None)
        self._adopting.add(thread)
        before, trace.at_work = trace.at_work, True
        try:
            return function(trace, *given)
        except Exception as error:  # a fault in a note must not reach the user's call
            trace.running.failed(f"note {function.__name__}", error)
            return None
        finally:
            trace.at_work = before
            self._adopting.discard(thread)
            self._traces[thread] = trace
