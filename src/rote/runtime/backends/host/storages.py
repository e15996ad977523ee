"""The storages made in a session: which they are, how large, and from when to when they live.

A storage is watched through a weak reference to its Python wrapper. PyTorch keeps that wrapper for as long
as the C++ storage lives, whoever holds it (a view, a saved tensor of autograd, C++ code), so the callback
comes exactly when the memory would be freed. Nothing here may hold a storage strongly before the recording is
finished: lifetimes would be wrong, and autograd would copy gradients that it now takes over.

The callback is the ``append`` of a list, so that no Python code runs when a tensor dies. The list is read
before the clock moves on and before a storage is looked up: addresses of dead storages are used again at
once, and an address in the table has to be that of a living one.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import torch


class Form(NamedTuple):
    """Metadata of a tensor, its offset apart; ``conj`` and ``neg`` are lazy."""

    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    conj: bool
    neg: bool

    @property
    def plain(self) -> bool:
        """Neither lazy nor overlapping."""
        return not (self.conj or self.neg or self.overlaps)

    @property
    def overlaps(self) -> bool:
        """Whether two elements may share memory, as after ``expand``."""
        if 0 in self.size:
            return False
        reach = 0
        for step, n in sorted(zip(self.stride, self.size, strict=True)):
            if n > 1:
                if step <= reach:
                    return True
                reach += (n - 1) * step
        return False


def form_of(tensor: torch.Tensor) -> Form:
    """The form of a strided tensor."""
    dtype = tensor.dtype
    conj = dtype.is_complex and tensor.is_conj()
    return Form(dtype, tensor.size(), tensor.stride(), conj, tensor.is_neg())


class BlockRef(weakref.ref[torch.UntypedStorage]):
    """A weak reference to a storage that knows its block."""

    __slots__ = ("block",)

    block: Block


@dataclass(slots=True, eq=False)
class Block:
    """One storage made by a captured operation.

    Attributes:
        key: What identified the storage while it lived.
        nbytes: The most bytes that it was seen to have.
        birth: Index of the operation that made it.
        death: Index of the first operation after it died; None while it lives.
        rewritten: A captured operation wrote to it after it was made.
        ref: None once the session has lost interest.
    """

    key: int
    nbytes: int
    birth: int
    death: int | None = None
    rewritten: bool = False
    ref: BlockRef | None = None

    def storage(self) -> torch.UntypedStorage | None:
        """The storage itself if it is still alive."""
        return None if self.ref is None else self.ref()

    @property
    def end(self) -> int:
        """Index of the first operation that does not need a dead block; an unused one lives for one."""
        return max(self.birth + 1, self.death or 0)


class SessionStorages:
    """All storages of one session, by address while they live.

    Attributes:
        clock: Index of the next captured operation.
        key: Tells the address of a storage.
    """

    def __init__(self) -> None:
        self.clock = 0
        self.blocks: list[Block] = []
        self.key = attrgetter("_cdata")  # ``data_ptr`` is 0 for every empty storage
        self._alive: dict[int, Block] = {}
        self._died: list[BlockRef] = []

    def find(self, storage: torch.UntypedStorage) -> Block | None:
        """The block of a storage made in this session, or None if it came from elsewhere."""
        return self.living().get(self.key(storage))

    def living(self) -> dict[int, Block]:
        """The blocks of the living storages by address; good until one dies."""
        if self._died:
            self.settle()
        return self._alive

    def add(self, storage: torch.UntypedStorage, key: int) -> Block:
        """Start watching a storage that the operation at ``clock`` made."""
        if self._died:
            self.settle()
        block = Block(key, storage.nbytes(), self.clock)
        ref = block.ref = BlockRef(storage, self._died.append)
        ref.block = block
        self._alive[key] = block
        self.blocks.append(block)
        return block

    def end(self, storage: torch.UntypedStorage) -> None:
        """The memory of a storage is given back, as if it had died, if it was made here."""
        block = self.living().pop(self.key(storage), None)
        if block is not None:
            block.ref, block.death = None, self.clock

    def tick(self) -> None:
        """An operation was captured: what dies from now on was still there for it."""
        if self._died:
            self.settle()
        self.clock += 1

    def settle(self) -> None:
        """Take note of everything that has died."""
        while self._died:
            block = self._died.pop().block
            if block.ref is not None:
                block.death = self.clock
                if self._alive.get(block.key) is block:  # and not a later storage at the same address
                    del self._alive[block.key]

    def forget(self, count: int) -> None:
        """Drop every block but the first ``count``; those still alive count as foreign from now on."""
        dropped = self.blocks[count:]
        del self.blocks[count:]
        for block in dropped:
            block.ref = None
            if self._alive.get(block.key) is block:
                del self._alive[block.key]

    def close(self) -> None:
        """Stop watching, so that the callbacks no longer keep this table alive."""
        self.forget(0)
