"""Layers through the kernels: in the interpreter or on a GPU, against torch."""

from __future__ import annotations

import copy

import pytest
import torch

from rote import OptionError
from rote.quant import DuQuantConfig, DuQuantLinear, warmup
from rote.quant.converting.convert import build_layer
from rote.quant.kernels import by_triton

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
    "large row blocks": DuQuantConfig.vla(path="kernel", block_out_size=256),
    "eight bits": DuQuantConfig(block_size=16, rotation_steps=2, weight_bits=8, weight_symmetric=True),
    "four-bit activations": DuQuantConfig(block_size=16, rotation_steps=2, act_bits=4),
    "groups": DuQuantConfig(block_size=16, weight_granularity="group", weight_group_size=8, rotation_steps=2),
    "weights only": DuQuantConfig(block_size=16, act_bits=16, rotation_steps=2),
    "large blocks": DuQuantConfig(block_size=256, rotation="hadamard", permutation="none", smooth_alpha=None),
}
NOTES = {
    "large row blocks": "through torch: row rotation (rotations of 256 channels)",
    "groups": "all through torch: scales for groups of columns leave no single integer sum",
    "large blocks": "through torch: transform (rotations of 256 channels)",
    "weights only": "all through torch: kernels take no torch.float32 that is not quantized",
}


def layer_of(name: str, dtype: torch.dtype = torch.float32) -> DuQuantLinear:
    rows = torch.randn(64, 40)
    rows[:, 3] *= 20
    return build_layer(torch.nn.Linear(40, 24).to(dtype), CONFIGS[name], rows)


def assert_close(layer: DuQuantLinear, x: torch.Tensor, found: torch.Tensor, wanted: torch.Tensor) -> None:
    """Equal but for a code in a row that falls the other way, which the order of float32 sums decides."""
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    if not found.numel():
        return
    step = 2.0 / (1 << min(layer.config.act_bits, 12))
    size = x.double().flatten(0, -2).norm(dim=1).max() * layer.effective_weight().double().norm(dim=1).max()
    grain = {torch.float32: 1e-5, torch.float16: 2**-8, torch.bfloat16: 2**-7}[x.dtype]
    apart = (found.double() - wanted.double()).abs()
    assert apart.max() <= (step + grain) * (1 + size)
    assert (apart > grain * (1 + size)).double().mean() < 0.35


SHAPES = [(7, 40), (1, 40), (0, 40), (2, 3, 40)]


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.usefixtures("interpreter")
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_kernels_give_what_torch_gives(name: str, dtype: torch.dtype):
    layer = layer_of(name, dtype)
    for shape in SHAPES:
        x = torch.randn(shape).to(dtype)
        assert_close(layer, x, by_triton.linear(x, *layer.operands()), layer(x))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False")
@pytest.mark.parametrize("name", CONFIGS)
def test_a_gpu_gives_what_a_cpu_gives(name: str):
    dtype = torch.float32 if name == "default" else torch.bfloat16
    layer = layer_of(name, dtype)
    moved = copy.deepcopy(layer).cuda()
    for shape in SHAPES:
        x = torch.randn(shape).to(dtype)
        assert_close(layer, x, moved(x.cuda()).cpu(), layer(x))


@pytest.mark.parametrize("name", CONFIGS)
def test_what_torch_does_is_said(name: str):
    layer = layer_of(name)
    assert layer.note == NOTES.get(name, "")
    if name == "weights only":
        assert layer.bfloat16().note == ""


def test_warmup_runs_what_kernels_calculate(monkeypatch: pytest.MonkeyPatch):
    model = torch.nn.Sequential(layer_of("default"), torch.nn.Linear(24, 40), layer_of("static"))
    model[2].set_path("fused")
    seen: list[tuple[int, ...]] = []
    model[0].register_forward_hook(lambda module, inputs, output: seen.append(tuple(output.shape)))
    model[2].register_forward_hook(lambda module, inputs, output: seen.append(()))
    warmup(model, [5, 1, 5])
    assert seen == [(1, 24), (5, 24)]
    for size in (0, 1.5, True):
        with pytest.raises(OptionError, match=r"sizes: .* must be a whole number of at least 1"):
            warmup(model, [size])


@pytest.mark.slow
@pytest.mark.usefixtures("interpreter")
@pytest.mark.parametrize(
    "config", [DuQuantConfig.vla(), DuQuantConfig.vla(block_size=8, act_bits=4)], ids=str
)
def test_the_fused_path_in_few_launches(config: DuQuantConfig):
    """What a GPU does, with the interpreter in its place."""
    layer = build_layer(torch.nn.Linear(40, 24).half(), config, torch.randn(64, 40))
    x = torch.randn(2, 3, 40).half()
    expected = layer(x)
    assert not layer.goes_fast(x), "on a CPU torch does it"
    operands = layer.operands()
    rows = by_triton.rounded_rows(x, *operands[:8])
    for found in (rows, torch.ops.rote_quant.rounded_rows(x, *operands[:8])):
        y = torch.nn.functional.linear(found, layer.dense, layer.bias).reshape(2, 3, 24)
        torch.testing.assert_close(y, expected, rtol=2**-8, atol=2**-8)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False")
@pytest.mark.parametrize("bias", [True, False])
def test_the_fused_path_on_a_gpu(bias: bool):
    layer = build_layer(
        torch.nn.Linear(40, 24, bias=bias).bfloat16(), DuQuantConfig.vla(), torch.randn(64, 40)
    )
    moved = copy.deepcopy(layer).cuda()
    x = torch.randn(2, 3, 40).bfloat16()
    assert moved.goes_fast(x.cuda()) and not moved.goes_fast(x.cuda().requires_grad_())
    torch.testing.assert_close(moved(x.cuda()).cpu(), layer(x), rtol=2**-6, atol=2**-5)
