"""Host data that become tensors, as operands."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from ...numbers import Computed
from .operands import Operand


class HostValues(NamedTuple):
    """Plain values of Python's, usually in lists, of which a function makes a tensor.

    Attributes:
        options: The function's other arguments: by position, and by name as text.
        device: Type of its device.
    """

    values: Operand
    options: tuple[Operand, ...]
    dtype: torch.dtype
    device: str


class HostBytes(NamedTuple):
    """Memory of the host, with its content when it became a tensor.

    Attributes:
        source: Type of the members, as numpy writes it, or as PyTorch does.
        content: The bytes, in order; or the array that replays compute.
        device: Type of its device; None for that of the memory.
    """

    shape: tuple[int, ...]
    source: Any
    content: bytes | Computed
    dtype: torch.dtype
    device: str | None = None


def content_of(tensor: torch.Tensor) -> HostBytes:
    """What a tensor holds."""
    content = tensor.detach()
    if content.device.type != "cpu":
        content = content.cpu()
    flat = torch.empty(content.shape, dtype=content.dtype).copy_(content).view(-1).view(torch.uint8)
    return HostBytes(tuple(tensor.shape), tensor.dtype, flat.numpy().tobytes(), tensor.dtype)
