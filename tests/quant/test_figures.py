"""Properties of the error table that hold whatever the seed: benchmarks.quant_error on smaller layers."""

from __future__ import annotations

import itertools
import json

import pytest
import torch
from benchmarks.quant_error import PLAIN, RECIPES, SEARCH, layer_and_inputs

from benchmarks import quant_error
from rote.quant.converting.convert import build_layer
from rote.quant.converting.measure import output_errors

SHAPE = (1024, 256)


def error(kind: str, recipe, act_bits: int, metric: int = 0) -> float:
    found = []
    for seed in range(2):
        linear, x = layer_and_inputs(kind, seed, SHAPE)
        layer = build_layer(linear, recipe.replace(act_bits=act_bits, seed=seed), x)
        found.append(output_errors(linear, layer, x)[metric])
    return sum(found) / len(found)


@pytest.fixture(scope="module")
def hot():
    return {name: error("q", recipe, 4) for name, recipe in RECIPES.items()}


def test_with_hot_channels_the_rotations_are_three_times_better_than_rounding(hot):
    assert hot["R1 P R2"] < hot["round to nearest"] / 3


def test_the_second_rotation_does_not_hurt(hot):
    assert hot["R1 P R2"] <= hot["R1"] * 1.02


def test_the_search_is_as_good_as_a_hadamard(hot):
    assert hot["R1 P R2"] < 1.15 * hot["hadamard"]


def test_smoothing_and_clipping_add_to_it(hot):
    best = hot["smoothing 0.6, R1 P R2, clipping 0.9 and 0.8"]
    assert best < hot["smoothing 0.6, R1 P R2"] < hot["R1 P R2"]
    assert best < hot["round to nearest"] / 10
    assert hot["smoothing 0.6, R1 P R2, learned clipping"] < hot["smoothing 0.6, R1 P R2, searched clipping"]


def test_on_gaussian_data_no_transform_matters():
    plain = error("gaussian", PLAIN, 4)
    for name in ("hadamard", "R1", "R1 P R2"):
        assert abs(error("gaussian", RECIPES[name], 4) / plain - 1) < 0.04, name


def test_with_eight_bit_activations_the_rotations_are_neutral():
    plain, turned = error("q", PLAIN, 8), error("q", SEARCH, 8)
    assert 0.8 < turned / plain < 1.1, "the weight's error rules"
    assert error("q", RECIPES["smoothing 0.6, R1 P R2, searched clipping"], 8) < turned / 1.5


def test_clipping_hurts_at_six_bits():
    six = SEARCH.replace(weight_bits=6)
    assert error("q", six.replace(act_clip=0.9, weight_clip=0.8), 6) > error("q", six, 6)


def test_smoothing_by_the_maximum_is_bad_for_ordinary_tokens_beside_a_massive_one():
    plain = error("down", PLAIN, 8, metric=1)
    assert error("down", RECIPES["smoothing 0.5"], 8, metric=1) > 2 * plain
    assert error("down", SEARCH, 4, metric=1) < error("down", PLAIN, 4, metric=1) / 1.5


def test_rotations_take_a_massive_token_down():
    found = quant_error.peaks(1)
    assert found["input"] == 1400.0 and found["R1 P R2"] <= found["R1"] < 300


def test_calibrating_on_other_rows_changes_little():
    found = []
    for calibrated_on in (0, 1):
        linear, x = layer_and_inputs("q", 3, SHAPE)
        noisy = x + 0.1 * torch.randn(x.shape) if calibrated_on else x
        found.append(output_errors(linear, build_layer(linear, SEARCH.replace(act_bits=4), noisy), x)[0])
    assert abs(found[1] / found[0] - 1) < 0.1


def test_the_table_is_written(tmp_path, monkeypatch, capsys):
    some = dict(itertools.islice(RECIPES.items(), 5))
    monkeypatch.setattr(quant_error, "RECIPES", some)
    monkeypatch.setattr(quant_error, "LAYERS", {"q": (64, 32), "down": (64, 32)})
    monkeypatch.setattr(quant_error, "TOKENS", 16)
    threads = torch.get_num_threads()
    quant_error.main(["--quick", "--out", str(tmp_path / "a" / "b.json")])
    torch.set_num_threads(threads)
    found = json.loads((tmp_path / "a" / "b.json").read_text())
    assert len(found["rows"]) == 2 * 2 * len(some) and found["seeds"] == 1
    assert {"layer", "bits", "recipe", "metric", "total", "token", "factor"} <= set(found["rows"][0])
    assert "R1 P R2" in capsys.readouterr().out
