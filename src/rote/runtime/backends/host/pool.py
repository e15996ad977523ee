"""Memory for the intermediates of recordings.

An intermediate need not survive its call, and one call replays at a time, so recordings *share* memory: each
plans its intermediates into one chunk, the smallest shared one that is large enough or else a new one. The
consequence is CUDA's too: after another recording has replayed, a tensor that still points into a chunk reads
somebody else's numbers. To make such a read visible, a chunk that loses its last user is filled with 0xFF
bytes (NaN in every float type), and ``poison_after_replay`` does that to every shared chunk after every call.

What a call hands out never lies in a chunk. It keeps memory of its own, which the pool only counts.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import torch

ALIGNMENT = 64
POISON = 0xFF


def aligned(nbytes: int) -> int:
    """``nbytes`` rounded up to the alignment that the CPU allocator gives every tensor."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


class Chunk:
    """One allocation, used by any number of recordings, or by one alone if exclusive."""

    __slots__ = ("bytes", "exclusive", "nbytes", "tenant", "users")

    def __init__(self, nbytes: int, *, exclusive: bool, tenant: Hashable = None) -> None:
        self.nbytes = aligned(nbytes)
        with torch.inference_mode(False):
            self.bytes = torch.empty(self.nbytes, dtype=torch.uint8, device="cpu")
        self.exclusive = exclusive
        self.tenant = tenant
        self.users = 0

    def poison(self) -> None:
        """Fill with bytes that read as NaN."""
        self.bytes.fill_(POISON)


@dataclass(eq=False, slots=True)
class Lease:
    """One recording's hold on the pool: a chunk, if it has intermediates, and bytes kept elsewhere."""

    chunk: Chunk | None
    kept_bytes: int

    def regions(self) -> dict[Hashable, int]:
        """Bytes by region: what the recording keeps alone, and the chunk."""
        found: dict[Hashable, int] = {("kept", id(self)): self.kept_bytes}
        if self.chunk is not None:
            found["chunk", id(self.chunk)] = self.chunk.nbytes
        return found


class HostPool:
    """Chunks shared by all recordings of one backend. Used under the backend's lock.

    Attributes:
        poison_after_replay: Fill every shared chunk with NaN when a call ends. Off by default: it costs a
            pass over the memory.
    """

    def __init__(self) -> None:
        self.poison_after_replay = False
        self._chunks: list[Chunk] = []
        self._leases: list[Lease] = []

    def lease(self, nbytes: int, *, exclusive: bool, kept_bytes: int = 0, tenant: Hashable = None) -> Lease:
        """Find or make memory for one recording.

        Args:
            nbytes: Of the recording's arena; 0 takes no chunk.
            exclusive: No other recording may write the chunk.
            kept_bytes: Of storages that keep memory of their own; counted, not allocated.
            tenant: Share a chunk only with recordings of this tenant.
        """
        chunk = self._chunk(nbytes, exclusive, tenant) if nbytes > 0 else None
        if chunk is not None:
            chunk.users += 1
        lease = Lease(chunk, kept_bytes)
        self._leases.append(lease)
        return lease

    def give_back(self, lease: Lease) -> None:
        """End a lease. A chunk without users is poisoned and freed. Idempotent."""
        if lease not in self._leases:
            return
        self._leases.remove(lease)
        chunk, lease.chunk = lease.chunk, None
        if chunk is None:
            return
        chunk.users -= 1
        if chunk.users == 0:
            chunk.poison()
            self._chunks.remove(chunk)

    def poison(self) -> None:
        """Poison every shared chunk now, unless no one asked for it by ``poison_after_replay``."""
        if self.poison_after_replay:
            for chunk in self._chunks:
                if not chunk.exclusive:
                    chunk.poison()

    def regions(self) -> Mapping[Hashable, int]:
        """Bytes of each chunk and of what each recording keeps."""
        found: dict[Hashable, int] = {}
        for lease in self._leases:
            found.update(lease.regions())
        return found

    def _chunk(self, nbytes: int, exclusive: bool, tenant: Hashable) -> Chunk:
        shared = [c for c in self._chunks if not (c.exclusive or exclusive) and c.tenant == tenant]
        fitting = [c for c in shared if c.nbytes >= nbytes]
        if fitting:
            return min(fitting, key=lambda chunk: chunk.nbytes)
        chunk = Chunk(nbytes, exclusive=exclusive, tenant=tenant)
        self._chunks.append(chunk)
        return chunk
