"""What a lesson needs of the key that learns from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch

from ..hazards.rules import Reason
from ..signature.executed import ExecutedCode
from ..signature.key import Call
from .autograd import GradientWalk
from .choice import Choice
from .log import BackwardLog
from .patience import Patience
from .result import Limits
from .states import Event, Life
from .unseen import Unseen
from .variant import Variant
from .walker import Walker


class Pupil(Protocol):
    """The key that learns; see :class:`rote.recording.entry.Entry`."""

    life: Life
    variants: list[Variant]
    evictions: int
    patience: Patience
    calls: int
    last_mismatch: Reason | None
    choice: Choice

    @property
    def function(self) -> Callable[..., Any]:
        """The callable."""
        ...

    @property
    def name(self) -> str:
        """How the callable is called in messages."""
        ...

    @property
    def executed(self) -> ExecutedCode:
        """Code the callable was seen to run."""
        ...

    @property
    def limits(self) -> Limits:
        """Bounds."""
        ...

    @property
    def trusted(self) -> frozenset[int]:
        """Handles of storages that nobody can replace."""
        ...

    @property
    def log(self) -> BackwardLog:
        """Counts backward passes."""
        ...

    def open_walk(self, walk: GradientWalk, call: Call) -> Walker:
        """A new key for walking a recorded graph back."""
        ...

    def reaches(self, container: Any) -> bool:
        """Whether state of the callable, other than arguments, leads to an object."""
        ...

    def refuse(self, why: Reason) -> None:
        """Run eagerly from now on."""
        ...

    def reach(self, call: Call) -> Iterator[Any]:
        """All that the callable can reach besides its tensor arguments, and more."""
        ...

    def move(self, device: torch.device) -> None:
        """Use the backend of another device from now on."""
        ...

    def rest(self, reasons: list[Reason]) -> None:
        """Run eagerly for a while, for these reasons."""
        ...

    def tire(self, unseen: Unseen) -> None:
        """A call read a value that none before had; after too many in a row, run eagerly for a while."""
        ...

    def give_up(self, event: Event, why: Reason) -> None:
        """Record no more."""
        ...
