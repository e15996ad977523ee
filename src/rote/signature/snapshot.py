"""What a walk of the state has found: slots, with what lay in them and their names."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from ..base.location import Site
from .compat import has_memory, plain_functions
from .processes import acting_method
from .reads import Address, Read, Reads
from .training import Training

ITEM, ATTRIBUTE, CELL, LENGTH, BULK, ORDER, VARIABLE, MEMBERS, DEFINED, PRESENT, ANSWER, SCRIPTED = (
    "item",
    "attribute",
    "cell",
    "length",
    "bulk",
    "order",
    "variable",
    "members",
    "defined",
    "present",
    "answer",
    "scripted",
)
KIND, SUBCLASS, REFERENT, CACHED, RESULT, ASKED, SAID, NUMBERS, HELD = (
    "kind", "subclass", "referent", "cached", "result", "asked", "said", "numbers", "held",
)  # fmt: skip
LOOKED = "looked"
"""Key of the numbers of an array that Python code looks into: they count in any case."""
_OF_KEYS = frozenset({LENGTH, ORDER, BULK, MEMBERS})
"""Kinds of slots that say what a container has; reading a member says nothing of them."""
_ALWAYS = frozenset({ANSWER, SCRIPTED})
"""Kinds of slots that C reads when it is called, past all code that is followed."""


class Holder(list[Any]):
    """A slot for something that lies in none: an argument that is compared by content."""  # fmt: skip


class Entry(NamedTuple):
    """One slot: where it is and what was in it."""

    kind: str
    container: Any
    key: Any
    value: Any
    node: int


class Snapshot:
    """Everything reachable at one moment.

    Attributes:
        entries: Slots by ``(kind, id of container, key)``.
        tensors: For each storage handle found, the slot entries of tensors on it.
        arrays: Address ranges of the numpy arrays found.
        training: The optimizers and schedulers found.
        added: Slots that the walk has not found, and that were read.
        written: Slots that the traced call has written and left in another state, with the lines; without a
            kind and a key they are all slots of a container.
        always: Identities of containers that C reads, past all code that is followed.
        reads: What traced calls read, if that is known: nothing else of what was found is under guard.
        acting: Methods named by the code that act on other processes past the dispatcher.
        parents: The tree of names: the parent of each place, or -1.
        labels: The label of each place, or what was read there, which has a name.
    """

    def __init__(self, training: Training) -> None:
        self.entries: dict[Address, Entry] = {}
        self.tensors: dict[int, list[tuple[Entry, torch.Tensor]]] = {}
        self.arrays: list[tuple[int, int]] = []
        self.training = training
        self.added: set[Address] = set()
        self.always: set[int] = set()
        self.written: dict[Address, Site] = {}
        self.reads: Reads | None = None
        self.acting: list[str] = []
        self.parents: list[int] = []
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

    def note_acting(self, value: Any, names: set[str], node: int) -> None:
        """Note an object by which the code may act on other processes."""
        method = acting_method(value, names)
        if method is not None:
            self.acting.append(f"{self.path(node)}.{method}")

    def restrict(self, reads: Reads) -> None:
        """Only what was read counts from now on; what was read beside what the walk found is added."""
        self.reads = reads

    def counts(self, address: Address, entry: Entry) -> bool:
        """Whether a slot that a walk has found has a part in what traced calls did."""
        reads = self.reads
        if reads is None:
            return True
        kind, container, key = address
        return (
            (address in reads.slots if kind in _OF_KEYS else (container, key) in reads.keys)
            or kind in _ALWAYS
            or container in self.always
            or type(entry.container) is Holder
        )

    def counting(self) -> list[Entry]:
        """The slots that have a part in what traced calls did."""
        entries, added, counts = self.entries, self.added, self.counts
        return [entry for address, entry in entries.items() if address in added or counts(address, entry)]

    def concerns(self, address: Address, entry: Entry) -> bool:
        """Whether a slot counts, or the traced call has written it."""
        return self.counts(address, entry) or (bool(self.written) and self.line_of(address) is not None)

    def line_of(self, address: Address) -> Site | None:
        """The line in which the traced call has written a slot, or any slot of its container."""
        return self.written.get(address) or self.written.get(("", address[1], None))

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

    def gradient_leaves(self) -> list[tuple[str, torch.Tensor]]:
        """The tensors that may get a gradient, or have one from before they were frozen, with their names."""
        found: dict[int, tuple[str, torch.Tensor]] = {}
        with plain_functions():
            for entries in self.tensors.values():
                for entry, tensor in entries:
                    if id(tensor) in found or not tensor.is_leaf:
                        continue
                    if tensor.requires_grad or tensor.grad is not None:
                        found[id(tensor)] = (self.name_of(entry), tensor)
        return list(found.values())

    def name_of(self, entry: Entry) -> str:
        """The name of the slot itself."""
        return self.path(entry.node)
