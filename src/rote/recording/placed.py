"""Where the operations of a traced call run: in a segment, before it, or between two."""

from __future__ import annotations

from typing import Any

import torch

from ..base.location import user_site
from ..hazards import rules
from ..hazards.rules import reason
from ..partition.boundaries import Placement, place
from ..partition.facts import Facts
from ..partition.fills import filled_in
from .host_tensors import HostTensors
from .ledger import Token


class Placed(HostTensors):
    """A follower that knows where each operation runs; the arguments are those of :class:`.cursor.Cursor`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._index = -1  # of the GPU that operations of the call were seen on

    def _are_at_home(self, tensors: list[torch.Tensor], tokens: list[Token]) -> bool:
        """Whether all operands are on the device whose operations are captured, known as the call's."""
        if self._on_host:
            return not self.ledger.looks.away or all([token[1].on_host for token in tokens])
        index = self._index
        return index >= 0 and all([tensor.get_device() == index and tensor.is_cuda for tensor in tensors])

    def _place(
        self, facts: Facts, tensors: list[torch.Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Placement:
        if facts.unrecorded and not self._on_host and any([tensor.is_cuda for tensor in tensors]):
            text = f"{facts.name} fails in cuSOLVER where a call is recorded"
            self.block(reason(rules.REFUSED, text, user_site()))
        number = filled_in(facts, args, kwargs)
        fills = number is not None and number.is_cpu and self.ledger.origin(number) in self._constants
        placement = place(facts, tensors, kwargs, self._on_host, fills=fills)
        if placement is Placement.CAPTURED:
            return Placement.ISLAND if self.node.refused and self.index in self.node.refused else placement
        if placement is Placement.ISLAND and self._only_constants_on_host(tensors):
            return Placement.ISLAND if self.index in self.node.refused else Placement.CAPTURED
        return placement

    def _only_constants_on_host(self, tensors: list[torch.Tensor]) -> bool:
        """A kernel takes a host scalar by value; that is right for one that never changes."""
        if self._device.type == "cpu":
            return False
        on_host = [tensor for tensor in tensors if tensor.device.type == "cpu"]
        return len(on_host) < len(tensors) and all(
            tensor.dim() == 0 and self.ledger.origin(tensor) in self._constants for tensor in on_host
        )

    def _note_devices(self, tensors: list[torch.Tensor]) -> None:
        for tensor in tensors:
            if not tensor.is_cpu:
                self.devices.add(tensor.device)
                self._index = tensor.get_device()
