"""How code that PyTorch compiles allocates."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch


def empty_maker(tensor: torch.Tensor) -> partial[torch.Tensor]:
    """A function that makes a tensor of the shape, strides and type of another, on the current device.

    It is what code of ``torch.compile`` allocates with: on the current device and stream, in half the time of
    ``torch.empty_like``, and never filled. Seen in torch 2.11 and 2.13.
    """
    compiler: Any = torch._C._dynamo  # pyright: ignore[reportAttributeAccessIssue]
    return partial(
        compiler.guards._empty_strided_cuda, tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype
    )
