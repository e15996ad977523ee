"""Small models with the layer names of language models, and inputs for them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, width // 2)
        self.v_proj = nn.Linear(width, width // 2)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        mixed = torch.cat([torch.tanh(k), torch.tanh(v)], dim=-1)
        return self.o_proj(torch.sigmoid(q) * mixed)


class Mlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, 2 * width, bias=False)
        self.up_proj = nn.Linear(width, 2 * width, bias=False)
        self.down_proj = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.gelu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(width)
        self.self_attn = Attention(width)
        self.post_attention_layernorm = nn.RMSNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Tiny(nn.Module):
    """Two blocks and a head."""

    def __init__(self, width: int = 32, blocks: int = 2) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Linear(width, 5)
        with torch.no_grad():
            for block in self.layers:
                block.input_layernorm.weight[3] = 15.0  # a hot channel
                block.post_attention_layernorm.weight[7] = 20.0

    def forward(self, x: Tensor) -> Tensor:
        for block in self.layers:
            x = block(x)
        return self.head(x)

    def act(self, x: Tensor) -> Tensor:
        """What a policy's users call instead of the model."""
        for block in self.layers:
            x = block(x)
        return torch.tanh(self.head(x))


def batches(count: int, rows: int = 16, width: int = 32, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(2, rows, width, generator=generator) for _ in range(count)]
