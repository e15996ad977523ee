"""The integer path and the kernels' operators give the same bits; how buffers of one become the other's."""

from __future__ import annotations

from itertools import zip_longest

import pytest
import torch

from rote.quant import DuQuantConfig, DuQuantLinear, kernels
from rote.quant.arithmetic import restore_rows
from rote.quant.build import build_layer
from rote.quant.grid import Grid
from rote.quant.packing import unpack

CONFIGS = {
    "default": DuQuantConfig(block_size=16, rotation_steps=4),
    "clipped": DuQuantConfig(block_size=16, rotation_steps=4, act_clip=0.9, act_symmetric=True),
    "three rotations": DuQuantConfig(
        block_size=16, permutation_rounds=2, rotation_steps=2, smooth_alpha=None
    ),
    "per block": DuQuantConfig(block_size=16, shared_rotation=False, rotation_steps=2),
    "static": DuQuantConfig(block_size=16, rotation_steps=2, act_scaling="static", act_granularity="tensor"),
    "bfloat16 rotations": DuQuantConfig(block_size=16, rotation_steps=2, transform_dtype="bfloat16"),
    "policy": DuQuantConfig.vla(path="kernel"),
    "eight bits": DuQuantConfig(block_size=16, rotation_steps=2, weight_bits=8, weight_symmetric=True),
    "four-bit activations": DuQuantConfig(block_size=16, rotation_steps=2, act_bits=4),
}


def through_kernels(layer: DuQuantLinear, x: torch.Tensor) -> torch.Tensor:
    turn, config = layer.transform, layer.config
    pairs = (turn.orders, turn.rotations) if turn.permute_first else (turn.rotations, turn.orders)
    stages = tuple(stage for pair in zip_longest(*pairs) for stage in pair if stage is not None)
    grid = Grid(config.act_bits, config.act_symmetric)
    zero = None if layer.act_zero is None else layer.act_zero.float()
    theirs = kernels.Grid(grid.low, grid.high, grid.symmetric, config.act_clip, layer.act_scale, zero)
    codes = unpack(layer.weight_codes, layer.weight_bits)
    weight = kernels.pack_weight(codes, layer.weight_scale, layer.weight_zero, layer.weight_bits)
    change = kernels.Transform(turn.smooth, stages, turn.width)
    if layer.row_rotation is None:
        return kernels.linear(x, change, theirs, weight, layer.bias)
    y = kernels.linear(x.float(), change, theirs, weight)
    return restore_rows(y, layer.row_rotation, layer.bias, layer.out_features).to(x.dtype)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_same_bits(name, dtype):
    rows = torch.randn(64, 40)
    rows[:, 3] *= 20
    layer = build_layer(torch.nn.Linear(40, 24).to(dtype), CONFIGS[name], rows)
    for shape in [(7, 40), (1, 40), (0, 40), (2, 3, 40)]:
        x = torch.randn(shape).to(dtype)
        assert torch.equal(through_kernels(layer, x), layer(x))
