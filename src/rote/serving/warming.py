"""The warm-up: calls that nobody waits for, until what clients ask for is replayed.

They leave no trace: the generators of random numbers are put back, and the policy is reset if it can be. A
policy that keeps state between calls and has no ``reset`` keeps what the warm-up did to it.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from .policy import Served
from .writing import encode

PLAIN_CALLS = 3
"""Calls of a policy that is not graphed: libraries choose their algorithms, allocators grow."""

MOST_CALLS = 2_000
FRUITLESS_CALLS = 16
"""So many calls without a replay show that there will be none."""

_COMPILERS_S = 60.0


def warm_up(
    served: Served, observations: Iterable[Any], calls: int | None, ended: Callable[[], bool]
) -> Served:
    """Call a policy with each observation, and return the policy that is to be served.

    That is the plain callable if nothing of a graphed one was replayed. A result that cannot be sent is an
    error here rather than in the first answer.

    Args:
        calls: Calls for each observation; None is as many as it takes.
        ended: Whether the server is to end; asked before each call.

    Raises:
        MisuseError: A result cannot be sent.
        Exception: Whatever the policy raises.
    """
    if calls == 0:
        return served
    fruitful = False
    with _generators_kept():
        for observation in observations:
            fruitful |= _call_with(observation, served, calls, ended)
        if served.reset is not None:
            served.reset()
    owned = served.graphed is not None and served.plain is not served.function
    return served if fruitful or not owned or ended() else served.without_graphs()


def _call_with(observation: Any, served: Served, calls: int | None, ended: Callable[[], bool]) -> bool:
    """Call with one observation; whether something was replayed, or may be yet."""
    graphed = served.graphed
    before = graphed.report().replayed if graphed is not None else 0
    most = calls if calls is not None else MOST_CALLS if graphed is not None else PLAIN_CALLS
    for number in range(1, most + 1):
        if ended():
            break
        encode(served.infer(copy.deepcopy(observation)))
        if graphed is None or calls is not None:
            continue
        replayed = graphed.report().replayed - before
        if number >= FRUITLESS_CALLS and not replayed:
            return False
        if replayed and graphed.wait_until_optimized(_COMPILERS_S):
            break
    return graphed is None or most < FRUITLESS_CALLS or graphed.report().replayed > before


@contextmanager
def _generators_kept() -> Generator[None]:
    """Put the generators of Python, numpy and PyTorch back, on all devices in use."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    python, numpys = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpys)
