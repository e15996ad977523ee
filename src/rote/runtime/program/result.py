"""What comes out of a call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...hazards.rules import Reason

REPLAYED, EAGER, RECORDED = "replayed", "eager", "recorded"

PLAINLY: Any = object()
"""The value of a call that has not run: the caller calls the function, once it holds no lock.

The function may need a lock on another thread: a backward inside it may reach a recorded node.
"""


@dataclass(frozen=True)
class Result:
    """A finished call.

    Attributes:
        how: One of REPLAYED, EAGER, RECORDED.
        reasons: Why it was no plain replay.
    """

    value: Any
    how: str
    reasons: list[Reason]
