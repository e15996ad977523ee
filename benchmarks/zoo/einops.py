"""Models written with einops."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from einops import einsum, rearrange, reduce, repeat
from einops.layers.torch import Rearrange, Reduce
from torch import nn

Items = Iterator[Any]


def mixer(wrap: Any, device: Any) -> Items:
    """An MLP-Mixer of einops layers."""

    class Residual(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.norm, self.inner = nn.LayerNorm(16), inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.inner(self.norm(x))

    def block() -> list[nn.Module]:
        tokens = nn.Sequential(nn.Conv1d(16, 32, 1), nn.GELU(), nn.Conv1d(32, 16, 1))
        channels = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        return [Residual(tokens), Residual(channels)]

    model = (
        nn.Sequential(
            Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=8, q=8),
            nn.Linear(192, 16),
            *block(),
            *block(),
            Reduce("b n c -> b c", "mean"),
            nn.Linear(16, 5),
        )
        .to(device)
        .eval()
    )
    forward = wrap(model)
    with torch.no_grad():
        while True:
            yield forward(torch.randn(2, 3, 32, 32).to(device))


def attention(wrap: Any, device: Any) -> Items:
    """Attention with relative positions, trained with RMSprop."""
    qkv, out = nn.Linear(16, 48, bias=False).to(device), nn.Linear(16, 16).to(device)
    bias = nn.Parameter(torch.zeros(15, device=device))
    optimizer = torch.optim.RMSprop([*qkv.parameters(), *out.parameters(), bias], lr=1e-3)

    @wrap
    def step(x: torch.Tensor) -> torch.Tensor:
        q, k, v = rearrange(qkv(x), "b n (three h d) -> three b h n d", three=3, h=4)
        places = torch.arange(x.shape[1], device=x.device)
        distance = rearrange(places, "i -> i 1") - rearrange(places, "j -> 1 j")
        scores = einsum(q, k, "b h i d, b h j d -> b h i j") / 2 + repeat(
            bias[distance + 7], "i j -> h i j", h=4
        )
        y = out(rearrange(scores.softmax(-1) @ v, "b h n d -> b n (h d)"))
        loss = reduce((y - x).square(), "b n d -> b", "mean").sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    while True:
        yield step(torch.randn(2, 8, 16).to(device)), bias


def mapped_heads(wrap: Any, device: Any) -> Items:
    """A vision transformer whose heads are taken apart by ``map``, with a rate that is calculated by hand."""
    patches, heads, out = nn.Linear(48, 32), nn.Linear(32, 96, bias=False), nn.Linear(32, 32)
    token, head = nn.Parameter(torch.randn(1, 1, 32)), nn.Linear(32, 4)
    model = nn.ModuleList([patches, heads, out, head, nn.ParameterList([token])]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    state = {"step": 0}

    @wrap
    def step(images: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
        rate = 5e-4 * (1 + math.cos(math.pi * state["step"] / 1000))
        state["step"] += 1
        for group in optimizer.param_groups:
            group["lr"] = rate
        x = patches(rearrange(images, "b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4))
        x = torch.cat([repeat(model[-1][0], "1 1 d -> b 1 d", b=len(x)), x], 1)
        q, k, v = map(lambda part: rearrange(part, "b n (h d) -> b h n d", h=4), heads(x).chunk(3, -1))
        scores = einsum(q, k, "b h i d, b h j d -> b h i j") * 8**-0.5
        x = x + out(rearrange(scores.softmax(-1) @ v, "b h n d -> b n (h d)"))
        loss = nn.functional.cross_entropy(
            head(reduce(x, "b n d -> b d", "mean")), labels, label_smoothing=0.1
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item(), rate

    while True:
        yield step(torch.randn(4, 3, 8, 8).to(device), torch.randint(4, (4,)).to(device)), model
