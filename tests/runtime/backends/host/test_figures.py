"""The memory the host backend is held to."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Layer(nn.Module):
    """A pre-norm decoder layer with rotary-free attention and a gated MLP."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 1376, bias=False), nn.Linear(width, 1376, bias=False)
        self.down = nn.Linear(1376, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.first(x)).chunk(3, -1)
        )
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        h = self.second(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


@pytest.mark.parametrize("grad", [torch.no_grad, torch.inference_mode])
def test_a_decoder_of_twelve_layers_plans_ten_megabytes(record: Any, held: Any, grad: Any) -> None:
    model = nn.Sequential(*(Layer(512, 8) for _ in range(12))).eval()
    x = torch.randn(2, 128, 512)
    with grad():
        recording = record(model, x)
        assert sum(held("chunk")) <= 10e6
        assert held("kept") == [recording.output.nbytes]
        x.normal_()
        assert torch.equal(recording.replay(), model(x))
