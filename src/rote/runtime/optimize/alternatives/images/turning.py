"""Matrices turned: their rows are columns afterwards, at the speed of the memory.

PyTorch copies a transposed matrix number by number, as a layer norm does that is given one. cuDNN turns
images and filters of 16 bits with kernels of its own, and those for filters take several times as long as
their memory does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ....backends.protocol import ALIGNMENT, NAMES_OF_TYPES
from ....compiling import KernelSource, Programs
from ..offered import (
    OLDEST,
    Alternative,
    AlternativeRun,
    KernelParameter,
    Operands,
    memory_for,
    properties_of,
    triton_kernel,
)

FILE = "images/images_jit.py"
_NAME = "turned"
_TYPES = (torch.bfloat16, torch.float16, torch.float32)
_SMALLEST, _MOST_OFFSET = 16, 1 << 31
_NARROW = 16
"""Columns up to which a block has few of them, and many rows."""
_LEAST_COPIED = 1 << 14
"""Numbers of a copy; a smaller one takes no longer than a launch."""


@dataclass(frozen=True)
class MatrixTurn:
    """Some matrices, one behind the other, that are turned.

    Attributes:
        rows: Of each of them, as they lie before.
        aligned: Whether what is read begins at a multiple of 16 bytes.
        biased: A number is added to each column.
        capability: Compute capability of the GPU, such as 90.
    """

    matrices: int
    rows: int
    columns: int
    dtype: torch.dtype
    aligned: bool
    capability: int
    biased: bool = False

    @classmethod
    def of(cls, x: torch.Tensor, rows: int, columns: int, *, biased: bool = False) -> MatrixTurn:
        """The turn of all that lies in a tensor's memory."""
        matrices, aligned = x.numel() // (rows * columns), x.data_ptr() % ALIGNMENT == 0
        capability = properties_of(x.device.index).capability
        return cls(matrices, rows, columns, x.dtype, aligned, capability, biased)

    @property
    def source(self) -> KernelSource:
        """The kernel."""
        high, wide = (256, _NARROW) if self.columns <= _NARROW else (64, 64)
        bias, kind = "bias" if self.biased else "x", NAMES_OF_TYPES[self.dtype]
        constants = f"ROWS={self.rows}, COLUMNS={self.columns}, BM={high}, BN={wide}, BIASED={self.biased}"
        given = [KernelParameter("x", kind, self.aligned)]
        given += [KernelParameter("bias", kind)] if self.biased else []
        blocks = -(-self.rows // high) * -(-self.columns // wide)
        return triton_kernel(
            _NAME, FILE, [f"turn(x, {bias}, out, {constants})"], [*given, KernelParameter("out", kind)],
            Programs(self.matrices * blocks, 4), self.capability,
        )  # fmt: skip

    def run(
        self,
        run: AlternativeRun,
        x: torch.Tensor,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Launch it, into memory that is made for it and has this shape."""
        out = memory_for(run, x, shape, strides, x.dtype)
        run.launch(self.source, [x] if bias is None else [x, bias], [out])
        return out


# ---------------------------------------------------------------------- layer norms


def _fits(x: torch.Tensor, shape: Sequence[int], *_: Any) -> bool:
    """Whether the operator copies a transposed matrix that is large enough."""
    if not x.is_cuda or x.dtype not in _TYPES or not _LEAST_COPIED <= x.numel() < _MOST_OFFSET:
        return False
    old = properties_of(x.device.index).capability < OLDEST
    return not old and len(shape) == 1 and _turned(x) is not None


def _turned(x: torch.Tensor) -> tuple[int, int] | None:
    """Rows and columns of the matrices in memory, of which a tensor has the transposed ones; None if not."""
    found = list[tuple[int, int]]()
    for size, step in zip(x.shape, x.stride(), strict=True):
        if size == 1:
            continue
        if found and found[-1][1] == size * step:
            found[-1] = (found[-1][0] * size, step)
        else:
            found.append((size, step))
    if len(found) not in (2, 3):
        return None
    (columns, beside), (rows, below) = found[-2:]
    whole = len(found) == 2 or found[0][1] == rows * columns
    lies = whole and beside == 1 and below == columns
    return (rows, columns) if lies and min(rows, columns) >= _SMALLEST else None


def _known(x: torch.Tensor) -> MatrixTurn:
    sizes = _turned(x)
    assert sizes is not None, "it was asked whether it fits"
    return MatrixTurn.of(x, *sizes)


def _calculate(run: AlternativeRun, x: torch.Tensor, *others: Any) -> torch.Tensor:
    strides = torch.empty(x.shape, device="meta").stride()
    flat = _known(x).run(run, x, tuple(x.shape), strides)
    return run(torch.ops.aten.native_layer_norm.default, (flat, *others), {})[0]


def _nothing_rounds(*_: Any) -> Iterator[Operands]:
    """Hostile operands are enough: the operator itself calculates, of the same numbers."""
    return iter(())


TURNED = (
    Alternative(
        operator="aten::native_layer_norm",
        name="layer norm of a turned matrix",
        fits=_fits,
        calculate=_calculate,
        kernels=lambda x, *_: [_known(x).source],
        proof=_nothing_rounds,
        also_near=True,
        on_host=False,
    ),
)
