"""Rotary embeddings by rotary-embedding-torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from rotary_embedding_torch import RotaryEmbedding

Items = Iterator[Any]


def attention(wrap: Any, device: Any) -> Items:
    """Attention with rotated queries and keys, whose frequencies are cached on the module."""
    rotary = RotaryEmbedding(dim=8).to(device)
    project = torch.nn.Linear(32, 96).to(device)

    @wrap
    @torch.no_grad()
    def attend(x: torch.Tensor) -> torch.Tensor:
        q, k, v = project(x).view(*x.shape[:2], 3, 4, 8).permute(2, 0, 3, 1, 4)
        q, k = rotary.rotate_queries_or_keys(q), rotary.rotate_queries_or_keys(k)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    while True:
        yield attend(torch.randn(1, 12, 32).to(device))
