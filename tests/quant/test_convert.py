"""quantize_: every layer quantized or with a reason, groups, reports, and no half-done models."""

from __future__ import annotations

import json
import warnings

import pytest
import torch
from torch.nn.utils import prune

from rote import MisuseError, OptionError
from rote.quant import DuQuantConfig, DuQuantLinear, calibrate, load_quantized, quantize_, save_quantized
from rote.quant.calibrating.calibration import share, share_by_name

from .models import Tiny, batches

CONFIG = DuQuantConfig(block_size=16, rotation_steps=8, calib_batches=2, sample_rows=64)
PLAIN = DuQuantConfig(block_size=16, rotation="hadamard", permutation="none", smooth_alpha=None)


def calibrated(model, config=CONFIG, **options):
    with calibrate(model, config, **options) as stats, torch.no_grad():
        for batch in batches(config.calib_batches):
            model(batch)
    return stats


@pytest.mark.parametrize("path", ["reference", "fused", "kernel"])
def test_a_model_keeps_its_output(path):
    model, x = Tiny(), batches(1, seed=5)[0]
    expected = model(x)
    config = CONFIG.replace(weight_bits=8, path=path)
    report = quantize_(model, config, calibrated(model, config))
    assert len(report.quantized) == len(report.layers) == 15
    assert all(isinstance(model.get_submodule(row.name), DuQuantLinear) for row in report)
    assert ((model(x) - expected).norm() / expected.norm()) < 0.03


def test_every_layer_has_a_row_with_its_reason():
    model = Tiny()
    model.tied = torch.nn.Linear(32, 5, bias=False)
    model.tied.weight = model.head.weight
    model.odd = type("Lora", (torch.nn.Linear,), {})(32, 4)
    model.unused = torch.nn.Linear(32, 4)
    model.broken = torch.nn.Linear(32, 4)
    with torch.no_grad():
        model.broken.weight[0, 0] = float("nan")
    config = CONFIG.replace(layer_bits=(("layers.1.mlp.*", 16), ("*.o_proj", 8)), weight_bits=4)
    report = quantize_(model, config, calibrated(model, config), exclude=["re:layers\\.0\\.mlp"])
    reasons = {row.name: row.reason for row in report}
    assert len(reasons) == 19
    assert reasons["tied"] == "shares its weight with head.weight"
    assert reasons["head"] == "shares its weight with tied.weight"
    assert reasons["odd"] == "is a Lora, which may do more than torch.nn.Linear"
    assert reasons["unused"] == "was not called in calibration"
    assert reasons["broken"] == "its weight has values that are not finite"
    assert reasons["layers.1.mlp.up_proj"] == "set to 16 bits"
    assert reasons["layers.0.mlp.up_proj"] == "excluded by 're:layers\\\\.0\\\\.mlp'"
    assert reasons["layers.0.self_attn.q_proj"] == ""
    assert report["layers.0.self_attn.o_proj"].weight_bits == 8
    assert report["layers.0.self_attn.q_proj"].weight_bits == 4
    again = quantize_(model, PLAIN, include="*.q_proj")
    assert again["layers.0.self_attn.q_proj"].reason == "is quantized already"
    assert again["odd"].reason == "fits no pattern of include"


def test_groups_share_one_transform():
    model = Tiny()
    report = quantize_(model, CONFIG, calibrated(model))
    attention = model.layers[0].self_attn
    assert attention.q_proj.transform is attention.k_proj.transform is attention.v_proj.transform
    assert attention.o_proj.transform is not attention.q_proj.transform
    assert model.layers[0].mlp.gate_proj.transform is model.layers[0].mlp.up_proj.transform
    assert report["layers.0.self_attn.v_proj"].group == "layers.0.self_attn.q_proj"
    moved = model.to(torch.bfloat16)
    assert moved.layers[0].self_attn.q_proj.transform is moved.layers[0].self_attn.k_proj.transform
    counted = sum(row.bytes_after for row in report)
    held = {t.data_ptr(): t.numel() * t.element_size() for t in model.float().buffers() if t.numel()}
    assert counted == sum(held.values()), "what is shared is counted once"


def test_no_group_without_wanting_it():
    model = Tiny()
    config = CONFIG.replace(share_groups=False)
    quantize_(model, config, calibrated(model, config))
    attention = model.layers[0].self_attn
    assert attention.q_proj.transform is not attention.k_proj.transform


def test_calibration_overrules_names():
    class Odd(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.q_proj, self.k_proj = torch.nn.Linear(32, 32), torch.nn.Linear(32, 32)
            self.left, self.right = torch.nn.Linear(32, 32), torch.nn.Linear(32, 32)

        def forward(self, x):
            y = self.q_proj(x) + self.k_proj(x * 2)
            return self.left(y) + self.right(y)

    model = Odd()
    names = dict.fromkeys(["q_proj", "k_proj", "left", "right"], 32)
    assert share_by_name(names, CONFIG) == [["q_proj", "k_proj"], ["left"], ["right"]]
    assert share(names, CONFIG, calibrated(model)) == [["q_proj"], ["k_proj"], ["left", "right"]]


@pytest.mark.parametrize(
    "config", [CONFIG, CONFIG.replace(weight_range="learned"), DuQuantConfig.vla(calib_batches=2)]
)
@pytest.mark.parametrize("inside", ["weights", "calibration", "quantization"])
def test_in_inference_mode(config, inside, tmp_path):
    fresh, x = Tiny(), torch.randn(4, 32, requires_grad=True)
    with torch.inference_mode(inside == "weights"):
        model, other = Tiny(), Tiny()
    with torch.inference_mode(inside != "quantization"):
        stats = calibrated(model, config)
    with torch.inference_mode(inside == "quantization"):
        quantize_(model, config, stats)
        save_quantized(model, tmp_path / "model")
        load_quantized(fresh, tmp_path / "model")
    with torch.no_grad():
        assert torch.equal(model(x), fresh(x))
    if inside == "weights":
        with pytest.raises(MisuseError, match="was made in inference mode in the model"):
            load_quantized(other, tmp_path / "model")
        assert not any(isinstance(module, DuQuantLinear) for module in other.modules())
        with torch.inference_mode():
            load_quantized(other, tmp_path / "model")
            assert torch.equal(other(x), fresh(x))
        model = other.head  # what is new is ordinary
    for each in (model, fresh):
        each(x).sum().backward()
        each.to(torch.bfloat16)(x.bfloat16()).sum().backward()


def test_statistics_of_another_model():
    other = Tiny(48)
    with pytest.raises(
        MisuseError, match=r"'layers\.0\.self_attn\.q_proj' takes 48 features, and took 32 in"
    ):
        quantize_(other, CONFIG, calibrated(Tiny()))
    assert not any(isinstance(module, DuQuantLinear) for module in other.modules())


def test_a_name_is_no_evidence_where_widths_differ():
    class Across(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.q_proj, self.k_proj = torch.nn.Linear(32, 32), torch.nn.Linear(64, 32)
            self.v_proj = torch.nn.Linear(64, 32)

        def forward(self, x, y):
            return self.q_proj(x) + self.k_proj(y) * self.v_proj(y)

    model, inputs = Across(), (torch.randn(4, 32), torch.randn(4, 64))
    expected = model(*inputs)
    assert [row.group for row in quantize_(model, PLAIN)] == ["q_proj", "k_proj", "k_proj"]
    assert ((model(*inputs) - expected).norm() / expected.norm()) < 0.5


@pytest.mark.parametrize("share_groups", [False, True])
def test_a_dry_run_changes_nothing_and_foretells_the_bytes(share_groups):
    model, twin = Tiny(64), Tiny(64)
    config = PLAIN.replace(share_groups=share_groups)
    planned = quantize_(model, config, dry_run=True, exclude="head")
    assert planned.dry_run and not any(isinstance(m, DuQuantLinear) for m in model.modules())
    done = quantize_(twin, config, exclude="head")
    assert [(r.name, r.reason, r.group, r.bytes_before, r.bytes_after) for r in planned] == [
        (r.name, r.reason, r.group, r.bytes_before, r.bytes_after) for r in done
    ]
    assert "would be quantized" in str(planned)


@pytest.mark.parametrize(
    "config",
    [DuQuantConfig(), DuQuantConfig.vla(path="kernel", transform_dtype="bfloat16")],
    ids=["duquant", "policy"],
)
def test_layers_of_real_size_keep_little_more_than_a_quarter_of_their_bytes(config):
    shapes = {"up": (1024, 4096), "down": (4096, 1024), "q": (1024, 2048), "o": (2048, 1024)}
    model = torch.nn.ModuleDict({name: torch.nn.Linear(*shape, bias=False) for name, shape in shapes.items()})
    report = quantize_(model.bfloat16(), config, dry_run=True)
    assert len(report.quantized) == 4 and 0.25 < report.ratio < 0.28


def test_calibration_is_asked_for():
    model = Tiny()
    with pytest.raises(MisuseError, match="needs calibration"):
        quantize_(model, CONFIG)
    watched = calibrate(model, CONFIG)
    with pytest.raises(MisuseError), watched, torch.no_grad():
        model(batches(1)[0])
    with pytest.raises(MisuseError, match="not finished: 1 of 2 batches"):
        quantize_(model, CONFIG, watched.stats)
    with pytest.raises(OptionError, match=r"exclude: '\*.fc' matches none"):
        quantize_(model, PLAIN, exclude="*.fc")
    with pytest.raises(OptionError, match=r"layer_bits: 'x' matches none"):
        quantize_(model, PLAIN.replace(layer_bits=(("x", 8),)))


def test_an_error_leaves_the_model_as_it_was(monkeypatch):
    from rote.quant.converting import convert

    model = Tiny()
    real, calls = convert.fill_layer, []

    def failing(*arguments, **keywords):
        calls.append(1)
        if len(calls) == 4:
            raise MemoryError
        return real(*arguments, **keywords)

    monkeypatch.setattr(convert, "fill_layer", failing)
    with pytest.raises(MemoryError):
        quantize_(model, PLAIN)
    assert not any(isinstance(module, DuQuantLinear) for module in model.modules())


def test_a_module_in_two_places_is_replaced_in_both():
    model = Tiny()
    model.again = model.head
    quantize_(model, PLAIN)
    assert isinstance(model.head, DuQuantLinear) and model.again is model.head


def test_bounds_behind_groups_need_the_same_layers():
    model = Tiny()
    config = DuQuantConfig.vla(block_size=8, calib_batches=2, share_groups=True)
    stats = calibrated(model, config)
    with pytest.raises(MisuseError, match="the same include and exclude"):
        quantize_(model, config, stats, exclude="*.k_proj")
    quantize_(model, config, stats)


def test_errors_in_the_report():
    model = Tiny()
    report = quantize_(model, CONFIG, calibrated(model), stages=True)
    for row in report:
        assert row.weight_error is not None and 0.0005 < row.weight_error < 0.05
        assert row.output_error is not None and 0.0005 < row.output_error < 0.05
        assert row.token_error is not None and row.clipped == 0.0
        assert [stage.name for stage in row.stages] == [
            "input", "smoothing", "rotation", "permutation", "rotation",
        ]  # fmt: skip
        assert row.stages[-1].peak <= row.stages[0].peak
    hot = report["layers.0.self_attn.q_proj"]
    assert hot.stages[-1].error < hot.stages[0].error / 2, "which is what the transform is for"
    assert hot.stages[0].channels[0] == hot.stages[0].peak
    table = str(report)
    lines = table.splitlines()[1:-1]
    for part in ("W4A8", "kernel"):
        assert len({line.index(part) for line in lines}) == 1, "columns are aligned"
    assert len({line.index("one launch") for line in lines if "one launch" in line}) == 1
    assert "W4A8" in table and "15 of 15 linear layers quantized" in table
    rows = json.loads(report.to_json())["rows"]
    assert rows[0]["name"] == "layers.0.self_attn.q_proj" and rows[0]["shape"] == [32, 32]
    with pytest.raises(KeyError):
        report["nothing"]


def test_weights_of_linear_maps_elsewhere_are_listed():
    class Conv1D(torch.nn.Module):
        def __init__(self, out, width):
            super().__init__()
            self.weight, self.bias = (
                torch.nn.Parameter(torch.randn(width, out)),
                torch.nn.Parameter(torch.zeros(out)),
            )

    class Experts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.gate_up_proj = torch.nn.Parameter(torch.randn(4, 64, 32))
            self.down_proj = torch.nn.Parameter(torch.randn(4, 32, 32))

    model = torch.nn.ModuleDict(
        {
            "linear": torch.nn.Linear(32, 32), "conv1d": Conv1D(96, 32), "experts": Experts(),
            "attention": torch.nn.MultiheadAttention(32, 4), "lstm": torch.nn.LSTM(8, 4),
            "words": torch.nn.Embedding(7, 32), "conv": torch.nn.Conv1d(3, 4, 5),
            "norm": torch.nn.LayerNorm((4, 5)), "pieces": torch.nn.Conv2d(3, 4, 5),
        }
    )  # fmt: skip
    for report in (quantize_(model, PLAIN, exclude="experts", dry_run=True), quantize_(model, PLAIN)):
        assert [row.name for row in report.quantized] == ["linear"]
        assert [row.name for row in report] == [
            "linear", "conv1d", "experts", "attention", "attention.out_proj", "lstm"
        ]  # fmt: skip
    assert report["conv1d"].reason == "is a Conv1D with weights of its own (weight), and no torch.nn.Linear"
    assert "(gate_up_proj, down_proj)" in report["experts"].reason and "1 of 6" in str(report)
    assert report["experts"].shape == (4, 64, 32) and "4x64x32" in str(report)
    assert report["experts"].bytes_after == 4 * (4 * 64 * 32 + 4 * 32 * 32)
    assert report["attention"].bytes_after == 4 * (96 * 32 + 96), "the output's have a row of their own"
    with pytest.raises(OptionError, match="include: 'experts' matches none of the 2 linear layers"):
        quantize_(model, PLAIN, include="experts")


def test_a_model_without_linear_layers():
    report = quantize_(torch.nn.ReLU(), PLAIN)
    assert report.layers == () and report.ratio == 1.0 and "0 of 0" in str(report)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_layers_that_are_more_than_their_weight_are_left_alone():
    class Mixed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.normed = torch.nn.utils.weight_norm(torch.nn.Linear(32, 32))
            self.masked = torch.nn.Linear(32, 32)
            prune.l1_unstructured(self.masked, "weight", 0.5)
            self.patched, self.adapted = torch.nn.Linear(32, 32), torch.nn.Linear(32, 32)
            original = self.patched.forward
            self.patched.forward = lambda x: original(x) * 2
            self.adapted.adapter = torch.nn.Linear(32, 2)
            self.encoder = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
            self.plain = torch.nn.Linear(32, 32)

        def forward(self, x):
            x = self.patched(self.masked(self.normed(x)))
            return self.plain(self.adapted(self.encoder(x)))

    model, x = Mixed().eval(), batches(1, seed=5)[0]
    with torch.no_grad():
        before = model.encoder(x)
    report = quantize_(model, CONFIG, calibrated(model))
    reasons = {row.name: row.reason for row in report}
    assert reasons["normed"].startswith("its weight is made anew for each call")
    assert reasons["masked"] == reasons["normed"]
    assert reasons["patched"] == "its forward was replaced by another function, which would be lost"
    assert reasons["adapted"] == "has a module of its own, 'adapter', which would be lost"
    assert reasons["encoder.linear1"].endswith("takes the weight itself in evaluation")
    assert [row.name for row in report.quantized] == ["plain"]
    with torch.no_grad():
        assert torch.equal(model.encoder(x), before)


def test_a_layer_that_is_the_model_and_one_that_is_scripted():
    (row,) = quantize_(torch.nn.Linear(32, 32), PLAIN)
    assert row.reason.startswith("is the model itself, which cannot be replaced in place")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(32, 32)))
    with pytest.raises(MisuseError, match="quantize the module that it was made of"):
        quantize_(scripted, PLAIN)


def test_hooks_on_a_layer_go_on():
    model, seen = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Linear(32, 32)), []
    before = model[0].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    model[0].register_forward_hook(lambda module, *given: seen.append(type(module)), with_kwargs=True)
    quantize_(model, PLAIN)
    x = torch.randn(4, 32)
    doubled = model(x)
    assert seen == [DuQuantLinear]
    before.remove()
    assert torch.equal(model(x * 2), doubled) and len(seen) == 2
