"""CUDA devices: one pool for all recordings of a device, exclusive ones where values outlive the call."""

from __future__ import annotations

import threading
import weakref
from contextlib import AbstractContextManager
from typing import Any

import torch

from ..base import Capabilities
from .session import CudaSession
from .stream import Streams


class CudaBackend:
    """One CUDA device.

    Args:
        device: A CUDA device with an index.
    """

    name = "cuda"

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.index: int = device.index
        self.capabilities = Capabilities(asynchronous=True, executes_while_capturing=False)
        self.lock: AbstractContextManager[Any] = threading.RLock()
        self.streams = Streams(device)
        self._pool: tuple[int, int] = torch.cuda.graph_pool_handle()
        self._sessions: weakref.WeakSet[CudaSession] = weakref.WeakSet()

    def open(self, *, exclusive: bool, generators: tuple[torch.Generator, ...] = ()) -> CudaSession:
        """Start a recording, in a pool of its own if ``exclusive``."""
        pool: tuple[int, int] = torch.cuda.graph_pool_handle() if exclusive else self._pool
        own = tuple(found for found in generators if found.device.type == "cuda")
        session = CudaSession(self, pool, own)
        self._sessions.add(session)
        return session

    def synchronize(self) -> None:
        """Wait for the current stream."""
        torch.cuda.current_stream(self.device).synchronize()

    def enter_call(self) -> None:
        """Wait, on the device, for the last replay if it ran on another stream."""
        self.streams.enter_call()

    def leave_call(self) -> None:
        """Note where this call's work ends."""
        self.streams.leave_call()

    # ------------------------------------------------------------------ memory

    def bytes_held(self) -> int:
        """Bytes reserved by the pools of live recordings."""
        pools = {pool for session in self._sessions for pool in session.pools}
        return sum(self._pool_bytes(pool) for pool in pools)

    def _pool_bytes(self, pool: tuple[int, int]) -> int:
        """Bytes of the allocator's segments that belong to a pool."""
        segments: list[dict[str, Any]] = torch.cuda.memory_snapshot()
        return sum(
            int(segment["total_size"])
            for segment in segments
            if segment["device"] == self.index and tuple(segment.get("segment_pool_id", ())) == tuple(pool)
        )

    def account(self, session: CudaSession) -> int:
        """Bytes of the session's pool (a shared pool is shared by all its recordings)."""
        return sum(self._pool_bytes(pool) for pool in session.pools)

    def forget(self, session: CudaSession) -> None:
        """The session holds nothing any more.

        A pool that no graph uses must not be captured into again while blocks of it are alive (an assertion of
        the allocator), so an idle shared pool is replaced.
        """
        self._sessions.discard(session)
        if not any(self._pool in other.pools for other in self._sessions):
            self._pool = torch.cuda.graph_pool_handle()

    # ------------------------------------------------------------------ after a failed capture

    def replace_pool(self, pool: tuple[int, int]) -> tuple[int, int]:
        """A pool that a failed capture made unusable is given up."""
        fresh: tuple[int, int] = torch.cuda.graph_pool_handle()
        if pool == self._pool:
            self._pool = fresh
        return fresh

    def repair_generators(self, generators: tuple[torch.Generator, ...]) -> None:
        """One good capture makes the generators usable again."""
        with self.streams.switch():
            graph = torch.cuda.CUDAGraph()
            for generator in generators:
                graph.register_generator_state(generator)
            graph.capture_begin(capture_error_mode="relaxed")
            torch.ones(1, device=self.device)
            graph.capture_end()
            graph.reset()
