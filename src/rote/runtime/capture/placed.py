"""Where the operations of a traced call run: in a segment, before it, or between two."""

from __future__ import annotations

from typing import Any

import torch

from ..operators import TOLD_SIZES, Facts, Placement, between, filled_in, place
from .path import Cursor, Writes


class Placer:
    """Says where operations run.

    Attributes:
        devices: Devices of operands.
    """

    def __init__(self, cursor: Cursor, writes: Writes) -> None:
        self.devices: set[torch.device] = set()
        self._cursor = cursor
        self._writes = writes

    def place(
        self,
        facts: Facts,
        tensors: list[torch.Tensor],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        apart: bool,
    ) -> Placement:
        """Where an operation runs; ``apart``: not in a segment."""
        cursor = self._cursor
        sized = not facts.unsized or cursor.quietly(lambda: TOLD_SIZES.are_told(facts.op, args, kwargs))
        number = filled_in(facts, args, kwargs)
        fills = number is not None and number.is_cpu and self._is_constant(number)
        placement = place(facts, tensors, kwargs, cursor.on_host, fills=fills, sized=sized)
        if placement is Placement.ISLAND and self._only_constants_on_host(tensors):
            placement = Placement.CAPTURED
        refused = cursor.node.refused
        apart = apart or (bool(refused) and cursor.index in refused)
        return between(sized) if placement is Placement.CAPTURED and apart else placement

    def _is_constant(self, tensor: torch.Tensor) -> bool:
        return self._cursor.storages.origin(tensor) in self._writes.constants

    def _only_constants_on_host(self, tensors: list[torch.Tensor]) -> bool:
        """Whether all operands on the host are scalars that never change: a kernel takes them by value."""
        if self._cursor.on_host:
            return False
        on_host = [tensor for tensor in tensors if tensor.is_cpu]
        if len(on_host) == len(tensors):
            return False
        return all(tensor.dim() == 0 and self._is_constant(tensor) for tensor in on_host)

    def note_devices(self, tensors: list[torch.Tensor]) -> None:
        """Note the devices of an operation's operands."""
        self.devices.update([tensor.device for tensor in tensors])
