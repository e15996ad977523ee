"""Reports and calls to show."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import rote


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up = nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x):
        y = self.up(self.norm(x))
        return x + y.relu() * 2


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.head = nn.ModuleList([Block(), Block()]), nn.Linear(8, 4)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        y = self.head(x)
        return y[y[:, 0] > -100].sum()


@pytest.fixture
def policy():
    """A graphed policy, recorded, and its arguments."""
    torch.manual_seed(0)
    g, x = rote.graph(Policy(), keep=True), torch.randn(4, 8)
    with torch.no_grad():
        for _ in range(4):
            g(x)
        yield g, x
    g.reset()  # the recordings are looked for before the fixture is gone
