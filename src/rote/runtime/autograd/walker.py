"""What a recorded graph needs to be walked back: the key of its forward, and keys of the walk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ...hazards.rules import Reason
from ..arguments import Call
from ..memory import Holding
from ..program import Result
from ..reads.trace import Output
from .graph import GradientWalk


class Walker(Protocol):
    """A key of the walk; see :class:`..engine.walked.Walked`."""

    @property
    def dead(self) -> bool:
        """Whether it can no longer be used."""
        ...

    def answer(self, args: tuple[Any, ...]) -> Any:
        """Make one call that is a plain replay; NOT_MINE for any other."""
        ...

    def make(self, call: Call) -> Result:
        """Make one call."""
        ...

    def holdings(self) -> list[Holding]:
        """The memory of its recordings."""
        ...

    def output(self) -> list[Output]:
        """What its recorded calls wrote to the standard streams."""
        ...

    def release(self) -> None:
        """Free everything."""
        ...


class Owner(Protocol):
    """The key whose forward was recorded; see :class:`..engine.Specialization`."""

    @property
    def function(self) -> Callable[..., Any]:
        """The callable."""
        ...

    def open_walk(self, walk: GradientWalk, call: Call) -> Walker:
        """A new key of a walk."""
        ...

    def reaches(self, container: Any) -> bool:
        """Whether state of the callable, other than arguments, leads to an object."""
        ...

    def refuse(self, why: Reason) -> None:
        """Run eagerly from now on."""
        ...
