"""The policy variant: equal to its plain reference, and without the defects of what is published."""

from __future__ import annotations

import itertools

import pytest
import torch

from rote import MisuseError
from rote.quant import DuQuantConfig, DuQuantLinear, calibrate, quantize_
from rote.quant.converting.convert import build_layer
from rote.quant.numerics.transforms import pad_columns

from .models import Tiny, batches
from .plain_policy import plain_policy_layer


def calls(count: int = 3, rows: int = 40, width: int = 48) -> list[torch.Tensor]:
    found = [torch.randn(rows, width) for _ in range(count)]
    for i, x in enumerate(found):
        x[:, 5] *= 10 * (i + 1)
    return found


def quantized(linear: torch.nn.Linear, config: DuQuantConfig, inputs: list[torch.Tensor]) -> DuQuantLinear:
    model = torch.nn.Sequential(linear)
    with calibrate(model, config) as stats, torch.no_grad():
        for x in inputs:
            model(x)
    quantize_(model, config, stats)
    layer = model[0]
    assert isinstance(layer, DuQuantLinear)
    return layer


SHAPES = [(48, 32, 16), (40, 24, 16), (33, 19, 8), (16, 64, 16), (64, 80, 64)]


@pytest.mark.parametrize(("width", "out", "block"), SHAPES)
@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("rows", [True, False])
def test_equal_to_the_plain_reference(width, out, block, folded, rows):
    linear, inputs = torch.nn.Linear(width, out), calls(width=width)
    plain = plain_policy_layer(
        linear.weight.detach(), linear.bias.detach(), inputs, block=block, row_rotation=rows, folded=folded
    )
    config = DuQuantConfig.vla(block_size=block, calib_batches=3, row_rotation=rows, fold_act_scale=folded)
    layer = quantized(linear, config, inputs)

    mine = layer.codes()[:out, :width]
    assert ((mine - plain.codes).abs() > 0).float().mean() < 1e-3, "ties at most"
    assert torch.allclose(layer.act_scale[:width], plain.act_scale, rtol=1e-5)
    same_codes = torch.equal(mine.float(), plain.codes)

    x = torch.randn(100, width)
    moved = layer.transform.chain().apply(pad_columns(x, layer.transform.width))
    found = torch.clamp(torch.round(moved / layer.act_scale), -128, 127)[:, :width]
    equal = (found == plain.act_codes(x)).all(1)
    assert equal.float().mean() > 0.9, "a row with a tie may differ"
    expected = plain(x)
    for path in ("reference", "fused", *(["kernel"] if folded else [])):
        layer.set_path(path)
        error = (layer(x) - expected)[equal].abs().max() / expected.abs().max()
        assert same_codes and error < 2e-6, path


def test_without_rounding_the_output_is_restored():
    linear = torch.nn.Linear(48, 40)
    layer = build_layer(linear, DuQuantConfig.vla(weight_bits=16, act_bits=16), calls()[0])
    x = torch.randn(9, 48)
    assert torch.allclose(layer(x), linear(x), atol=1e-5)


# --- What is wrong with the published code, and is not here ----------------------------------------------


def test_calibration_does_not_stop_after_one_batch():
    inputs = [torch.randn(50, 32) * 10**i for i in range(3)]
    linear = torch.nn.Linear(32, 16)
    config = DuQuantConfig.vla(block_size=8)
    one = quantized(linear, config.replace(calib_batches=1), inputs[:1])
    all_ = quantized(linear, config.replace(calib_batches=3), inputs)
    assert (all_.act_scale > 20 * one.act_scale).all()


def test_sixteen_bits_do_not_quantize():
    linear = torch.nn.Linear(32, 16)
    small = [torch.randn(8, 32)]
    layer = quantized(linear, DuQuantConfig.vla(act_bits=16, calib_batches=1), small)
    assert layer.act_scale is None
    large = torch.randn(50, 32) * 1000
    once = layer(large)
    assert torch.allclose(layer(large * 2) - layer.bias, 2 * (once - layer.bias), rtol=1e-4, atol=1e-2)
    both = DuQuantConfig.vla(act_bits=16, weight_bits=16, calib_batches=1)
    report = quantize_(torch.nn.Sequential(linear), both, None)
    assert report["0"].reason == "set to 16 bits"


@pytest.mark.parametrize("permute", ["none", "energy"])
def test_moving_twice_does_not_rotate_twice(permute):
    linear, inputs = torch.nn.Linear(48, 40), calls()
    config = DuQuantConfig.vla(permutation=permute, calib_batches=3, path="fused")
    before = linear.weight.detach().clone()
    layer = quantized(linear, config, inputs)
    assert torch.equal(linear.weight, before), "the dense weight is not written to"
    x = torch.randn(5, 48)
    expected = layer(x)
    layer.to(torch.float64).to(torch.float32)
    layer.refresh()
    layer.set_path("reference")
    layer.set_path("fused")
    assert torch.equal(layer(x), expected)


@pytest.mark.parametrize("rows", [True, False])
def test_there_is_no_mode_that_does_not_restore(rows):
    linear, inputs = torch.nn.Linear(48, 40), calls()
    layer = quantized(linear, DuQuantConfig.vla(row_rotation=rows, weight_bits=8, calib_batches=3), inputs)
    x = inputs[0]
    assert (layer(x) - linear(x)).norm() / linear(x).norm() < 0.05
    with pytest.raises(ValueError, match="row_rotation='propagate' must be True or False"):
        DuQuantConfig.vla(row_rotation="propagate")


def test_statistics_are_not_reused_for_another_configuration():
    model = Tiny()
    config = DuQuantConfig.vla(calib_batches=1)
    with calibrate(model, config) as stats, torch.no_grad():
        model(batches(1)[0])
    with pytest.raises(MisuseError, match="block_size=16 and are to be used with block_size=64"):
        quantize_(model, config.replace(block_size=64), stats)


@pytest.mark.parametrize(("path", "most"), [("fused", 1.35), ("reference", 0.33)])
def test_there_are_not_three_copies_of_a_weight(path, most):
    linear = torch.nn.Linear(512, 512).to(torch.bfloat16)
    config = DuQuantConfig.vla(path=path, calib_batches=1)
    layer = quantized(linear, config, [torch.randn(8, 512).bfloat16()])
    held = sum(t.numel() * t.element_size() for t in layer.buffers())
    rotations = sum(t.numel() * 4 for t in [*layer.transform.rotations, layer.row_rotation])
    assert held - rotations < most * linear.weight.numel() * 2


def test_a_calibrated_state_loads_strictly_into_a_fresh_layer():
    config = DuQuantConfig.vla(calib_batches=3)
    layer = quantized(torch.nn.Linear(48, 40), config, calls())
    fresh = DuQuantLinear(48, 40, config)
    assert list(fresh.state_dict()) == list(layer.state_dict())
    fresh.load_state_dict(layer.state_dict(), strict=True)
    x = torch.randn(4, 48)
    assert torch.equal(fresh(x), layer(x))


def test_a_call_changes_nothing():
    layer = quantized(torch.nn.Linear(48, 40), DuQuantConfig.vla(calib_batches=3), calls())
    before = {name: (id(value), value._version) for name, value in layer.named_buffers()}
    keys = set(vars(layer))
    for x in itertools.chain(calls(), [torch.zeros(0, 48)]):
        layer(x)
    assert {name: (id(value), value._version) for name, value in layer.named_buffers()} == before
    assert set(vars(layer)) == keys
