"""The exact tier of recordings with numbers that change."""

from __future__ import annotations

import pytest
import torch
from tests.conformance.test_exact_tier import soon, tier
from torch import nn

import rote
from rote.testing import assert_same

CALLS = 40
MADE = 12
LAYERS = 4


class Decoder(nn.Module):
    """Writes a cache at a position and reads it up to there, in each layer once more."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(LAYERS)])
        self.caches = nn.ParameterList(
            [nn.Parameter(torch.zeros(64, 4), requires_grad=False) for _ in self.layers]
        )
        self.position = 0

    def forward(self, x):
        for layer, cache in zip(self.layers, self.caches, strict=True):
            cache[self.position] = layer(x)[0]
            seen = torch.arange(64, device=x.device) <= self.position
            x = (torch.where(seen[:, None], cache, 0.0).sum(0) + x).tanh()
        self.position += 1
        return x


def scaled(state, x):
    """Equal numbers in equal places, and one that only looks equal."""
    state["scale"] += 0.25
    scale = state["scale"]
    return (
        (x * scale) + (x * scale) * (x * (scale + 1)) + torch.full_like(x, scale) / torch.tensor(scale).to(x)
    )


def limits(state, x):
    """Numbers beside what a kernel of ours may calculate."""
    state["scale"] += 0.25
    y = (x + 1).exp().sin() * 0.5
    return (y.clamp(-state["scale"], state["scale"]) + 1).cos().exp() - state["scale"]


def decaying(state, x):
    state["scale"] *= 0.99
    state["mean"].mul_(state["scale"]).add_(x, alpha=1 - state["scale"])
    return state["mean"] / (1 - state["scale"]) ** 2


def states(device):
    return [{"scale": 0.5, "mean": torch.zeros(3, 4, device=device)} for _ in range(2)]


@pytest.mark.parametrize("fn", [scaled, limits, decaying])
def test_functions(device, fn):
    mine, theirs = states(device)
    g = rote.graph(lambda x: fn(mine, x), keep=True)
    for number in range(CALLS):
        if number in (MADE, MADE + 8):
            soon(g)
        x = torch.randn(3, 4, generator=torch.Generator().manual_seed(number)).to(device)
        assert_same([g(x), mine], [fn(theirs, x), theirs], f"call {number}")
    found = tier(g)
    assert found is not None and not found.left, g.explain()
    assert found.removed["recomputed"] or fn is not scaled, g.explain()
    assert g.report().replayed >= 30, g.explain()


def test_what_is_equal_is_made_once(device):
    torch.manual_seed(0)
    plain = Decoder().to(device)
    torch.manual_seed(0)
    graphed = Decoder().to(device)
    g = rote.graph(graphed, keep=True)
    with torch.no_grad():
        for number in range(CALLS):
            if number in (MADE, MADE + 8):
                soon(g)
            x = torch.randn(1, 4, generator=torch.Generator().manual_seed(number)).to(device)
            assert_same(g(x), plain(x), f"call {number}")
            assert_same(list(graphed.parameters()), list(plain.parameters()), f"state after call {number}")
    found = tier(g)
    assert found is not None and found.used and not found.left, g.explain()
    assert found.removed["repeated"] + found.removed["recomputed"] >= 2 * (LAYERS - 1), found
