"""Notes on copies between host and device, host tensors among device operands, and numbers stored in tensors.

``t[i] = 5.0`` makes a tensor of the number on the host. A kernel fills a row, a slice, or what one mask
selects. CUDA copies the number into a single element, and moves it to the device first for rows that indices
choose; both wait. The pretended device has the number on the device, so the trial remembers which tensors
were made of numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...hazards import rules
from ...runtime.operators import Facts, is_mask
from ..fake import FakeMemory
from .notes import TrialNotes
from .operands import shown

_FILL = "Fill it with the number: t[i, j].fill_(number), or store into a slice: t[i, j : j + 1] = number."
_FILL_ROWS = "Fill them with the number: t.index_fill_(0, rows, number), or torch.where with a mask."
_PLAIN = "Pass the number itself, torch.where(mask, t, 0.0), or make the tensor on the device (device=...)."


def note_to_host(notes: TrialNotes, source: torch.Tensor, *, waits: bool) -> None:
    """A device tensor is copied to the host, which may wait for it."""
    if not source.numel():
        return
    text = "a tensor is copied to the host"
    text += ", which waits for the device" if waits else "; the host reads it before it is written"
    notes.add(rules.DEVICE_COPY, text, evidence=shown(source))


def note_to_device(notes: TrialNotes, source: torch.Tensor, *, waits: bool, pinned: bool) -> None:
    """A host tensor, perhaps in pinned memory, is copied to the device; the host may wait."""
    if not source.numel():
        return
    if waits and not source.dim():
        text = "a number of the host is stored in one element, which waits for its copy to the device"
        notes.add(rules.DEVICE_COPY, text, evidence=shown(source), remedy=_FILL)
    elif waits:
        text = "a host tensor is copied to the device, which waits for the copy"
        notes.add(rules.DEVICE_COPY, text, evidence=shown(source))
    elif not pinned:
        text = "a replay copies from the same host memory again, whatever lies there by then"
        notes.add(rules.PAGEABLE_COPY, text, evidence=shown(source))


def note_operand(notes: TrialNotes, facts: Facts, tensor: torch.Tensor, *, is_argument: bool) -> None:
    """A host tensor is an operand on the device."""
    if tensor.dim() == 0:
        if is_argument:
            text = f"{facts.short} takes the value that a host argument has while capturing"
            notes.add(rules.FROZEN_HOST_VALUE, text, evidence=repr(tensor))
    elif facts.indexed:
        text = "an index on the host is copied to the device, which waits for the copy"
        notes.add(rules.DEVICE_COPY, text, evidence=shown(tensor))
    else:
        text = f"{facts.short} has operands on the device and on the host, which raises"
        notes.add(rules.MIXED_DEVICES, text, evidence=f"{shown(tensor)} is on the host")


class Numbers(FakeMemory):
    """The memory of tensors that were made of numbers."""

    def __init__(self, on_device: Callable[[torch.Tensor], bool]) -> None:
        super().__init__()
        self._on_device = on_device

    def note(self, notes: TrialNotes, facts: Facts, args: tuple[Any, ...]) -> None:
        """Note a number that an operation moves to the device by itself."""
        if "fills" not in facts.row:
            return
        if facts.stores and len(args) > 2 and self.is_number(args[2]):
            if not any(index is not None and is_mask(index) for index in args[1]):
                text = "a number is stored in chosen places: it is moved to the device first, which waits"
                notes.add(rules.DEVICE_COPY, text, evidence=shown(args[2]), remedy=_FILL_ROWS)
        elif facts.short == "where":
            found = [each for each in args if not each.dim() and not self._on_device(each)]
            if found:
                text = "where() moves a tensor of the host to the device, which waits for the copy"
                notes.add(rules.DEVICE_COPY, text, evidence=shown(found[0]), remedy=_PLAIN)

    def is_number(self, value: Any) -> bool:
        """Whether an operand is a single number, which CUDA would have on the host."""
        alone = isinstance(value, torch.Tensor) and value.numel() == 1
        return alone and (value in self or not self._on_device(value))
