"""CUDA devices: recordings share pools, exclusive ones are where values outlive the call.

Without a budget all recordings of a device share one pool. The allocator gives the memory of a pool back when
no graph uses the pool any more, and only as a whole; what one recording of it leaves is used by the next that
is captured there. Under a budget a shared pool that has grown to the size of a *slab* takes no more
recordings, so that memory can be given back slab by slab (see :mod:`...memory.budget`); a recording that
would fill a slab has a pool of its own.

A pool without graphs is only *freeable*: its memory cannot serve other allocations until the allocator is
told to give up what it has cached, which :meth:`CudaBackend.trim` does, and which it does by itself before an
allocation outside of captures fails.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Hashable, Iterable, Mapping
from contextlib import AbstractContextManager

import torch

from ....base import EnvironmentError_
from ...compiling import Binary
from ..protocol import OWNING, SHARED, Aliases, Backend, Capabilities, CapturedCollective, OwnStreams, Sharing
from .call_streams import CallStreams
from .deadline import Deadline, watch
from .kernel import CudaKernel, Modules
from .pool import Pool
from .session import CudaSession
from .stream import Streams
from .timing import CudaTiming
from .torch_private import allocator_segments
from .workspaces import Workspaces


class CudaBackend(Backend):
    """One CUDA device."""

    name = "cuda"
    capabilities = Capabilities(asynchronous=True, executes_while_capturing=False)

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.index: int = device.index
        self.capturing = False
        self.streams = Streams(device)
        self.entered = None
        self.current_stream = self.streams.current
        self._shared: dict[Hashable, Pool] = {}  # by tenant: where its next recording goes
        self._process = os.getpid()
        self._waiting: list[CudaSession] = []
        self._sessions: weakref.WeakSet[CudaSession] = weakref.WeakSet()
        self._workspaces = Workspaces()
        self._modules = Modules(device)
        self._deadline: Deadline | None = None

    def open(
        self,
        *,
        exclusive: bool,
        generators: tuple[torch.Generator, ...] = (),
        sharing: Sharing = SHARED,
        aliases: Aliases = OWNING,
    ) -> CudaSession:
        """Start a recording, in a pool of its own if ``exclusive`` or if it would fill a slab."""
        del aliases  # graphs hold addresses, no tensors
        self._release_waiting()
        alone = exclusive or sharing.too_large
        pool = Pool(self.device) if alone else self._shared_pool(sharing)
        own = tuple(found for found in generators if found.device.type == "cuda")
        session = CudaSession(self, pool, own)
        self._sessions.add(session)
        return session

    def _shared_pool(self, sharing: Sharing) -> Pool:
        pool = self._shared.get(sharing.tenant)
        if pool and sharing.slab is not None and sum(self._reserved([pool]).values()) >= sharing.slab:
            pool.drop()  # it is full: its graphs keep it, nothing more is captured into it
            pool = None
        if pool is None:
            pool = Pool(self.device)
            self._shared.pop(sharing.tenant, None)
        pool.keep(self.streams)
        self._shared[sharing.tenant] = pool
        return pool

    def load(self, binary: Binary) -> CudaKernel:
        """Load a cubin."""
        return CudaKernel(self._modules, binary)

    def generator(self) -> torch.Generator:
        """The default generator of this device."""
        return torch.cuda.default_generators[self.index]

    def synchronize(self) -> None:
        """Wait for the stream of the call: the host is about to read what was recorded."""
        (self.streams.home or torch.cuda.current_stream(self.device)).synchronize()

    def start_timing(self, spent: float = 0.0) -> CudaTiming:
        """Time a call on the current stream."""
        return CudaTiming(self.device, spent)

    def is_capturing(self) -> bool:
        """Whether the current stream is being captured."""
        return torch.cuda.is_current_stream_capturing()

    def check_process(self) -> None:
        """CUDA does not survive a fork."""
        if os.getpid() != self._process:
            raise EnvironmentError_(
                "this process was forked from one that had used CUDA, and its recordings belong to that one. "
                'Start processes with multiprocessing.set_start_method("spawn"), or fork before the first '
                "CUDA call."
            )

    def enter_call(self) -> int:
        """Wait, on the device, for the last replay if it ran on another stream."""
        if self._waiting:
            self._release_waiting()
        handle, limit = self.streams.enter_call(), self._limit
        # Another thread may have left something to release.
        self.entered = None if self._waiting or limit is not None or self.streams.is_ordered else handle
        if limit is not None:
            limit.began(handle)
        return handle

    def leave_call(self) -> None:
        """Have the streams that calls have used wait for this call."""
        if self.streams.is_ordered:
            self.streams.leave_call()
            self.entered = None  # each call waits for what this one has met
        if (limit := self._limit) is not None:
            limit.passed(self.streams.last)

    @property
    def _limit(self) -> Deadline | None:
        """The time limit of replays, where they may wait for other ranks."""
        return self._deadline if self._deadline is not None and self._deadline.active else None

    def expect(self, session: CudaSession, collective: CapturedCollective) -> None:
        """A session captures a collective: there is a time limit to its replays."""
        if self._deadline is None:
            self._deadline = Deadline(torch.cuda.Event, self.streams.are_idle)
            watch(self._deadline, self.device)
        self._deadline.expect(session, collective)
        self.entered = None  # from now on each call has something to do

    def call_streams(self, *, recorded: bool) -> AbstractContextManager[OwnStreams]:
        """The context of a traced call."""
        return CallStreams(self.streams, self.leave_call, recorded=recorded).watched()

    # ------------------------------------------------------------------ memory

    def free_memory(self) -> int | None:
        """What the driver has left. What the allocator has cached may be a pool's, so it does not count."""
        return torch.cuda.mem_get_info(self.device)[0]

    def regions(self) -> Mapping[Hashable, int]:
        """Bytes reserved by each pool of live recordings."""
        return self._reserved([pool for session in self._sessions for pool in session.pools])

    def _reserved(self, pools: Iterable[Pool]) -> dict[Hashable, int]:
        """Bytes of the allocator's segments that belong to each pool."""
        found: dict[Hashable, int] = {tuple(pool.handle): 0 for pool in pools}
        for segment in allocator_segments() if found else ():
            handle = tuple(segment.get("segment_pool_id", ()))
            if segment["device"] == self.index and handle in found:
                found[handle] += int(segment["total_size"])
        return found

    def trim(self) -> None:
        """Let the allocator give back what it has cached, pools that no graph uses among it."""
        self._release_waiting()
        if not self.capturing:
            self._modules.unload()
            torch.cuda.empty_cache()

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
        self.entered = None

    def _release_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for session in waiting:
            session.release()

    def forget(self, session: CudaSession) -> None:
        """The session holds nothing any more; a shared pool that nobody uses is given back.

        The device was waited for, so that nothing is at work in the workspaces that go with the last one.
        """
        self._sessions.discard(session)
        if self._deadline is not None:
            self._deadline.forget(session)
        used = {id(pool) for other in self._sessions for pool in other.pools}
        for tenant, pool in list(self._shared.items()):
            if id(pool) not in used:
                pool.drop()
                del self._shared[tenant]
        self._workspaces.leave(session.pools)
        self._modules.unload()
        if not self._sessions:
            self._workspaces.clear()

    # ------------------------------------------------------------------ after a failed capture

    def replace_pool(self, pool: Pool) -> Pool:
        """A pool is not captured into again after a capture into it has failed; see :mod:`.torch_private`."""
        for tenant, shared in self._shared.items():
            if pool is shared:
                pool.drop()
                del self._shared[tenant]
                return self._shared_pool(Sharing(tenant))
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
