"""Attention of few queries as two products and a softmax, which use all of a GPU.

PyTorch's attention kernels give each block of queries of each head to one multiprocessor, which goes through
all keys. With few queries and heads most of a GPU is idle meanwhile; products use all of it. Scores are kept
in 32 bits, as the kernels keep them, and rounded once, for the product with the values; where all heads share
keys and values, they are rows of one product.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from .alternatives import Alternative, Run

_aten = torch.ops.aten
_MOST_QUERIES = 128
_FEWEST_KEYS = 128
_MOST_SCORES = 1 << 24
"""Scores that are kept in memory at once."""


def _fits(query: Any, key: Any, value: Any, mask: Any, dropout: Any, causal: Any) -> bool:
    if (
        dropout
        or causal
        or any([each.dim() != 4 or each.dtype != query.dtype for each in (query, key, value)])
    ):
        return False
    batch, heads, queries, _ = query.shape
    keys = key.shape[2]
    if key.shape[:2] != query.shape[:2] or value.shape[:3] != key.shape[:3]:
        return False
    if mask is not None and not mask.is_floating_point():
        return False
    few = queries <= _MOST_QUERIES and keys >= _FEWEST_KEYS
    short = query.dtype in (torch.bfloat16, torch.float16)
    return few and short and batch * heads * queries * keys <= _MOST_SCORES


def _calculate(
    run: Run,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scale: Any,
    *,
    parts: int,
) -> torch.Tensor:
    """Attention.

    Args:
        run: Runs operations.
        query: ``(batch, heads, queries, width)``.
        key: ``(batch, heads, keys, width)``.
        value: ``(batch, heads, keys, depth)``.
        mask: Added to scores; broadcast to ``(batch, heads, queries, keys)``.
        scale: What scores are multiplied by; None for the root of the width.
        parts: Numbers of 16 bits that a weight is the sum of.
    """
    batch, heads, queries, width = query.shape
    keys, depth = key.shape[2], value.shape[3]
    if scale is None:
        scale = 1 / math.sqrt(width)
    shared = not key.stride(1) and not value.stride(1) and heads > 1
    groups, rows = (batch, heads * queries) if shared else (batch * heads, queries)

    def folded(tensor: torch.Tensor, size: int) -> torch.Tensor:
        """One matrix for each group: of all heads if they share it."""
        if shared and tensor is not query:
            return tensor[:, 0]
        if tensor.is_contiguous() or (groups == batch * heads and _folds(tensor)):
            return tensor.reshape(groups, -1, size)
        return run(_aten.clone.default, (tensor,), {"memory_format": torch.contiguous_format}).view(
            groups, -1, size
        )

    q, k, v = folded(query, width), folded(key, width), folded(value, depth)
    scores = _scores(run, q, k.transpose(1, 2), mask, (batch, heads, queries, keys), scale)
    weights = run(_aten._softmax.default, (scores, -1, False), {})
    weights = weights.view(groups, rows, keys)
    return _weighted(run, weights, v, parts).view(batch, heads, queries, depth)


def _weighted(run: Run, weights: torch.Tensor, v: torch.Tensor, parts: int) -> torch.Tensor:
    """The sums of values by weights of 32 bits, which are rounded as values are, or taken in two parts."""
    single, short = {"dtype": torch.float32}, {"dtype": v.dtype}
    rounded = run(_aten._to_copy.default, (weights,), short)
    if parts == 1:
        return run(_aten.bmm.default, (rounded, v), {})
    if not v.is_cuda:
        total = run(_aten.bmm.default, (weights, run(_aten._to_copy.default, (v,), single)), {})
        return run(_aten._to_copy.default, (total,), short)
    rest = run(_aten.sub.Tensor, (weights, rounded), {})
    rest = run(_aten._to_copy.default, (rest,), short)
    total = run(_aten.bmm.dtype, (rounded, v, torch.float32), {})
    total = run(_aten.baddbmm.dtype, (total, rest, v, torch.float32), {})
    return run(_aten._to_copy.default, (total,), short)


def _folds(tensor: torch.Tensor) -> bool:
    """Whether batches and heads are one dimension without a copy."""
    return tensor.shape[0] == 1 or tensor.stride(0) == tensor.stride(1) * tensor.shape[1]


def _scores(
    run: Run,
    q: torch.Tensor,
    k: torch.Tensor,
    mask: torch.Tensor | None,
    shape: tuple[int, ...],
    scale: float,
) -> torch.Tensor:
    """Scaled and masked, in 32 bits."""
    if q.is_cuda:
        scores = run(_aten.bmm.dtype, (q, k, torch.float32), {})
    else:
        wide = [run(_aten._to_copy.default, (each,), {"dtype": torch.float32}) for each in (q, k)]
        scores = run(_aten.bmm.default, tuple(wide), {})
    if mask is None:
        return run(_aten.mul.Tensor, (scores.view(shape), scale), {})
    return run(_aten.add.Tensor, (mask, scores.view(shape)), {"alpha": scale})


def _exact(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, scale: Any
) -> torch.Tensor:
    scores = query @ key.transpose(-1, -2) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    return (scores if mask is None else scores + mask).softmax(-1) @ value


_Taken = tuple[Any, Any, Any]
"""A mask, the share of dropout, and whether it is causal."""


def _of(operator: str, taken: Callable[..., _Taken], parts: int) -> Alternative:
    """An alternative of one of PyTorch's attention operators.

    Args:
        operator: The operator.
        taken: What else it takes behind query, key and value, from its operands.
        parts: Numbers of 16 bits that a weight is the sum of.
    """

    def fits(query: Any, key: Any, value: Any, *rest: Any, scale: Any = None, **named: Any) -> bool:
        return _fits(query, key, value, *taken(*rest, **named))

    def calculate(
        run: Run, query: Any, key: Any, value: Any, *rest: Any, scale: Any = None, **named: Any
    ) -> Any:
        mask, _, _ = taken(*rest, **named)
        return _calculate(run, query, key, value, mask, scale, parts=parts)

    def exact(query: Any, key: Any, value: Any, *rest: Any, scale: Any = None, **named: Any) -> Any:
        mask, _, _ = taken(*rest, **named)
        return _exact(query, key, value, mask, scale)

    return Alternative(f"aten::{operator}", _NAMES[parts], fits, calculate, exact)


_NAMES = {
    1: "attention of few queries as products",
    2: "attention of few queries as products, weights in two parts",
}


def _masked(mask: Any, _: Any, dropout: float = 0.0, causal: bool = False, *__: Any) -> _Taken:
    return mask, dropout, causal


def _unmasked(dropout: float = 0.0, causal: bool = False, *_: Any, attn_mask: Any = None) -> _Taken:
    return attn_mask, dropout, causal


_TAKEN: dict[str, Callable[..., _Taken]] = {
    "_scaled_dot_product_cudnn_attention": _masked,
    "_scaled_dot_product_efficient_attention": _masked,
    "_scaled_dot_product_flash_attention": _unmasked,
    "_scaled_dot_product_flash_attention_for_cpu": _unmasked,
}
ATTENTION = tuple([_of(name, taken, parts) for name, taken in _TAKEN.items() for parts in (1, 2)])
"""For each of PyTorch's kernels: weights rounded as they round them, and weights in two parts."""
