"""Training steps as the cases time them: a model, its optimizer and the whole step in one callable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Job:
    """Something to train. Two jobs from the same factory start from the same parameters."""

    model: nn.Module
    optimizer: torch.optim.Optimizer

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        """One whole training step."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss

    def state(self) -> list[Tensor]:
        """Every number that the step changes: parameters and the optimizer's state."""
        slots = self.optimizer.state.values()
        kept = [value for slot in slots for value in slot.values() if isinstance(value, Tensor)]
        return [tensor.detach() for tensor in (*self.model.parameters(), *kept)]


def batches(shape: tuple[int, ...], number: int, device: torch.device) -> list[Batch]:
    """Random inputs and targets of one shape."""
    rng = torch.Generator().manual_seed(1)
    pairs = torch.randn((number, 2, *shape), generator=rng).to(device)
    return [(pair[0].clone(), pair[1].clone()) for pair in pairs]


def losses(step: Callable[[Tensor, Tensor], Tensor], data: list[Batch], steps: int) -> list[Tensor]:
    """Train for some steps and return the loss of each."""
    return [step(*batch).detach().clone() for batch, _ in zip(cycle(data), range(steps), strict=False)]


def feeding(step: Callable[[Tensor, Tensor], Tensor], data: list[Batch]) -> Callable[[], Tensor]:
    """A call without arguments that takes the next batch each time."""
    endless: Iterator[Batch] = cycle(data)
    return lambda: step(*next(endless))
