"""Attention of few queries as two products and a softmax, which use all of a GPU.

Scores are kept in 32 bits, as PyTorch's kernels keep them, and rounded once, for the product with the values;
where all heads share keys and values, they are rows of one product.
"""

from __future__ import annotations

import torch

from .offered import AlternativeRun
from .operands import Attention

_aten = torch.ops.aten
_MOST_QUERIES = 128
_FEWEST_KEYS = 128
_MOST_SCORES = 1 << 24
"""Scores that are kept in memory at once."""


def fits(given: Attention) -> bool:
    """Whether it can be calculated so, and may be faster."""
    if not given.is_plain or given.key.shape[1] != given.heads:
        return False
    few = given.queries <= _MOST_QUERIES and given.keys >= _FEWEST_KEYS
    return few and given.batch * given.heads * given.queries * given.keys <= _MOST_SCORES


def calculate(run: AlternativeRun, given: Attention, halves: int, *, zero: bool = True) -> torch.Tensor:
    """Attention.

    Args:
        halves: Numbers of 16 bits that a weight is the sum of.
        zero: A row without any key gives 0; otherwise no number.
    """
    batch, heads, queries, keys = given.batch, given.heads, given.queries, given.keys
    shared = given.is_shared and heads > 1
    groups, rows = (batch, heads * queries) if shared else (batch * heads, queries)

    def folded(tensor: torch.Tensor) -> torch.Tensor:
        """One matrix for each group: of all heads if they share it."""
        size = tensor.shape[3]
        if shared and tensor is not given.query:
            return tensor[:, 0]
        if tensor.is_contiguous() or (groups == batch * heads and _folds(tensor)):
            return tensor.reshape(groups, -1, size)
        return run(_aten.clone.default, (tensor,), {"memory_format": torch.contiguous_format}).view(
            groups, -1, size
        )

    q, k, v = folded(given.query), folded(given.key), folded(given.value)
    scores = _scores(run, q, k.transpose(1, 2), given.mask, (batch, heads, queries, keys), given.scale)
    if zero and given.mask is not None:
        weights = run(_aten._safe_softmax.default, (scores, -1), {})
    else:
        weights = run(_aten._softmax.default, (scores, -1, False), {})
    weights = weights.view(groups, rows, keys)
    return _weighted(run, weights, v, halves).view(batch, heads, queries, given.depth)


def _weighted(run: AlternativeRun, weights: torch.Tensor, v: torch.Tensor, halves: int) -> torch.Tensor:
    """The sums of values by weights of 32 bits, which are rounded as values are, or taken in two parts."""
    single, short = {"dtype": torch.float32}, {"dtype": v.dtype}
    rounded = run(_aten._to_copy.default, (weights,), short)
    if halves == 1:
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
    run: AlternativeRun,
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
