"""The storages made in a session: which they are, how large, and from when to when they live.

A storage is watched through a weak reference to its Python wrapper. PyTorch keeps that wrapper for as long
as the C++ storage lives, whoever holds it (a view, a saved tensor of autograd, C++ code), so the
reference's callback fires exactly when the memory would be freed. Nothing here may hold a storage strongly
before the recording is finished: lifetimes would be wrong, and autograd would copy gradients that it now
takes over.

Addresses of dead storages are used again at once, so the callback also takes the address out of the table.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import torch

from .compat import storage_key
from .plan import Lifetime


@dataclass(slots=True, eq=False)
class Block:
    """One storage made by a captured operation.

    Attributes:
        key: What identified the storage while it lived.
        nbytes: The most bytes it was seen to have.
        birth: Index of the operation that made it.
        death: Index of the first operation after it died; None while it lives.
        rewritten: Whether a captured operation wrote to it after it was made.
        ref: Weak reference to the storage; None once the session has lost interest.
    """

    key: int
    nbytes: int
    birth: int
    death: int | None = None
    rewritten: bool = False
    ref: weakref.ref[torch.UntypedStorage] | None = None

    def storage(self) -> torch.UntypedStorage | None:
        """The storage itself if it is still alive."""
        return None if self.ref is None else self.ref()

    def lifetime(self) -> Lifetime:
        """What the planner needs to know of a dead block; an unused one lives for one operation."""
        death = self.birth if self.death is None else self.death
        return Lifetime(self.nbytes, self.birth, max(death, self.birth + 1))


class Storages:
    """All storages of one session, by address while they live.

    Attributes:
        clock: Index of the next captured operation.
    """

    def __init__(self) -> None:
        self.clock = 0
        self.blocks: list[Block] = []
        self._alive: dict[int, Block] = {}

    def find(self, storage: torch.UntypedStorage) -> Block | None:
        """The block of a storage made in this session, or None if it came from elsewhere."""
        return self._alive.get(storage_key(storage))

    def add(self, storage: torch.UntypedStorage) -> Block:
        """Start watching a storage that the operation at ``clock`` made."""
        block = Block(storage_key(storage), storage.nbytes(), self.clock)

        def died(_: weakref.ref[torch.UntypedStorage]) -> None:
            block.death = self.clock
            self._drop(block)

        block.ref = weakref.ref(storage, died)
        self._alive[block.key] = block
        self.blocks.append(block)
        return block

    def forget(self, count: int) -> None:
        """Drop every block but the first ``count``; those still alive count as foreign from now on."""
        dropped = self.blocks[count:]
        del self.blocks[count:]
        for block in dropped:
            block.ref = None
            self._drop(block)

    def _drop(self, block: Block) -> None:
        if self._alive.get(block.key) is block:  # and not a later storage at the same address
            del self._alive[block.key]

    def close(self) -> None:
        """Stop watching, so that the callbacks no longer keep this table alive."""
        self.forget(0)
