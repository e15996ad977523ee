"""What a layer calls: operators of torch, each with a CUDA, a CPU and a fake implementation.

They are registered by ``Library.define``, which costs a call a third of what ``custom_op`` does. Each
allocates what it returns and what it works in, writes nothing else, reads nothing back to the host, and can
be captured into a graph once its kernels are compiled (see ``warmup``). ``rote_quant::linear`` is a layer's
whole work, ``rote_quant::linears`` that of some layers with the same input, in as many launches; both have a
gradient (see :mod:`~..layer.gradients`), which costs each call as much as half a launch even where none is
wanted, so ``linear_forward`` and ``linears_forward`` are the same without one. The parts are there for tests
and measurements.

``linear`` is one operator and not two also because its first kernel writes the zeros that its second one adds
to. What the kernels do not do is done by torch inside of it: scales for groups of columns, which leave no
single integer sum; rows that are too wide for a program; large rotations; and float32 inputs that are not
quantized. On a CPU everything is torch, with the same integers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..numerics import Quantized, arithmetic
from .by_torch import (
    linear_torch,
    linears_torch,
    product_torch,
    quantize_torch,
    rounded_apart_torch,
    rounded_torch,
    transform_torch,
)
from .by_triton import (
    linear_triton,
    linears_triton,
    product_triton,
    quantize_triton,
    rounded_apart_triton,
    rounded_triton,
    transform_triton,
)

NAMESPACE = "rote_quant"
TRANSFORM = "Tensor? smooth, Tensor[] stages, int width"
GRID = "int act_bits, bool act_symmetric, float act_clip, Tensor? act_scale, Tensor? act_zero"
WEIGHT = "Tensor codes, Tensor w_scale, Tensor? w_zero, Tensor w_sum"
OUTPUT = "Tensor? row_rotation, Tensor? bias, int features"
LAYER = f"{TRANSFORM}, {GRID}, {WEIGHT}, {OUTPUT}"
GROUP = (
    f"{TRANSFORM}, {GRID.replace('Tensor? act_scale', 'Tensor[] act_scale')}, Tensor[] codes, "
    "Tensor[] w_scale, Tensor[] w_zero, Tensor[] w_sum, Tensor[] row_rotation, Tensor[] bias, int[] features"
)
"""Of layers with the same input; what they do not have are empty lists. With a static scale for each layer,
each has its own stages, too, which follow each other in the list; otherwise they share all stages."""

library = torch.library.Library(NAMESPACE, "DEF")
library.define(f"transform_rows(Tensor x, {TRANSFORM}, ScalarType dtype) -> Tensor")
library.define(f"quantize_rows(Tensor x, {TRANSFORM}, {GRID}) -> (Tensor, Tensor, Tensor, Tensor)")
library.define(
    f"product(Tensor x, Tensor scale, Tensor zero, Tensor total, {WEIGHT}, Tensor? bias, ScalarType dtype) "
    "-> Tensor"
)
library.define(f"linear(Tensor x, {LAYER}) -> Tensor")
library.define(f"linear_forward(Tensor x, {LAYER}) -> Tensor")
library.define(f"rounded_rows(Tensor x, {TRANSFORM}, {GRID}) -> Tensor")
library.define(f"linears(Tensor x, {GROUP}) -> Tensor[]")
library.define(f"linears_forward(Tensor x, {GROUP}) -> Tensor[]")
library.define(
    "rounded_apart(Tensor x, Tensor[] stages, int width, int act_bits, bool act_symmetric, "
    "Tensor[] act_scale) -> Tensor"
)


def _fake_transform(x: Tensor, smooth: Any, stages: Any, width: int, dtype: torch.dtype) -> Tensor:
    return x.new_empty(x.numel() // x.shape[-1], width, dtype=dtype)


def _fake_quantize(
    x: Tensor, smooth: Any, stages: Any, width: int, bits: int, symmetric: bool, clip: float, scale: Any,
    zero: Any,
) -> Quantized:  # fmt: skip
    tokens = x.numel() // x.shape[-1]
    zeros = tokens if arithmetic.has_zero(symmetric, scale) else 0
    return (
        x.new_empty(tokens, width, dtype=torch.int8),
        x.new_empty(tokens, dtype=torch.float32),
        x.new_empty(zeros, dtype=torch.int32),
        x.new_empty(tokens, dtype=torch.int32),
    )


def _fake_rounded(x: Tensor, smooth: Any, stages: Any, width: int, *grid: Any) -> Tensor:
    return x.new_empty(x.numel() // x.shape[-1], width)


def _fake_product(x: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(x.shape[0], rest[4].shape[0], dtype=rest[-1])


def _fake_linear(x: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(*x.shape[:-1], rest[-1])


def _fake_linears(x: Tensor, *rest: Any) -> list[Tensor]:
    return [x.new_empty(*x.shape[:-1], features) for features in rest[-1]]


def _fake_apart(x: Tensor, stages: Any, width: int, bits: int, symmetric: bool, scales: Any) -> Tensor:
    return x.new_empty(len(scales), x.numel() // x.shape[-1], width)


for _name, _torch, _triton, _fake in (
    ("transform_rows", transform_torch, transform_triton, _fake_transform),
    ("quantize_rows", quantize_torch, quantize_triton, _fake_quantize),
    ("rounded_rows", rounded_torch, rounded_triton, _fake_rounded),
    ("product", product_torch, product_triton, _fake_product),
    ("linear", linear_torch, linear_triton, _fake_linear),
    ("linear_forward", linear_torch, linear_triton, _fake_linear),
    ("linears", linears_torch, linears_triton, _fake_linears),
    ("linears_forward", linears_torch, linears_triton, _fake_linears),
    ("rounded_apart", rounded_apart_torch, rounded_apart_triton, _fake_apart),
):
    library.impl(_name, _torch, "CPU")
    library.impl(_name, _triton, "CUDA")
    torch.library.register_fake(f"{NAMESPACE}::{_name}", _fake, lib=library)
