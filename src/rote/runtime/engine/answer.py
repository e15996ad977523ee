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
        in_vain: The reason for later calls that are not traced, where one is known that tells more.
    """

    recording: Recording | None = None
    in_vain: Reason | None = None
