"""Where the operations of a traced call run: in a segment, before it, or between two."""

from __future__ import annotations

from typing import Any

import torch

from ...base import user_site
from ...hazards import rules
from ...hazards.rules import reason
from ..operators import Facts, Placement, filled_in, place
from ..program import Token
from .path import Cursor, Writes


class Placer:
    """Says where operations run.

    Args:
        cursor: Where the call is.
        writes: Knows which tensors are constants.

    Attributes:
        devices: Devices that operands lie on, the host left out.
        index: Of the GPU that operations of the call were seen on; -1 while there was none.
    """

    def __init__(self, cursor: Cursor, writes: Writes) -> None:
        self.devices: set[torch.device] = set()
        self.index = -1
        self._cursor = cursor
        self._writes = writes

    def are_at_home(self, tensors: list[torch.Tensor], tokens: list[Token]) -> bool:
        """Whether all operands are on the device whose operations are captured, known as the call's."""
        cursor = self._cursor
        if cursor.on_host:
            return not cursor.storages.looks.away or all([token[1].on_host for token in tokens])
        index = self.index
        return index >= 0 and all([tensor.get_device() == index and tensor.is_cuda for tensor in tensors])

    def place(
        self, facts: Facts, tensors: list[torch.Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Placement:
        """Where an operation runs."""
        cursor = self._cursor
        unrecorded = facts.row.get("unrecorded")
        if unrecorded and not cursor.on_host and any([tensor.is_cuda for tensor in tensors]):
            cursor.block(reason(rules.REFUSED, f"{facts.name} {unrecorded}", user_site()))
        number = filled_in(facts, args, kwargs)
        fills = (
            number is not None and number.is_cpu and cursor.storages.origin(number) in self._writes.constants
        )
        placement = place(facts, tensors, kwargs, cursor.on_host, fills=fills)
        if placement is Placement.CAPTURED:
            return (
                Placement.ISLAND if cursor.node.refused and cursor.index in cursor.node.refused else placement
            )
        if placement is Placement.ISLAND and self._only_constants_on_host(tensors):
            return Placement.ISLAND if cursor.index in cursor.node.refused else Placement.CAPTURED
        return placement

    def _only_constants_on_host(self, tensors: list[torch.Tensor]) -> bool:
        """A kernel takes a host scalar by value; that is right for one that never changes."""
        cursor = self._cursor
        if cursor.device.type == "cpu":
            return False
        on_host = [tensor for tensor in tensors if tensor.device.type == "cpu"]
        return len(on_host) < len(tensors) and all(
            tensor.dim() == 0 and cursor.storages.origin(tensor) in self._writes.constants
            for tensor in on_host
        )

    def note_devices(self, tensors: list[torch.Tensor]) -> None:
        """An operation has these operands."""
        for tensor in tensors:
            if not tensor.is_cpu:
                self.devices.add(tensor.device)
                self.index = tensor.get_device()
