"""What a layer calls: operators of torch, each with a CUDA, a CPU and a fake implementation.

``Library.define`` registers them, at a third of the cost of ``custom_op`` for each call. Each allocates its
results and workspace, writes nothing else, reads nothing back to the host, and can be captured into a graph
once its kernels are compiled (see ``warmup``). ``rote_quant::linear`` is a layer's whole work, and
``rote_quant::linears`` that of several layers with the same input, in as many launches. Both have a gradient
(see :mod:`~..layer.gradients`), which costs half a launch for each call even where none is wanted, so
``linear_forward`` and ``linears_forward`` are the same without one. ``transform_rows``, ``quantize_rows`` and
``product`` are the parts, for tests and measurements.

``linear`` is one operator because its first kernel writes the zeros that its second one adds to. Inside it
torch does what the kernels do not: scales for groups of columns, which leave no single integer sum; rows too
wide for a program; large rotations; and float32 inputs that are not quantized. On a CPU torch does
everything, with the same integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import by_torch, by_triton
from .target import quantizing

NAMESPACE = "rote_quant"
library = torch.library.Library(NAMESPACE, "DEF")
TRANSFORM = "Tensor? smooth, Tensor[] stages, int width"
GRID = "int act_bits, bool act_symmetric, float act_clip, Tensor? act_scale, Tensor? act_zero"
WEIGHT = "Tensor codes, Tensor w_scale, Tensor? w_zero, Tensor w_sum"
OUTPUT = "Tensor? row_rotation, Tensor? bias, int features"
LAYER = f"{TRANSFORM}, {GRID}, {WEIGHT}, {OUTPUT}"
GROUP = (
    f"{TRANSFORM}, {GRID.replace('Tensor? act_scale', 'Tensor[] act_scale')}, Tensor[] codes, "
    "Tensor[] w_scale, Tensor[] w_zero, Tensor[] w_sum, Tensor[] row_rotation, Tensor[] bias, int[] features"
)
"""Of layers with the same input; an empty list stands for what none has. Layers with a static scale each have
their own stages, one layer's behind the other's in the list; others share all stages."""


def register(name: str, schema: str, cpu: Callable[..., Any], cuda: Callable[..., Any], fake: Any) -> None:
    """Define an operator with its implementations."""
    library.define(f"{name}{schema}", tags=(torch.Tag.pt2_compliant_tag,))
    library.impl(name, cpu, "CPU")
    library.impl(name, cuda, "CUDA")
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=library)


def _rows(x: Tensor, width: int, dtype: torch.dtype | None = None) -> Tensor:
    return x.new_empty(x.numel() // x.shape[-1], width, dtype=dtype)


_EACH = "Tensor[] stages, int width, int act_bits, bool act_symmetric, Tensor[] act_scale"
_CODES = "Tensor x, Tensor scale, Tensor zero, Tensor total"
_OPERATORS: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    ("linear", f"(Tensor x, {LAYER}) -> Tensor", lambda x, *rest: x.new_empty(*x.shape[:-1], rest[-1])),
    (
        "linears", f"(Tensor x, {GROUP}) -> Tensor[]",
        lambda x, *rest: [x.new_empty(*x.shape[:-1], features) for features in rest[-1]],
    ),
    (
        "transform_rows", f"(Tensor x, {TRANSFORM}, ScalarType dtype) -> Tensor",
        lambda x, smooth, stages, width, dtype: _rows(x, width, dtype),
    ),
    (
        "quantize_rows", f"(Tensor x, {TRANSFORM}, {GRID}) -> (Tensor, Tensor, Tensor, Tensor)",
        lambda x, smooth, stages, width, *grid: quantizing(_rows(x, width), width, *grid).quantized,
    ),
    (
        "rounded_rows", f"(Tensor x, {TRANSFORM}, {GRID}) -> Tensor",
        lambda x, smooth, stages, width, *grid: _rows(x, width),
    ),
    (
        "rounded_apart", f"(Tensor x, {_EACH}) -> Tensor",
        lambda x, stages, width, bits, symmetric, scales: x.new_empty(len(scales), *_rows(x, width).shape),
    ),
    (
        "product", f"({_CODES}, {WEIGHT}, Tensor? bias, ScalarType dtype) -> Tensor",
        lambda x, *rest: x.new_empty(x.shape[0], rest[4].shape[0], dtype=rest[-1]),
    ),
)  # fmt: skip
"""Name, schema and fake implementation; the others have that name in ``by_torch`` and ``by_triton``."""

for _name, _schema, _fake in _OPERATORS:
    for _ending in ("", "_forward") if _name in ("linear", "linears") else ("",):
        _places = getattr(by_torch, _name), getattr(by_triton, _name)
        register(f"{_name}{_ending}", _schema, *_places, _fake)
