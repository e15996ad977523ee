"""Where a target lives and in which precision."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch


class Place(NamedTuple):
    """A device, and the type of the weights."""

    device: torch.device
    dtype: torch.dtype

    def randn(self, *shape: int) -> torch.Tensor:
        """Normal random numbers of this place; the same on every device."""
        return torch.randn(*shape).to(self.device, self.dtype)


def place(device: str | None, small: bool, dtype: torch.dtype = torch.bfloat16) -> Place:
    """The GPU if there is one, else the CPU; full size has the given type, small size single precision.

    The generators are seeded, so that every build makes the same weights and arguments.

    Args:
        device: Asked for; None for the best there is.
        small: Whether the small size is built.
        dtype: Of the full size.
    """
    torch.manual_seed(0)
    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return Place(torch.device(chosen), torch.float32 if small else dtype)


def frozen(model: Any, at: Place) -> Any:
    """A model for inference at a place."""
    return model.to(at.device, at.dtype).eval().requires_grad_(False)
