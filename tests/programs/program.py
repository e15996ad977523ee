"""What a program is: a callable as people write it, made for a device, with its inputs and its state."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


@dataclass(frozen=True)
class Made:
    """A program that was made for a device.

    Attributes:
        call: What is graphed.
        inputs: Makes the arguments of the next call.
        state: What else is compared after each call: modules by their parameters, buffers and gradients,
            optimizers by what they keep, functions by what they give, anything else as it is.
    """

    call: Callable[..., Any]
    inputs: Callable[[], tuple[Any, ...]] = field(default=tuple)
    state: Sequence[Any] = ()


Make = Callable[[torch.device], Made]


@dataclass(frozen=True)
class Program:
    """One program.

    Attributes:
        make: Makes it for a device; the first line of its docstring says what it is.
        replays: Whether recordings answer a third of its late calls; None where both are right.
        code: The reason that a report has to give where it stays eager.
        on_gpu: The same as ``replays`` on a GPU, where it is not the same there.
        gpu_alone: It needs a GPU.
        needs: Packages that need not be there.
        tolerance: How far results may differ on a GPU, where its kernels add in any order.
    """

    make: Make
    replays: bool | None = True
    code: str = ""
    on_gpu: bool | None = None
    gpu_alone: bool = False
    needs: tuple[str, ...] = ()
    tolerance: float = 0.0

    @property
    def label(self) -> str:
        """Its file and its name."""
        return f"{self.make.__module__.rpartition('.')[2]}-{self.make.__name__}"

    @property
    def title(self) -> str:
        """What it is, in a sentence."""
        return (inspect.getdoc(self.make) or "").partition("\n")[0]


def program(
    *,
    replays: bool | None = True,
    code: str = "",
    on_gpu: bool | None = None,
    gpu_alone: bool = False,
    needs: tuple[str, ...] = (),
    tolerance: float = 0.0,
) -> Callable[[Make], Program]:
    """Make a function a :class:`Program`."""
    return lambda make: Program(make, replays, code, on_gpu, gpu_alone, needs, tolerance)


def normal(device: torch.device, *shape: int) -> Tensor:
    """Normal numbers; eight rows of 64 unless told."""
    return torch.randn(*(shape or (8, 64)), device=device)


def batches(device: torch.device, *shapes: tuple[int, ...]) -> Callable[[], tuple[Tensor, ...]]:
    """Inputs of normal numbers, one tensor for each shape; one of eight rows unless told."""
    return lambda: tuple(normal(device, *shape) for shape in shapes or ((8, 64),))


def mlp(device: torch.device, width: int = 64, depth: int = 3) -> nn.Sequential:
    """Layers of one width, with GELU behind each."""
    pairs = [(nn.Linear(width, width), nn.GELU()) for _ in range(depth)]
    return nn.Sequential(*[module for pair in pairs for module in pair]).to(device)


def frozen(module: Callable[..., Any]) -> Callable[..., Any]:
    """A module or function without gradients."""
    return torch.no_grad()(lambda *args: module(*args))


def mean_square(x: Tensor) -> Tensor:
    """A loss."""
    return x.square().mean()


def step_of(
    loss_of: Callable[..., Tensor], *optimizers: Optimizer, between: Callable[[], object] = lambda: None
) -> Callable[..., Tensor]:
    """A whole training step.

    Args:
        loss_of: The loss of a batch.
        *optimizers: What steps.
        between: Called between backward and step.
    """

    def step(*args: Any) -> Tensor:
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = loss_of(*args)
        loss.backward()
        between()
        for optimizer in optimizers:
            optimizer.step()
        return loss.detach()

    return step


def trained(
    module: nn.Module,
    inputs: Callable[[], tuple[Any, ...]],
    loss_of: Callable[..., Tensor],
    optimizer: Optimizer | None = None,
) -> Made:
    """A module in whole training steps; by AdamW unless told."""
    chosen = optimizer or torch.optim.AdamW(module.parameters(), lr=1e-3)
    return Made(step_of(loss_of, chosen), inputs, (module, chosen))


def seen(part: Any) -> Any:
    """What is compared of a part of the state.

    Gradients that lie beside each other in one memory, as cuDNN makes them, have their own after a replay.
    """
    if isinstance(part, nn.Module):
        named = dict(part.named_parameters())
        found = {name: parameter.grad for name, parameter in named.items()}
        gradients = {name: None if grad is None else grad.clone() for name, grad in found.items()}
        return named, dict(part.named_buffers()), gradients
    if inspect.isfunction(part):
        return part()
    if isinstance(part, Optimizer):
        members = [parameter for group in part.param_groups for parameter in group["params"]]
        return [dict(part.state.get(member, {})) for member in members], [g["lr"] for g in part.param_groups]
    return part
