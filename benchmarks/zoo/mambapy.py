"""State space models of mambapy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from mambapy.mamba import Mamba, MambaConfig

Items = Iterator[Any]


def sequences(wrap: Any, device: Any) -> Items:
    """A Mamba over sequences, by the parallel scan."""
    model = wrap(Mamba(MambaConfig(d_model=16, n_layers=2)).to(device).eval())
    with torch.no_grad():
        while True:
            yield model(torch.randn(2, 8, 16).to(device))


def single_steps(wrap: Any, device: Any) -> Items:
    """The same step by step, with a list of caches that is handed on."""
    model = Mamba(MambaConfig(d_model=16, n_layers=2)).to(device).eval()
    step = wrap(model.step)
    with torch.no_grad():
        while True:
            caches = [(None, torch.zeros(1, 32, 3, device=device)) for _ in range(2)]
            for _ in range(12):
                y, caches = step(torch.randn(1, 16).to(device), caches)
                yield y, caches


def training(wrap: Any, device: Any) -> Items:
    """Training over sequences with SGD, whose scan has a backward of its own."""
    model = Mamba(MambaConfig(d_model=16, n_layers=1)).to(device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    @wrap
    def step(x: torch.Tensor) -> torch.Tensor:
        loss = (model(x)[:, :-1] - x[:, 1:]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    while True:
        yield step(torch.randn(2, 8, 16).to(device)), model
