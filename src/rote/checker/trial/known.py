"""True results of operations whose operands are small and known.

The callable's integers (positions, lengths, grids, tokens) often decide about shapes: a number of rows that
``nonzero`` finds or ``tolist`` reads. If all operands of an operation are small and their values are known,
it also runs on the host, so that the check goes on with the true shape and the true number. Arithmetic on
floating-point numbers stays invented whatever its size, so that a loop that waits for a residual ends and a
sound program's checks pass.
"""

from __future__ import annotations

from typing import Any

import torch

from ...runtime.operators import Facts, tensors_of
from ..fake import FakeTensor, StandIns, fake_device
from .operands import TrialCall, replaced

SMALL = 256
"""Elements of all operands, or of a result without operands, up to which an operation is computed."""


class KnownValues:
    """Computes what operations return."""

    def __init__(self, standins: StandIns) -> None:
        self._standins = standins

    def may_be(self, facts: Facts, tensors: list[torch.Tensor]) -> bool:
        """Whether it is worth trying; a quick answer, since every operation of a check asks."""
        if facts.written or facts.seeded or facts.collective:
            return False
        return self._value(tensors[0]) is not None if tensors else "made" in facts.row

    def remember(self, call: TrialCall, out: Any) -> None:
        """Remember the values of an operation's result, if they can be known."""
        parts = tensors_of((out,), {})
        if sum(part.numel() for part in parts) <= SMALL:
            for part, value in zip(parts, tensors_of((self._computed(call),), {}), strict=False):
                self._standins.know_value(part, value)

    def true(self, call: TrialCall) -> Any:
        """What an operation returns, as fake tensors of the true shapes; None if that is not known."""
        values = self._computed(call)
        return None if values is None else replaced(values, self._standins.like)

    def _computed(self, call: TrialCall) -> Any:
        """What an operation returns, as host tensors; None if that is not known."""
        facts, tensors = call.facts, call.tensors
        if facts.written or facts.seeded or facts.collective or not (tensors or "made" in facts.row):
            return None
        if sum(tensor.numel() for tensor in tensors) > SMALL:
            return None
        moves = facts.op.is_view or "moves" in facts.row
        if not moves and any(x.is_floating_point() or x.is_complex() for x in tensors):
            return None
        values = {id(tensor): self._value(tensor) for tensor in tensors}
        if any(value is None for value in values.values()) or call.kwargs.get("pin_memory"):
            return None
        return call.on_host(lambda tensor: values.get(id(tensor)))

    def _value(self, tensor: torch.Tensor) -> torch.Tensor | None:
        if not isinstance(tensor, FakeTensor):
            return tensor
        return self._standins.value_of(tensor) if fake_device(tensor) != "cpu" else None
