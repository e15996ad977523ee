"""Whether the memory of a recording may be written: a result that waits for its backward needs it."""

from __future__ import annotations

import weakref

import torch

from ...hazards.rules import Reason


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
