"""Smoothing that is folded into norms; that into layers is in test_flows and test_folding_layers."""

from __future__ import annotations

import pytest
import torch

from rote import MisuseError
from rote.quant import DuQuantConfig, calibrate, load_quantized, quantize_, save_quantized
from rote.quant.calibrating.folding import NotFoldedError, find_fold, source_of

from .models import Tiny, batches

CONFIG = DuQuantConfig(
    block_size=16, rotation_steps=4, calib_batches=2, fold_smoothing=True, weight_bits=8, sample_rows=64
)
GROUPS = [
    ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    ["mlp.gate_proj", "mlp.up_proj"],
    ["mlp.down_proj"],  # into up_proj
]


def calibrated(model, config=CONFIG, **options):
    with calibrate(model, config, **options) as stats, torch.no_grad():
        for batch in batches(2):
            model(batch)
    return stats


class GemmaNorm(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(size) * 0.3)

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * (1 + self.weight)


class SquareNorm(GemmaNorm):
    def forward(self, x):
        return x * self.weight.square()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("make", [torch.nn.RMSNorm, torch.nn.LayerNorm, GemmaNorm])
def test_a_folded_norm_divides_its_output(make, dtype):
    norm = make(32).to(dtype)
    for parameter in norm.parameters():
        parameter.data += 0.2 * torch.randn(32).to(dtype)
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    scale, x = torch.rand(32) + 0.5, torch.randn(7, 32).to(dtype)
    expected = norm(x).float() / scale
    fold = find_fold(norm, scale)
    assert fold is not None
    assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items()), "only tried"
    fold.apply()
    assert torch.allclose(
        norm(x).float(), expected, rtol=4 * torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps * 8
    )


def test_a_norm_of_another_kind_is_left_alone():
    norm = SquareNorm(32)
    before = norm.weight.detach().clone()
    assert find_fold(norm, torch.rand(32) + 0.5) is None
    assert find_fold(norm, torch.ones(31)) is None
    assert torch.equal(norm.weight, before)


def test_groups_behind_norms_are_smoothed_at_no_cost():
    model, x = Tiny(), batches(1, seed=4)[0]
    expected = model(x)
    norms = [block.input_layernorm.weight.detach().clone() for block in model.layers]
    report = quantize_(model, CONFIG, calibrated(model), stages=True)
    assert ((model(x) - expected).norm() / expected.norm()) < 0.03
    for block, before in zip(model.layers, norms, strict=True):
        assert not torch.allclose(block.input_layernorm.weight, before)
        assert block.self_attn.q_proj.transform.smooth is None
    assert all(row.stages[1].name == "smoothing" for row in report)
    folded = [row.name for row in report if model.get_submodule(row.name).transform.smooth is None]
    assert folded == [f"layers.{i}.{name}" for i in (0, 1) for group in GROUPS for name in group]
    for row in report:
        assert row.output_error is not None and row.output_error < 2e-3
        assert row.weight_error is not None and row.weight_error < 1e-3


def test_it_is_the_smoothing_that_would_be_done_online():
    model, twin = Tiny(), Tiny()
    twin.load_state_dict(model.state_dict())
    online = CONFIG.replace(fold_smoothing=False)
    folded = quantize_(model, CONFIG, calibrated(model))
    divided = quantize_(twin, online, calibrated(twin, online))
    for name in ("layers.0.self_attn.q_proj", "layers.1.mlp.up_proj"):
        codes = [m.get_submodule(name).codes() for m in (model, twin)]
        assert torch.equal(*codes)
        assert folded[name].output_error == pytest.approx(divided[name].output_error, rel=0.01)


def test_a_norm_that_feeds_another_layer_is_not_folded_into():
    model, x = Tiny(blocks=1), batches(1, seed=4)[0]
    expected = model(x)
    stats = calibrated(model, exclude="*.k_proj")
    with pytest.raises(NotFoldedError, match=r"is also read by 'layers\.0\.self_attn\.k_proj'"):
        source_of(["layers.0.self_attn.q_proj", "layers.0.self_attn.v_proj"], stats)
    assert (
        source_of(["layers.0.mlp.gate_proj", "layers.0.mlp.up_proj"], stats)
        == "layers.0.post_attention_layernorm"
    )
    with pytest.raises(NotFoldedError, match="no norm or linear layer feeds it"):
        source_of(["layers.0.self_attn.o_proj"], stats)
    before = model.layers[0].input_layernorm.weight.detach().clone()
    quantize_(model, CONFIG, stats, exclude="*.k_proj")
    assert torch.equal(model.layers[0].input_layernorm.weight, before)
    assert ((model(x) - expected).norm() / expected.norm()) < 0.03


class Reading(torch.nn.Module):
    """A layer behind a norm, and something else that may read the norm's output."""

    def __init__(self, way):
        super().__init__()
        self.way = way
        self.norm, self.layer = torch.nn.LayerNorm(32), torch.nn.Linear(32, 32)
        self.last = torch.nn.LayerNorm(32)
        self.router = torch.nn.Parameter(torch.randn(32, 32))
        self.norm.weight.data = 0.5 + torch.rand(32)
        self.norm.weight.data[3] = 15.0

    def forward(self, x):
        y = self.norm(x)
        if self.way == "another norm":
            self.last(x)
        if self.way == "in place":
            y += 1
        if self.way == "nothing":
            y = y.contiguous()
            assert y.shape[-1] == y.size(-1) == 32 and y.dim() == 3 and not y.is_cuda
        z = self.layer(y)
        if self.way == "residual":
            return z + y
        if self.way == "by hand":
            return z * torch.nn.functional.linear(y, self.router)
        if self.way == "part":
            return z * torch.cat([part.tanh() for part in y.chunk(2, -1)], -1)
        if self.way == "handed out":
            return {"found": [z, y]}
        return z


NOTHING_ELSE = ("nothing", "another norm")
OTHERS = {
    "residual": "aten::add", "by hand": "aten::mm", "part": "aten::tanh", "handed out": "its caller",
    "in place": "aten::add_",
}  # fmt: skip


@pytest.mark.parametrize("way", [*NOTHING_ELSE, *OTHERS])
def test_a_norm_that_something_else_reads_is_not_folded_into(way):
    def flat(result):
        return torch.cat(result["found"], -1) if isinstance(result, dict) else result

    model = Reading(way).eval()
    x, before = batches(1, seed=4)[0], model.norm.weight.detach().clone()
    with torch.no_grad():
        expected = flat(model(x))
    (row,) = quantize_(model, CONFIG, calibrated(model))
    folds = way in NOTHING_ELSE
    other = f"smoothed when called: 'norm', which feeds it, is also read by {OTHERS.get(way)}"
    assert row.note == ("" if folds else other)
    assert torch.equal(model.norm.weight, before) != folds
    with torch.no_grad():
        assert (flat(model(x)) - expected).norm() / expected.norm() < 0.03


class Norm(torch.nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.norm, self.layer = norm, torch.nn.Linear(32, 32)
        norm.weight.data = 0.5 + 3 * torch.rand(32)
        self.other = torch.nn.LayerNorm(32)

    def forward(self, x):
        return self.layer(self.norm(x)) + self.other(x).tanh()


@pytest.mark.parametrize("kind", [lambda: torch.nn.GroupNorm(4, 32), lambda: torch.nn.BatchNorm1d(32)])
def test_a_norm_over_another_dimension_is_not_folded_into(kind):
    model = Norm(kind()).eval()
    every = [batch * torch.linspace(0.1, 9, 32) for batch in batches(3, rows=32)]  # rows as many as channels
    with torch.no_grad():
        expected = model(every[2])
        with calibrate(model, CONFIG) as stats:
            model(every[0]), model(every[1])
        (row,) = quantize_(model, CONFIG, stats)
        assert (model(every[2]) - expected).norm() / expected.norm() < 0.03
    assert row.note.startswith("smoothed when called: no norm or linear layer feeds it")


def test_a_norm_that_shares_its_weight_is_not_folded_into():
    model, x = Norm(torch.nn.LayerNorm(32)).eval(), batches(1, seed=4)[0]
    model.other.weight = model.norm.weight
    with torch.no_grad():
        expected = model(x)
        (row,) = quantize_(model, CONFIG, calibrated(model))
        assert (model(x) - expected).norm() / expected.norm() < 0.03
    assert row.note.endswith("'norm', which feeds it, shares its weight or bias with another module")


class AdaptiveNorm(GemmaNorm):
    def forward(self, x, shift=None):
        y = super().forward(x)
        return y if shift is None else y + shift


@pytest.mark.parametrize("shift", [None, 1.0])
def test_a_norm_that_is_given_more_than_rows_is_not_folded_into(shift):
    class Adapted(Norm):
        def forward(self, x):
            return self.layer(self.norm(x, shift=shift))

    model, x = Adapted(AdaptiveNorm(32)).eval(), batches(1, seed=4)[0]
    with torch.no_grad():
        expected = model(x)
        (row,) = quantize_(model, CONFIG, calibrated(model))
        assert (model(x) - expected).norm() / expected.norm() < 0.03
    assert row.note.startswith("smoothed when called") == (shift is not None)


class ChannelsNorm(torch.nn.Module):
    """Of the dimension before the last."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(32))

    def forward(self, x):
        return x / x.norm(dim=-2, keepdim=True) * self.weight[:, None]


def test_a_norm_of_ones_own_over_another_dimension_is_not_folded_into():
    model = Norm(ChannelsNorm()).eval()
    with torch.no_grad(), calibrate(model, CONFIG) as stats:
        for batch in batches(2, rows=32):
            model(batch)
    (row,) = quantize_(model, CONFIG, stats)
    assert row.note.endswith("'norm', which feeds it, does not multiply by its weight")


class GatedNorm(GemmaNorm):
    def forward(self, x, gate):
        return super().forward(x * gate)


def test_a_norm_that_takes_more_than_rows_is_left_alone():
    assert find_fold(GatedNorm(32), torch.rand(32) + 0.5) is None


def test_folding_is_told_to_calibration():
    model = Tiny()
    with pytest.raises(MisuseError, match="taken with fold_smoothing=False and are to be used with"):
        quantize_(model, CONFIG, calibrated(model, CONFIG.replace(fold_smoothing=False)))


def test_checkpoints_hold_the_folded_norm(tmp_path):
    model, x = Tiny(), batches(1)[0]
    quantize_(model, CONFIG, calibrated(model))
    save_quantized(model, tmp_path / "a")
    other = Tiny()
    load_quantized(other, tmp_path / "a", config=CONFIG)
    assert torch.equal(other(x), model(x))
    with pytest.raises(MisuseError, match="another configuration: fold_smoothing=True and not False"):
        load_quantized(Tiny(), tmp_path / "a", config=CONFIG.replace(fold_smoothing=False))


def test_what_cannot_be_folded_is_divided_when_called():
    model, twin = Tiny(), Tiny()
    twin.load_state_dict(model.state_dict())
    online, stats = CONFIG.replace(fold_smoothing=False), calibrated(model)
    weight = model.layers[0].input_layernorm.weight.detach().clone()
    planned = quantize_(model, CONFIG, stats, dry_run=True)
    assert torch.equal(model.layers[0].input_layernorm.weight, weight)
    folded = quantize_(model, CONFIG, stats)
    divided = quantize_(twin, online, calibrated(twin, online))
    for before, after in zip(planned, folded, strict=True):
        assert before.bytes_after == after.bytes_after
        assert before.note == "" or before.note in after.note
    name = "layers.0.self_attn.o_proj"
    layer, other = model.get_submodule(name), twin.get_submodule(name)
    assert layer.config == other.config == online
    assert torch.equal(layer.transform.smooth, other.transform.smooth)
    assert torch.equal(layer.codes(), other.codes())
    assert folded[name].output_error == divided[name].output_error
    assert folded[name].note.startswith("smoothed when called: no norm or linear layer feeds it")
