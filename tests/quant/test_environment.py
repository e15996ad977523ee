"""Environment variables: read when asked, checked by name, and what they make of a model."""

from __future__ import annotations

import pytest
import torch

from rote import MisuseError, OptionError
from rote.base.settings import read_duquant
from rote.quant import DuQuantConfig, DuQuantLinear, calibrate, quantize_, quantize_from_env
from rote.quant.environment import read_plan

from .models import Tiny, batches


@pytest.fixture
def env(monkeypatch):
    for name in read_duquant():
        monkeypatch.delenv(name)

    def put(prefix: str = "ROTE_DUQUANT_", **values: object) -> None:
        for name, value in values.items():
            monkeypatch.setenv(prefix + name, str(value))

    return put


def test_without_variables_nothing_happens(env):
    model = Tiny()
    assert quantize_from_env(model) is None
    assert not any(isinstance(module, DuQuantLinear) for module in model.modules())


@pytest.mark.parametrize("prefix", ["ROTE_DUQUANT_", "OPENPI_DUQUANT_"])
def test_variables_make_the_configuration(env, prefix):
    env(
        prefix, WBITS_DEFAULT=8, ABITS=4, BLOCK=8, BLOCK_OUT=4, LS=0.15, PERMUTE=0, ACT_PCT=99, CALIB_STEPS=2,
        ROW_ROT="restore", WBITS="head:6",
    )  # fmt: skip
    plan = read_plan(read_duquant())
    assert plan is not None
    assert plan.config == DuQuantConfig.vla(
        weight_bits=8, act_bits=4, block_size=8, block_out_size=4, permutation="none", act_percentile=99.0,
        calib_batches=2, layer_bits=(("head", 6),),
    )  # fmt: skip


def test_what_is_not_set_is_as_published(env):
    env(SCOPE="layers.")
    plan = read_plan(read_duquant())
    assert plan is not None and plan.config == DuQuantConfig.vla(block_out_size=16)
    env(ABITS=0, WBITS_DEFAULT=0, ROW_ROT=0, CALIB_STEPS=0)
    plan = read_plan(read_duquant())
    assert plan is not None and not plan.config.row_rotation
    assert (plan.config.weight_bits, plan.config.act_bits, plan.config.calib_batches) == (16, 16, 1)


def test_output_blocks_go_with_row_rotation(env):
    env(BLOCK_OUT=8, ROW_ROT=0)
    plan = read_plan(read_duquant())
    assert plan is not None and plan.config == DuQuantConfig.vla(row_rotation=False)


def test_quantizing_as_they_say(env):
    env(
        BLOCK=8,
        CALIB_STEPS=2,
        SCOPE="layers.",
        INCLUDE=r"mlp\.",
        EXCLUDE="down",
        WBITS="layers.0.mlp.up_proj:8",
    )
    model, twin = Tiny(), Tiny()
    twin.load_state_dict(model.state_dict())
    report = quantize_from_env(model, iter(batches(5)))
    assert report is not None
    names = [row.name for row in report.quantized]
    assert names == [f"layers.{i}.mlp.{kind}_proj" for i in (0, 1) for kind in ("gate", "up")]
    assert report["layers.0.mlp.up_proj"].weight_bits == 8

    config = DuQuantConfig.vla(
        block_size=8, block_out_size=8, calib_batches=2, layer_bits=(("layers.0.mlp.up_proj", 8),)
    )
    with calibrate(twin, config) as stats, torch.no_grad():
        for batch in batches(2):
            twin(batch)
    quantize_(twin, config, stats, include=["*.gate_proj", "*.up_proj"])
    x = batches(1, seed=4)[0]
    assert torch.equal(model(x), twin(x))


def test_batches_of_every_kind(env):
    env(BLOCK=8, CALIB_STEPS=3, LAYERS="head, layers.0.mlp.up_proj")
    x = batches(1)[0]
    report = quantize_from_env(Tiny(), [x, (x,), {"x": x}], path="kernel")
    assert report is not None and [row.path for row in report.quantized] == ["kernel", "kernel"]


def test_batches_of_another_method(env):
    env(BLOCK=8, CALIB_STEPS=2, LAYERS="head, layers.0.mlp.up_proj")
    model, same = Tiny(), Tiny()
    same.load_state_dict(model.state_dict())
    given = batches(2)
    for each, call in ((model, None), (same, lambda number, x: same.forward(x))):
        quantize_from_env(each, [x if call is None else (0, x) for x in given], call=call)
    assert torch.equal(model(given[0]), same(given[0]))


def test_a_dry_run_lists_every_layer(env):
    env(DRYRUN=1, SCOPE="layers.0")
    model = Tiny()
    report = quantize_from_env(model)
    assert report is not None and report.dry_run and len(report.layers) == 15 and len(report.quantized) == 7
    row = report["layers.0.mlp.down_proj"]
    assert row.shape == (32, 64) and row.weight_bits == 4 and row.bytes_after > 0
    assert not any(isinstance(module, DuQuantLinear) for module in model.modules())


def test_the_pack_directory_is_used_for_its_own_configuration_only(env, tmp_path):
    env(BLOCK=8, CALIB_STEPS=1, PACKDIR=tmp_path / "packs", SCOPE="layers.")
    model, x = Tiny(), batches(1)[0]
    original = {name: value.clone() for name, value in model.state_dict().items()}
    first = quantize_from_env(model, [x])
    again = Tiny()
    with pytest.raises(MisuseError, match="needs batches or stats"):  # it has other weights
        quantize_from_env(again)
    again.load_state_dict(original)
    report = quantize_from_env(again)  # without batches: it is there
    assert report is not None and torch.equal(again(x), model(x))
    assert first is not None and not report.dry_run
    assert [row.name for row in report.quantized] == [row.name for row in first.quantized] != []
    env(BLOCK=16)
    other = Tiny()
    other.load_state_dict(original)
    with pytest.raises(MisuseError, match="needs batches or stats"):
        quantize_from_env(other)
    quantize_from_env(other, [x])
    assert len(list((tmp_path / "packs").iterdir())) == 2
    assert other.layers[0].mlp.up_proj.config.block_size == 16


def test_a_pack_directory_that_cannot_be(env, tmp_path):
    (tmp_path / "file").write_text("")
    env(BLOCK=8, CALIB_STEPS=1, PACKDIR=tmp_path / "file" / "packs")
    model = Tiny()
    with pytest.raises(MisuseError, match=r"PACKDIR='.*packs' is no folder, and cannot be made"):
        quantize_from_env(model, batches(1))
    assert not any(isinstance(module, DuQuantLinear) for module in model.modules())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"BITS": 4}, "ROTE_DUQUANT_BITS is not known"),
        ({"DEBUG": 1}, "ROTE_DUQUANT_DEBUG is not known"),
        ({"ABITS": "eight"}, "ROTE_DUQUANT_ABITS='eight' must be a whole number"),
        ({"CALIB_STEPS": -1}, "calib_batches=-1 must be a whole number of at least 1"),
        ({"ABITS": 1}, "act_bits=1 must be 2 to 8"),
        ({"BLOCK": 24}, "ROTE_DUQUANT_BLOCK: block_size=24 must be a power of two"),
        ({"ACT_PCT": "x"}, "ROTE_DUQUANT_ACT_PCT='x' must be a number"),
        ({"LS": "x"}, "ROTE_DUQUANT_LS='x' must be a number"),
        ({"ROW_ROT": "propagate"}, "ROTE_DUQUANT_ROW_ROT='propagate' must be one of restore, 0"),
        ({"PERMUTE": "maybe"}, "ROTE_DUQUANT_PERMUTE='maybe' must be one of"),
        ({"WBITS": "head"}, "ROTE_DUQUANT_WBITS: 'head' must be full"),
        ({"WBITS": "heads:4"}, "ROTE_DUQUANT_WBITS names 'heads', and the model has no such"),
        (
            {"SCOPE": "policy.dit."},
            r"ROTE_DUQUANT_SCOPE='policy\.dit\.' fits none of the model's 15 linear layers",
        ),
        ({"LAYERS": "head,heads"}, "ROTE_DUQUANT_LAYERS names 'heads'"),
        ({"INCLUDE": "zz"}, "ROTE_DUQUANT_INCLUDE='zz' fits none"),
        ({"EXCLUDE": "zz"}, "ROTE_DUQUANT_EXCLUDE='zz' fits none"),
        ({"EXCLUDE": "("}, r"ROTE_DUQUANT_EXCLUDE='\(' is no regular expression"),
        ({"EXCLUDE": "."}, "together leave no linear layer"),
    ],
)
def test_mistakes_are_errors_that_name_the_variable(env, values, message):
    env(**values)
    with pytest.raises(OptionError, match=message):
        quantize_from_env(Tiny(), [batches(1)[0]])


def test_both_prefixes_must_agree(env):
    env(ABITS=8)
    env("OPENPI_DUQUANT_", ABITS=8)
    assert read_plan(read_duquant()) is not None
    env("OPENPI_DUQUANT_", ABITS=4)
    with pytest.raises(OptionError, match="ROTE_DUQUANT_ABITS and OPENPI_DUQUANT_ABITS are set to different"):
        read_plan(read_duquant())
