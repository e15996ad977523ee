"""What comes out of a call, and what bounds a key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ..hazards.rules import Reason
from ..memory.holding import Account

if TYPE_CHECKING:
    from .variant import Variant

REPLAYED, EAGER, RECORDED = "replayed", "eager", "recorded"

PLAINLY: Any = object()
"""The value of a call that has not run: whoever asked for it calls the function, once it holds no lock.

What the function does may need a lock on another thread: a backward inside it that comes to a recorded node.
"""


@dataclass(frozen=True)
class Limits:
    """What bounds a key.

    Attributes:
        warmup: Agreeing observations before a recording.
        max_recordings: Recordings alive at once, and replacements before giving up.
        max_paths: Ways through one recording.
        account: Whose budget the recordings count against.
        guess: The place of an argument may be guessed (a wrong guess costs a recording).
        keep: Recordings are not measured against plain calls.
        split: Names of operations that run between segments.
        pads: Calls are made in other shapes than the caller's: what they leave outside is not the caller's.
        silent: In strict mode, output that a replay does not repeat counts against it.
    """

    warmup: int
    max_recordings: int
    max_paths: int
    account: Account
    guess: bool = True
    keep: bool = False
    split: frozenset[str] = frozenset()
    pads: bool = False
    silent: bool = False


class Result(NamedTuple):
    """A finished call.

    Attributes:
        value: What the caller gets, or PLAINLY.
        how: One of REPLAYED, EAGER, RECORDED.
        reasons: Why it was not simply replayed.
        variant: The variant that was replayed or recorded.
    """

    value: Any
    how: str
    reasons: list[Reason]
    variant: Variant | None = None
