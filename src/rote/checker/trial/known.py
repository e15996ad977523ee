"""True results of operations whose operands are small and known.

The callable's integers (positions, lengths, grids, tokens) often decide about shapes: a number of rows that
``nonzero`` finds or ``tolist`` reads. If all operands of an operation are small and their values are known,
it also runs on the host, so that the check goes on with the true shape and the true number. Arithmetic on
floating-point numbers stays invented whatever its size, so that a loop that waits for a residual ends and a
sound program's checks pass.

Of any other operation whose shape depends on values the largest result is taken. It lets the callable go on
with tensors of the right type and number of dimensions. An operation that is not listed here gets a result
like its first operand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...runtime.operators import Facts, is_mask, tensors_of
from ..fake import LARGEST, FakeTensor, StandIns, fake_device, host_copy
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


_long = torch.long


def without_masks(indices: Any) -> list[Any]:
    """Indices with each mask replaced by as many positions as it has elements."""
    found: list[Any] = []
    for index in indices:
        masked = is_mask(index)
        found += [index.new_zeros(index.numel(), dtype=_long)] * index.dim() if masked else [index]
    return found


def largest(call: TrialCall) -> Any:
    """The largest result that an operation can have."""
    if call.facts.indexed:
        return call.facts.op(call.args[0], without_masks(call.args[1]))
    make = _LARGEST.get(call.facts.short)
    if make is not None:
        return make(*call.args, **call.kwargs)
    like = call.tensors[0]
    results = [like.new_empty(like.shape) for _ in call.facts.op._schema.returns]
    return results[0] if len(results) == 1 else tuple(results)


def of_host_kernel(call: TrialCall) -> Any:
    """What the host kernel of an operation returns for ones; None if it has none, or for large operands."""
    return None if sum(each.numel() for each in call.tensors) > LARGEST else call.on_host(host_copy)


def _nonzero(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty((x.numel(), x.dim()), dtype=_long)


def _unique(x: torch.Tensor, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
    flat = x.new_empty(x.numel())
    return flat, x.new_empty(x.shape, dtype=_long), x.new_empty(x.numel(), dtype=_long)


def _unique_dim(x: torch.Tensor, dim: int, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
    number = x.shape[dim]
    return x.new_empty(x.shape), x.new_empty(number, dtype=_long), x.new_empty(number, dtype=_long)


def _repeat_interleave(repeats: torch.Tensor, *, output_size: int | None = None) -> torch.Tensor:
    return repeats.new_empty(repeats.numel() if output_size is None else output_size)


def _bincount(x: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0) -> torch.Tensor:
    return (x if weights is None else weights).new_empty(max(minlength, 1))


def _gru_cell_backward(gradient: torch.Tensor, workspace: torch.Tensor, has_bias: bool) -> Any:
    size, width = gradient.shape
    gates = [gradient.new_empty((size, 3 * width)) for _ in range(2)]
    biases = [gradient.new_empty(3 * width) if has_bias else None for _ in range(2)]
    return (*gates, gradient.new_empty(gradient.shape), *biases)


def _ctc_loss(scores: torch.Tensor, targets: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    steps = scores.shape[0]
    batch = scores.shape[1] if scores.dim() == 3 else 1
    longest = targets.shape[-1]
    return scores.new_empty(batch), scores.new_empty((batch, steps, 2 * longest + 1))


_LARGEST: dict[str, Callable[..., Any]] = {
    "nonzero": _nonzero,
    "masked_select": lambda x, mask: x.new_empty(torch.broadcast_shapes(x.shape, mask.shape).numel()),
    "_unique2": _unique,
    "_unique": lambda x, *args, **kwargs: _unique(x)[:2],
    "unique_dim": _unique_dim,
    "unique_consecutive": _unique,
    "unique_dim_consecutive": _unique_dim,
    "repeat_interleave": _repeat_interleave,
    "bincount": _bincount,
    "_ctc_loss": _ctc_loss,
    "_ctc_loss_backward": lambda gradient, scores, *args, **kwargs: scores.new_empty(scores.shape),
    # The shapes of the two are fixed, but PyTorch has no fake implementation.
    "_thnn_fused_gru_cell": lambda gates, hidden, h, *biases: (
        h.new_empty(h.shape),
        h.new_empty((h.shape[0], 5 * h.shape[1])),
    ),
    "_thnn_fused_gru_cell_backward": _gru_cell_backward,
    "torchvision::nms": lambda boxes, scores, threshold: boxes.new_empty(boxes.shape[0], dtype=_long),
}
