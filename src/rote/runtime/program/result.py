"""What comes out of a call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...hazards.rules import Reason

REPLAYED, EAGER, RECORDED = "replayed", "eager", "recorded"

PLAINLY: Any = object()
"""The value of a call that has not run: whoever asked for it calls the function, once it holds no lock.

What the function does may need a lock on another thread: a backward inside it that comes to a recorded node.
"""


@dataclass(frozen=True)
class Result:
    """A finished call.

    Attributes:
        value: What the caller gets, or PLAINLY.
        how: One of REPLAYED, EAGER, RECORDED.
        reasons: Why it was not simply replayed.
    """

    value: Any
    how: str
    reasons: list[Reason]
