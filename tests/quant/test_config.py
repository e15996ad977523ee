"""The configuration: what it accepts, what it says when it does not, and its JSON."""

from __future__ import annotations

import json

import pytest

from rote import OptionError
from rote.quant import DuQuantConfig
from rote.quant.config.names import check_all_used, matches


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("weight_bits", 1), ("weight_bits", 9), ("weight_bits", True), ("weight_bits", "4"), ("act_bits", 0),
        ("block_size", 96), ("block_size", 1), ("block_size", None), ("block_out_size", 3),
        ("rotation", "random"), ("permutation", None), ("path", "triton"), ("rotation_steps", -1),
        ("calib_batches", 0), ("calib_batches", 2.0), ("smooth_alpha", 1.5), ("smooth_alpha", float("nan")),
        ("weight_clip", 0), ("act_clip", 1.1), ("act_percentile", 0), ("act_percentile", 100.1),
        ("row_rotation", 1), ("transform_dtype", "float64"), ("weight_group_size", 32), ("groups", (("q",),)),
        ("layer_bits", (("*", 4, 4),)), ("layer_bits", (("*", 1),)),
        ("layer_bits", (("re:(", 4),)), ("seed", -1), ("seed", 2**63), ("permutation_rounds", 65),
    ],
)  # fmt: skip
def test_a_bad_value_names_its_field(field, value):
    with pytest.raises(OptionError, match=f"^{field}"):
        DuQuantConfig(**{field: value})


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"act_scaling": "static"}, "act_granularity"),
        ({"act_granularity": "tensor"}, "act_granularity"),
        ({"act_scaling": "static", "act_granularity": "channel"}, "act_symmetric"),
        ({"weight_granularity": "group", "weight_group_size": 48}, "weight_group_size"),
        ({"rotation": "svd"}, "shared_rotation"),
        ({"rotation": "svd", "shared_rotation": False}, "permute_first"),
        ({"permute_first": True, "permutation_rounds": 2}, "permutation_rounds"),
        ({"weight_clip": 0.8}, "weight_clip"),
        ({"act_range": "mse"}, "act_range"),
        ({"act_percentile": 99.0}, "act_percentile"),
        ({"block_out_size": 64}, "block_out_size"),
        ({"smooth_alpha": None, "fold_smoothing": True}, "fold_smoothing"),
    ],
)
def test_fields_that_do_not_go_together(values, field):
    with pytest.raises(OptionError, match=f"^{field}="):
        DuQuantConfig(**values)


def test_per_channel_scales_that_are_not_folded_cannot_be_integers():
    with pytest.raises(OptionError, match=r"^fold_act_scale=False must be True with path='kernel'"):
        DuQuantConfig.vla(fold_act_scale=False, path="kernel")
    assert DuQuantConfig.vla(path="kernel").fold_act_scale
    assert not DuQuantConfig.vla().fold_act_scale


@pytest.mark.parametrize(
    "config",
    [
        DuQuantConfig(),
        DuQuantConfig.vla(),
        DuQuantConfig(layer_bits=(("*.down_proj", 8), ("re:layers\\.[01]\\.", 16)), smooth_alpha=None),
        DuQuantConfig(weight_granularity="group", weight_group_size=64, permutation_rounds=3),
    ],
)
def test_json_round_trip(config):
    assert DuQuantConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "must be a JSON object, not list"),
        ("{", "must be a JSON object"),
        ('{"bits": 4}', "bits is no field of DuQuantConfig"),
        ('{"weight_bits": 400}', "weight_bits=400"),
        ('{"layer_bits": [["*"]]}', "layer_bits"),
        ('{"layer_bits": [[1, 4]]}', "layer_bits: 1 must be a pattern"),
        ('{"layer_bits": "abc"}', "layer_bits"),
    ],
)
def test_hostile_json(text, message):
    with pytest.raises(OptionError, match=message):
        DuQuantConfig.from_json(text)


def test_the_digest_follows_what_shapes_the_numbers():
    config = DuQuantConfig()
    assert config.digest == DuQuantConfig.from_json(config.to_json()).digest
    assert config.digest == config.replace(path="fused", calib_batches=1).digest
    assert config.digest != config.replace(block_size=64).digest
    assert json.loads(config.to_json())["block_size"] == 128


def test_bits_of_a_layer():
    config = DuQuantConfig(layer_bits=(("*.down_proj", 8), ("re:layers\\.0\\.", 16)))
    assert config.bits_of("layers.0.mlp.down_proj") == 8, "the first pattern wins"
    assert config.bits_of("layers.0.mlp.up_proj") == 16
    assert config.bits_of("layers.1.mlp.up_proj") == 4


def test_patterns():
    assert matches("*.q_proj", "a.b.q_proj") and not matches("q_proj", "a.q_proj")
    assert matches("re:q_", "a.q_proj") and not matches("re:^q_", "a.q_proj")
    with pytest.raises(OptionError, match=r"include: 'z\*' matches none of the 1 linear layers \('a'\)"):
        check_all_used("include", ["a", "z*"], ["a"])


def test_changing_an_unknown_field():
    with pytest.raises(OptionError, match="bits is no field"):
        DuQuantConfig().replace(bits=4)
