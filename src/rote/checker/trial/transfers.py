"""What is to be said of copies between host and device, and of host tensors among operands of the device."""

from __future__ import annotations

import torch

from ...hazards import rules
from ...runtime.operators import Facts
from .notes import TrialNotes
from .operands import shown

_FILL = "Fill it with the number: t[i, j].fill_(number), or store into a slice: t[i, j : j + 1] = number."


def note_to_host(notes: TrialNotes, source: torch.Tensor, *, waits: bool) -> None:
    """A tensor of the device is copied to the host, which waits for it or not."""
    if not source.numel():
        return
    text = "a tensor is copied to the host"
    text += ", which waits for the device" if waits else "; the host reads it before it is written"
    notes.add(rules.DEVICE_COPY, text, evidence=shown(source))


def note_to_device(notes: TrialNotes, source: torch.Tensor, *, waits: bool, pinned: bool) -> None:
    """A host tensor, perhaps in pinned memory, is copied to the device; the host waits for it or not."""
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
    """A tensor of the host is an operand on the device."""
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
