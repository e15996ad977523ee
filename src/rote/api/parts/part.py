"""A module that a callable calls, from its first timed call to its graphed ones."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from time import perf_counter
from types import FrameType
from typing import Any

import torch

from ...base import NOWHERE, Site, user_site
from ...runtime.reads import MODULE_CALL

TIMED_CALLS = 3
"""Plain calls of a module that are timed before it is graphed; the shortest counts."""

LEAST_S = 50e-6
"""What a module has to take: a replay takes the host some 20 us, whatever it replays."""

FIRST_LOOK = 64
"""Calls of a graphed part after which it is looked at whether it replays; then twice as many, and so on."""

QUIET_REVIEWS = 4
"""Reviews in a row without a call after which a part is dropped."""

LEAST_REPLAYED = 0.25
"""Share of the calls since the last look that replays have to have answered."""


class Stage(Enum):
    """What becomes of the calls of a module."""

    TIMED = "timed"
    GRAPHED = "graphed"
    LEFT = "left to the modules in it"
    APART = "not looked at, nor what is in it"


@dataclass(frozen=True)
class PartFacts:
    """What is told of a part.

    Attributes:
        name: The class of the module.
        site: The line that called it when it was graphed.
        calls: Its calls since then.
        replayed: Those that replays have answered.
        plain_s: The shortest plain call, in seconds.
        left: Its calls are made plainly by now.
        report: The report of its graphed callable, as it was when it was given up.
    """

    name: str
    site: Site
    calls: int
    replayed: int
    plain_s: float
    left: bool
    report: Any


class ModulePart:
    """A module that a callable calls outside of its other parts.

    Args:
        alive: The module, which nobody here keeps alive.
        stage: What becomes of its first call.
    """

    def __init__(self, alive: weakref.ref[torch.nn.Module], stage: Stage) -> None:
        self._alive = alive
        self._name = type(alive()).__name__
        self._site = NOWHERE
        self._calls = 0
        self._fastest_s = math.inf
        self._graphed: Any = None
        self._report: Any = None
        self._look_at, self._last_calls, self._last_replayed = FIRST_LOOK, 0, 0
        self._called, self._quiet = False, 0
        self.stage = stage

    def is_of(self, module: torch.nn.Module) -> bool:
        """Whether this is the part of a module; another one may have got the identity of one that died."""
        return self._alive() is module

    @property
    def graphed(self) -> Any:
        """Its graphed callable, if it has one."""
        return self._graphed

    def call(
        self,
        module: torch.nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        frame: FrameType,
        graph: Callable[[weakref.ref[torch.nn.Module]], Any],
    ) -> Any:
        """Call the module. Nobody is to be asked about the calls in it.

        Args:
            module: The module.
            args: Positional arguments.
            kwargs: Keyword arguments.
            frame: The frame of the call.
            graph: Makes the graphed callable of a module; None if it is to have none for now.
        """
        self._called = True
        graphed = self._graphed
        if graphed is not None:
            value = graphed(*args, **kwargs)
            self._calls += 1
            if self._calls >= self._look_at:
                self._look(graphed)
            return value
        began = perf_counter()
        value = MODULE_CALL(module, *args, **kwargs)
        if self.stage is Stage.TIMED:
            self._time(perf_counter() - began, frame, graph)
        return value

    def _time(self, seconds: float, frame: FrameType, graph: Callable[[weakref.ref[torch.nn.Module]], Any]) -> None:
        self._calls += 1
        self._fastest_s = min(self._fastest_s, seconds)
        if self._calls < TIMED_CALLS:
            return
        self._calls = 0
        if self._fastest_s < LEAST_S:
            self.stage = Stage.LEFT
            return
        self._graphed, self._site = graph(self._alive), user_site(frame)
        if self._graphed is not None:
            self.stage = Stage.GRAPHED

    def _look(self, graphed: Any) -> None:
        """Give the part up if hardly any call since the last look was replayed."""
        report = graphed.report()
        replayed, calls = report.replayed - self._last_replayed, self._calls - self._last_calls
        self._last_replayed, self._last_calls = report.replayed, self._calls
        self._look_at = 2 * self._calls
        if replayed < LEAST_REPLAYED * calls:
            self._report, self._graphed, self.stage = report, None, Stage.LEFT

    def review(self) -> bool:
        """Whether it was called since the last review."""
        called, self._called = self._called, False
        self._quiet = 0 if called else self._quiet + 1
        return called

    @property
    def is_forgotten(self) -> bool:
        """Whether it was not called for so long that nobody may have the module any more."""
        return self._quiet >= QUIET_REVIEWS

    def facts(self) -> PartFacts | None:
        """What is told of it; None if it was never graphed."""
        graphed = self._graphed
        report = graphed.report() if graphed is not None else self._report
        if report is None:
            return None
        return PartFacts(
            self._name, self._site, report.calls, report.replayed, self._fastest_s, graphed is None, report
        )
