"""Training loops of accelerate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

Items = Iterator[Any]


def accumulation(wrap: Any, device: Any) -> Items:
    """Gradients accumulated over four batches, clipped and stepped by the accelerator."""
    accelerator = Accelerator(gradient_accumulation_steps=4, cpu=torch.device(device).type == "cpu")
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=5_000)
    data = DataLoader(TensorDataset(torch.randn(64, 16), torch.randint(4, (64,))), batch_size=8, shuffle=True)
    model, optimizer, data, schedule = accelerator.prepare(model, optimizer, data, schedule)
    forward = wrap(model)
    while True:
        for x, y in data:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.cross_entropy(forward(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            yield loss.detach(), model


def evaluation(wrap: Any, device: Any) -> Items:
    """Evaluation of a prepared model, results gathered."""
    accelerator = Accelerator(cpu=torch.device(device).type == "cpu")
    model = accelerator.prepare(
        torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
    )
    model.eval()

    @wrap
    @torch.inference_mode()
    def evaluate(x: torch.Tensor, y: torch.Tensor) -> Any:
        found = model(x).argmax(-1)
        return accelerator.gather_for_metrics((found, y))

    while True:
        yield evaluate(torch.randn(8, 16).to(device), torch.randint(4, (8,)).to(device))
