"""What a key answers a call with."""

from __future__ import annotations

from dataclasses import dataclass

from ...hazards.rules import Reason
from ..program import Result
from ..recording import Recording


@dataclass(frozen=True)
class Answer(Result):
    """A finished call."""

    recording: Recording | None = None
    in_vain: Reason | None = None
