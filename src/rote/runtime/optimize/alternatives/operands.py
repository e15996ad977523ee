"""What an attention operator is given, as its alternatives see it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

Strides = tuple[int, int, int, int]


@dataclass(frozen=True)
class Attention:
    """Operands of an attention.

    Attributes:
        query: ``(batch, heads, queries, width)``.
        key: ``(batch, kept heads, keys, width)``; each is that of as many query heads as any other.
        value: ``(batch, kept heads, keys, depth)``.
        mask: Added to scores; broadcast to ``(batch, heads, queries, keys)``. None for none.
        given_scale: What scores are multiplied by; None for the root of the width.
        like_query: The operator lays out its result as the queries; otherwise heads lie behind queries.
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None
    given_scale: float | None
    like_query: bool = False

    @property
    def batch(self) -> int:
        """Calculations that share nothing."""
        return self.query.shape[0]

    @property
    def heads(self) -> int:
        """Heads of the queries."""
        return self.query.shape[1]

    @property
    def queries(self) -> int:
        """Queries of a head."""
        return self.query.shape[2]

    @property
    def keys(self) -> int:
        """Keys of a head."""
        return self.key.shape[2]

    @property
    def width(self) -> int:
        """Numbers of a query or key."""
        return self.query.shape[3]

    @property
    def depth(self) -> int:
        """Numbers of a value."""
        return self.value.shape[3]

    @property
    def scale(self) -> float:
        """What scores are multiplied by."""
        return 1 / math.sqrt(self.width) if self.given_scale is None else float(self.given_scale)

    @property
    def is_shared(self) -> bool:
        """Whether all heads have the same keys and values, in the same memory."""
        return not self.key.stride(1) and not self.value.stride(1)

    @property
    def kept(self) -> int:
        """Heads that have keys and values of their own."""
        return 1 if self.is_shared else self.key.shape[1]

    @property
    def rows(self) -> int:
        """Queries for each of those."""
        return self.heads // self.kept * self.queries

    @property
    def is_plain(self) -> bool:
        """Whether shapes and types fit together."""
        tensors = (self.query, self.key, self.value)
        if any([each.dim() != 4 or each.dtype != self.query.dtype for each in tensors]):
            return False
        batch, kept, keys = self.key.shape[:3]
        together = (batch, self.key.shape[3]) == (self.batch, self.width)
        return (
            together
            and self.value.shape[:3] == (batch, kept, keys)
            and kept > 0
            and self.heads % kept == 0
            and min(self.batch, self.heads, self.queries, keys, self.width, self.depth) > 0
            and self.query.dtype in (torch.bfloat16, torch.float16)
            and (self.mask is None or self.mask.is_floating_point())
        )

    @property
    def tensors(self) -> list[torch.Tensor]:
        """What a kernel reads: queries, keys, values, and the mask if there is one."""
        return [self.query, self.key, self.value, *([] if self.mask is None else [self.mask])]

    @property
    def strides(self) -> Strides:
        """How the result is laid out."""
        heads, queries, depth = self.heads, self.queries, self.depth
        if self.like_query and depth == self.width:
            first, second, third, last = torch.empty_like(self.query, device="meta").stride()
            return first, second, third, last
        return heads * queries * depth, depth, heads * depth, 1

    def exact(self) -> torch.Tensor:
        """The result, in the type of the operands: the zeros of a row without any key included."""
        each = self.heads // self.key.shape[1]
        key, value = (tensor.repeat_interleave(each, 1) for tensor in (self.key, self.value))
        scores = self.query @ key.transpose(-1, -2) * self.scale
        if self.mask is not None:
            scores = scores + self.mask
        return torch.ops.aten._safe_softmax.default(scores, -1) @ value
