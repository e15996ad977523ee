"""What never settles runs eagerly, and the report names what differs, from what to what, and the line."""

from __future__ import annotations

import datetime
import random
import time

import numpy
import pytest
import torch
from tests.hidden import queued
from torch import nn

import rote
from rote.testing import compare

WARM = rote.Options().warmup + 1

CALLS = 14


def run(g, x, calls=CALLS):
    for _ in range(calls):
        g(x)
    assert g.report().replayed == 0, g.explain()


def test_a_counter_in_a_closure(device, where, reason):
    count = 0

    def fn(x):
        nonlocal count
        count += 1j  # a real number would be followed
        return x * 2

    g = rote.graph(fn)
    run(g, torch.ones(2, device=device))
    assert count == CALLS * 1j
    found = reason(g, "RT201")
    assert found.message == "test_a_counter_in_a_closure.<locals>.fn.count was 11j and is 12j"
    assert found.count == CALLS
    assert found.where == where(fn, "count += 1j")
    assert found.remedy == (
        "Keep what changes in a tensor that is updated in place (a registered buffer), or move it outside."
    )


def test_a_counter_that_is_used(device, where, reason):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.step = 0j

        def forward(self, x):
            self.step += 1
            return x * self.step.real

    model = Model()
    g = compare(model, [(torch.ones(2, device=device),)] * CALLS, plain=Model())
    assert g.report().replayed == 0
    found = reason(g, "RT201")
    assert found.message.startswith("Model.step was ") and found.where == where(
        Model.forward, "self.step += 1"
    )


def test_a_growing_cache(device, where, reason):
    cache = []

    def fn(x):
        cache.append(x * 2)
        return torch.stack(cache).sum(0)

    g = rote.graph(fn)
    for n in range(CALLS):
        assert g(torch.ones(2, device=device)).tolist() == [2.0 * (n + 1)] * 2
    assert g.report().replayed == 0 and len(cache) == CALLS
    found = reason(g, "RT201")
    assert f".fn.cache (length) was {CALLS - 1} and is {CALLS}" in found.message
    assert found.where == where(fn, "cache.append")


def test_a_growing_dict(device):
    seen = {}

    def fn(x):
        seen[len(seen)] = 1
        return x + sum(seen.values())

    g = rote.graph(fn)
    for n in range(CALLS):
        assert g(torch.zeros(1, device=device)).item() == n + 1
    assert g.report().replayed == 0
    texts = [found.message for found in g.report().reasons if found.code == "RT201"]
    assert any([each.startswith("test_a_growing_dict.<locals>.fn.seen (length) was ") for each in texts])


def test_a_global(device, where, reason):
    g = rote.graph(counts_globally)
    run(g, torch.ones(2, device=device))
    found = reason(g, "RT201")
    assert "CALLED was " in found.message and found.where == where(counts_globally, "CALLED += 1j")


CALLED = 0


def counts_globally(x):
    global CALLED
    CALLED += 1j
    return x + 1


def test_a_counter_in_a_class(device, where, reason):
    class Model:
        calls = 0

        def __call__(self, x):
            Model.calls += 1j
            return x * 2

    g = rote.graph(Model())
    run(g, torch.ones(2, device=device))
    assert Model.calls == CALLS * 1j
    found = reason(g, "RT201")
    assert "Model.calls was " in found.message and found.where == where(Model.__call__, "Model.calls += 1j")


def test_python_random(device, reason):
    g = rote.graph(lambda x: (random.getstate(), x * random.random())[1])  # a draw alone is followed
    run(g, torch.ones(2, device=device))
    found = reason(g, "RT204")
    assert found.message == "the call drew from Python's random module"
    assert (
        found.remedy == "Draw with torch on the device (torch.rand), or draw outside and pass the number in."
    )


def test_numpy_random(device, reason):
    g = rote.graph(lambda x: x * float(numpy.random.dirichlet((1, 1))[0]))
    run(g, torch.ones(2, device=device))
    assert reason(g, "RT204").message == "the call drew from numpy.random"


def test_host_random_that_changes_nothing_is_drawn_all_the_same(device):
    """Skipping the draw would change what the program draws next."""
    g = rote.graph(lambda x: (random.random(), x + 1)[1])
    random.seed(5)
    for _ in range(CALLS):
        g(torch.ones(2, device=device))
    after = random.random()
    random.seed(5)
    assert [random.random() for _ in range(CALLS + 1)][-1] == after


CLOCKS = {
    "time.perf_counter": time.perf_counter,
    "time.time": time.time,
    "time.monotonic_ns": time.monotonic_ns,
    "datetime.datetime.now": lambda: datetime.datetime.now().year,
    "datetime.date.today": lambda: datetime.date.today().year,
}


@pytest.mark.parametrize("name", CLOCKS)
def test_a_clock(device, where, reason, name):
    """One that moves slowly is none the less a clock."""
    clock = CLOCKS[name]

    def fn(x):
        return x * clock()

    g = rote.graph(fn)
    run(g, torch.ones(2, device=device))
    found = reason(g, "RT218")
    assert found.message == f"the call calls {name}, which reads the clock"
    assert found.where == (where(fn, "clock()") if name.startswith("time") else where(clock, name))
    assert found.remedy.startswith("Call it outside, and pass in what it gives")


def test_a_date_that_is_passed_in_replays(device):
    g = rote.graph(lambda x, day: x * day.year)
    for _ in range(CALLS):
        g(torch.ones(2, device=device), datetime.date(2024, 1, 1))
    assert g.report().replayed == CALLS - WARM, g.explain()


def test_an_operand_from_nowhere_says_both_values(device, reason):
    values = queued([1.5, 2.5] * 20)
    g = rote.graph(lambda x: x + values.get())
    run(g, torch.ones(2, device=device))
    found = reason(g, "RT202")
    assert found.message in (
        "an operand of aten::add.Tensor was 1.5 and is 2.5",
        "an operand of aten::add.Tensor was 2.5 and is 1.5",
    )
    assert found.remedy == "Pass the value in as an argument, or compute it with PyTorch on the device."


def test_other_operations_at_every_call(device, where, reason):
    turns = queued(range(100))

    def fn(x):
        if turns.get() % 2:
            return x.sin()
        return x.cos()

    g = rote.graph(fn)
    x = torch.randn(3, device=device)
    for n in range(CALLS):
        assert torch.equal(g(x), x.sin() if n % 2 else x.cos())
    assert g.report().replayed == 0
    found = [item for item in g.report().reasons if item.code == "RT203"]
    assert {item.message for item in found} == {
        "the call ran aten::sin where earlier calls had aten::cos",
        "the call ran aten::cos where earlier calls had aten::sin",
    }
    assert {item.where for item in found} == {where(fn, "x.sin()"), where(fn, "x.cos()")}


@pytest.mark.parametrize("how", ["list", "attribute", "dict"])
def test_state_that_swings_back_and_forth(device, how):
    class Holder:
        flag = False

    holder, box, table = Holder(), [False], {"flag": False}
    holder.flag = False

    def fn(x):
        if how == "list":
            box[0] = not box[0]
            flag = box[0]
        elif how == "attribute":
            holder.flag = not holder.flag
            flag = holder.flag
        else:
            table["flag"] = not table["flag"]
            flag = table["flag"]
        return x * 2 if flag else x * 3

    g = rote.graph(fn)
    for n in range(CALLS):
        assert g(torch.ones(1, device=device)).item() == (2.0 if n % 2 == 0 else 3.0)
    assert g.report().replayed >= CALLS - 4, g.explain()


def test_state_restored_at_the_end_is_no_change(device):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.depth = 0

        def forward(self, x):
            self.depth += 1
            out = x * self.depth
            self.depth -= 1
            return out

    g = compare(Model(), [(torch.ones(2, device=device),)] * 8)
    assert g.report().replayed == 8 - WARM


SCALE = 2.0


def scaled(x):
    return x * SCALE


def test_a_function_first_run_by_a_call_that_differs(device, monkeypatch):
    """A call of a known variant takes another way with another operand: what it ran is under guard too."""
    factors = queued([1.0] + [3.0] * 100)

    def fn(x):
        y = x * factors.get()
        return scaled(y) if (x.sum() > 0).item() else y

    g = rote.graph(fn)
    for sign in (-1, 1, 1, 1, 1, 1):
        g(torch.full((2,), float(sign), device=device))
    assert g.report().replayed
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    assert g(torch.ones(2, device=device)).tolist() == [15.0, 15.0]


def test_versions_that_the_call_puts_back(device):
    """Only ``DistributedDataParallel`` may hide what it writes to buffers."""
    table = torch.zeros(3, device=device)

    def fn(x):
        with torch.autograd._unsafe_preserve_version_counter(table):
            table.add_(x)
        return table * 2

    g = rote.graph(fn)
    for n in range(CALLS):
        assert torch.equal(g(torch.ones(3, device=device)), torch.full_like(table, 2.0 * (n + 1)))
    assert table._version == 0
    assert g.report().replayed == 0 and "RT218" in {found.code for found in g.report().reasons}
