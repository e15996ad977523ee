"""A hundred whole training steps, replayed, are bitwise the steps that eager takes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

STEPS = 100
Optimizer = Callable[[Any], torch.optim.Optimizer]

OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "sgd_foreach": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, foreach=True),
    "sgd_fused": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, fused=True),
    "adam_fused": lambda p: torch.optim.Adam(p, lr=0.01, fused=True),
    "adamw_fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True, amsgrad=True),
}


def model(dropout: float) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(dropout), nn.Linear(32, 4))


class Run:
    """A model, its optimizer, and one step on inputs of its own."""

    def __init__(
        self, model: nn.Module, optimizer: Optimizer, *, clip: bool = False, set_to_none: bool = True
    ) -> None:
        self.model, self.optimizer = model, optimizer(model.parameters())
        self.x, self.y, self.clip, self.set_to_none = torch.empty(8, 16), torch.empty(8, 4), clip, set_to_none

    def feed(self, n: int) -> None:
        g = torch.Generator().manual_seed(n)
        self.x.normal_(generator=g), self.y.normal_(generator=g)

    def step(self) -> torch.Tensor:
        self.optimizer.zero_grad(set_to_none=self.set_to_none)
        loss = F.mse_loss(self.model(self.x), self.y)
        loss.backward()
        if self.clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
        self.optimizer.step()
        return loss.detach()

    def state(self) -> list[torch.Tensor]:
        slots = [v for s in self.optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor)]
        return [
            *self.model.parameters(),
            *(p.grad for p in self.model.parameters() if p.grad is not None),
            *slots,
        ]


def follow(record: Any, captured: Run, eager: Run) -> None:
    recording = None
    rng = torch.get_rng_state()
    for n in range(STEPS):
        outcomes = []
        for run in (captured, eager):
            torch.set_rng_state(rng)
            run.feed(n)
            if run is eager or n == 0:  # the first step makes the optimizer's state
                outcomes.append(run.step())
            elif recording is None:
                recording = record(run.step)
                outcomes.append(recording.output)
            else:
                outcomes.append(recording.replay())
        rng = torch.get_rng_state()
        assert torch.equal(*outcomes), f"loss of step {n}"
    mine, others = captured.state(), eager.state()
    assert len(mine) == len(others)
    assert all(torch.equal(a, b) for a, b in zip(mine, others, strict=True))


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(record: Any, name: str, dropout: float) -> None:
    follow(record, Run(model(dropout), OPTIMIZERS[name]), Run(model(dropout), OPTIMIZERS[name]))


@pytest.mark.parametrize("options", [{"clip": True}, {"set_to_none": False}], ids=str)
def test_variations(record: Any, options: dict[str, bool]) -> None:
    follow(
        record,
        Run(model(0.1), OPTIMIZERS["momentum"], **options),
        Run(model(0.1), OPTIMIZERS["momentum"], **options),
    )


def test_batch_norm_statistics_move_once_per_step(record: Any) -> None:
    net = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
    captured, eager = Run(net, OPTIMIZERS["sgd"]), Run(copy.deepcopy(net), OPTIMIZERS["sgd"])
    follow(record, captured, eager)
    for mine, other in zip(captured.model.buffers(), eager.model.buffers(), strict=True):
        assert torch.equal(mine, other)


def test_gradients_are_taken_over_and_written_in_place(record: Any) -> None:
    run = Run(model(0.0), OPTIMIZERS["sgd"])
    run.feed(0)
    run.step()
    recording = record(run.step)
    addresses = [p.grad.data_ptr() for p in run.model.parameters()]
    versions = [p._version for p in run.model.parameters()]
    run.feed(1)
    before = [p.grad.clone() for p in run.model.parameters()]
    recording.replay()
    assert addresses == [p.grad.data_ptr() for p in run.model.parameters()]
    assert versions == [p._version for p in run.model.parameters()]
    assert not any(torch.equal(p.grad, b) for p, b in zip(run.model.parameters(), before, strict=True))
    # forward 3, loss 1, backward 6 (its seed included), optimizer 4: no clone of a gradient among them
    assert recording.segment.operations <= 16
