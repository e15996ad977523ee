"""Metrics of torchmetrics, kept over an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import BinaryAUROC, MulticlassAccuracy, MulticlassF1Score
from torchmetrics.image import PeakSignalNoiseRatio

Items = Iterator[Any]


def accuracy_of_an_epoch(wrap: Any, device: Any) -> Items:
    """Accuracy and F1 updated by each batch, computed and reset after ten."""
    model = torch.nn.Linear(16, 5).to(device).eval()
    metrics = MetricCollection([MulticlassAccuracy(5), MulticlassF1Score(5)]).to(device)
    average = MeanMetric().to(device)

    @wrap
    @torch.no_grad()
    def validate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        logits = model(x)
        metrics.update(logits, y)
        average.update(torch.nn.functional.cross_entropy(logits, y))
        return logits

    while True:
        for _ in range(10):
            logits = validate(torch.randn(8, 16).to(device), torch.randint(5, (8,)).to(device))
            yield logits, metrics["MulticlassAccuracy"].tp
        yield metrics.compute(), average.compute()
        metrics.reset()
        average.reset()


def list_state(wrap: Any, device: Any) -> Items:
    """AUROC, which keeps all predictions in a list."""
    metric = BinaryAUROC().to(device)
    update = wrap(metric.update)
    while True:
        for _ in range(10):
            update(torch.rand(8).to(device), torch.randint(2, (8,)).to(device))
            yield len(metric.preds), metric.preds[-1]
        yield metric.compute()
        metric.reset()


def called_as_a_function(wrap: Any, device: Any) -> Items:
    """A metric called for the batch's value, which adds to the epoch's as well."""
    metric = wrap(PeakSignalNoiseRatio(data_range=1.0).to(device))
    while True:
        yield metric(torch.rand(1, 3, 16, 16).to(device), torch.rand(1, 3, 16, 16).to(device)), metric.total


def logged_while_training(wrap: Any, device: Any) -> Items:
    """The mean of a loss, updated and computed in each step of training."""
    model, average = torch.nn.Linear(8, 1).to(device), MeanMetric().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    @wrap
    def step(x: torch.Tensor, y: torch.Tensor) -> float:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update(loss.detach(), weight=len(x))
        return average.compute().item()

    while True:
        yield step(torch.randn(16, 8).to(device), torch.randn(16, 1).to(device)), model
