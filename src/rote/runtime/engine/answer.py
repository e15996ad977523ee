"""What a key answers a call with."""

from __future__ import annotations

from dataclasses import dataclass

from ...hazards.rules import Reason
from ..program import Result
from ..recording import Recording


@dataclass(frozen=True)
class Answer(Result):
    """A finished call.

    Attributes:
        recording: What was replayed or recorded.
        in_vain: What to say of the next calls if they are not traced, where more is known than the reasons.
    """

    recording: Recording | None = None
    in_vain: Reason | None = None
