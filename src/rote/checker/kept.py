"""Tensors that the first call makes and the callable keeps: a table, a scale from the first batch.

rote waits until two calls agree, so such a tensor costs it a call. Whoever captures the first call, and
``reduce-overhead`` always, gets a tensor in the memory of a graph, which the next replay overwrites.

What counts lies in an attribute of a module or of a user's object, or in lists and dicts there. An optimizer
makes its state at the first step as well, and a backward its gradients: these are as they should be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ..runtime.objects import is_users, own
from ..runtime.state import ITEM, LENGTH, Entry, Snapshot
from .fake import is_module_dict
from .trial import shown


@dataclass(frozen=True)
class KeptTensor:
    """A tensor that was not there before the first call, and that later calls leave where it is.

    Attributes:
        name: Its slot, as a user would write it.
        attribute: The attribute of a module that it is; empty if it lies elsewhere.
    """

    name: str
    attribute: str
    value: torch.Tensor

    @property
    def text(self) -> str:
        """What it is, and for whom it is wrong."""
        return (
            f"{self.name} keeps a tensor that the first call makes: settled after one call for rote; "
            "captured in that call, or under reduce-overhead, it lies where the next replay overwrites it"
        )

    @property
    def evidence(self) -> str:
        """Its type and shape."""
        return shown(self.value)

    @property
    def remedy(self) -> str:
        """The buffer to write instead; empty where it is no attribute of a module."""
        if not self.attribute:
            return ""
        made = f"torch.zeros({tuple(self.value.shape)}, dtype={self.value.dtype})"
        return (
            f'Register a buffer in __init__, self.register_buffer("{self.attribute}", {made}), and write it '
            f"in place, self.{self.attribute}.copy_(value), in a call before the first capture."
        )


def kept_tensors(
    roots: Iterable[Any], given: Iterable[Any], before: Snapshot, first: Snapshot, last: Snapshot
) -> Iterator[KeptTensor]:
    """The tensors that the first call has made and the last one has left alone.

    Args:
        roots: The callable, and the object that it is a method of.
        given: The arguments; a tensor in the memory of one is none that the call makes.
        before: The state before the first call.
    """
    modules = _tables_of_modules(first.entries.values())
    owned = modules | _tables_of_owners(modules, roots, first.entries.values())
    known = before.tensors.keys() | {
        each.untyped_storage()._cdata
        for each in given
        if isinstance(each, torch.Tensor) and each.layout is torch.strided
    }
    for handle, slots in first.tensors.items():
        for entry, tensor in slots if handle not in known else ():
            if (
                (entry.kind == ITEM and id(entry.container) in owned)
                and (_of(before, LENGTH, entry, None) is not None)  # the first walk came to what holds it
                and _of(last, ITEM, entry, entry.key) == entry.value
                and _of(last, LENGTH, entry, None) == _of(first, LENGTH, entry, None)  # a list may grow on
            ):
                attribute = entry.key if id(entry.container) in modules else ""
                yield KeptTensor(first.name_of(entry), attribute, tensor)


def _of(snapshot: Snapshot, kind: str, entry: Entry, key: Any) -> Any:
    """What lies in a slot of the container that an entry is in; None if the walk did not come there."""
    found = snapshot.entries.get((kind, id(entry.container), key))
    return None if found is None else found.value


def _tables_of_modules(entries: Iterable[Entry]) -> set[int]:
    """Identities of the attributes of modules, and of their buffers."""
    held = [entry.container for entry in entries if is_module_dict(entry.container)]
    return {id(table) for each in held for table in (each, each["_buffers"])}


def _tables_of_owners(modules: set[int], roots: Iterable[Any], entries: Iterable[Entry]) -> set[int]:
    """Identities of the attributes of users' objects, and of lists and dicts in those and in modules."""
    found = {id(own(root, "__dict__")) for root in roots}
    for entry in entries:  # breadth first: what holds a container comes before what it holds
        value = entry.value
        if isinstance(value, (list, tuple, dict)):
            if id(entry.container) in found or id(entry.container) in modules:
                found.add(id(value))
        elif is_users(type(value)) and not isinstance(value, torch.optim.Optimizer):
            found.add(id(own(value, "__dict__")))
    return found
