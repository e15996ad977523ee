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

from ...base import NOWHERE, user_site
from ...inspect import PartReport
from ...runtime.arguments import leaves_of
from ...runtime.engine import Ledger
from ...runtime.reads import MODULE_CALL

TIMED_CALLS = 3
"""Plain calls of a module that are timed before it is graphed; the shortest counts."""

LEAST_S = 100e-6
"""What a module has to take: a replay takes the host some 20 us, whatever it replays."""

FIRST_LOOK = 8
"""Calls of a graphed part after which it is looked at whether it replays; then twice as many, and so on."""

PATIENCE = 512
"""Calls after which a part without any replay is given up, although nothing was left to trace it."""

LEAST_REPLAYED = 0.25
"""Share of the calls since the last look that replays have to have answered."""


class PartStage(Enum):
    """What becomes of the calls of a module."""

    TIMED = "timed"
    GRAPHED = "graphed"
    LEFT = "left to the modules in it"
    APART = "not looked at, nor what is in it"


@dataclass(frozen=True)
class GraphedPart:
    """What makes the calls of a part.

    Attributes:
        ledger: What its tracing costs.
    """

    function: Any
    ledger: Ledger


Graph = Callable[["weakref.ref[torch.nn.Module]"], GraphedPart | None]


class ModulePart:
    """A module that a callable calls outside of its other parts.

    Args:
        alive: The module, which nobody here keeps alive.
        stage: What becomes of its first call.
        trains: Its calls with gradients are met as well.

    Attributes:
        stage: What becomes of its next call.
        was_vain: It was given up since its traced calls recorded nothing.
        last: The call of the callable around in which it was called last, as a number.
    """

    def __init__(
        self, alive: weakref.ref[torch.nn.Module], stage: PartStage, *, trains: bool = False
    ) -> None:
        self._alive = alive
        self._trains = trains
        self.kind = type(alive())
        self._site = NOWHERE
        self._calls = 0
        self._fastest_s = math.inf
        self._graphed: GraphedPart | None = None
        self._report: Any = None
        self._why = ""
        self.was_vain = False
        self._look_at, self._last_calls, self._last_replayed = FIRST_LOOK, 0, 0
        self.last = 0
        self.stage = stage

    def meet(self, number: int) -> PartStage:
        """It is called in this call of the callable around; what becomes of that."""
        self.last = number
        return self.stage

    @property
    def module(self) -> torch.nn.Module | None:
        """The module, if it is alive."""
        return self._alive()

    @property
    def graphed(self) -> GraphedPart | None:
        """What makes its calls, if it is graphed."""
        return self._graphed

    def call(
        self,
        module: torch.nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        frame: FrameType,
        graph: Graph,
    ) -> Any:
        """Call the module. Nobody is to be asked about the calls in it.

        Args:
            graph: Makes the graphed callable of a module; None if it is to have none for now.
        """
        graphed = self._graphed
        if graphed is not None:
            value = graphed.function(*args, **kwargs)
            self._calls += 1
            if self._calls < FIRST_LOOK and not self._trains and is_tracked(value):
                self._give_up(graphed, "gradients lead through its results")
                return value
            if self._calls >= self._look_at:
                self._look(graphed)
            return value
        began = perf_counter()
        value = MODULE_CALL(module, *args, **kwargs)
        if self.stage is PartStage.TIMED:
            self._time(perf_counter() - began, not self._trains and is_tracked(value), frame, graph)
        return value

    def _time(self, seconds: float, tracked: bool, frame: FrameType, graph: Graph) -> None:
        self._calls += 1
        self._fastest_s = min(self._fastest_s, seconds)
        if self._calls < TIMED_CALLS:
            return
        self._calls = 0
        if self._fastest_s < LEAST_S or tracked:
            self.stage = PartStage.LEFT
            return
        self._graphed, self._site = graph(self._alive), user_site(frame)
        if self._graphed is not None:
            self._graphed.ledger.add_plain(self._fastest_s)  # or replays would have no price
            self.stage = PartStage.GRAPHED

    def _look(self, graphed: GraphedPart) -> None:
        """Give the part up if calls that were traced do not replay, or not any more as replays are slower."""
        report = graphed.function.report()
        replayed, calls = report.replayed - self._last_replayed, self._calls - self._last_calls
        self._last_replayed, self._last_calls = report.replayed, self._calls
        self._look_at = 2 * self._calls
        tried = graphed.ledger.is_vain or graphed.function.is_eager()
        tried = tried or (not report.replayed and self._calls >= PATIENCE)
        if replayed < LEAST_REPLAYED * calls and tried:
            why = next(iter(report.reasons), None)
            self._give_up(graphed, f"{why.code} {why.message}" if why is not None else "no call was replayed")

    def _give_up(self, graphed: GraphedPart, why: str) -> None:
        self._report, self._graphed, self._why = graphed.function.report(), None, why
        self.stage = PartStage.LEFT
        self.was_vain = graphed.ledger.is_vain

    def leave(self) -> None:
        """It is not to be graphed: the modules in it are met in its place."""
        self.stage = PartStage.LEFT

    @property
    def is_tried(self) -> bool:
        """Whether it is graphed and has not replayed yet."""
        return self._graphed is not None and not self._graphed.function.report().replayed

    def report(self) -> PartReport | None:
        """What is told of it; None if it was never graphed."""
        graphed = self._graphed
        report = graphed.function.report() if graphed is not None else self._report
        if report is None:
            return None
        return PartReport(
            name=self.kind.__name__,
            where=str(self._site),
            calls=report.calls,
            replayed=report.replayed,
            plain_us=self._fastest_s * 1e6,
            given_up=self._why,
            report=report,
        )


def is_tracked(value: Any) -> bool:
    """Whether gradients lead through a result, although none are taken around the call."""
    return any([isinstance(leaf, torch.Tensor) and leaf.grad_fn is not None for leaf in leaves_of(value)])
