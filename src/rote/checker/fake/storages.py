"""What is known of memory, as long as it lives.

PyTorch reuses the handle of a storage that is gone. So a weak reference follows each storage, as in the
runtime's storage table: it keeps nothing alive, and no new storage inherits.
"""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

import torch

T = TypeVar("T")


class FakeStorages(Generic[T]):
    """Values of storages, by the tensors that lie in them; a tensor that is not strided has none."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[torch.UntypedStorage], T]] = {}

    def put(self, tensor: torch.Tensor, value: T) -> None:
        """Give the memory of a tensor a value."""
        if tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            self._known[storage._cdata] = (weakref.ref(storage), value)

    def get(self, tensor: torch.Tensor) -> T | None:
        """The value of the memory of a tensor, None if it has none."""
        if not self._known or tensor.layout is not torch.strided:
            return None
        reference, value = self._known.get(tensor.untyped_storage()._cdata, (None, None))
        return value if reference is not None and reference() is not None else None

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return self.get(tensor) is not None

    def update(self, others: FakeStorages[T]) -> None:
        """Take over what others know of living memory."""
        self._known.update((key, each) for key, each in others._known.items() if each[0]() is not None)


class FakeMemory(FakeStorages[bool]):
    """A set of storages, asked for by the tensors that lie in them."""

    def add(self, tensor: torch.Tensor) -> None:
        """Add the memory of a tensor."""
        self.put(tensor, True)
