"""A private memory pool of the caching allocator, kept usable while recordings come and go."""

from __future__ import annotations

import warnings

import torch

from .stream import Streams


class Pool:
    """A pool that segments are captured into.

    The allocator asserts that a pool with no graph left is never captured into again while blocks of it are
    alive. A shared pool therefore holds a graph of its own, the *anchor*, as long as it is in use.
    """

    def __init__(self, device: torch.device) -> None:
        self.handle = torch.cuda.graph_pool_handle()
        self._device = device
        self._anchor: torch.cuda.CUDAGraph | None = None

    def keep(self, streams: Streams) -> None:
        """Make the anchor, if there is none yet.

        Raises:
            RuntimeError: There is no memory for it. The pool is of no use any more.
        """
        if self._anchor is not None:
            return
        anchor = torch.cuda.CUDAGraph()
        with streams.switch():
            anchor.capture_begin(pool=self.handle, capture_error_mode="relaxed")
            try:
                torch.ones(1, device=self._device)
            except RuntimeError:  # out of memory: leave no capture open
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # the graph is empty
                    anchor.capture_end()
                anchor.reset()
                raise
            anchor.capture_end()
        self._anchor = anchor

    def drop(self) -> None:
        """Destroy the anchor; the pool must not be captured into any more."""
        if self._anchor is not None:
            self._anchor.reset()
            self._anchor = None
