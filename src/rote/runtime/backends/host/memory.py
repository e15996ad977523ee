"""From places to tensors, once it is known which storages outlived the recording.

There are three kinds of block. One that is *alive* keeps its own memory: somebody holds it (an output, a
gradient, a tensor that an island reads), and replays write where they look. A *literal* that died and was
never written to is bound to the copy kept at capture, and replays do not copy it. All others are *planned*
into the pool's chunk, and hold garbage until the first replay. A block lies there where one of the same size
lay that was dead by then, or behind all others. Closer packing saves memory (up to 2.6 times), and no time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from heapq import heappop, heappush

import torch

from ....base import CaptureError
from ...pytorch import negative_view
from .pool import HostPool, Lease, aligned
from .storages import Block, Form
from .tape import Entry, LaunchEntry, TapePlace


class HostMemory:
    """Where each block of one finished recording lies: at an offset of the arena, or in a storage of its own.

    Attributes:
        kept_bytes: Of the storages that keep memory of their own.
    """

    def __init__(self, blocks: Sequence[Block], literals: Mapping[Block, torch.Tensor]) -> None:
        self._own: list[torch.UntypedStorage] = []
        self._where: dict[Block, int] = {}  # an offset, or -1 for the first of those storages, and so on
        self.kept_bytes = 0
        planned: list[Block] = []
        for block in blocks:
            storage = block.storage()
            if storage is not None:
                storage = _unshrunk(block, storage)
            elif literals and block in literals:
                storage = literals[block].untyped_storage()
            else:
                planned.append(block)
                continue
            self._own.append(storage)
            self._where[block] = -len(self._own)
            self.kept_bytes += storage.nbytes()
        offsets, self.nbytes = arrange(planned)
        self._where.update(zip(planned, offsets, strict=True))
        self._chunk: torch.UntypedStorage | None = None
        self._tensors: dict[tuple[int, int, Form, Block | None], torch.Tensor] = {}

    def bind(self, pool: HostPool, *, exclusive: bool, tenant: Hashable = None) -> Lease:
        """Take the arena from the pool. Tensors exist from here on."""
        lease = pool.lease(self.nbytes, exclusive=exclusive, kept_bytes=self.kept_bytes, tenant=tenant)
        if lease.chunk is not None:
            self._chunk = lease.chunk.bytes.untyped_storage()
        return lease

    def tensor(self, place: TapePlace) -> torch.Tensor:
        """The tensor at a place; the same object for all that lie there and look alike, at whatever time.

        Blocks without bytes lie anywhere, at the same time too, and an operation may not write what it reads.
        """
        block, form, offset = place
        key = (self._where[block], offset, form, None if block.nbytes else block)
        found = self._tensors.get(key)
        if found is None:
            found = self._tensors[key] = self._make(*key[:3])
        return found

    def _make(self, where: int, offset: int, form: Form) -> torch.Tensor:
        storage = self._chunk
        if where < 0:
            storage = self._own[-where - 1]
        else:
            offset += where // form.dtype.itemsize
        if storage is None:  # no block has bytes, so only the shape matters
            tensor = torch.empty_strided(form.size, form.stride, dtype=form.dtype, device="cpu")
        else:
            tensor = torch.empty(0, dtype=form.dtype, device="cpu")
            tensor.set_(storage, offset, form.size, form.stride)
        if form.conj:
            tensor = tensor.conj()
        return negative_view(tensor) if form.neg else tensor


def arrange(blocks: Sequence[Block]) -> tuple[list[int], int]:
    """Aligned offsets of blocks, sorted by birth, and the bytes that they take together.

    No two that live at one time overlap.
    """
    offsets: list[int] = []
    gaps: defaultdict[int, list[int]] = defaultdict(list)
    living: list[tuple[int, int, int]] = []  # a heap: until when, size, offset
    end = 0
    for block in blocks:
        while living and living[0][0] <= block.birth:
            _, size, gap = heappop(living)
            gaps[size].append(gap)
        size = aligned(block.nbytes)
        if gaps[size]:
            offset = gaps[size].pop()
        else:
            offset, end = end, end + size
        offsets.append(offset)
        heappush(living, (block.end, size, offset))
    return offsets, end


def idle_literals(entries: Sequence[Entry]) -> dict[Block, torch.Tensor]:
    """The literals that are dead and were never written to, by block: constants for good."""
    found: dict[Block, torch.Tensor] = {}
    for entry in entries:
        if not isinstance(entry, LaunchEntry) and entry.literal is not None:
            block = entry.products[0].place.block
            if not block.rewritten and block.storage() is None:
                found[block] = entry.literal
    return found


def _unshrunk(block: Block, storage: torch.UntypedStorage) -> torch.UntypedStorage:
    if storage.nbytes() < block.nbytes:
        raise CaptureError(
            f"a storage made during capture was shrunk from {block.nbytes} to {storage.nbytes()} bytes "
            "behind the operations that use it (UntypedStorage.resize_), and is still held; replay would "
            "write past its end. Don't resize storages in the callable, or let go of the tensor before it "
            "returns."
        )
    return storage
