"""What was found of the state at one moment: slots, with what lay in them and their names."""

from __future__ import annotations

from typing import Any

import torch

from ..objects import Training, base_of, pointer_of
from ..pytorch import has_memory
from .kinds import Entry
from .reads import Address, Read, Reads


class Snapshot:
    """What was found at one moment."""

    def __init__(self, reads: Reads | None = None) -> None:
        self.entries: dict[Address, Entry] = {}  # slots by ``(kind, id of container, key)``
        # for each storage handle found, the slot entries of tensors on it
        self.tensors: dict[int, list[tuple[Entry, torch.Tensor]]] = {}
        self.arrays: list[tuple[int, int]] = []  # address ranges of the numpy arrays found
        self.training = Training()  # the optimizers and schedulers found
        self.reads = reads  # what traced calls have read, if that is all that was looked at
        self.parents: list[int] = []  # the tree of names: the parent of each place, or -1
        # the label of each place, or what was read there, which has a name
        self.labels: list[str | Read] = []

    def node(self, parent: int, label: str | Read) -> int:
        """Add a place in the tree of names; returns its number."""
        self.parents.append(parent)
        self.labels.append(label)
        return len(self.labels) - 1

    def note_tensor(self, entry: Entry, tensor: torch.Tensor) -> None:
        """Add a tensor that was found, by its storage if it has one."""
        if has_memory(tensor):
            handle = tensor.untyped_storage()._cdata
            self.tensors.setdefault(handle, []).append((entry, tensor))

    def by_memory(self) -> dict[int, torch.Tensor]:
        """One of the tensors found on each storage, by its handle."""
        return {handle: entries[0][1] for handle, entries in self.tensors.items()}

    def note_array(self, array: Any) -> None:
        """Add a numpy array that was found, by the memory that it lies in."""
        base = base_of(array)
        self.arrays.append((pointer_of(base), pointer_of(base) + base.nbytes))

    def path(self, node: int) -> str:
        """The name of a place, as a user would write it."""
        labels: list[str] = []
        while node >= 0:
            label = self.labels[node]
            labels.append(label if isinstance(label, str) else label.name)
            node = self.parents[node]
        return "".join(reversed(labels))

    def is_root(self, node: int) -> bool:
        """Whether a place is one of the roots that need no name."""
        return node >= 0 and self.path(node) == ""

    def names_of_tensors(self) -> dict[int, str]:
        """The shortest names of the tensors found, by the identity of the tensor."""
        found: dict[int, str] = {}
        for entry, tensor in [each for entries in self.tensors.values() for each in entries]:
            name = self.name_of(entry)
            if len(name) <= len(found.get(id(tensor), name)):
                found[id(tensor)] = name
        return found

    def name_of(self, entry: Entry) -> str:
        """The name of the slot itself."""
        return self.path(entry.node)
