"""What Python asks of tensors made outside that no operation reads, and so no recording shows.

``[p for p in parameters if p.requires_grad]``, ``table.shape``, ``zero_grad()`` where there is nothing to
clear: the answers decide what a call does, and may be others at the next one.
"""

from __future__ import annotations

import weakref

import torch

from .gradients import Slots


class Asked:
    """What the calls of one variant asked.

    Attributes:
        slots: Tensors whose gradients they asked for or set, also those that are frozen and have none.
        flags: They asked whether a tensor requires grad.
    """

    def __init__(self) -> None:
        self.slots: Slots = {}
        self.flags = False
        self._looked: dict[int, weakref.ref[torch.Tensor]] = {}

    def copy(self) -> Asked:
        """The same, for a variant with the same state."""
        other = Asked()
        other.slots, other.flags, other._looked = dict(self.slots), self.flags, dict(self._looked)
        return other

    def looked(self) -> list[torch.Tensor]:
        """The tensors that they asked for shape, type, or whether they require grad, as far as alive."""
        return [tensor for reference in self._looked.values() if (tensor := reference()) is not None]

    def note_slots(self, slots: Slots) -> None:
        """Note tensors whose gradients a call asked for or set."""
        alive = {key: slot for key, slot in slots.items() if slot[0]() is not None}
        self.slots = {**alive, **self.slots}

    def note_looks(self, tensors: list[torch.Tensor], read: set[int], *, flags: bool) -> bool:
        """Note what a call looked at; whether there is anything new in it.

        Args:
            tensors: Those made outside.
            read: Handles of the storages that operations read: these are under guard anyway.
            flags: It asked whether a tensor requires grad.
        """
        fresh = {
            id(tensor): weakref.ref(tensor)
            for tensor in tensors
            if id(tensor) not in self._looked and tensor.untyped_storage()._cdata not in read
        }
        more = bool(fresh) or (flags and not self.flags and bool(self._looked or read))
        self._looked.update(fresh)
        self.flags = self.flags or flags
        return more
