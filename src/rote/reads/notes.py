"""What instrumented code calls: each note goes to the trace of the thread, if it has one.

Instrumented code is kept and used again, also by generators and functions that outlive the call in which they
were made, and by other threads. So it is not bound to a trace, and a note that finds none returns. While a
note is at work, its thread has none: what it calls, of Python's own library, may be instrumented too.

Most notes tell what was noted before. They return after a look at what the trace has seen; see :mod:`.known`.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from collections.abc import Callable, Mapping
from functools import partial
from sys import setprofile
from types import CellType, CodeType, CoroutineType, FunctionType, GeneratorType, MethodType
from typing import Any

from ..base.identity import identity
from ..signature.executed import our_profiler
from ..signature.workers import is_worker
from . import attributes, calls, containers, importing, lookup, names
from .instrument import Beginning
from .kinds import CONTAINERS, PLAIN_TYPES
from .known import (
    ERRORS,
    PLAIN_OR_TENSOR,
    STEPPING,
    is_known_attribute,
    is_known_call,
    is_known_member,
    is_known_whole,
)
from .opcodes import NOTED
from .summaries import Summary, summaries
from .trace import Trace

_LEFT: dict[str, Callable[..., None]] = {
    "store_cell": names.store_cell,
    "delete_cell": names.store_cell,
    "imported": importing.imported,
    "sliced": containers.sliced,
    "store_item": containers.store_item,
    "store_slice": containers.store_slice,
    "delete_item": containers.delete_item,
    "length": containers.length,
    "unary": containers.unary,
    "enter": containers.enter,
    "match_kind": containers.match_kind,
    "match_keys": containers.match_keys,
    "match_class": calls.match_class,
}
"""Notes that are handed on as they are."""

_AS_THEY_ARE = frozenset(CONTAINERS)
"""Types of arguments behind ``*`` whose members are read without running code."""
_VALUES = (int, float, str, bytes, complex)
_PROFILED = not hasattr(sys, "monitoring")
"""Code is watched by a profiler, which would be called for every function here."""
_CALLED = frozenset({FunctionType, MethodType, staticmethod, classmethod})
_GENERATORS = frozenset({GeneratorType, CoroutineType})


def _key(given: Any = None) -> Any:
    """What a note of a function was told beside the object, in a form by which it is found again."""
    return given if type(given) is str else identity(given)


class Notes:
    """The notes, one attribute for each of :data:`.opcodes.NOTED`.

    Args:
        summaries: Functions of which one note tells all, by the identity of their code.
    """

    def __init__(self, summaries: Callable[[], Mapping[int, Summary]] = summaries) -> None:
        self._summaries = summaries
        self._traces: dict[int, Trace] = {}
        self._calls: dict[int, Trace] = {}  # also while a note is at work
        self._busy: set[int] = set()  # threads where one is: what it asks may run code that notes
        for note, function in _LEFT.items():
            setattr(self, note, self._sender(function))
        for note in ("truth", "advance"):
            setattr(self, note, self._of_one(getattr(containers, note)))
        self.compare, self.binary = self._compare(), self._binary()
        self.same = self._same()
        self.pairs, self.members = self._of_keys(2), self._of_keys(1)
        self.bounds, self.sent = self._bounds(), self._sent()
        self.item, self.contains = self._item(), self._contains()
        self.iterate, self.merged = self._whole(containers.iterate), self._whole(containers.merged)
        self.attribute, self.super_attribute = self._attribute(), self._super_attribute()
        self.store_attribute = self._stored(attributes.store_attribute, "__setattr__")
        self.delete_attribute = self._stored(attributes.delete_attribute, "__delattr__")
        self.text, self.raised, self.caught = self._text(), self._raised(), self._caught()
        self.cell = self._cell()
        self.call, self.call_spread = self._call(), self._call_spread()
        self.gather = self._gather()
        self.name = self._name()
        self.store_name = self.delete_name = self._store_name()
        missing = {row.note for row in NOTED.values()} - set(vars(self))
        assert not missing, missing

    def beginning(self, code: CodeType) -> Beginning | None:
        """The note at the beginning of code that tells all that it reads, if there is one."""
        summary = self._summaries().get(identity(code))
        return Beginning(self._summary(summary), summary.given) if summary is not None else None

    def send_to(self, trace: Trace | None) -> Trace | None:
        """Notes of this thread go to a trace from now on, or nowhere; returns where they went before."""
        thread = get_ident()
        before = self._traces.pop(thread, None)
        for worker in [each for each, of in self._traces.items() if of is before]:
            del self._traces[worker]
        self._calls.pop(thread, None)
        if trace is not None:
            self._traces[thread] = self._calls[thread] = trace
        return before

    def _adopt(self, thread: int) -> Trace | None:
        """The call for which a thread of PyTorch's works, if this is one: all that are traced may be it."""
        if not self._calls or thread in self._calls or not is_worker():
            return None
        calls = list(self._calls.values())
        for each in calls if len(calls) > 1 else ():
            each.refuse("torch.autograd", "runs a backward on a device while another thread is traced")
        return calls[0]

    def _sender(self, function: Callable[..., Any]) -> Callable[..., Any]:
        traces, busy = self._traces, self._busy

        def note(*given: Any) -> Any:
            thread = get_ident()
            if thread in busy:
                return None
            trace = traces.pop(thread, None)
            if trace is None and not self._calls:
                return None
            busy.add(thread)
            try:
                trace = self._adopt(thread) if trace is None else trace
                return self._take(function, trace, given) if trace is not None else None
            finally:
                busy.discard(thread)
                if trace is not None:
                    traces[thread] = trace

        return note

    def _take(self, function: Callable[..., Any], trace: Trace, given: tuple[Any, ...]) -> Any:
        profiler = our_profiler() if _PROFILED else None
        if profiler is not None:
            setprofile(None)
        trace.at_work = True
        try:
            return function(trace, *given)
        except Exception as error:  # the call itself is none the worse for it
            trace.failed(f"note {function.__name__}", error)
        finally:
            trace.at_work = False
            if profiler is not None:
                setprofile(profiler)

    def _summary(self, summary: Summary) -> Callable[..., bool]:
        """Of an object, and a name or a table; returns whether nothing is left to be told."""
        traces, asks, mark = self._traces, summary.asks, summary.code.co_name

        def told(trace: Trace, value: Any, *given: Any) -> bool:
            looked = summary.note(trace, value, *given)
            if looked is not None and all([trace.has(each) for each in looked]):
                trace.tell((mark, identity(value), _key(*given)), looked)
            return looked is not None

        send = self._sender(told)

        def note(value: Any, *given: Any) -> bool:
            trace = traces.get(get_ident())
            if trace is not None and (mark, identity(value), _key(*given)) in trace.told and not asks():
                return True
            return bool(send(value, *given))

        return note

    def _of_one(self, function: Callable[..., None]) -> Callable[..., None]:
        """Of one value, most often a plain one, a tensor, or an iterator of Python's own."""
        send, uninteresting = self._sender(function), PLAIN_OR_TENSOR | STEPPING
        traces, traced, mark = self._traces, self._calls, function.__name__

        def note(value: Any) -> None:
            if type(value) in uninteresting:
                return
            trace = traces.get(get_ident())
            if trace is None or identity(value) not in trace.outside:
                if trace is None or type(value) not in _AS_THEY_ARE:
                    send(value)
            elif (mark, identity(value)) not in trace.seen:
                send(value)
                trace.seen.add((mark, identity(value)))

        if function is containers.advance:

            def moved(value: Any) -> None:
                trace = traces.get(get_ident())
                if trace is None:
                    if traced:
                        send(value)
                elif identity(value) in trace.outside or type(value) not in uninteresting:
                    send(value)

            return moved
        return note

    def _compare(self) -> Callable[[Any, Any], None]:
        send = self._sender(containers.compare)

        def note(left: Any, right: Any) -> None:
            if type(left) not in PLAIN_OR_TENSOR or type(right) not in PLAIN_OR_TENSOR:
                send(left, right)

        return note

    def _binary(self) -> Callable[[str, Any, Any], None]:
        send = self._sender(containers.binary)

        def note(operator: str, left: Any, right: Any) -> None:
            if type(left) not in PLAIN_OR_TENSOR or type(right) not in PLAIN_OR_TENSOR:
                send(operator, left, right)

        return note

    def _of_keys(self, step: int) -> Callable[..., None]:
        """Of a dict or a set that is made: what is looked up in it, which is every so manieth item."""
        traces, send = self._traces, self._sender(containers.keyed)

        def note(*given: Any) -> None:
            keys = given[::step]
            trace = traces.get(get_ident())
            for key in keys:
                if type(key) not in PLAIN_OR_TENSOR and (trace is None or not trace.is_by_identity(key)):
                    send(*keys)
                    return

        return note

    def _bounds(self) -> Callable[..., None]:
        send = self._sender(containers.bounds)

        def note(*given: Any) -> None:
            for each in given:
                if type(each) not in PLAIN_OR_TENSOR:
                    send(*given)
                    return

        return note

    def _sent(self) -> Callable[[Any, Any], None]:
        send = self._sender(containers.sent)

        def note(receiver: Any, value: Any) -> None:
            if type(receiver) not in _GENERATORS:
                send(receiver)

        return note

    def _same(self) -> Callable[..., None]:
        traces, send = self._traces, self._sender(containers.same)

        def note(left: Any, right: Any) -> None:
            if type(left) is type(right):
                if type(left) in _VALUES and left == right:
                    send(left, right)
                    return
                trace = traces.get(get_ident())
                if trace is None:
                    return
                outside = identity(left) in trace.outside and identity(right) in trace.outside
                if outside or trace.given.is_one(left) or trace.given.is_one(right):
                    send(left, right)

        return note

    def _attribute(self) -> Callable[[str, Any], None]:
        traces, traced, send = self._traces, self._calls, self._sender(attributes.attribute)

        def note(name: str, value: Any) -> None:
            trace = traces.get(get_ident())
            if trace is None:
                if traced:
                    send(name, value)
                return
            if type(value) is super:
                known = is_known_attribute(trace, name, value)
            else:
                which = identity(value)
                known = (which if which in trace.outside else type(value), name) in trace.seen
            if not known:
                send(name, value)

        return note

    def _stored(self, function: Callable[..., None], method: str) -> Callable[..., None]:
        """An attribute is set, or deleted: of objects that the call has made it says something once."""
        traces, traced, send = self._traces, self._calls, self._sender(function)

        def note(name: str, *values: Any) -> None:
            trace, value = traces.get(get_ident()), values[-1]
            if trace is None:
                if traced:
                    send(name, *values)
                return
            known = identity(value) not in trace.outside and (type(value), name, method) in trace.seen
            if not known or type(values[0]) in _CALLED:
                send(name, *values)

        return note

    def _text(self) -> Callable[..., None]:
        send = self._sender(containers.text)

        def note(value: Any, *_: Any) -> None:
            if type(value) not in PLAIN_TYPES:
                send(value)

        return note

    def _raised(self) -> Callable[..., None]:
        send = self._sender(calls.raised)

        def note(count: int, *values: Any) -> None:
            if not count:
                send(count)
            for value in values:
                if issubclass(type(value), type):
                    send(count, *values)
                    return

        return note

    def _caught(self) -> Callable[[Any, Any], None]:
        traces, send = self._traces, self._sender(calls.caught)

        def note(error: Any, kinds: Any) -> None:
            trace = traces.get(get_ident())
            known = trace is not None and type(error) in ERRORS and identity(error) not in trace.outside
            if trace is None or not known or (type(kinds) is tuple and identity(kinds) in trace.outside):
                send(error, kinds)

        return note

    def _super_attribute(self) -> Callable[..., None]:
        traces, traced, send = self._traces, self._calls, self._sender(attributes.super_attribute)

        def note(name: str, function: Any, kind: Any, value: Any) -> None:
            trace = traces.get(get_ident())
            if trace is None:
                if traced:
                    send(name, function, kind, value)
            elif (kind, type(value), name) not in trace.seen:
                send(name, function, kind, value)

        return note

    def _cell(self) -> Callable[[CellType], None]:
        traces, traced, send = self._traces, self._calls, self._sender(names.cell)

        def note(cell: CellType) -> None:
            trace = traces.get(get_ident())
            if trace is None:
                if traced:
                    send(cell)
                return
            which = identity(cell)
            if which in trace.outside and ("cell", which) not in trace.seen:
                send(cell)

        return note

    def _item(self) -> Callable[[Any, Any], None]:
        traces, traced, send = self._traces, self._calls, self._sender(containers.item)

        def note(value: Any, key: Any) -> None:
            trace = traces.get(get_ident())
            if trace is None:
                if traced:
                    send(value, key)
            elif not is_known_member(trace, value, key):
                send(value, key)

        return note

    def _contains(self) -> Callable[[Any, Any], None]:
        traces, traced, send = self._traces, self._calls, self._sender(containers.contains)

        def note(key: Any, value: Any) -> None:
            trace = traces.get(get_ident())
            if trace is None:
                if traced:
                    send(key, value)
            elif not is_known_member(trace, value, key):
                send(key, value)

        return note

    def _whole(self, function: Callable[..., None]) -> Callable[[Any], None]:
        traces, traced, send = self._traces, self._calls, self._sender(function)

        def note(value: Any) -> None:
            trace = traces.get(get_ident())
            if trace is None:
                if traced:
                    send(value)
            elif not is_known_whole(trace, value):
                send(value)

        return note

    def _call(self) -> Callable[..., None]:
        traces, traced, send = self._traces, self._calls, self._sender(calls.called)

        def note(keywords: tuple[str, ...], function: Any, *args: Any) -> None:
            trace = traces.get(get_ident())
            if trace is None:
                if traced:
                    send(keywords, function, *args)
                return
            target = function.__func__ if type(function) is MethodType else function
            if identity(target) not in trace.called and not is_known_call(trace, function, args):
                send(keywords, function, *args)

        return note

    def _call_spread(self) -> Callable[..., None]:
        traces, send = self._traces, self._sender(calls.called_spread)

        def note(function: Any, args: Any, kwargs: Any = None) -> None:
            trace = traces.get(get_ident())
            if trace is None:
                if self._calls:
                    send(function, args, kwargs)
                return
            made = type(args) is tuple and identity(args) not in trace.outside
            named = kwargs is None or (type(kwargs) is dict and identity(kwargs) not in trace.outside)
            if not (made and named and is_known_call(trace, function, (*args, *(kwargs or {}).values()))):
                send(function, args, kwargs)

        return note

    def _gather(self) -> Callable[[Any], Callable[[], Any]]:
        traces, send = self._traces, self._sender(calls.gathered)

        def note(args: Any) -> Callable[[], Any]:
            if type(args) in _AS_THEY_ARE or lookup.find(type(args), "__iter__").owner is None:
                return partial((args,).__getitem__, 0)
            if self._calls or get_ident() in traces:
                send(args)
            return partial(tuple, args)

        return note

    def _name(self) -> Callable[[str, dict[str, Any]], None]:
        traces, send = self._traces, self._sender(names.name)

        def note(name: str, table: dict[str, Any]) -> None:
            trace = traces.get(get_ident())
            if trace is None and not self._calls:
                return
            if trace is None or (identity(table), name, "global") not in trace.seen:
                send(name, sys._getframe(1))  # pyright: ignore[reportPrivateUsage]

        return note

    def _store_name(self) -> Callable[..., None]:
        send = self._sender(names.store_name)

        def note(name: str, table: dict[str, Any], *_: Any) -> None:
            send(name, table)

        return note
