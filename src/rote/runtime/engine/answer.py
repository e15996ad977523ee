"""What a key answers a call with."""

from __future__ import annotations

from dataclasses import dataclass

from ..program import Result
from ..recording import Recording


@dataclass(frozen=True)
class Answer(Result):
    """A finished call.

    Attributes:
        recording: What was replayed or recorded.
    """

    recording: Recording | None = None
