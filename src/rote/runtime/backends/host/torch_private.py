# pyright: reportPrivateUsage=false
"""The only place of the backend that touches private parts of PyTorch. Each was seen in torch 2.11 and 2.13.

What doesn't work: ``torch.no_grad()`` in the place of :data:`below_autograd` (some CPU kernels, oneDNN's LSTM
for one, choose their arithmetic by grad mode, so it has to stay as it was at capture), and calling the
overload *packet* instead of the overload (overload resolution by exceptions costs milliseconds).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch._ops import OpOverload as OpOverload

Call = Callable[..., Any]

inference_guard: Callable[[bool], AbstractContextManager[Any]] = torch._C._InferenceMode
"""Inference mode on or off; restores inference and grad mode."""

grad_setter: Callable[[bool], object] = torch._C._set_grad_enabled
"""Sets grad mode and leaves it set."""

mode_counters: tuple[Callable[[], int], Callable[[], int]] = (
    torch._C._len_torch_function_stack,
    torch._C._len_torch_dispatch_stack,
)
"""How many function modes and how many dispatch modes are active, in 0.1 us."""


def is_replaced(name: str) -> bool:
    """Whether somebody registered another CPU kernel for an overload."""
    return "CPU (inactive)" in torch._C._dispatch_dump(name)


def fills_memory() -> bool:
    """Whether ``empty`` returns defined values, as in deterministic mode."""
    settings: Any = torch.utils.deterministic
    return torch.are_deterministic_algorithms_enabled() and bool(settings.fill_uninitialized_memory)
