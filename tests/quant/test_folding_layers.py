"""Smoothing that is folded into the linear layer before."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

from rote import MisuseError
from rote.quant import calibrate, load_quantized, quantize_, save_quantized
from rote.quant.calibrating.folding import smooth_group
from rote.quant.calibrating.stats import CalibrationStats

from .between import ALLOWED, CONFIG, GROUPED, WIDTH, Between, calibrated
from .models import Mlp, Tiny, batches


def test_the_layer_before_has_to_be_quantized_too():
    way = ALLOWED["gated"]
    stays = "smoothed when called: 'up', which feeds it, is not quantized with it and stays as it is"
    for options in ({"exclude": "up"}, {"include": ["down", "gate"]}):
        model = Between(way)
        stats, before = calibrated(model), model.up.weight.detach().clone()
        assert quantize_(model, CONFIG, stats, **options)["down"].note == stays
        assert torch.equal(model.up.weight, before)
    model = Between(way)
    model.tied = torch.nn.Linear(WIDTH, WIDTH)
    model.tied.weight = model.up.weight
    assert quantize_(model, CONFIG, calibrated(model))["down"].note == stays
    model, config = Between(way), CONFIG.replace(layer_bits=(("up", 16),))
    assert quantize_(model, config, calibrated(model, config))["down"].note == stays
    model = Between(way)
    stats = calibrated(model)
    quantize_(model, CONFIG, stats, include="up")
    assert quantize_(model, CONFIG, stats, include="down")["down"].note == stays


def test_heads_that_share_values_share_divisors():
    model = Between(GROUPED["grouped attention"], WIDTH // 2)
    stats = calibrated(model)
    columns = stats.layers["down"].columns
    assert columns.tolist() == [*range(8), *range(8), *range(8, 16), *range(8, 16)]
    plan = smooth_group(model, ["down"], CONFIG, stats, ["up", "down"])
    assert torch.equal(plan.scale, plan.rows["up"][columns.long()])
    peak, reach = stats.layers["down"].peak, model.down.weight.abs().amax(0)
    for feature in range(16):
        mine = columns == feature
        wanted = peak[mine].max() ** 0.6 / reach[mine].max() ** 0.4
        assert plan.rows["up"][feature] == pytest.approx(wanted.item(), rel=1e-5)


@pytest.mark.parametrize("path", ["reference", "fused", "kernel"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("way", ["gated", "grouped attention"])
def test_a_quantized_pair_keeps_its_output(way, dtype, path, tmp_path):
    config = CONFIG.replace(path=path)

    def make():
        return Between({**ALLOWED, **GROUPED}[way], WIDTH // 2 if way in GROUPED else WIDTH).to(dtype).eval()

    model, x = make(), batches(1, seed=4)[0].to(dtype)
    with torch.no_grad():
        expected = model(x)
        with calibrate(model, config) as stats:
            for batch in batches(2):
                model(batch.to(dtype))
        stats.save(tmp_path / "stats")
        stats = CalibrationStats.load(tmp_path / "stats")
        before = model.up
        assert not quantize_(model, config, stats, dry_run=True)["down"].reason and model.up is before
        report = quantize_(model, config, stats, stages=True)
        found = model(x)
    assert not report["down"].note and report["down"].stages[1].name == "smoothing"
    assert model.down.transform.smooth is None and model.up.bias.dtype == dtype
    assert (found - expected).float().norm() / expected.float().norm() < 0.03
    for row in report.quantized:
        assert row.output_error < 1e-3 and row.weight_error < 1e-3
    save_quantized(model, tmp_path / "model")
    other = make()
    load_quantized(other, tmp_path / "model")
    with torch.no_grad():
        assert torch.equal(other(x), found)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("seed", range(3))
def test_hot_channels_cost_less_and_nothing_costs_more(seed, bits):
    folds = CONFIG.replace(weight_bits=4, act_bits=bits, block_size=64)
    errors, states = [], []
    for config in (folds.replace(fold_smoothing=False, smooth_alpha=None), folds):
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.RMSNorm(128), Mlp(128)).eval()
        with torch.no_grad():
            model[1].up_proj.weight[torch.randperm(256)[:2]] *= 15
            with calibrate(model, config) as stats:
                for batch in batches(2, width=128):
                    model(batch)
            (x,) = batches(1, width=128, seed=4)
            expected = model(x)
            report = quantize_(model, config, stats)
            found = (model(x) - expected).norm() / expected.norm()
        errors.append((report["1.down_proj"].output_error, found))
        states.append({key: (value.shape, value.dtype) for key, value in model.state_dict().items()})
    plain, folded = errors
    assert folded[0] < 0.65 * plain[0] and folded[1] < plain[1]
    assert states[0] == states[1]  # there is nothing more to calculate with


def test_it_is_the_smoothing_that_would_be_done_online():
    layers = []
    for config in (CONFIG, CONFIG.replace(fold_smoothing=False)):
        torch.manual_seed(0)
        model = Between(ALLOWED["gated"])
        report = quantize_(model, config, calibrated(model, config))
        layers.append((model.down, report["down"].output_error))
    (folded, error), (online, other) = layers
    assert torch.equal(folded.codes(), online.codes())
    assert error == pytest.approx(other, rel=0.01)
    assert folded.transform.smooth is None and online.transform.smooth is not None


def test_a_layer_between_two_is_folded_into_and_smoothed():
    model, x = Between(lambda m, x: m.down(F.relu(m.gate(F.relu(m.up(x)))))), batches(1, seed=4)[0]
    model.eval()
    with torch.no_grad():
        expected = model(x)
        stats = calibrated(model)
        report = quantize_(model, CONFIG, stats)
        assert [row.note.startswith("smoothed when called") for row in report.quantized] == [
            True,
            False,
            False,
        ]
        assert (model(x) - expected).norm() / expected.norm() < 0.03


def test_an_error_leaves_layers_as_they_were(monkeypatch):
    from rote.quant.converting import convert

    model = Between(ALLOWED["gated"])
    stats, before = calibrated(model), {k: v.clone() for k, v in model.state_dict().items()}
    monkeypatch.setattr(convert, "find_transform", lambda *args, **kwargs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        quantize_(model, CONFIG, stats)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_statistics_of_another_model():
    stats = calibrated(Between(ALLOWED["gated"]))
    stats.layers["down"].columns += 1
    with pytest.raises(MisuseError, match="'up' has 32 features, and had more in calibration"):
        quantize_(Between(ALLOWED["gated"]), CONFIG, stats)


def test_calibrations_in_parts():
    model, way = Between(ALLOWED["gated"]), ALLOWED["in another order"]
    first = calibrated(model)
    both = CalibrationStats.combine([first, calibrated(model)])
    assert torch.equal(both.layers["down"].columns, first.layers["down"].columns)
    assert not quantize_(Between(ALLOWED["gated"]), CONFIG, both)["down"].note
    model.way = way
    both = CalibrationStats.combine([first, calibrated(model)])
    assert both.layers["down"].columns is None
    model.way = ALLOWED["gated"]
    assert "are not in the same columns" in quantize_(model, CONFIG, both)["down"].note


def test_a_call_without_rows_says_nothing():
    model = Between(ALLOWED["in another order"]).eval()
    for order in ((0, 2, 0, 3), (2, 0)):
        with calibrate(model, CONFIG.replace(calib_batches=len(order))) as stats, torch.no_grad():
            for rows in order:
                model(torch.randn(2, rows, WIDTH))
        assert stats.layers["down"].columns.tolist() == [*range(16, 32), *reversed(range(16))]
        assert not quantize_(copy.deepcopy(model), CONFIG, stats)["down"].note


def test_names_mean_nothing():
    model = Tiny(blocks=1)
    report = quantize_(model, CONFIG, calibrated(model))
    assert not report["layers.0.mlp.down_proj"].note
    assert report["layers.0.self_attn.o_proj"].note.startswith(
        "smoothed when called: no norm or linear layer feeds it"
    )
