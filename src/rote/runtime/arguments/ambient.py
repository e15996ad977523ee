"""State around a call that is no argument and yet decides what the call computes."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, NamedTuple

import torch

from ..pytorch import default_device, is_capturing
from .switches import read_switches

tracing: ContextVar[bool] = ContextVar("rote_tracing", default=False)
"""Whether a call is being traced in this context; wrappers called inside are plain then."""


_NAMES = ("grad mode", "inference mode", "default dtype", "autocast", "current device", "default device",
          "anomaly detection", "backend switches")  # fmt: skip


class Ambient(NamedTuple):
    """The state; of autocast for each kind of device whether it is on, and then its type."""

    grad: bool
    inference: bool
    dtype: torch.dtype
    autocast: tuple[tuple[Any, ...], ...]
    device: int
    default_device: Any
    anomaly: bool
    switches: tuple[Any, ...]


def is_captured() -> bool:
    """Whether somebody captures the current stream, so that a call becomes part of their graph."""
    return torch.cuda.is_initialized() and is_capturing()


def read_ambient() -> Ambient:
    """Read grad mode, autocast, default dtype, current device and the backend switches."""
    cuda = torch.cuda.is_initialized()
    return Ambient(
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        (_autocast("cpu"), _autocast("cuda")) if cuda else (_autocast("cpu"),),
        torch.cuda.current_device() if cuda else -1,
        default_device(),
        torch.is_anomaly_enabled(),
        read_switches(),
    )


def _autocast(kind: str) -> tuple[Any, ...]:
    if not torch.is_autocast_enabled(kind):
        return (False,)
    return (True, torch.get_autocast_dtype(kind))


def explain_ambient(was: Ambient, now: Ambient) -> str | None:
    """Say which part of the ambient state differs, or None."""
    parts: Any = zip(_NAMES, was, now, strict=True)
    for name, before, after in parts:
        if before != after:
            if name == "autocast":
                before, after = sum(before, ()), sum(after, ())
            return f"{name} was {before} and is {after}"
    return None
