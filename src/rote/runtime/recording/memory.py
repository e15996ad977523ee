"""What a recording holds: its static inputs, the generators it draws from, and its block of the pool."""

from __future__ import annotations

from dataclasses import dataclass

from ..memory import Holding
from ..program import Stands
from .inputs import StaticInputs


@dataclass(frozen=True)
class RecordingMemory:
    """Made before a recording is captured, and released with it.

    Attributes:
        inputs: The static inputs.
        stands: The generators that stand for those among the arguments.
        holding: What the segments hold.
    """

    inputs: StaticInputs
    stands: Stands
    holding: Holding
