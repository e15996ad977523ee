"""The private parts of torch that the quantization uses. Seen in 2.11 and 2.13."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


def tensor_core_product(a: Tensor, b: Tensor) -> Tensor:
    """``a b^T`` of int8 matrices on a GPU, exactly, in int32.

    cuBLAS takes at least 17 rows and multiples of 8; smaller matrices are padded.
    """
    rows, out = a.shape[0], b.shape[0]
    depth = -a.shape[1] % 8
    a = torch.nn.functional.pad(a, (0, depth, 0, max(24 - rows, -rows % 8)))
    b = torch.nn.functional.pad(b, (0, depth, 0, -out % 8))
    return torch._int_mm(a, b.T)[:rows, :out]  # pyright: ignore[reportPrivateImportUsage]


def uncompiled() -> AbstractContextManager[Any]:
    """Inside, compiled code runs as it was written, and sees hooks that came later."""
    if "torch._dynamo" not in sys.modules:  # nothing is compiled yet, and the import takes seconds
        return nullcontext()
    return torch.compiler.set_stance("force_eager")


class Operations(TorchDispatchMode):
    """A mode that gets every operation of ATen, and higher-order ones.

    Under :func:`uncompiled` no compiled code has to give way to it; with ``fullgraph=True`` that would be an
    error (2.13).
    """

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Asked when the mode is entered."""
        return "torch._dynamo" in sys.modules


def is_wrapper(kind: type[Any]) -> bool:
    """Whether tensors of a class dispatch operations themselves, as wrappers of other tensors do."""
    return cast(Any, kind).__torch_dispatch__ is not cast(Any, Tensor).__torch_dispatch__


def is_view(operation: Any) -> bool:
    """Whether an operation of ATen returns memory of its first argument and writes nothing."""
    schema = operation._schema
    if schema.name == "aten::_unsafe_view":  # it is one, and does not say so
        return True
    alias = schema.arguments[0].alias_info if schema.arguments else None
    return alias is not None and not schema.is_mutable
