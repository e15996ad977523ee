"""Figures the host backend is held to, on one thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rote.backends.host.backend import HostBackend

REPEATS = 200


def seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    for _ in range(REPEATS):
        call()
    return (time.perf_counter() - start) / REPEATS


def test_a_small_training_step_replays_in_a_quarter_of_the_time(record: Any) -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = torch.randn(8, 64), torch.randn(8, 64)

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step()
    replay = record(step).segment.replay
    # The best of several rounds, each of both: other programs only ever make a round slower.
    rounds = [(seconds(step), seconds(replay)) for _ in range(8)]
    eager, replayed = (min(times) for times in zip(*rounds, strict=True))
    assert eager / replayed >= 3.9, f"eager {eager * 1e6:.0f} us, replay {replayed * 1e6:.0f} us"


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
def test_a_decoder_of_twelve_layers_plans_ten_megabytes(record: Any, backend: HostBackend, grad: Any) -> None:
    model = nn.Sequential(*(Layer(512, 8) for _ in range(12))).eval()
    x = torch.randn(2, 128, 512)
    with grad():
        recording = record(model, x)
        assert backend.pool.statistics().chunk_bytes <= 10e6
        assert backend.pool.statistics().kept_bytes == recording.output.nbytes
        x.normal_()
        assert torch.equal(recording.replay(), model(x))
