"""What the quantization uses of torch that is not public. Seen in 2.11 and 2.13."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

_PRODUCT: Callable[[Tensor, Tensor], Tensor] | None = getattr(torch, "_int_mm", None)
"""int8 times int8 to int32 on the tensor cores."""


def tensor_core_product(a: Tensor, b: Tensor) -> Tensor:
    """``a b^T`` of int8 matrices on a GPU, exactly, in int32.

    At least 17 rows and multiples of 8 are what cuBLAS takes; smaller matrices are padded. Without the
    private function the sums go through float64, which is exact and slow.
    """
    if _PRODUCT is None:
        return (a.double() @ b.double().T).to(torch.int32)
    rows, out = a.shape[0], b.shape[0]
    depth = -a.shape[1] % 8
    a = torch.nn.functional.pad(a, (0, depth, 0, max(24 - rows, -rows % 8)))
    b = torch.nn.functional.pad(b, (0, depth, 0, -out % 8))
    return _PRODUCT(a, b.T)[:rows, :out]


def uncompiled() -> AbstractContextManager[Any]:
    """Inside, what ``torch.compile`` made runs as it was written, and sees hooks that came later."""
    if "torch._dynamo" not in sys.modules:  # nothing is compiled yet, and the import takes seconds
        return nullcontext()
    return torch.compiler.set_stance("force_eager")
