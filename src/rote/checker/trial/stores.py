"""Numbers that are stored into tensors of the device: which of them CUDA copies from the host.

``t[i] = 5.0`` makes a tensor of the number on the host. A row or a slice is filled with it, and so is what
one mask selects. Into a single element it is copied, and for rows that are chosen by indices it is moved to
the device first; both copies wait. The pretended device has the number on the device, so it is remembered
which tensors were made of numbers.
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

_FILL_ROWS = "Fill them with the number: t.index_fill_(0, rows, number), or torch.where with a mask."
_PLAIN = "Pass the number itself, torch.where(mask, t, 0.0), or make the tensor on the device (device=...)."


class Numbers:
    """The tensors that were made of numbers."""

    def __init__(self, on_device: Callable[[torch.Tensor], bool]) -> None:
        self._made = FakeMemory()
        self._on_device = on_device

    def add(self, made: torch.Tensor) -> None:
        """Remember a tensor that was made of a number."""
        self._made.add(made)

    def are_copied(self, source: torch.Tensor, target: torch.Tensor) -> bool:
        """Whether a copy within the device is one of a number into a single element."""
        return source in self._made and not target.dim()

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
        return alone and (value in self._made or not self._on_device(value))
