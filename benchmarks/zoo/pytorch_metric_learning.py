"""Embeddings trained with pytorch-metric-learning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from pytorch_metric_learning import losses, miners

Items = Iterator[Any]


def triplets(wrap: Any, device: Any) -> Items:
    """Hard triplets are mined, so their number depends on values."""
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8)).to(device)
    miner, criterion = miners.MultiSimilarityMiner(), losses.TripletMarginLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    @wrap
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        embeddings = model(x)
        loss = criterion(embeddings, y, miner(embeddings, y))
        loss.backward()
        optimizer.step()
        return loss.detach()

    while True:
        yield step(torch.randn(16, 16).to(device), torch.randint(4, (16,)).to(device)), model


def angular_margin(wrap: Any, device: Any) -> Items:
    """ArcFace with its own weights, forward graphed."""
    model, criterion = torch.nn.Linear(16, 8).to(device), losses.ArcFaceLoss(4, 8).to(device)
    loss_of = wrap(lambda x, y: criterion(model(x), y))
    optimizer = torch.optim.SGD([*model.parameters(), *criterion.parameters()], lr=0.05)
    while True:
        loss = loss_of(torch.randn(16, 16).to(device), torch.randint(4, (16,)).to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.detach(), model, criterion.W


def proxies(wrap: Any, device: Any) -> Items:
    """ProxyAnchor with an optimizer of its own, all in one step."""
    model, criterion = torch.nn.Linear(8, 6).to(device), losses.ProxyAnchorLoss(4, 6).to(device)
    optimizers = [
        torch.optim.Adam(model.parameters(), lr=1e-3),
        torch.optim.SGD(criterion.parameters(), lr=0.01),
    ]

    @wrap
    def step(x: torch.Tensor, y: torch.Tensor) -> float:
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss.item()

    while True:
        yield step(torch.randn(8, 8).to(device), torch.arange(8, device=device) % 4), model, criterion
