"""Other people's quantized linear layers, where they are installed.

None of them transforms its input. Each is made from the same weight and has several copies of it, to go
round.
"""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

GROUP = 128


def makers() -> dict[str, Callable[[Tensor], Any]]:
    """How to make a layer of each peer from a bf16 weight."""
    found: dict[str, Callable[[Tensor], Any]] = {}
    if importlib.util.find_spec("gemlite"):
        found["GemLite A8W4 (int8, dynamic)"] = lambda weight: _gemlite(weight, True)
        found["GemLite A16W4"] = lambda weight: _gemlite(weight, False)
    if importlib.util.find_spec("torchao"):
        found["torchao int8 dynamic, compiled"] = _torchao
    if importlib.util.find_spec("humming"):
        found["Humming W4A8 (int8, dynamic)"] = _humming
    return found


def copies(layer: Any, count: int) -> list[Any]:
    """The layer and equal ones, each with memory of its own."""
    return [layer, *(copy.deepcopy(layer) for _ in range(count - 1))]


def _gemlite(weight: Tensor, integer: bool) -> Any:
    from gemlite import helper

    codes, scale, zero = _grouped(weight)
    if integer:
        make = helper.A8Wn_HQQ_INT_dynamic(device="cuda:0", dtype=torch.bfloat16, fp8=torch.int8, W_nbits=4)
    else:
        make = helper.A16W4_HQQ_INT(device="cuda:0", dtype=torch.bfloat16)
    return make.from_weights(codes, scale, zero)


def _grouped(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """uint8 codes 0 to 15, and scales and zero points of groups of columns.

    With int8 activations GemLite takes whole zero points only, by their mean in bfloat16: 8 is one.
    """
    n, k = weight.shape
    parts = weight.float().reshape(-1, GROUP)
    scale = (parts.abs().amax(1, keepdim=True) / 7).clamp(min=1e-9)
    codes = ((parts / scale).round().clamp(-8, 7) + 8).to(torch.uint8).reshape(n, k)
    return codes, scale.reshape(n, -1).bfloat16(), torch.full_like(scale, 8).reshape(n, -1).bfloat16()


def _torchao(weight: Tensor) -> Any:
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=torch.bfloat16, device="cuda")
    layer.weight = torch.nn.Parameter(weight.clone(), requires_grad=False)
    quantize_(layer, Int8DynamicActivationInt8WeightConfig())
    return torch.compile(layer, dynamic=False)


def _humming(weight: Tensor) -> Any:
    """It compiles its kernels by NVRTC, and needs the headers of a CUDA toolkit for that."""
    from humming.layer import HummingLayer

    n, k = weight.shape
    kinds = {"weight_config": {"dtype": "int4"}, "input_config": {"dtype": "int8"}}
    layer = HummingLayer(shape_n=n, shape_k=k, torch_dtype=torch.bfloat16, **kinds).cuda()
    layer.load_from_unquantized(weight)
    layer.transform()
    return layer
