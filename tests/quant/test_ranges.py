"""Static scales: what they cover, and where they come from."""

from __future__ import annotations

import pytest
import torch

from rote.quant import DuQuantConfig, calibrate, quantize_
from rote.quant.converting.convert import build_layer
from rote.quant.numerics import ranges as ranges_module
from rote.quant.numerics.grid import Grid
from rote.quant.numerics.ranges import activation_parameters, bounds_of, percentile

from .models import Tiny, batches

STATIC = {
    "block_size": 16,
    "rotation": "none",
    "permutation": "none",
    "smooth_alpha": None,
    "act_scaling": "static",
}


def config(granularity: str, how: str, **changes) -> DuQuantConfig:
    symmetric = granularity == "channel"
    values = {
        **STATIC,
        "act_granularity": granularity,
        "act_range": how,
        "act_symmetric": symmetric,
        **changes,
    }
    return DuQuantConfig(**values)


def parameters(rows, settings):
    return activation_parameters(*bounds_of(rows, settings), rows, settings)


def test_maximum_and_percentile():
    rows = torch.randn(1000, 16) * torch.arange(1, 17)
    scale, zero = parameters(rows, config("channel", "max"))
    assert torch.allclose(scale, rows.abs().amax(0) / 127) and (zero == 0).all()
    scale, _ = parameters(rows, config("channel", "percentile", act_percentile=90.0))
    assert torch.allclose(scale, torch.quantile(rows.abs(), 0.9, dim=0) / 127)
    scale, zero = parameters(rows + 5, config("tensor", "max"))
    assert scale.shape == zero.shape == (1,)
    assert torch.allclose(scale, ((rows + 5).max() - (rows + 5).min()) / 255)


@pytest.mark.parametrize("granularity", ["tensor", "channel"])
def test_the_search_is_better_than_the_maximum(granularity):
    rows = torch.randn(5000, 16)
    grid = Grid(4, granularity == "channel")
    errors = {}
    for how in ("max", "mse"):
        found = parameters(rows, config(granularity, how, act_bits=4))
        errors[how] = (grid.fake(rows, *found) - rows).square().mean()
    assert errors["mse"] < errors["max"] * 0.8


def test_percentiles_in_pieces_are_the_same(monkeypatch):
    rows = torch.rand(50, 37)
    whole = percentile(rows, 99.0)
    monkeypatch.setattr(ranges_module, "QUANTILE_LIMIT", 200)
    assert torch.equal(percentile(rows, 99.0), whole)


def test_silent_channels_have_a_scale():
    scale, _ = parameters(torch.zeros(5, 16), config("channel", "percentile"))
    assert torch.allclose(scale, torch.full((16,), 1e-6))
    assert bounds_of(torch.zeros(0, 16), config("channel", "max"))[1].tolist() == [0.0] * 16


@pytest.mark.parametrize("granularity", ["tensor", "channel"])
@pytest.mark.parametrize("how", ["max", "percentile", "mse"])
@pytest.mark.parametrize("rotation", ["none", "hadamard", "greedy"])
def test_every_static_scale_in_a_model(granularity, how, rotation):
    changes = {"rotation": rotation, "rotation_steps": 4, "weight_bits": 8, "calib_batches": 2}
    if how == "percentile":
        changes["act_percentile"] = 99.99
    settings = config(granularity, how, **changes)
    model, x = Tiny(), batches(2)[1]
    expected = model(x)
    with calibrate(model, settings) as stats, torch.no_grad():
        for batch in batches(2):
            model(batch)
    report = quantize_(model, settings, stats)
    assert len(report.quantized) == 15
    assert (model(x) - expected).norm() / expected.norm() < 0.08
    assert all(row.clipped is not None and row.clipped < 0.02 for row in report)


def test_scales_per_channel_are_part_of_the_weight():
    linear, rows = torch.nn.Linear(32, 8), torch.randn(50, 32) * torch.arange(1, 33)
    layer = build_layer(linear, config("channel", "max", weight_bits=8), rows)
    assert layer.folds and layer.act_scale is not None
    assert torch.allclose(layer.weight_values() / layer.act_scale, linear.weight, atol=0.02)
    assert (layer(rows) - linear(rows)).norm() / linear(rows).norm() < 0.02
