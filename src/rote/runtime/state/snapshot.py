"""The state found at one moment: slots with their values and names."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from ..objects import Training, base_of, pointer_of
from ..pytorch import has_memory
from .kinds import Entry
from .reads import Address, Reads


class Snapshot:
    """The state found at one moment."""

    def __init__(self, reads: Reads) -> None:
        self.entries: dict[Address, Entry] = {}
        # the slots of tensors, by the handle of the storage
        self.tensors: dict[int, list[tuple[Entry, torch.Tensor]]] = {}
        self.arrays: list[tuple[int, int]] = []  # address ranges of the numpy arrays found
        self.training = Training()  # the optimizers and schedulers found
        self.reads = reads  # what was read

    def note_tensor(self, entry: Entry, tensor: torch.Tensor) -> None:
        """Add a tensor by its storage; one without memory is left out."""
        if has_memory(tensor):
            handle = tensor.untyped_storage()._cdata
            self.tensors.setdefault(handle, []).append((entry, tensor))

    def by_memory(self) -> dict[int, torch.Tensor]:
        """One tensor of each storage, by the handle of the storage."""
        return {handle: entries[0][1] for handle, entries in self.tensors.items()}

    def note_array(self, array: Any) -> None:
        """Add the memory range of a numpy array."""
        base = base_of(array)
        self.arrays.append((pointer_of(base), pointer_of(base) + base.nbytes))

    def names_of_tensors(self, which: Collection[int] | None = None) -> dict[int, str]:
        """The shortest name of each tensor, by its identity; of those with some identities, or of all."""
        found: dict[int, str] = {}
        for entry, tensor in [each for entries in self.tensors.values() for each in entries]:
            if which is not None and id(tensor) not in which:
                continue
            name = entry.name
            if len(name) <= len(found.get(id(tensor), name)):
                found[id(tensor)] = name
        return found
