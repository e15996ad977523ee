"""Operations whose operands are known and small: what they really return.

The callable's integers (positions, lengths, grids, tokens) often decide about shapes: a number of rows that
is found by ``nonzero`` or read by ``tolist``. Where all operands of an operation are small and their values
are known, it is computed on the host beside the fake one, so that the check goes on with the true shape and
the true number. Arithmetic on floating-point numbers is left out: what comes of it stays invented, whatever
its size, so that a loop which waits for a residual ends and a sound program's checks pass.
"""

from __future__ import annotations

from typing import Any

import torch

from ...runtime.operators import Facts, tensors_of
from ..fake import FakeTensor, StandIns, fake_device
from .operands import replaced

SMALL = 256
"""Elements of all operands, or of what is made of none, up to which an operation is computed."""


class KnownValues:
    """Computes what operations return.

    Args:
        standins: Knows the values of fake tensors.
    """

    def __init__(self, standins: StandIns) -> None:
        self._standins = standins

    def may_be(self, facts: Facts, tensors: list[torch.Tensor]) -> bool:
        """Whether it is worth while to try; a quick answer, since every operation of a check asks."""
        if facts.written or facts.seeded:
            return False
        return self._value(tensors[0]) is not None if tensors else "made" in facts.row

    def remember(
        self, facts: Facts, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
    ) -> None:
        """Remember the values of what an operation returned, if they can be known."""
        parts = tensors_of((out,), {})
        values = self._computed(facts, func, args, kwargs, sum(part.numel() for part in parts))
        for part, value in zip(parts, tensors_of((values,), {}), strict=False):
            self._standins.know_value(part, value)

    def true(self, facts: Facts, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What an operation returns, as fake tensors of the true shapes; None if that is not known."""
        values = self._computed(facts, func, args, kwargs)
        return None if values is None else replaced(values, self._standins.like)

    def _computed(
        self, facts: Facts, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], made: int = 0
    ) -> Any:
        """What an operation returns, as host tensors; None if that is not known.

        Args:
            facts: Its facts.
            func: The operation.
            args: Its operands.
            kwargs: Those with names.
            made: Elements of what it returns, if that is known already.
        """
        tensors = tensors_of(args, kwargs)
        if facts.written or facts.seeded or made > SMALL or not (tensors or "made" in facts.row):
            return None
        if sum(tensor.numel() for tensor in tensors) > SMALL:
            return None
        moves = facts.op.is_view or "moves" in facts.row
        if not moves and any(x.is_floating_point() or x.is_complex() for x in tensors):
            return None
        values = {id(tensor): self._value(tensor) for tensor in tensors}
        if any(value is None for value in values.values()) or kwargs.get("pin_memory"):
            return None
        operands, options = replaced((args, {**kwargs}), lambda tensor: values.get(id(tensor)))
        if "device" in options:
            options["device"] = torch.device("cpu")
        try:
            return func(*operands, **options)
        except Exception:  # what it raises, it raises on fake tensors as well
            return None

    def _value(self, tensor: torch.Tensor) -> torch.Tensor | None:
        if not isinstance(tensor, FakeTensor):
            return tensor
        return self._standins.value_of(tensor) if fake_device(tensor) != "cpu" else None
