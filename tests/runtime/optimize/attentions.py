"""Attentions of many shapes and layouts, and how far a result is from the exact one."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from rote.runtime.optimize.alternatives.operands import Attention


class Shape(NamedTuple):
    """Sizes and layout of an attention.

    Attributes:
        name: Of the test.
        batch: Calculations that share nothing.
        heads: Of the queries.
        kept: Of keys and values; 1 is expanded to all.
        queries: Of each head.
        keys: Of each head.
        width: Of queries and keys.
        depth: Of values; 0 for the width.
        mask: ``none``, ``row`` for one of all heads, ``heads`` for one of each, ``keys`` for one of all
            queries, ``empty`` with a row that no key is left in, ``small`` with the smallest number there is.
        layout: ``heads`` first, ``tokens`` first, or ``slices`` of one tensor, with widths apart.
    """

    name: str
    batch: int
    heads: int
    kept: int
    queries: int
    keys: int
    width: int
    depth: int = 0
    mask: str = "none"
    layout: str = "tokens"

    def made(self, dtype: torch.dtype, device: str = "cpu", seed: int = 0) -> Attention:
        """One of it, with random numbers."""
        torch.manual_seed(seed)
        query = self._tensor(self.heads, self.queries, self.width, dtype, device)
        key = self._tensor(self.kept, self.keys, self.width, dtype, device)
        value = self._tensor(self.kept, self.keys, self.depth or self.width, dtype, device) + 0.5
        if self.kept == 1 and self.heads > 1:
            key = key.expand(-1, self.heads, -1, -1)
            value = value.expand(-1, self.heads, -1, -1)
        return Attention(query, key, value, self._mask(dtype, device), None, like_query=True)

    def _tensor(self, heads: int, tokens: int, width: int, dtype: torch.dtype, device: str) -> Tensor:
        if self.layout == "heads":
            return torch.randn(self.batch, heads, tokens, width, device=device).to(dtype)
        if self.layout == "tokens":
            return torch.randn(self.batch, tokens, heads, width, device=device).to(dtype).transpose(1, 2)
        whole = torch.randn(tokens, width, self.batch, heads + 1, device=device).to(dtype)
        return whole.permute(2, 3, 0, 1)[:, 1:]

    def _mask(self, dtype: torch.dtype, device: str) -> Tensor | None:
        if self.mask == "none":
            return None
        heads = self.heads if self.mask == "heads" else 1
        queries = 1 if self.mask == "keys" else self.queries
        least = torch.finfo(dtype).min if self.mask == "small" else float("-inf")
        left = torch.rand(self.batch, heads, queries, self.keys, device=device) < 0.7
        left[..., 0] = True
        if self.mask in ("empty", "small"):
            left[:, :, queries // 2] = False
        return torch.where(left, torch.randn(left.shape, device=device), least).to(dtype)


SHAPES = [
    Shape("shared by all heads", 1, 4, 1, 5, 200, 64, mask="row"),
    Shape("shared by some heads", 2, 6, 2, 3, 130, 64),
    Shape("not shared", 2, 3, 3, 20, 70, 32, mask="heads", layout="heads"),
    Shape("one query", 1, 8, 2, 1, 160, 128, mask="keys"),
    Shape("widths that are no power", 1, 2, 2, 17, 64, 72),
    Shape("80", 1, 1, 1, 9, 100, 80, mask="row"),
    Shape("96", 1, 2, 1, 9, 33, 96),
    Shape("256", 1, 4, 1, 5, 96, 256, mask="row"),
    Shape("values of another width", 1, 2, 2, 6, 90, 64, depth=24),
    Shape("numbers that lie apart", 2, 2, 2, 7, 65, 40, mask="heads", layout="slices"),
    Shape("a row without keys", 2, 4, 1, 5, 200, 64, mask="empty"),
    Shape("a row of smallest numbers", 1, 4, 1, 5, 200, 64, mask="small"),
]


def of_torch(given: Attention) -> Tensor:
    """What PyTorch gives."""
    key, value = (
        each.repeat_interleave(given.heads // each.shape[1], 1) for each in (given.key, given.value)
    )
    return F.scaled_dot_product_attention(
        given.query, key, value, attn_mask=given.mask, scale=given.given_scale
    )


def exact(given: Attention) -> Tensor:
    """The result in 64 bits."""
    mask = None if given.mask is None else given.mask.double()
    wide = [each.double() for each in (given.query, given.key, given.value)]
    return Attention(*wide, mask, given.given_scale).exact()


def error(found: Tensor, wanted: Tensor) -> float:
    """The root of the mean square error, where there are numbers."""
    return float((found.double() - wanted).nan_to_num().square().mean().sqrt())
