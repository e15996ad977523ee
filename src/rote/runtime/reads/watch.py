"""Notes what calls read, one call at a time on a thread."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import torch

from ...base import identity, is_instance
from ..numbers import TrackedNumbers
from ..objects import is_bound_method
from ..pytorch import NO_RUN, CallRun, untraced
from ..state import our_profiler, set_profile
from .bytecode import Answering, Around, Swaps
from .handlers import HANDLERS, NOTE_NAMES, PLAIN_OR_TENSOR, Notes, TrackingNotes, called, follow_function
from .table import Rows
from .trace import Aside, Noted, Trace


def is_anchored(value: Any) -> bool:
    """Whether an object is the user's own, supports weak references, and is no module."""
    kind = type(value)
    return bool(kind.__weakrefoffset__) and not issubclass(kind, (torch.nn.Module, type, FunctionType))


def aside(call: Callable[[], Any]) -> Any:
    """Run what is no part of a call, where nothing else has to be done."""
    with untraced():
        return call()


class Watch:
    """Notes what calls read. There is one per process, since it replaces ``__code__`` of shared functions.

    Attributes:
        answering: Who answers calls of modules, thread by thread, while :meth:`precede` holds.
    """

    def __init__(self) -> None:
        self.answering = Answering()
        self._notes = Notes()
        tracking = TrackingNotes(self._notes, NOTE_NAMES)
        self._swaps = Swaps(self._notes, tracking, Around(plain=PLAIN_OR_TENSOR))
        self._rows = Rows(HANDLERS, called)
        self._answers = weakref.WeakValueDictionary[Any, Any]()  # what guards ask of compiled code

    def begin(
        self,
        function: Any,
        roots: Iterable[tuple[str, Any]] = (),
        functions: Iterable[FunctionType] = (),
        meet: Callable[[Any], None] = lambda tensor: None,
        aside: Aside = aside,
        numbers: TrackedNumbers | None = None,
        run: CallRun = NO_RUN,
        *,
        keeps: bool = False,
    ) -> Trace:
        """A call begins on this thread.

        Roots are named objects that exist before the call. C calls ``functions``. ``meet`` gets each tensor
        that is found outside. ``aside`` runs what is no part of the call. ``numbers`` are those that change.
        ``run`` runs the call. It ``keeps`` what it writes over where the call may be
        attempted once more.
        """
        trace = Trace(self._swaps, self._rows, self._answers, meet, aside, numbers, run, keeps=keeps)
        for name, value in roots:
            trace.outside.find(value, None, name)
            for each in (value, value.__self__) if is_bound_method(value) else (value,):
                if is_anchored(each):
                    trace.outside.anchored.add(identity(each))
            if is_instance(value, torch.Tensor):
                trace.outside.tensors.add(identity(value))
                if not isinstance(value, torch.nn.Parameter):
                    trace.outside.arguments[identity(value)] = name
            elif is_instance(value, type) and issubclass(value, torch.autograd.Function):
                follow_function(trace, value)
        if is_bound_method(function):
            trace.outside.find(function.__self__, None, "self")
            trace.outside.find(function.__func__, None, "")
        else:
            trace.outside.find(function, None, "")
        self._swaps.begin()
        try:
            called(trace, (), function)
            for each in functions:
                trace.outside.find(each, None, each.__qualname__)
                trace.callables.run(each)
        except BaseException:
            self._swaps.end()
            raise
        trace.around = self._notes.send_to(trace)
        return trace

    def end(self, trace: Trace) -> Noted:
        """The call is over."""
        self._notes.send_to(trace.around)
        self._swaps.end()
        noted = trace.finish()
        if any(each.unknown for each in noted.unseen):
            self._rows.read_shipped()
        return noted

    @contextmanager
    def unheard(self) -> Generator[None]:
        """What runs here on this thread is no part of the call: nothing is noted of it."""
        profiler = our_profiler()
        if profiler is not None:
            set_profile(None)
        before = self._notes.send_to(None)
        try:
            yield
        finally:
            self._notes.send_to(before)
            if profiler is not None:
                set_profile(profiler)

    def precede(self, nothing: Any) -> bool:
        """Ask ``answering`` about each call of a module, until :meth:`leave` is called as often as this.

        Args:
            nothing: What is given for a call that is to be made as usual; the same object each time.

        Returns:
            Whether calls are asked about from now on.
        """
        return self._swaps.precede(self.answering, nothing)

    def leave(self) -> None:
        """One of those who asked to be asked needs it no more."""
        self._swaps.leave()

    def declare(self, things: Iterable[Any]) -> None:
        """Take callables as pure: the same arguments give the same result, without effects."""
        self._rows.declare(things)


WATCH = Watch()
"""The process's."""
