"""CUDA devices: one pool for all recordings of a device, exclusive ones where values outlive the call."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

import torch

from ...base.errors import EnvironmentError_
from ..aliases import OWNING, Aliases
from ..base import Capabilities
from .pool import Pool
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
        self.lock = threading.RLock()
        self.capturing = False
        self.tracing = False
        self.streams = Streams(device)
        self._pool: Pool | None = None
        self._process = os.getpid()
        self._waiting: list[CudaSession] = []
        self._sessions: weakref.WeakSet[CudaSession] = weakref.WeakSet()

    def open(
        self, *, exclusive: bool, generators: tuple[torch.Generator, ...] = (), aliases: Aliases = OWNING
    ) -> CudaSession:
        """Start a recording, in a pool of its own if ``exclusive``."""
        del aliases  # graphs hold addresses, no tensors
        self._release_waiting()
        pool = Pool(self.device) if exclusive else self._shared()
        own = tuple(found for found in generators if found.device.type == "cuda")
        session = CudaSession(self, pool, own)
        self._sessions.add(session)
        return session

    def _shared(self) -> Pool:
        if self._pool is None:
            self._pool = Pool(self.device)
        self._pool.keep(self.streams)
        return self._pool

    def synchronize(self) -> None:
        """Wait for the current stream."""
        torch.cuda.current_stream(self.device).synchronize()

    def check_process(self) -> None:
        """CUDA does not survive a fork.

        Raises:
            EnvironmentError_: The process was forked after recordings had been made.
        """
        if os.getpid() != self._process:
            raise EnvironmentError_(
                "this process was forked from one that had used CUDA, and its recordings belong to that one. "
                'Start processes with multiprocessing.set_start_method("spawn"), or fork before the first '
                "CUDA call."
            )

    def enter_call(self) -> None:
        """Wait, on the device, for the last replay if it ran on another stream."""
        if self._waiting:
            self._release_waiting()
        self.streams.enter_call()

    def leave_call(self) -> None:
        """Note where this call's work ends."""
        self.streams.leave_call()

    # ------------------------------------------------------------------ memory

    def bytes_held(self) -> int:
        """Bytes reserved by the pools of live recordings."""
        pools = {pool.handle for session in self._sessions for pool in session.pools}
        return sum(self._pool_bytes(handle) for handle in pools)

    def _pool_bytes(self, handle: tuple[int, int]) -> int:
        """Bytes of the allocator's segments that belong to a pool."""
        segments: list[dict[str, Any]] = torch.cuda.memory_snapshot()
        return sum(
            int(segment["total_size"])
            for segment in segments
            if segment["device"] == self.index and tuple(segment.get("segment_pool_id", ())) == tuple(handle)
        )

    def account(self, session: CudaSession) -> int:
        """Bytes of the session's pools (a shared pool is shared by all its recordings)."""
        return sum(self._pool_bytes(pool.handle) for pool in session.pools)

    # ------------------------------------------------------------------ releasing

    def begin_release(self) -> bool:
        """Take the lock to destroy graphs; False during a capture or while another thread is at work."""
        if not self.lock.acquire(blocking=False):
            return False
        if self.capturing:
            self.lock.release()
            return False
        return True

    def release_later(self, session: CudaSession) -> None:
        """Release a session at the next call."""
        self._waiting.append(session)

    def _release_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for session in waiting:
            session.release()

    def forget(self, session: CudaSession) -> None:
        """The session holds nothing any more; a shared pool that nobody uses is given back."""
        self._sessions.discard(session)
        pool = self._pool
        if pool is not None and not any(pool in other.pools for other in self._sessions):
            pool.drop()
            self._pool = None

    # ------------------------------------------------------------------ after a failed capture

    def replace_pool(self, pool: Pool) -> Pool:
        """A pool must not be captured into again after a capture into it has failed; see :mod:`.compat`."""
        if pool is self._pool:
            pool.drop()
            self._pool = None
            return self._shared()
        return Pool(self.device)

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
