"""What a program is that keeps numbers: a world of its own, in which calls and others change them."""

from __future__ import annotations

import collections
import math
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

import rote

World = tuple[Callable[[Tensor], Tensor], Callable[[int], object], Callable[[], Any]]
"""What is called, what somebody does before the call of a number, and what there is to see of the state."""


class Programs(dict[str, Callable[[], World]]):
    """Programs by name, each of which makes a world."""

    def keep(self, made: Callable[[], World]) -> Callable[[], World]:
        """A program, by the name of its function."""
        self[made.__name__] = made
        return made


def nothing(call: int) -> None:
    """Nobody does anything between two calls."""


def told(value: Any) -> Any:
    """What there is to see of a value, to the bit and with its type."""
    if isinstance(value, (float, np.generic)):
        return type(value).__name__, struct.pack("d", value)
    if isinstance(value, dict):
        return [(told(key), told(each)) for key, each in value.items()]
    if isinstance(value, (list, tuple, collections.deque)):
        return type(value).__name__, [told(each) for each in value]
    if isinstance(value, Tensor):
        return told(value.tolist())
    if isinstance(value, SimpleNamespace):
        return told(vars(value))
    return type(value).__name__, repr(value)


def _called(function: Callable[[Tensor], Tensor], x: Tensor) -> Any:
    try:
        found = function(x)
    except Exception as error:
        return type(error), str(error)
    return found.dtype, tuple(found.shape), torch.nan_to_num(found, nan=7e7).numpy().tobytes()


def play(program: Callable[[], World], calls: int = 34) -> int:
    """Call a program plain and graphed; how many calls were replayed."""
    worlds = program(), program()
    act = rote.graph(worlds[1][0], keep=True)
    for call in range(calls):
        found: list[Any] = []
        for function, (_, disturbs, state) in zip((worlds[0][0], act), worlds, strict=True):
            disturbs(call)
            found.append((_called(function, torch.full((3,), math.sin(call) + 0.1)), told(state())))
        assert found[0] == found[1], call
    return act.report().replayed
