"""Programs that faults are injected into: modules with the callables to graph and a way to drive them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from tests.seeds import seed
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode


class Program(nn.Module):
    """A program under test.

    Attributes:
        calls: Calls until all of it replays.
        opt: Its optimizer, if it trains.
    """

    calls: ClassVar[int] = 4

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.register_buffer("total", torch.zeros(4))
        self.opt: torch.optim.Optimizer | None = None

    def prepare(self) -> None:
        """After the module has come to its device."""
        self.requires_grad_(False)

    def parts(self) -> list[Callable[..., Any]]:
        """What to graph."""
        return [self]

    def drive(self, parts: list[Callable[..., Any]], x: torch.Tensor) -> Any:
        """One call of the whole."""
        return parts[0](x)


class Dropout(Program):
    """Random numbers, a buffer and the argument written in place."""

    def forward(self, x: torch.Tensor) -> Any:
        self.total.add_(x.mean(0))
        y = F.dropout(self.lin(x), 0.5)
        x.mul_(2)
        return y + self.total, torch.rand_like(x)


class Training(Program):
    """A whole training step."""

    def prepare(self) -> None:
        self.opt = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

    def forward(self, x: torch.Tensor) -> Any:
        assert self.opt is not None
        self.opt.zero_grad()
        loss = F.dropout(F.gelu(self.lin(x)), 0.2).pow(2).mean()
        loss.backward()
        self.opt.step()
        return loss.detach()


class Islands(Program):
    """Host reads, and shapes that depend on data."""

    def forward(self, x: torch.Tensor) -> Any:
        y = self.lin(x)
        self.total.add_(1)
        y = y + 1 if x.sum() > 0 else y - 1
        self.total.add_(torch.rand_like(self.total))
        found = y[y > 0.5]
        return found.sum() + y * round(x[0, 0].item() > 0)


class Shared(Program):
    """Results that share memory, and random ones."""

    def forward(self, x: torch.Tensor) -> Any:
        self.total.add_(x.mean(0))
        y = self.lin(x)
        return y, y[0], torch.rand_like(y)


class Chained(Program):
    """One graphed callable feeds another."""

    def parts(self) -> list[Callable[..., Any]]:
        return [self.first, self.second]

    def first(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(1)
        return F.dropout(self.lin(x), 0.5)

    def second(self, y: torch.Tensor) -> torch.Tensor:
        return y.add_(self.total).tanh()

    def drive(self, parts: list[Callable[..., Any]], x: torch.Tensor) -> Any:
        return parts[1](parts[0](x))


class Backward(Program):
    """Forward in the graphed callable, backward outside."""

    calls: ClassVar[int] = 7

    def prepare(self) -> None:
        """Its parameters get gradients."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(1)
        return F.dropout(F.gelu(self.lin(x)), 0.2)

    def drive(self, parts: list[Callable[..., Any]], x: torch.Tensor) -> Any:
        self.zero_grad()
        y = parts[0](x)
        y.pow(2).mean().backward()
        return y.detach()


PROGRAMS = [Dropout, Training, Islands, Shared, Chained, Backward]


def make(kind: type[Program], device: torch.device) -> Program:
    """A program on a device; two of one kind are equal."""
    seed(3)
    program = kind().to(device)
    program.prepare()
    return program


def state(program: Program) -> dict[str, torch.Tensor | None]:
    """Copies of everything that outlives a call."""
    found: dict[str, torch.Tensor | None] = dict(program.state_dict())
    for name, parameter in program.named_parameters():
        found[f"{name}.grad"] = parameter.grad
        for key, value in program.opt.state[parameter].items() if program.opt is not None else ():
            found[f"{name}.{key}"] = value
    return {name: None if value is None else value.detach().clone() for name, value in found.items()}


def adopt(program: Program, other: Program) -> None:
    """Bring a program into the state of another one."""
    program.load_state_dict(other.state_dict())
    for mine, theirs in zip(program.parameters(), other.parameters(), strict=True):
        mine.grad = None if theirs.grad is None else theirs.grad.clone()
    if program.opt is not None and other.opt is not None:
        program.opt.load_state_dict(copy.deepcopy(other.opt.state_dict()))


class Prefixes(TorchDispatchMode):
    """Collects what a look around each operation of a plain call sees: the states of its prefixes."""

    def __init__(self, look: Callable[[], Any]) -> None:
        super().__init__()
        self._look = look
        self.states: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.states.append(self._look())
        out = func(*args, **(kwargs or {}))
        self.states.append(self._look())
        return out
