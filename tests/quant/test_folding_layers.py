"""Smoothing that is folded into the linear layer before: what may lie between the two, and what may not."""

from __future__ import annotations

import copy
import threading
import warnings
import weakref
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from hypothesis import event, given, settings
from hypothesis import strategies as st

from rote import MisuseError
from rote.quant import DuQuantConfig, calibrate, load_quantized, quantize_, save_quantized
from rote.quant.folding import smooth_group
from rote.quant.layers import candidates
from rote.quant.stats import CalibrationStats

from .models import Mlp, Tiny, batches

CONFIG = DuQuantConfig(
    block_size=16, rotation_steps=4, calib_batches=2, fold_smoothing=True, weight_bits=8, sample_rows=64
)
WIDTH, HEADS = 32, 4


def calibrated(model, config=CONFIG, **options):
    model.eval()
    with calibrate(model, config, **options) as stats, torch.no_grad():
        for batch in batches(config.calib_batches):
            model(batch)
    return stats


class Between(torch.nn.Module):
    """A layer, something, and a layer."""

    def __init__(self, way, up=WIDTH):
        super().__init__()
        self.way = way
        self.up, self.down = torch.nn.Linear(WIDTH, up), torch.nn.Linear(WIDTH, WIDTH)
        self.gate, self.other = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.gamma = torch.nn.Parameter(torch.rand(WIDTH) + 0.5)
        self.drop, self.relu = torch.nn.Dropout(0.1), torch.nn.ReLU(inplace=True)
        self.norm = torch.nn.LayerNorm(WIDTH)
        with torch.no_grad():
            self.up.weight[3] *= 30  # a hot channel

    def forward(self, x):
        return self.way(self, x)


@dataclass
class Handed:
    result: object
    inner: object


def heads(x):
    return x.unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)


def whole(x):
    return x.transpose(1, 2).flatten(2)


def attended(m, x, values, **options):
    q, k = heads(m.gate(x)), heads(m.other(x))
    return F.scaled_dot_product_attention(q, k[:, : values.shape[1]], values, **options)


def by_hand(m, x):
    """Attention of four heads to two of values, written out."""
    values = heads(m.up(x))[:, :, None].expand(-1, -1, 2, -1, -1).reshape(len(x), HEADS, -1, WIDTH // HEADS)
    weights = (heads(m.gate(x)) @ heads(m.other(x)).mT).softmax(-1)
    return m.down(whole(m.drop(weights) @ values))


def by_einsum(m, x):
    weights = torch.einsum("bhsd,bhtd->bhst", heads(m.gate(x)), heads(m.other(x))).softmax(-1)
    return m.down(torch.einsum("bhst,bhtd->bshd", weights, heads(m.up(x))).flatten(2))


def with_a_cache(m, x):
    values = m.up(x)
    first, last = values[:, :3], values[:, 3:]
    return m.down(whole(attended(m, x, torch.cat([heads(first), heads(last)], -2))))


def in_another_order(m, x):
    first, second = m.up(x).chunk(2, -1)
    return m.down(torch.cat([second, first.flip(-1)], -1))


def with_padded_heads(m, x):
    """As attention on a GPU does it where the size of a head is no multiple of 8."""
    values = F.pad(heads(m.up(x)), (0, 3))
    return m.down(whole(attended(m, x, values)[..., : WIDTH // HEADS]))


def in_place(m, x):
    y = m.up(x)
    y *= F.silu(m.gate(x))
    return m.down(m.relu(y))


def into_the_gate(m, x):
    return m.down(F.silu(m.gate(x)).mul_(m.up(x)))


def twice(m, x):
    y = m.up(x)
    return m.down(F.relu(y) + y * m.gamma - y / 3)


ALLOWED = {
    "gated": lambda m, x: m.down(F.silu(m.gate(x)) * m.up(x)),
    "nothing": lambda m, x: m.down(m.up(x)),
    "relu": lambda m, x: m.down(F.relu(m.up(x))),
    "leaky relu and dropout": lambda m, x: m.down(m.drop(F.leaky_relu(m.up(x)))),
    "in place": in_place,
    "into the gate": into_the_gate,
    "scale of the layer": lambda m, x: m.down(m.up(x) * m.gamma),
    "other type and back": lambda m, x: m.down(m.up(x).float().double()),
    "a view that is written to": lambda m, x: m.down(m.up(x).view(-1).relu_().view_as(x)),
    "in another order": in_another_order,
    "more than once": twice,
    "attention": lambda m, x: m.down(whole(attended(m, x, heads(m.up(x))))),
    "attention by einsum": by_einsum,
    "attention to a cache": with_a_cache,
    "attention of padded heads": with_padded_heads,
}
GROUPED = {
    "grouped attention": lambda m, x: m.down(whole(attended(m, x, heads(m.up(x)), enable_gqa=True))),
    "grouped attention, repeated": lambda m, x: m.down(
        whole(attended(m, x, heads(m.up(x)).repeat_interleave(2, 1)))
    ),
    "grouped attention by hand": by_hand,
}


def applied(model, config, stats, quantized=None):
    """Fold into the dense layers, exactly, whatever :func:`quantize_` would fold; the groups' reasons."""
    found = [item.name for item in candidates(model, config)]
    chosen = found if quantized is None else quantized
    plans = {name: smooth_group(model, [name], config, stats, chosen) for name in chosen}
    with torch.no_grad():
        for name, plan in plans.items():
            if plan.scale is not None:
                weight = model.get_submodule(name).weight
                weight *= plan.scale.to(weight)
            for source, divisors in plan.rows.items():
                layer = model.get_submodule(source)
                layer.weight /= divisors.to(layer.weight)[:, None]
                layer.bias /= divisors.to(layer.bias)
    return {name: plan.why_not for name, plan in plans.items()}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", [*ALLOWED, *GROUPED])
def test_a_divisor_moves_to_the_layer_before_exactly(name, mode, device):
    way = ALLOWED.get(name) or GROUPED[name]
    model = Between(way, WIDTH // 2 if name in GROUPED else WIDTH).to(device).double().eval()
    x, before = batches(1, seed=4)[0].to(device).double(), model.up.weight.detach().clone()
    expected = model(x)
    with calibrate(model, CONFIG) as stats, mode():
        for batch in batches(2):
            model(batch.to(device).double())
    reasons = applied(model, CONFIG, stats)
    assert not reasons["down"]
    assert reasons["up"] and reasons["gate"]
    assert not torch.allclose(model.up.weight, before)
    rounding = 1e-7 if "other type" in name else 1e-14
    assert (model(x) - expected).norm() / expected.norm() < 10 * rounding


def returned_with_others(m, x):
    y = m.up(x)
    return m.down(y), {"more": [y]}


def returned_inside(m, x):
    y = m.up(x)
    return Handed(m.down(y), y[..., :1])


def kept(m, x):
    m.memory = m.up(x).transpose(0, 1)
    return m.down(m.memory.transpose(0, 1))


def written_to(m, x):
    y = m.up(x)
    y[..., 0] = 1
    return m.down(y)


def written_through_a_view(m, x):
    y = m.up(x)
    y.view(-1).add_(1)
    return m.down(y)


def written_into_a_cache(m, x):
    cache = torch.zeros_like(x)
    cache[:] = m.up(x)
    return m.down(cache)


def read_by_the_host(m, x):
    y = m.up(x)
    return m.down(y) * (2 if y[0, 0, 0].item() > 1e9 else 1)


def bytes_of(m, x):
    y = m.up(x)
    return m.down(y) + (y.view(torch.int32) & 1).sum()


def curve(y):
    return torch.tanh(y)


def in_script(m, x):
    y = m.up(x)
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        return m.down(y) + torch.jit.script(curve)(y)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        return y * y


def in_a_function(m, x):
    y = m.up(x)
    return m.down(y) + Square.apply(y)


def another_order_now_and_then(m, x):
    m.calls = getattr(m, "calls", 0) + 1
    y = m.up(x)
    return m.down(y if m.calls % 2 else y.flip(-1))


def not_always(m, x):
    m.calls = getattr(m, "calls", 0) + 1
    return m.down(m.up(x) if m.calls % 2 else x)


def order_of_rows(m, x):
    y = m.up(x)
    return m.down(torch.cat([y[:1], y[1:].flip(-1)]))


def also(read):
    return lambda m, x: m.down(m.up(x)) + read(m, m.up(x))


ALSO = "'up', which feeds it, is also read by "
REFUSED = {
    "tanh": (lambda m, x: m.down(torch.tanh(m.up(x))), "no norm or linear layer feeds it"),
    "clamp": (lambda m, x: m.down(m.up(x).clamp(-1e9, 1e9)), "no norm or linear layer feeds it"),
    "a sum": (lambda m, x: m.down(m.up(x) + 1), "no norm or linear layer feeds it"),
    "its square": (lambda m, x: m.down(m.up(x) * m.up(x)), "no norm or linear layer feeds it"),
    "a gate that is itself": (lambda m, x: m.down((y := m.up(x)) * y), "no norm or linear"),
    "integers": (lambda m, x: m.down(m.up(x).to(torch.int32).float()), "no norm or linear layer feeds it"),
    "floor": (lambda m, x: m.down(m.up(x).div(1e-3, rounding_mode="floor")), "no norm or linear"),
    "written into a cache": (written_into_a_cache, "no norm or linear layer feeds it"),
    "a residual": (lambda m, x: m.down(y := m.up(x)) + y, ALSO + "aten::add"),
    "another layer": (lambda m, x: m.down(y := m.up(x)) + m.other(y), ALSO + "'other'"),
    "a norm": (lambda m, x: m.down(y := m.up(x)) + m.norm(y), ALSO + "aten::native_layer_norm"),
    "another call": (also(lambda m, y: y.exp()), ALSO + "aten::exp"),
    "a product by hand": (also(lambda m, y: y @ m.other.weight), ALSO + "aten::mm"),
    "attention's mask": (
        lambda m, x: m.down(whole(attended(m, x, heads(y := m.up(x)), attn_mask=y[:, None, :, :16]))),
        ALSO + "aten::_scaled_dot_product",
    ),
    "attention's queries": (also(lambda m, y: whole(attended(m, y, heads(y)))), ALSO + "'gate'"),
    "a sum of features": (also(lambda m, y: y.sum(-1, keepdim=True)), ALSO + "aten::sum"),
    "returned": (lambda m, x: (m.down(y := m.up(x)), y), ALSO + "its caller"),
    "returned with others": (returned_with_others, ALSO + "its caller"),
    "returned inside": (returned_inside, ALSO + "its caller"),
    "kept": (kept, ALSO + "what keeps it when the call is over"),
    "written to": (written_to, ALSO + "aten::fill_"),
    "written through a view": (written_through_a_view, ALSO + "aten::add_"),
    "read by the host": (read_by_the_host, ALSO + "aten::_local_scalar_dense"),
    "its bytes": (bytes_of, ALSO + "aten::view"),
    "in script": (in_script, ALSO + "aten::tanh"),
    "in a function": (in_a_function, ALSO + "aten::mul"),
    "two sources": (lambda m, x: m.down(m.up(x)) + m.down(m.gate(x)), "it is fed by 'gate', 'up'"),
    "two sources at once": (
        lambda m, x: m.down(torch.cat([m.up(x)[..., :16], m.gate(x)[..., :16]], -1)),
        "no norm or linear layer feeds it",
    ),
    "a sum of two": (lambda m, x: m.down(m.up(x) + m.gate(x)), "no norm or linear layer feeds it"),
    "another order now and then": (
        another_order_now_and_then,
        "the features of 'up' are not in the same columns in every call",
    ),
    "another order in other rows": (order_of_rows, "no norm or linear layer feeds it"),
    "not always": (not_always, "'up' feeds it in some calls only"),
}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_established_is_not_folded(name, mode):
    way, reason = REFUSED[name]
    model = Between(way).eval()
    with calibrate(model, CONFIG) as stats, mode():
        for batch in batches(2):
            model(batch)
    report = quantize_(model, CONFIG, stats, include=["up", "down"])
    assert f"smoothed when called: {reason}" in report["down"].note
    assert all(row.note.startswith("smoothed when called") for row in report.quantized)


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


def test_a_layer_that_may_do_more_reads_its_input():
    class Adapted(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) + x.tanh()

    model = Between(lambda m, x: m.down(y := m.up(x)) + m.other(y))
    model.other = Adapted(WIDTH, WIDTH)
    assert ALSO + "'other'" in quantize_(model, CONFIG, calibrated(model))["down"].note


def test_hooks_read_too():
    for register in ("register_forward_hook", "register_forward_pre_hook"):
        for before in (True, False):
            model, seen = Between(ALLOWED["gated"]).eval(), []
            hooked = model.up if register == "register_forward_hook" else model.down

            def look(module, args, output=None, seen=seen):
                seen.append((args[0] if output is None else output).tanh().sum())

            if before:
                getattr(hooked, register)(look)
            with calibrate(model, CONFIG) as stats, torch.no_grad():
                if not before:
                    getattr(hooked, register)(look)
                for batch in batches(2):
                    model(batch)
            assert seen
            note = quantize_(model, CONFIG, stats)["down"].note
            assert ALSO + ("aten::t" if before or hooked is model.up else "aten::") in note


def test_a_hook_that_comes_first_leaves_nothing_to_follow():
    model = Between(ALLOWED["gated"]).eval()
    with calibrate(model, CONFIG) as stats, torch.no_grad():
        model.up.register_forward_hook(lambda module, args, output: output.tanh(), prepend=True)
        for batch in batches(2):
            model(batch)
    assert "no norm or linear layer feeds it" in quantize_(model, CONFIG, stats)["down"].note


def test_what_another_thread_does_is_not_followed():
    def in_a_thread(m, x):
        found = []
        worker = threading.Thread(target=lambda: found.append(m.up(x)))
        worker.start()
        worker.join()
        return m.down(found[0])

    model = Between(in_a_thread)
    with torch.no_grad():
        report = quantize_(model, CONFIG, calibrated(model))
    assert "no norm or linear layer feeds it" in report["down"].note


def test_what_wraps_features_is_looked_into():
    def nested(m, x):
        y = m.up(x)
        offsets = torch.tensor([0, 2, y.shape[1]])
        parts = [torch.nested.nested_tensor_from_jagged(each, offsets) for each in y]
        return m.down(y) + sum(part.tanh().values() for part in parts)

    model = Between(nested)
    report = quantize_(model, CONFIG, calibrated(model))
    assert ALSO + "aten::" in report["down"].note


def test_a_branch_as_an_operation_reads():
    def branch(m, x):
        y = m.up(x)
        return m.down(y) + torch.cond(x.sum() > 0, torch.sin, torch.cos, (y,))

    model = Between(branch)
    report = quantize_(model, CONFIG, calibrated(model))
    assert ALSO + "cond" in report["down"].note


def test_autograd_keeps_what_it_was_given():
    model = Between(ALLOWED["gated"])
    with calibrate(model, CONFIG) as stats:
        for batch in batches(2):
            model(batch)
    note = quantize_(model, CONFIG, stats)["down"].note
    assert note.endswith("autograd, without torch.no_grad())")


def test_nothing_is_held_when_a_batch_is_over():
    found = []

    def way(m, x):
        y = m.up(x)
        found.append(weakref.ref(y.untyped_storage()))
        return m.down(y)

    model = Between(way).eval()
    with calibrate(model, CONFIG, manual=True) as stats, torch.no_grad():
        for batch in batches(2):
            model(batch)
            stats.end_batch()
            assert found.pop()() is None


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
    from rote.quant import convert

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


STEPS = {
    "relu": lambda m, a, b: a.relu(), "neg": lambda m, a, b: -a, "scaled": lambda m, a, b: a * m.gamma,
    "tanh": lambda m, a, b: a.tanh(), "shifted": lambda m, a, b: a + 0.1, "sum": lambda m, a, b: a + b,
    "product": lambda m, a, b: a * b, "gate": lambda m, a, b: a * b.sigmoid(), "third": lambda m, a, b: a / 3,
    "halves": lambda m, a, b: torch.cat([a[..., 16:], b[..., :16]], -1),
    "pairs": lambda m, a, b: a.unflatten(-1, (2, 16)).transpose(-1, -2).flatten(-2),
    "rolled": lambda m, a, b: a.roll(1, -1), "tokens": lambda m, a, b: a.flip(1),
    "weighted": lambda m, a, b: (b @ b.mT).softmax(-1) @ a, "mixed": lambda m, a, b: a @ m.other.weight,
    "attention": lambda m, a, b: whole(F.scaled_dot_product_attention(heads(b), heads(b), heads(a))),
    "in place": lambda m, a, b: a.clone().mul_(b), "written": lambda m, a, b: a.add_(0.1),
    "doubled": lambda m, a, b: a.mul_(2), "part": lambda m, a, b: a[..., :16].repeat(1, 1, 2),
    "again": lambda m, a, b: m.up(a), "gated": lambda m, a, b: m.gate(a), "down": lambda m, a, b: m.down(a),
    "single": lambda m, a, b: a.float().double().relu_(), "clamped": lambda m, a, b: a.clamp(min=-0.5),
    "first": lambda m, a, b: a[:, :1].expand_as(a).contiguous(), "most": lambda m, a, b: torch.maximum(a, b),
}  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(list(STEPS)), st.integers(0, 9), st.integers(0, 9)), max_size=7),
    st.lists(st.integers(0, 9), min_size=1, max_size=2),
)
def test_what_is_folded_in_any_program_is_exact(steps, read):
    def way(m, x):
        known = [x.clone(), m.up(x), m.gate(x)]
        for name, first, second in steps:
            known.append(STEPS[name](m, known[-1 - first % len(known)], known[-1 - second % len(known)]))
        return sum(m.down(known[-1 - which % len(known)]) for which in read)

    torch.manual_seed(0)
    model, every = Between(way).double().eval(), [batch.double() / 4 for batch in batches(3, rows=5)]
    with torch.no_grad():
        expected = model(every[2])
        with calibrate(model, CONFIG) as stats:
            model(every[0])
            model(every[1])
        if not expected.isfinite().all() or not stats.layers:
            return
        names = [name for name in ("up", "gate", "down") if name in stats.layers]
        reasons = applied(model, CONFIG, stats, names)
        event("folded" if not all(reasons.values()) else "as it is")
        assert (model(every[2]) - expected).norm() <= 1e-6 * expected.norm()


def test_names_mean_nothing():
    model = Tiny(blocks=1)
    report = quantize_(model, CONFIG, calibrated(model))
    assert not report["layers.0.mlp.down_proj"].note
    assert report["layers.0.self_attn.o_proj"].note.startswith(
        "smoothed when called: no norm or linear layer feeds it"
    )
