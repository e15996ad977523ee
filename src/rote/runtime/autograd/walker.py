# ruff: noqa: D102
"""What a recorded graph needs to be walked back: the key of its forward, and keys of the walk.

Both are classes of a room above, which say what their methods do.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from ...hazards.rules import Reason
from ..arguments import Call, Spec, Target
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
    def bindings_of(self, backward: Any) -> tuple[Sequence[Target], Spec] | None: ...


class Occupancy:
    """Whether a result that waits for its backward claims a recording's memory.

    Attributes:
        ended: Why the recording must not be replayed again, if a backward has changed what forward left.
    """

    def __init__(self) -> None:
        self._token: weakref.ref[torch.Tensor] | None = None
        self.ended: Reason | None = None

    @property
    def taken(self) -> bool:
        """Whether a claim is alive, or the recording must not be replayed again."""
        return self.ended is not None or (self._token is not None and self._token() is not None)

    def take(self) -> torch.Tensor:
        """Begin a claim; it lasts as long as the tensor that is returned."""
        token = torch.empty(0, device="cpu")
        self._token = weakref.ref(token)
        return token
