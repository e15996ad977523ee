"""The largest results of operations whose result has a shape that depends on values.

The largest result lets the callable go on with tensors of the right type and number of dimensions. An
operation that is not listed here gets a result like its first operand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...runtime.operators import is_mask
from ..fake import LARGEST, host_copy
from .operands import TrialCall

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
