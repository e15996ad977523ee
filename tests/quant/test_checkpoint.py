"""Checkpoints: the same bits back, errors that name what differs, and files that mean harm."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from rote import MisuseError
from rote.quant import (
    CalibrationStats,
    DuQuantConfig,
    DuQuantLinear,
    calibrate,
    load_quantized,
    quantize_,
    save_quantized,
)
from rote.quant.saving import storage
from rote.quant.saving.checkpoint import content_hash

from .models import Tiny, batches

CONFIG = DuQuantConfig(block_size=16, rotation_steps=4, calib_batches=2, sample_rows=32, path="reference")


def calibrated(model, config=CONFIG):
    with calibrate(model, config) as stats, torch.no_grad():
        for batch in batches(config.calib_batches):
            model(batch)
    return stats


@pytest.fixture
def quantized():
    model = Tiny()
    model.again = model.head
    config = CONFIG.replace(layer_bits=(("*.down_proj", 8), ("head", 16)))
    quantize_(model, config, calibrated(model, config), exclude="layers.1.mlp.gate_proj")
    return model


@pytest.fixture
def saved(quantized, tmp_path):
    path = tmp_path / "tiny.safetensors"
    save_quantized(quantized, path)
    return path


def fresh():
    model = Tiny()
    model.again = model.head
    return model


def test_the_same_bits_back(quantized, saved):
    model, x = fresh(), batches(1, seed=3)[0]
    load_quantized(model, saved)
    assert torch.equal(model(x), quantized(x))
    assert model.state_dict().keys() == quantized.state_dict().keys()
    attention = model.layers[0].self_attn
    assert attention.q_proj.transform is attention.k_proj.transform
    assert type(model.layers[1].mlp.gate_proj) is torch.nn.Linear and model.again is model.head
    load_quantized(model, saved)
    assert torch.equal(model(x), quantized(x)), "into a model that is quantized already"


@pytest.mark.parametrize(
    "config", [DuQuantConfig.vla(calib_batches=2), DuQuantConfig.vla(calib_batches=2, path="kernel")]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_policy_variant_and_other_types(config, dtype, tmp_path):
    model = Tiny().to(dtype)
    with calibrate(model, config) as stats, torch.no_grad():
        for batch in batches(2):
            model(batch.to(dtype))
    quantize_(model, config, stats)
    save_quantized(model, tmp_path / "a")
    other = Tiny().to(dtype)
    load_quantized(other, tmp_path / "a", config=config)
    x = batches(1)[0].to(dtype)
    assert torch.equal(other(x), model(x))


def test_what_is_shared_is_written_once_and_codes_are_packed(quantized, saved):
    tensors = load_file(saved)
    assert not any(name.startswith("layers.0.self_attn.k_proj.transform") for name in tensors)
    assert tensors["layers.0.self_attn.q_proj.weight_codes"].shape == (32, 16)
    assert tensors["layers.0.self_attn.q_proj.weight_codes"].dtype == torch.uint8
    assert tensors["layers.0.mlp.down_proj.weight_codes"].dtype == torch.int8
    with safe_open(saved, "pt") as file:
        metadata = file.metadata()
    assert json.loads(metadata["version"]) == 1 and len(json.loads(metadata["layers"])) == 13


def test_another_path_on_request(quantized, saved):
    model, x = fresh(), batches(1, seed=3)[0]
    load_quantized(model, saved, way="kernel")
    assert model.layers[0].mlp.up_proj.path == "kernel"
    expected = quantized(x)
    # Codes at ties may differ by one, after sums in another order.
    assert (model(x) - expected).norm() < 0.02 * expected.norm()


def refused(model, path, message, **options):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(MisuseError, match=message):
        load_quantized(model, path, **options)
    after = model.state_dict()
    assert after.keys() == before.keys() and all(torch.equal(after[name], before[name]) for name in before)
    assert not any(isinstance(module, DuQuantLinear) for module in model.modules())


def test_files_that_do_not_fit_name_what_differs(saved, tmp_path):
    refused(Tiny(), saved, r"does not fit the model: the file has \['again\.bias', 'again\.weight'\]")
    refused(Tiny(width=64), saved, r"'layers\.0\.self_attn\.q_proj' is 32x32, and 64x64 in the model")
    refused(
        torch.nn.Linear(3, 3),
        saved,
        r"'layers\.0\.self_attn\.q_proj' is quantized, and the model has no such",
    )
    model = fresh()
    model.layers[0].mlp.up_proj = torch.nn.Linear(32, 64, bias=True)
    refused(model, saved, r"'layers\.0\.mlp\.up_proj' has no bias, unlike the model's")
    model.layers[0].mlp.up_proj = torch.nn.Identity()
    refused(model, saved, r"'layers\.0\.mlp\.up_proj' is quantized, and the model has a Identity there")
    model = fresh()
    model.head = torch.nn.Linear(32, 6)
    refused(model, saved, r"head\.weight is \(5, 32\), and \(6, 32\) in the model")
    refused(
        fresh(),
        saved,
        "made with another configuration: block_size=16 and not 32",
        config=CONFIG.replace(block_size=32),
    )
    refused(fresh(), tmp_path / "none", "there is no such file")


def rewritten(path, change, *, sign=True):
    """The checkpoint with changed tensors and metadata, with a hash that fits."""
    with safe_open(path, "pt") as file:
        metadata = {name: json.loads(text) for name, text in file.metadata().items()}
    tensors = load_file(path)
    change(tensors, metadata)
    if sign:
        everything = {**tensors, **{a: tensors[n] for a, n in metadata["aliases"].items() if n in tensors}}
        content = {name: metadata.get(name) for name in ("configs", "layers")}
        metadata["hash"] = content_hash(content, everything)
    target = path.with_name("changed")
    save_file(tensors, target, metadata={name: json.dumps(value) for name, value in metadata.items()})
    return target


Q = "layers.0.self_attn.q_proj"


def poke(name, index, value):
    def change(tensors, metadata):
        tensors[name].view(-1)[index] = value

    return change


def meta(change):
    return lambda tensors, metadata: change(metadata)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (poke(f"{Q}.transform.order_0", 0, 10**6), r"order_0 is no permutation"),
        (poke(f"{Q}.transform.order_0", 0, -1), r"order_0 is no permutation"),
        (poke(f"{Q}.weight_scale", 3, float("nan")), r"weight_scale has values that are not positive"),
        (poke(f"{Q}.weight_scale", 3, -1.0), r"weight_scale has values that are not positive"),
        (poke(f"{Q}.transform.smooth", 3, 0.0), r"transform\.smooth has values that are not positive"),
        (poke(f"{Q}.transform.rotation_1", 3, float("inf")), r"rotation_1 has values that are not finite"),
        (
            lambda t, m: t.update({f"{Q}.weight_codes": torch.zeros(32, 8, dtype=torch.uint8)}),
            r"weight_codes is \(32, 8\)",
        ),
        (
            lambda t, m: t.update({f"{Q}.weight_codes": torch.zeros(32, 16)}),
            r"weight_codes is torch\.float32 instead",
        ),
        (
            lambda t, m: t.pop(f"{Q}.weight_zero"),
            r"the file lacks \['layers\.0\.self_attn\.q_proj\.weight_zero'\]",
        ),
        (lambda t, m: t.update(more=torch.zeros(1)), r"the file has \['more'\]"),
        (meta(lambda m: m.update(format="other")), r"its format is 'other'"),
        (meta(lambda m: m.update(version=2)), r"has format version 2, and this code reads 1"),
        (meta(lambda m: m.update(layers=[])), r"must be lists"),
        (meta(lambda m: m.update(layers=7)), r"must be lists"),
        (meta(lambda m: m["layers"][0].pop("bias")), r"must have the entries name, in_features"),
        (meta(lambda m: m["layers"][0].update(in_features="32")), r"in_features is '32', which is no int"),
        (
            meta(lambda m: m["layers"][0].update(in_features=10**9)),
            r"in_features=1000000000, which cannot be",
        ),
        (meta(lambda m: m["layers"][0].update(dtype="load")), r"dtype='load', which cannot be"),
        (meta(lambda m: m["layers"][0].update(config=-1)), r"config=-1, which cannot be"),
        (meta(lambda m: m["layers"][0].update(path="eval")), r"path='eval', which cannot be"),
        (meta(lambda m: m["layers"][0].update(transform="head")), r"shares the transform of 'head'"),
        (meta(lambda m: m["layers"].append(m["layers"][0])), r"is listed twice"),
        (
            meta(lambda m: m["configs"][0].update(block_size=10**9)),
            r"block_size=1000000000 must be a power of two",
        ),
        (meta(lambda m: m["configs"][0].update(evil=1)), r"evil is no field"),
        (meta(lambda m: m["aliases"].update(x="nothing")), r"'x' is an alias of 'nothing', which cannot be"),
        (meta(lambda m: m.update(aliases=[1])), r"'aliases' must be an object"),
    ],
)  # fmt: skip
def test_hostile_files(saved, change, message):
    sign = "aliases" not in message and "alias of" not in message
    refused(fresh(), rewritten(saved, change, sign=sign), message)


def test_a_file_that_was_changed(saved):
    change = meta(lambda m: m["configs"][0].update(act_bits=4))
    refused(
        fresh(), rewritten(saved, change, sign=False), "the hash of configuration and shapes does not match"
    )


@pytest.mark.parametrize("content", [b"", b"hello", b"\xff" * 100, b"\x08" + b"\0" * 7 + b"{}      "])
def test_files_of_another_kind(content, tmp_path):
    (tmp_path / "x").write_bytes(content)
    refused(fresh(), tmp_path / "x", "is damaged, or no safetensors file|is no checkpoint")


def test_a_truncated_file(saved):
    saved.write_bytes(saved.read_bytes()[:-100])
    refused(fresh(), saved, "is damaged, or no safetensors file")


@pytest.mark.parametrize(
    ("config", "change", "message"),
    [
        (
            DuQuantConfig.vla(calib_batches=1),
            poke("head.row_rotation", 0, float("nan")),
            r"head\.row_rotation has values that are not finite",
        ),
        (
            CONFIG.replace(act_scaling="static", act_granularity="tensor", calib_batches=1),
            poke("head.act_zero", 0, 2**31 - 1),
            r"head\.act_zero is 2147483647, which is no code",
        ),
    ],
)
def test_hostile_values_of_static_scales_and_row_rotations(config, change, message, tmp_path):
    model = Tiny()
    with calibrate(model, config) as stats, torch.no_grad():
        model(batches(1)[0])
    quantize_(model, config, stats)
    save_quantized(model, tmp_path / "model")
    refused(Tiny(), rewritten(tmp_path / "model", change), message)


def test_state_that_no_file_can_hold(quantized, saved, tmp_path):
    class Counted(Tiny):
        def get_extra_state(self):
            return {"steps": 3}

    model = Counted()
    model.layers = quantized.layers
    with pytest.raises(MisuseError, match="'_extra_state' is a dict, and safetensors hold tensors only"):
        save_quantized(model, tmp_path / "model")
    assert not (tmp_path / "model").exists()
    with torch.device("meta"):
        model = fresh()
    with pytest.raises(MisuseError, match=r"is on the meta device in the model.*call model\.to_empty"):
        load_quantized(model, saved)
    assert not any(isinstance(module, DuQuantLinear) for module in model.modules())
    load_quantized(model.to_empty(device="cpu"), saved)
    with pytest.raises(MisuseError, match="is on the meta device, without data"):
        save_quantized(model.to("meta"), tmp_path / "model")


def test_saving_what_is_not_quantized(tmp_path):
    with pytest.raises(MisuseError, match="no layer of the model is quantized"):
        save_quantized(Tiny(), tmp_path / "x")
    assert not (tmp_path / "model").exists()


def test_statistics_are_saved_and_go_on(tmp_path):
    model = Tiny()
    config = DuQuantConfig.vla(calib_batches=2)
    stats = calibrated(model, config)
    stats.save(tmp_path / "stats")
    loaded = CalibrationStats.load(tmp_path / "stats")
    assert str(loaded) == str(stats) and loaded.groups == stats.groups and loaded.config == config
    twin = Tiny()
    twin.load_state_dict(model.state_dict())
    quantize_(model, config, stats)
    quantize_(twin, config, loaded)
    x = batches(1)[0]
    assert torch.equal(model(x), twin(x))
    more = config.replace(calib_batches=3)
    twin = Tiny()
    with calibrate(twin, more, resume=loaded) as resumed, torch.no_grad():
        twin(x)
    assert resumed.batches == 3


def test_statistics_of_another_kind(saved, tmp_path):
    with pytest.raises(MisuseError, match=r"is no calibration: its format is 'rote\.quant'"):
        CalibrationStats.load(saved)
    stats = calibrated(Tiny())
    stats.save(tmp_path / "stats")
    with safe_open(tmp_path / "stats", "pt") as file:
        metadata = file.metadata()
    tensors = load_file(tmp_path / "stats")
    tensors.pop("head:peak")
    save_file(tensors, tmp_path / "stats", metadata=metadata)
    with pytest.raises(MisuseError, match="is a damaged calibration"):
        CalibrationStats.load(tmp_path / "stats")


def of_head(part, value):
    return lambda tensors, content: tensors.update({f"head:{part}": value(tensors[f"head:{part}"])})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t, c: c.update(batches="2"), "batches cannot be '2'"),
        (lambda t, c: c.update(wanted=-1), "wanted cannot be -1"),
        (lambda t, c: c.update(groups=5), "groups cannot be 5"),
        (lambda t, c: c.update(sources={"a": 1}), "sources cannot be"),
        (lambda t, c: c["layers"]["head"].update(calls=True), "calls of 'head'"),
        (lambda t, c: c["layers"]["head"].update(count=1), "count of 'head'"),
        (lambda t, c: c["layers"]["head"].update(leaders=4), "leaders of 'head'"),
        (of_head("rows", lambda rows: rows / 0), "rows of 'head'"),
        (of_head("rows", lambda rows: rows.half()), "rows of 'head'"),
        (of_head("peak", lambda peak: -peak), "peak of 'head'"),
        (of_head("keys", lambda keys: keys[1:]), "keys of 'head'"),
        (of_head("bounds", lambda bounds: bounds.flip(0)), "bounds of 'head'"),
        (of_head("bounds", lambda bounds: bounds[:, 1:]), "bounds of 'head'"),
    ],
)
def test_hostile_statistics(change, message, tmp_path):
    config = DuQuantConfig.vla(calib_batches=2)
    calibrated(Tiny(), config).save(tmp_path / "stats")
    tensors, content = storage.read(tmp_path / "stats")
    change(tensors, content)
    storage.write(tmp_path / "stats", tensors, content)
    with pytest.raises(MisuseError, match=f"is a damaged calibration: {message}"):
        CalibrationStats.load(tmp_path / "stats")


def test_a_place_where_nothing_can_be_written(quantized, tmp_path):
    with pytest.raises(MisuseError, match=r"cannot be written: there is no folder .*nowhere"):
        save_quantized(quantized, tmp_path / "nowhere" / "tiny.safetensors")
    with pytest.raises(MisuseError, match="is a folder"):
        save_quantized(quantized, tmp_path)
