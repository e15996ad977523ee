"""Parts: what of a callable replays where the callable as a whole does not.

``docs/call.md`` says which calls are met. While the callable runs, each call of a module is met before it is
made (:mod:`...runtime.reads.bytecode.prologue`), by the thread that runs the callable alone. The module has
no attribute, no hook and no class more than before; what is known of it lies here, by its identity and with a
weak reference. Where nothing comes of it after ``REVIEW`` calls of the callable, nobody asks any more.
``docs/design.md`` has the reasons.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from ...base import is_own
from ...inspect import PartReport
from ...runtime.arguments import NOT_MINE, tracing
from ...runtime.conditions import abandoned
from ...runtime.engine import Ledger, Means
from ...runtime.pytorch import calls_wrapped, is_looking, is_wrapper
from ...runtime.reads import MODULE_CALL, WATCH
from .part import GraphedPart, ModulePart, PartStage

MOST = 32
"""Parts that are graphed at once."""

REVIEW = 16
"""Calls of the callable after which it is looked at what has come of its parts."""

QUIET = 64
"""Calls of the callable without one of a part after which the part is dropped."""

SHOWN = 16
"""Parts that were given up and are told of."""


class Parts:
    """The parts of one callable.

    Args:
        make: Makes the graphed callable of a module, with the ledger of a part.
        over: Told that no calls of modules are met any more: the callable is called as it is.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        make: Callable[[weakref.ref[torch.nn.Module], Ledger], Any],
        ledger: Ledger,
        over: Callable[[], None],
    ) -> None:
        self._function = function
        self._over = over
        self._make = make
        self._ledger = ledger
        self._means = Means()
        self._known: dict[int, ModulePart] = {}
        self._given_up: list[PartReport] = []
        self._lock = threading.Lock()
        self._calls = 0
        self._is_new = False  # a module was met for the first time
        self._search_at, self._vain = 0, 1
        self._open = WATCH.precede(NOT_MINE)
        if self._open:
            self._leave = weakref.finalize(self, WATCH.leave)

    @property
    def taken_s(self) -> float:
        """Seconds that learning about parts has taken."""
        return self._means.taken_s

    @property
    def lessons(self) -> int:
        """Calls of parts that were traced, and steps to optimise them."""
        return self._means.lessons

    def call(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the callable as it is, with its parts graphed."""
        if not self._open:
            return self._function(*args, **kwargs)
        answering = WATCH.answering
        before, answering.of_thread = answering.of_thread, self.answer
        try:
            return self._function(*args, **kwargs)
        finally:
            answering.of_thread = before
            self._means.add_call()
            self._calls += 1
            if self._is_new and self._calls >= self._search_at:
                self._drop_abandoned()
            if self._calls % REVIEW == 0:
                self._review()

    def answer(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of the call of a module; NOT_MINE if the call is to be made, and those in it are met."""
        if tracing.get() or torch.nn.Module.__call__ is not MODULE_CALL:
            return NOT_MINE  # the last one: a symbolic trace sees calls of modules, or somebody else does
        if is_looking():
            return NOT_MINE  # plainly, the module's code would be compiled
        frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        caller = frame.f_back
        trains = caller is not None and calls_wrapped(caller.f_code)
        if torch.is_grad_enabled() and not trains:
            return NOT_MINE
        part = self._known.get(id(module))
        if part is None or part.module is not module:
            part = self._meet(module, caller, trains=trains)
        if part.meet(self._calls) is PartStage.LEFT:
            return NOT_MINE
        answering = WATCH.answering
        before, answering.of_thread = answering.of_thread, None
        try:
            return part.call(module, args, kwargs, frame, self._graph)
        finally:
            answering.of_thread = before

    def _meet(self, module: torch.nn.Module, caller: FrameType | None, *, trains: bool) -> ModulePart:
        """The part of a module that is met for the first time."""
        known, key = self._known, id(module)
        alive = weakref.ref(module, lambda _: known.pop(key, None))
        stage = PartStage.TIMED
        if module is self._function or is_wrapper(module):
            stage = PartStage.LEFT
        elif caller is not None and is_own(caller.f_code.co_filename):
            stage = PartStage.APART  # a wrapper of the user's calls it
        made = ModulePart(alive, stage, trains=trains)
        self._is_new = True
        with self._lock:
            part = known.get(key)
            if part is None or part.module is not module:
                part = known[key] = made
        return part

    def _graph(self, alive: weakref.ref[torch.nn.Module]) -> GraphedPart | None:
        """The graphed callable of a module; None if it is to have none, or not now.

        Of modules of one class one is tried at a time. Where it has recorded nothing, others of a model are
        like it; containers of PyTorch's may hold anything.
        """
        module = alive()
        alike = [other for other in [*self._known.values()] if other.kind is type(module)]
        if any([other.was_vain for other in alike]) and not _is_container(module):
            for other in alike:
                if other.module is module:
                    other.leave()
            return None
        if any([other.is_tried for other in alike]) or len(self.graphed()) >= MOST:
            return None
        self._ledger.share_with_parts(shares=True)
        ledger = Ledger(bounded=self._ledger.bounded, of=self._ledger, means=self._means)
        return GraphedPart(self._make(alive, ledger), ledger)

    def _drop_abandoned(self) -> None:
        """Drop parts whose modules nobody but guards holds, as those that were replaced.

        To find out takes milliseconds, so it is asked less often where it is asked in vain.
        """
        self._is_new = False
        idle = [(key, each) for key, each in [*self._known.items()] if each.last < self._calls - 1]
        idle = [(key, each) for key, each in idle if each.stage is PartStage.GRAPHED]
        modules = [each.module for _, each in idle]
        free = abandoned(modules) if modules else []
        modules.clear()
        for (key, _), gone in zip(idle, free, strict=True):
            if gone:
                self._known.pop(key, None)
        self._vain = 1 if any(free) else 2 * self._vain
        self._search_at = self._calls + (self._vain if idle else 0)

    def _review(self) -> None:
        """Drop what is not called any more, and ask no more where nothing has come of it."""
        with self._lock:
            parts = [*self._known.items()]
            for key, part in parts:
                if part.last < self._calls - QUIET:
                    self._known.pop(key, None)
            stages = {part.stage for _, part in parts if part.last >= self._calls - REVIEW}
            graphed = any([part.stage is PartStage.GRAPHED for _, part in parts])
            if not graphed and PartStage.TIMED not in stages and self._open:
                self._close()

    def _close(self) -> None:
        """Nobody asks about calls of modules for this callable any more."""
        self._given_up = [part for part in self.reports() if part.given_up]
        self._open = False
        self._leave()
        self._ledger.share_with_parts(shares=False)
        self._known.clear()
        self._over()

    def graphed(self) -> list[Any]:
        """The graphed callables of all parts."""
        return [each.graphed.function for each in [*self._known.values()] if each.graphed is not None]

    def reports(self) -> list[PartReport]:
        """What is told of the parts, those with most time first."""
        found = [each.report() for each in [*self._known.values()]]
        told = [*[each for each in found if each is not None], *self._given_up]
        told.sort(key=lambda each: (bool(each.given_up), -each.calls * each.plain_us))
        return told[: MOST + SHOWN]

    def clear(self) -> None:
        """Free all recordings of parts, and meet modules no more."""
        with self._lock:
            if self._open:
                self._close()
            self._given_up.clear()


def _is_container(module: torch.nn.Module | None) -> bool:
    """Whether a module is of a class of PyTorch's, such as a sequence of others."""
    return type(module).__module__.startswith("torch.nn")
