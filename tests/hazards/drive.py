"""What fixtures need to run: calls that let a recording happen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rote

CALLS = 6


def called(g: rote.Graphed, *args: Any, calls: int = CALLS) -> rote.Graphed:
    """Call a graphed callable so often that it could be recorded, and return it."""
    for _ in range(calls):
        g(*args)
    return g


def refuted(fn: Callable[..., Any], *args: Any) -> rote.Graphed | str:
    """Graph a callable with a check of every replay: the likely cause if one fails, else the wrapper."""
    g = rote.graph(fn, verify=1)
    try:
        return called(g, *args, calls=12)
    except rote.VerificationError as error:
        g.reset()
        return str(error.cause)
