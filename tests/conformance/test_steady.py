"""Observe until steady: what settles by itself is recorded when it has settled."""

from __future__ import annotations

import functools
import gc

import pytest
import torch
from torch import nn

import rote
from rote.testing import compare, count_recordings

WARM = rote.Options().warmup + 1


def test_the_first_calls(device, reason):
    g, x = rote.graph(lambda x: x * 2, warmup=2), torch.randn(3, device=device)
    expected = [(0, 1, 0), (0, 2, 0), (0, 3, 1), (1, 3, 1), (2, 3, 1)]
    for replayed, eager, recorded in expected:
        g(x)
        report = g.report()
        assert (report.replayed, report.eager, report.recorded) == (replayed, eager, recorded)


@pytest.mark.parametrize("warmup", [1, 2, 3, 5])
def test_warmup_counts_observed_calls(device, warmup):
    g, x = rote.graph(lambda x: x * 2, warmup=warmup), torch.randn(3, device=device)
    for _ in range(warmup):
        g(x)
        assert count_recordings(g) == 0
    g(x)
    assert count_recordings(g) == 1 and g.report().recorded == 1


def test_lazy_initialisation(device):
    class Lazy(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = None
            self.built = 0

        def forward(self, x):
            if self.weight is None:
                self.built += 1
                self.weight = torch.ones(x.shape[-1], device=x.device) * 3
            return x * self.weight

    model = Lazy()
    g = compare(model, [(torch.randn(2, 4, device=device),) for _ in range(8)], plain=Lazy())
    assert g.report().replayed >= 4 and model.built == 1
    assert g.report().recorded == 1


def test_lazy_modules_of_torch(device):
    model = nn.LazyLinear(3).to(device)
    g = rote.graph(model)
    with torch.no_grad():
        for _ in range(8):
            x = torch.randn(2, 5, device=device)
            assert torch.equal(g(x), torch.nn.functional.linear(x, model.weight, model.bias))
    assert g.report().replayed >= 3


def test_calibration_over_several_batches(device):
    class Calibrated(nn.Module):
        """Counts to five, then freezes its scale."""

        def __init__(self):
            super().__init__()
            self.seen = 0
            self.scale = torch.zeros((), device=device)

        def forward(self, x):
            if self.seen < 5:
                self.seen += 1
                self.scale = torch.maximum(self.scale, x.abs().max())
            return x / self.scale

    g = compare(Calibrated(), [(torch.randn(8, device=device),) for _ in range(16)], plain=Calibrated())
    assert g.report().replayed >= 5
    assert {found.code for found in g.report().reasons} == {"RT201", "RT306"}  # the scale is carried


def test_long_calibration_settles_too(device):
    def make():
        seen, scale = [0], [torch.zeros((), device=device)]

        def fn(x):
            if seen[0] < 30:
                seen[0] += 1
                scale[0] = scale[0] + x.abs().mean()
            return x * scale[0]

        return fn

    g = compare(make(), [(torch.ones(4, device=device) * n,) for n in range(120)], plain=make())
    assert g.report().replayed > 0
    assert count_recordings(g) <= 2  # while the scale changes, and for good


def test_a_memo_fills_and_settles(device):
    @functools.cache
    def table(n, kind):
        return torch.arange(n, dtype=torch.float32, device=kind)

    memo = {}

    def fn(x):
        if x.shape[0] not in memo:
            memo[x.shape[0]] = table(x.shape[0], x.device.type)
        return x + memo[x.shape[0]]

    g = compare(fn, [(torch.randn(4, device=device),) for _ in range(8)])
    assert g.report().replayed >= 3


def test_buffers_counted_in_place(device):
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros((), dtype=torch.long, device=device))

        def forward(self, x):
            self.count += 1
            return x * self.count

    ours, theirs = Counter(), Counter()
    g = compare(
        ours,
        [(torch.ones(2, device=device),)] * 12,
        plain=theirs,
        states=(lambda: ours.count, lambda: theirs.count),
    )
    assert ours.count.item() == 12 and g.report().replayed == 12 - WARM


COLLECTIONS = 0


def count_collections(phase, info):
    global COLLECTIONS
    COLLECTIONS += 1


def test_code_run_by_the_garbage_collector_is_not_the_callables(device):
    """Tools that watch the collector keep state of their own, which changes at every call."""
    threshold = gc.get_threshold()
    gc.callbacks.append(count_collections)
    gc.set_threshold(5, 2, 2)
    try:
        g = compare(lambda x: [[x * n] for n in range(20)], [(torch.ones(2, device=device),)] * 12)
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(count_collections)
    assert g.report().replayed >= 6, g.explain()


def test_batch_norm_keeps_its_statistics(device):
    def make():
        torch.manual_seed(7)
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU()).to(device)

    ours, theirs = make(), make()
    with torch.no_grad():
        g = compare(
            ours,
            [(torch.randn(16, 4, device=device),) for _ in range(10)],
            plain=theirs,
            states=(lambda: list(ours.buffers()), lambda: list(theirs.buffers())),
        )
    assert g.report().replayed == 10 - WARM


def test_constants_built_on_the_host_are_hoisted(device):
    def fn(x):
        three = torch.tensor(3.0, device=x.device)
        table = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=x.device)
        return x * three @ table + torch.as_tensor([5.0, 6.0], device=x.device) + x.new_tensor([1.0, -1.0])

    g = compare(fn, [(torch.randn(3, 2, device=device),) for _ in range(8)])
    (recording,) = g.report().recordings
    assert (recording.segments, recording.islands, recording.replays) == (1, (), 8 - WARM)


def test_a_constant_that_the_call_writes(device):
    def fn(x):
        total = torch.tensor([0.0, 0.0], device=x.device)
        total += x
        total *= 2
        return total, torch.tensor([9.0], device=x.device)

    g = compare(fn, [(torch.randn(2, device=device),) for _ in range(8)])
    assert g.report().replayed == 8 - WARM


def test_a_constant_handed_out_is_the_callers(device):
    g = rote.graph(lambda: torch.tensor([1.0, 2.0], device=device))
    for _ in range(6):
        out = g()
        assert out.tolist() == [1.0, 2.0]
        out.zero_()
    assert g.report().replayed == 6 - WARM


def test_meta_tensors_block_nothing(device):
    def fn(x, like):
        shape = (like.to(torch.float64) * 2).sum(0).shape
        return x.expand(shape) * 2, torch.empty(3, device="meta")

    meta = torch.empty(5, 4, device="meta")
    g = compare(fn, [(torch.randn(4, device=device), meta) for _ in range(8)])
    (recording,) = g.report().recordings
    assert recording.islands == () and recording.replays == 8 - WARM


def test_cpu_scalars_are_read_at_every_call(device):
    scale = torch.tensor(2.0)
    g = rote.graph(lambda x: x * scale)
    for value in (2.0, 2.0, 2.0, 3.0, 4.0, -1.0):
        scale.fill_(value)
        assert g(torch.ones(2, device=device)).tolist() == [value] * 2
    assert g.report().replayed == 6 - WARM


def test_cpu_scalars_among_the_arguments(device):
    g = compare(
        lambda x, s: x * s, [(torch.ones(2, device=device), torch.tensor(float(n))) for n in range(8)]
    )
    assert g.report().replayed == 8 - WARM


def test_numpy_arrays_refilled_between_calls(device):
    import numpy

    array = numpy.zeros(3, dtype=numpy.float32)

    def fn(x):
        return x + torch.from_numpy(array).to(x.device), x * torch.tensor(array, device=x.device)

    g = rote.graph(fn)
    for n in range(8):
        array[:] = n
        x = torch.randn(3, device=device)
        out = g(x)
        assert torch.equal(out[0], x + n) and torch.equal(out[1], x * n)
    assert g.report().replayed == 8 - WARM, g.explain()


def test_numpy_generic_values_are_constants(device):
    import numpy

    g = compare(
        lambda x: x * torch.tensor(numpy.float32(1.5), device=x.device), [(torch.ones(2, device=device),)] * 6
    )
    assert g.report().replayed == 6 - WARM


def test_a_counter_named_like_an_attribute(device):
    """The caller's script counts its steps; the callable calls a method of that name."""
    names = {"layer": nn.Linear(4, 4, device=device), "step": 0, "scale": {"step": 2.0}}
    source = """
class Stepper:
    def step(self, x):
        return layer(x) * scale["step"]

stepper = Stepper()

def fn(x):
    return stepper.step(x)
"""
    exec(source, names)
    g, x = rote.graph(names["fn"]), torch.randn(3, 4, device=device)
    for names["step"] in range(6):
        assert torch.equal(g(x), names["fn"](x))
    assert g.report().replayed == 6 - WARM
