"""Calibration ends, merges, resumes, and leaves no trace on the model."""

from __future__ import annotations

import pytest
import torch

from rote import MisuseError, OptionError
from rote.quant import CalibrationStats, DuQuantConfig, calibrate, quantize_
from rote.quant.calibrating.stats import LayerStats

from .models import Tiny, batches

CONFIG = DuQuantConfig(block_size=16, rotation_steps=4, calib_batches=3, sample_rows=40)


def run(model, stats_of, count, seed=0):
    with stats_of as stats, torch.no_grad():
        for batch in batches(count, seed=seed):
            model(batch)
    return stats


def test_exactly_the_batches_asked_for():
    model = Tiny()
    stats = run(model, calibrate(model, CONFIG), 5)
    assert stats.batches == 3 and stats.done
    layer = stats.layers["layers.0.self_attn.q_proj"]
    assert layer.calls == 3 and layer.count == 3 * 2 * 16 and layer.rows.shape == (40, 32)
    inputs = [model.layers[0].input_layernorm(x) for x in batches(3)]
    peak = torch.cat([x.reshape(-1, 32) for x in inputs]).abs().amax(0)
    assert torch.equal(layer.peak, peak), "the fourth and fifth batch are not in it"


def test_too_few_batches_are_an_error_that_keeps_what_was_seen():
    model = Tiny()
    watched = calibrate(model, CONFIG)
    with pytest.raises(MisuseError, match=r"saw 2 of 3 batches\. Give it more and go on with resume=stats"):
        run(model, watched, 2)
    stats = run(model, calibrate(model, CONFIG, resume=watched.stats), 1, seed=7)
    assert stats.done and stats.batches == 3


def test_stopping_and_going_on_is_one_calibration():
    model = Tiny()
    whole = run(model, calibrate(model, CONFIG), 3)
    first = calibrate(model, CONFIG)
    every = batches(3)
    with pytest.raises(MisuseError), first, torch.no_grad():
        model(every[0])
    with calibrate(model, CONFIG, resume=first.stats) as stats, torch.no_grad():
        model(every[1])
        model(every[2])
    for name, layer in whole.layers.items():
        assert torch.equal(layer.rows, stats.layers[name].rows)
        assert torch.equal(layer.peak, stats.layers[name].peak)
        assert layer.leaders == stats.layers[name].leaders


def test_the_model_stays_as_it_is():
    model = Tiny()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    kinds = [type(module) for module in model.modules()]
    random = torch.get_rng_state()
    expected = model(batches(1)[0])
    with calibrate(model, CONFIG) as stats:
        while not stats.done:
            assert torch.equal(model(batches(1)[0]), expected)
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [type(module) for module in model.modules()] == kinds
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())


def test_an_exception_passes_and_leaves_no_hooks():
    model = Tiny()
    with pytest.raises(ZeroDivisionError), calibrate(model, CONFIG):
        model(batches(1)[0])
        raise ZeroDivisionError
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())


def test_a_call_that_raises_is_no_batch():
    model = Tiny()
    with calibrate(model, CONFIG) as stats, torch.no_grad():
        with pytest.raises(RuntimeError):
            model(torch.randn(2, 33))
        for batch in batches(3):
            model(batch)
            assert stats.batches <= 3
    assert stats.batches == 3 and stats.layers["head"].calls == 3


@pytest.mark.parametrize("manual", [False, True])
@pytest.mark.parametrize("config", [CONFIG, DuQuantConfig.vla(calib_batches=3)])
def test_nothing_of_a_batch_that_raises_counts(config, manual):
    model, every = Tiny(), batches(4)
    clean = run(model, calibrate(model, config, manual=False), 3)

    def fail(module, args, output):
        raise ZeroDivisionError

    with calibrate(model, config, manual=manual) as stats, torch.no_grad():
        for i, batch in enumerate([every[0], 1000 * every[3], every[1], every[2]]):
            if i == 1:  # between layers of one group
                handle = model.layers[0].self_attn.q_proj.register_forward_hook(fail)
                with pytest.raises(ZeroDivisionError):
                    model(batch)
                handle.remove()
                if manual:
                    stats.skip_batch()
                continue
            model(batch)
            if manual:
                stats.end_batch()
    assert stats.sources == clean.sources and stats.layers.keys() == clean.layers.keys()
    for name, layer in clean.layers.items():
        other = stats.layers[name]
        assert (other.calls, other.leaders) == (layer.calls, layer.leaders)
        assert torch.equal(other.peak, layer.peak) and torch.equal(other.rows, layer.rows)


def test_a_batch_that_was_interrupted_is_made_again():
    model = Tiny()
    every = batches(3)
    watched = calibrate(model, CONFIG)
    handle = model.layers[0].mlp.up_proj.register_forward_pre_hook(lambda module, args: 1 / 0)
    with pytest.raises(ZeroDivisionError), watched as stats, torch.no_grad():
        model(1000 * every[0])
    handle.remove()
    assert not stats.layers and not stats.batches
    with calibrate(model, CONFIG, resume=stats), torch.no_grad():
        for batch in every:
            model(batch)
    clean = run(model, calibrate(model, CONFIG), 3)
    assert all(torch.equal(layer.peak, clean.layers[name].peak) for name, layer in stats.layers.items())


def test_other_methods_are_counted_by_hand():
    model = Tiny()
    text = r"saw 0 of 3 batches, though layers were called.*manual=True"
    with pytest.raises(MisuseError, match=text), calibrate(model, CONFIG), torch.no_grad():
        model.act(batches(1)[0])
    with calibrate(model, CONFIG, manual=True) as stats, torch.no_grad():
        for batch in batches(4):
            model.act(batch)
            model.act(batch)
            stats.end_batch()
    assert stats.layers["head"].calls == 6


def test_calls_inside_a_call_are_one_batch():
    inner = Tiny()

    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x) + self.inner(-x)

    model = Twice()
    stats = run(model, calibrate(model, CONFIG), 3)
    assert stats.batches == 3 and stats.layers["inner.head"].calls == 6


def test_bounds_are_the_largest_of_every_calls_percentile():
    config = DuQuantConfig.vla(calib_batches=3, block_size=8)
    model = Tiny()
    stats = run(model, calibrate(model, config), 3)
    from rote.quant.numerics import find_transform

    layer = model.layers[0].mlp.up_proj
    chain = find_transform([layer.weight], config, None)
    seen: list[torch.Tensor] = []
    handle = layer.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    for batch in batches(3):
        model(batch)
    handle.remove()
    each = [torch.quantile(chain.apply(x.detach().reshape(-1, 32)).abs(), 0.999, dim=0) for x in seen]
    bounds = stats.layers["layers.0.mlp.up_proj"].bounds
    assert bounds is not None
    assert torch.allclose(bounds[1], torch.stack(each).amax(0)) and torch.equal(bounds[0], -bounds[1])


def random_stats(seed: int, calls: int = 2) -> LayerStats:
    layer = LayerStats.empty(8)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(calls):
        layer.observe(torch.randn(50, 8, generator=generator), CONFIG, None)
    return layer


def test_merging_is_the_same_in_any_order():
    parts = [random_stats(seed) for seed in range(3)]
    left, right = LayerStats.empty(8), LayerStats.empty(8)
    for part in parts:
        left.merge(part, 40)
    for part in reversed(parts):
        right.merge(part, 40)
    assert left.count == right.count == 300 and torch.equal(left.peak, right.peak)
    assert torch.equal(left.rows.sort(0).values, right.rows.sort(0).values) and len(left.rows) == 40


def test_kept_rows_are_a_uniform_sample():
    layer = LayerStats.empty(1)
    for call in range(50):
        layer.observe(torch.full((100, 1), float(call)), CONFIG.replace(sample_rows=1000), None)
    shares = torch.bincount(layer.rows[:, 0].long(), minlength=50)
    assert shares.sum() == 1000 and shares.min() > 5 and shares.max() < 40, "20 of each call, give or take"


def test_combining_calibrations():
    model = Tiny()
    one, two = run(model, calibrate(model, CONFIG), 3), run(model, calibrate(model, CONFIG), 3, seed=9)
    both = CalibrationStats.combine([one, two])
    name = "layers.1.mlp.down_proj"
    assert both.batches == 6 and both.done
    assert torch.equal(both.layers[name].peak, torch.maximum(one.layers[name].peak, two.layers[name].peak))
    assert "6 of 6 batches" in str(both) and name in str(both)
    with pytest.raises(MisuseError, match="needs at least one"):
        CalibrationStats.combine([])


def test_statistics_of_another_configuration():
    model = Tiny()
    config = DuQuantConfig.vla(calib_batches=1, block_size=8)
    stats = run(model, calibrate(model, config), 1)
    with pytest.raises(MisuseError, match="with block_size=8 and are to be used with block_size=16"):
        stats.check(config.replace(block_size=16))
    stats.check(config.replace(weight_bits=8, path="reference"))
    with pytest.raises(MisuseError, match="block_size=8"):
        calibrate(model, config.replace(block_size=16), resume=stats)


def test_inputs_that_are_not_finite():
    model = Tiny()
    with (
        pytest.raises(
            MisuseError, match=r"input of 'layers.0.self_attn.q_proj' has values that are not finite"
        ),
        calibrate(model, CONFIG),
    ):
        model(torch.full((1, 2, 32), float("nan")))
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_an_input_of_the_wrong_width_is_the_layer_s_error():
    model = torch.nn.Sequential(torch.nn.Linear(32, 32))
    with pytest.raises(RuntimeError, match="cannot be multiplied"), calibrate(model, CONFIG) as stats:
        model(torch.randn(4, 32))
        model(torch.randn(4, 31))
    assert stats.layers["0"].count == 4


def test_patterns_that_fit_nothing():
    with pytest.raises(OptionError, match=r"include: '\*.fc1' matches none of the 15 linear layers"):
        calibrate(Tiny(), CONFIG, include="*.fc1")


def test_compiled_models_are_watched():
    model = Tiny()
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager")
    with torch.no_grad():
        expected = compiled(batches(1)[0])
    watched = run(compiled, calibrate(model, CONFIG), 3)
    assert watched.layers["head"].calls == 3
    assert run(compiled, calibrate(compiled, CONFIG), 3).layers["_orig_mod.head"].calls == 3
    frames = torch._dynamo.utils.counters["frames"]["ok"]
    with torch.no_grad():
        assert torch.equal(compiled(batches(1)[0]), expected)
    assert torch._dynamo.utils.counters["frames"]["ok"] == frames, "and compiled code is what runs again"
    report = quantize_(model, CONFIG, watched)
    assert len(report.quantized) == 15
    with torch.no_grad():
        assert not torch.equal(compiled(batches(1)[0]), expected)
    torch._dynamo.reset()


@pytest.mark.parametrize("manual", [False, True])
def test_progress(capsys, manual):
    model = Tiny()
    with calibrate(model, CONFIG, progress=True, manual=manual) as stats, torch.no_grad():
        for batch in batches(3):
            model(batch)
            if manual:
                stats.end_batch()
    assert capsys.readouterr().err.split("\r")[1:] == [f"calibration: {i} of 3" for i in (1, 2)] + [
        "calibration: 3 of 3\n"
    ]
