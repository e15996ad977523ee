"""Names for replays in the timelines of other tools."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch
from torch.profiler import record_function

from ...base import EnvironmentError_

Range = Callable[[], AbstractContextManager[Any]]
"""Makes the range of one replay."""


def range_of(kind: str, name: str) -> Range | None:
    """What names the replays of a callable; None where nothing does.

    Args:
        kind: ``"profiler"`` for ``torch.profiler``, ``"nvtx"`` for Nsight Systems, or ``"off"``.

    Raises:
        EnvironmentError_: This build of PyTorch has no NVTX.
    """
    if kind == "off":
        return None
    if kind == "profiler":
        return partial(record_function, f"rote: {name}")
    if torch.version.cuda is None:
        raise EnvironmentError_("ranges='nvtx' needs a build of PyTorch for CUDA; ranges='profiler' does not")
    return partial(_nvtx_range, f"rote: {name}")


@contextmanager
def _nvtx_range(name: str) -> Generator[None]:
    """A range of that name as it is; PyTorch's own would take braces in it for places to fill."""
    torch.cuda.nvtx.range_push(name)
    try:
        yield
    finally:
        torch.cuda.nvtx.range_pop()
