# ruff: noqa: D102
"""What a recorded graph needs to be walked back: the key of its forward, and keys of the walk.

Both are classes of a room above, which say what their methods do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ...hazards.rules import Reason
from ..arguments import Call, SlotsBefore
from ..memory import Holding
from ..program import Result
from ..reads.trace import Output
from .graph import GradientWalk


class Walker(Protocol):
    """A key of the walk; see :class:`..engine.walked.Walked`."""

    @property
    def dead(self) -> bool: ...
    def answer(self, args: tuple[Any, ...]) -> Any: ...
    def make(self, call: Call) -> Result: ...
    def holdings(self) -> list[Holding]: ...
    def output(self) -> list[Output]: ...
    def release(self) -> None: ...


class Owner(Protocol):
    """The key whose forward was recorded; see :class:`..engine.Specialization`."""

    @property
    def function(self) -> Callable[..., Any]: ...
    def open_walk(self, walk: GradientWalk, call: Call) -> Walker: ...
    def reaches(self, container: Any) -> bool: ...
    def refuse(self, why: Reason) -> None: ...
    def slots_before(self) -> SlotsBefore | None: ...
