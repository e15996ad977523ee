# pyright: reportPrivateUsage=false
"""Private names of PyTorch that the host's sessions use, seen in 2.11 and 2.13.

A missing one falls back to something public that is slower, but never gives other numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch._ops import OpOverload as OpOverload

Call = Callable[..., Any]

in_inference: Callable[[bool], AbstractContextManager[Any]] = getattr(
    torch._C, "_InferenceMode", torch.inference_mode
)
"""Inference mode on or off; restores inference and grad mode."""

set_grad: Callable[[bool], object] = getattr(torch._C, "_set_grad_enabled", torch.set_grad_enabled)
"""Sets grad mode and leaves it set."""

_kernels: Callable[[str], str] = getattr(torch._C, "_dispatch_dump", lambda name: "CPU (inactive)")


def is_replaced(name: str) -> bool:
    """Whether somebody registered another CPU kernel for an overload.

    Without the probe all count as replaced: every result is then computed and copied.
    """
    return "CPU (inactive)" in _kernels(name)


def fills_memory() -> bool:
    """Whether ``empty`` returns defined values, as in deterministic mode."""
    settings: Any = torch.utils.deterministic
    return torch.are_deterministic_algorithms_enabled() and bool(
        getattr(settings, "fill_uninitialized_memory", False)
    )
