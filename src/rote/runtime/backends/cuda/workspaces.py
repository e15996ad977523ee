"""The memory that matrix products work in, which is left in a pool when its last recording has gone.

cuBLAS has a workspace for each stream, 32 MiB on recent devices, and PyTorch keeps it for ever. The one of
the side stream is allocated by the first product that is captured, from the pool of that recording, and its
address is in all later graphs. So it stays as long as there are recordings, and goes with the last one.

PyTorch clears the workspaces of all streams at once. Those of eager work are allocated again when they are
needed. One in the pool of graphs that are not ours is in use, and then nothing is cleared.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .pool import Pool
from .torch_private import PoolId, allocator_segments, clear_workspaces

_SHARED = (0, 0)
"""The pool of all that is allocated outside of captures."""


class Workspaces:
    """Gives back what the recordings of a device leave in their pools."""

    def __init__(self) -> None:
        self._left: set[PoolId] = set()

    def leave(self, pools: Iterable[Pool]) -> None:
        """A recording in these pools is gone."""
        self._left.update([(pool.handle[0], pool.handle[1]) for pool in pools])

    def clear(self) -> None:
        """No recording is left."""
        if not self._left or any(map(self._is_used_by_others, allocator_segments())):
            return
        self._left.clear()
        clear_workspaces()

    def _is_used_by_others(self, segment: dict[str, Any]) -> bool:
        pool = tuple(segment.get("segment_pool_id", _SHARED))
        return pool != _SHARED and pool not in self._left and bool(segment["active_size"])
