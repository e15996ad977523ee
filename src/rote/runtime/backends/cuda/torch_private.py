"""Private PyTorch calls of the CUDA backend; some are in CUDA builds only."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import wraps
from sys import getrefcount
from typing import Any

import torch

from ...pytorch import REPLACEMENTS

PoolId = tuple[int, int]

set_stream: Callable[[Any], None] = torch.cuda.set_stream
"""The public function, whose name is replaced in traced calls."""


def held_by_others(events: list[Any]) -> list[Any]:
    """Those of a list of events that somebody else holds.

    They are counted, since nobody may refer to them weakly: in torch 2.11 an event of CUDA that goes leaves
    weak references to it behind, and the process ends when one of them is looked at.
    """
    return [events[n] for n in range(len(events)) if getrefcount(events[n]) > _OWN]


_OWN = 2
"""The list, and what is given to ``getrefcount``."""


def clear_workspaces() -> None:
    """Give up the memory that matrix products work in, of all streams; each is allocated again when needed.

    There is no public way. Seen in torch 2.11 and 2.13.
    """
    torch._C._cuda_clearCublasWorkspaces()


def allocator_segments() -> list[dict[str, Any]]:
    """The allocator's segments, those of private pools among them; without the history of allocations.

    It takes as long as there are blocks in the process (6 ms for 20,000 live tensors, on an H200's host).
    ``memory_snapshot(pool)`` looks at one pool in a tenth of that, but with torch 2.11 processes crashed soon
    after they had used it on handles with numbers above 256, which Python does not keep for ever. It looks as
    if each call gave back references to those numbers that it does not have (tests/cuda/test_slabs.py).
    """
    snapshot: Any = torch.cuda.memory_snapshot
    return snapshot(include_traces=False)


@contextmanager
def not_capturing() -> Generator[None]:
    """Let Python code that asks whether a graph is being captured go the way it goes in eager.

    Libraries branch on ``torch.cuda.is_current_stream_capturing`` (``transformers`` skips a mask, optimizers
    refuse to step). What is recorded has to be what eager does, and a host read is no obstacle here. The name
    is replaced while a recording runs, under the backend's lock, and put back afterwards. In torch 2.13 the
    optimizers ask the stream itself, whose methods cannot be replaced; it is their check that is replaced.
    """
    with ExitStack() as stack:
        stack.enter_context(REPLACEMENTS.replaced(torch.cuda, "is_current_stream_capturing", _never))
        if _CHECK in vars(torch.optim.Optimizer):
            stack.enter_context(REPLACEMENTS.replaced(torch.optim.Optimizer, _CHECK, _no_check))
        yield


_CHECK = "_accelerator_graph_capture_health_check"
"""Refuses a step during a capture unless all groups are capturable. In torch 2.13 it asks the stream, in 2.11
``torch.cuda.is_current_stream_capturing``; before, it had another name."""


@wraps(torch.cuda.is_current_stream_capturing)
def _never() -> bool:
    return False


@wraps(getattr(torch.optim.Optimizer, _CHECK, torch.optim.Optimizer.step))
def _no_check(_: torch.optim.Optimizer) -> None:
    return None
