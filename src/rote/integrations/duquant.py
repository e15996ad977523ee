"""Quantized layers in recordings: other ways to calculate them, for the runtime to choose among."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ..api import Alternative, register_alternative
from ..quant import linear_by_torch

_FEWEST_ROWS = 64
"""Rows from which on integer products of cuBLAS may be faster than a kernel that unpacks weights itself."""


@functools.cache
def offer_alternatives() -> None:
    """Offer PyTorch's operators for whole W4A8 layers, with ``numerics="probed"`` and ``numerics="near"``.

    Integers are added without rounding, so their bits are those of the kernels. With many rows they may be
    faster on a GPU: weights are unpacked in a launch of their own, and the product is cuBLAS's. To be called
    before calls are recorded; once is enough.
    """
    for operator in ("linear", "linear_forward"):
        register_alternative(
            Alternative(
                operator=f"rote_quant::{operator}",
                name="integer products by PyTorch",
                fits=_fits,
                calculate=lambda run, *operands: linear_by_torch(*operands),
                exact=linear_by_torch,
            )
        )


def _fits(
    x: Tensor, smooth: Tensor | None, stages: Sequence[Tensor], width: int, act_bits: int, *rest: Any
) -> bool:
    """Whether activations are quantized, and there are enough of them."""
    del smooth, stages, rest
    rows = x.numel() // max(x.shape[-1], 1)
    return act_bits <= 8 and width > 0 and (not x.is_cuda or rows >= _FEWEST_ROWS)
