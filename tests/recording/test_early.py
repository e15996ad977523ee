"""Launches that come before some of the questions: a call that is refused then is made as ever."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import rote
from rote.backends.host.segment import HostSegment
from rote.recording import early
from rote.recording.early import Early
from rote.recording.variant import Variant


@pytest.fixture
def begun(monkeypatch, device):
    """Recordings start early, also on the host; counts launches by segments without copies."""
    found = []
    monkeypatch.setattr(Early, "decide", lambda self, harmless, size: setattr(self, "switches", True))
    if device.type == "cpu":
        replay = HostSegment.replay
        monkeypatch.setattr(HostSegment, "replay", lambda segment: found.append(1) or replay(segment))
    return found


def called(g, *args, times=6):
    for _ in range(times):
        value = g(*args)
    return value


def variants(g):
    return [variant for entry in g._keys.entries.values() for variant in entry.variants]


def test_a_mode_that_is_asked_after_the_launch(begun, device):
    m = nn.Linear(4, 4, device=device).requires_grad_(False)
    g, x = rote.graph(m), torch.rand(4, 4, device=device)
    called(g, x)
    with torch.autocast(device.type, torch.bfloat16):
        for _ in range(8):
            right = m(x)
            mine = g(x)
            assert mine.dtype == right.dtype == torch.bfloat16 and torch.equal(mine, right)
    assert torch.equal(g(x), m(x)) and g(x).dtype == torch.float32


def test_a_switch_that_is_asked_after_the_launch(begun, device):
    g, x = rote.graph(lambda x: (x @ x) * 2), torch.rand(4, 4, device=device)
    called(g, x)
    before, launched = g.report(), len(begun)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(g(x), (x @ x) * 2)
    finally:
        torch.set_default_dtype(torch.float32)
    after = g.report()
    assert after.calls == before.calls + 1 and after.replayed == before.replayed
    assert device.type != "cpu" or len(begun) == launched + 1
    assert torch.equal(g(x), (x @ x) * 2)


def test_recordings_in_turn_ask_first(begun, device):
    """Each call would launch the other one's recording in vain."""
    m = nn.Linear(4, 4, device=device).requires_grad_(False)
    g, x = rote.graph(m), torch.rand(4, 4, device=device)

    def both():
        with torch.no_grad():
            first = g(x)
        return first, g(x)

    for _ in range(early.VAIN + 24):
        first, second = both()
    assert torch.equal(first, m(x)) and torch.equal(second, m(x))
    assert len(variants(g)) == 2 and not all(variant.early.switches for variant in variants(g))
    launched, replayed = len(begun), g.report().replayed
    both()
    assert g.report().replayed == replayed + 2
    assert device.type != "cpu" or len(begun) == launched + 2


def test_what_writes_is_not_launched_early(device):
    total = torch.zeros(3, device=device)
    g = rote.graph(lambda x: total.add_(x).sum())
    called(g, torch.ones(3, device=device))
    m = nn.Linear(3, 3, device=device).requires_grad_(False)
    pure = rote.graph(m)
    called(pure, torch.ones(3, device=device))
    assert [variant.early.switches for variant in variants(g)] == [False]
    assert [variant.early.switches for variant in variants(pure)] == [device.type == "cuda"]


def test_an_argument_that_requires_a_gradient_is_asked_for_first(begun, device):
    """The recording's memory for it would become part of a graph."""
    g = rote.graph(lambda x: (x.detach() * 2).sum())
    x = torch.rand(4, device=device, requires_grad=True)
    with torch.no_grad():
        called(g, x)
    assert g(x).item() == pytest.approx(2 * x.sum().item())
    with torch.no_grad():
        assert g(x).item() == pytest.approx(2 * x.sum().item())


@pytest.fixture
def hasty(monkeypatch):
    """Every guard counts as a long one, and the host as a device that goes on by itself."""
    decide = Variant.decide_start
    monkeypatch.setattr(early, "LONG_GUARD", 1)
    monkeypatch.setattr(Variant, "decide_start", lambda self, _: decide(self, True))


def test_a_recording_that_is_gone_is_not_launched(hasty, device):
    """Its memory is given back when every call reads another value, and later it is called again."""
    m = nn.Linear(4, 4, device=device).requires_grad_(False)
    g, x = rote.graph(lambda x: m(x) * int(x.sum().item())), torch.ones(4, device=device)
    called(g, x)
    assert [variant.early.values for variant in variants(g)] == [True]
    for number in range(2, 100):
        given = x * number
        assert torch.equal(g(given), m(given) * 4 * number)
    assert "RT304" in {why.code for why in g.report().reasons}
    assert torch.equal(g(x), m(x) * 4)


def test_a_recording_that_was_evicted_is_not_launched(hasty, device):
    g = rote.graph(lambda x: x * 2)
    called(g, torch.ones(4, device=device))
    (variant,) = variants(g)
    assert variant.may_start_early()
    variant.evict("a test")
    assert not variant.may_start_early()
    x = torch.rand(4, device=device)
    assert torch.equal(g(x), x * 2)


def test_an_argument_that_is_written_is_looked_at_first(hasty, device):
    """It may be one that comes back, and is to be used in place."""

    def add(cache, x):
        cache += x
        return cache.sum()

    g, caches = rote.graph(add), [torch.zeros(8, device=device) for _ in range(2)]
    for n in range(20):
        g(caches[n % 2], torch.full((8,), float(n), device=device))
    assert caches[1].tolist() == [100.0] * 8
    placements = [recording.inputs[0].placement for recording in g.report().recordings]
    assert placements.count("in place") == 2


class Table(nn.Module):
    """Rows of a table by numbers that start somewhere."""

    def __init__(self, by):
        super().__init__()
        self.rows, self.first, self._by = nn.Parameter(torch.rand(8, 4), requires_grad=False), 100, by

    def forward(self, x):
        return self._by(self.rows, x - self.first)


INDEXING = {
    "index": lambda rows, at: rows[at],
    "index_select": lambda rows, at: rows.index_select(0, at),
    "gather": lambda rows, at: rows.gather(0, at[:, None].expand(-1, 4)),
    "embedding": lambda rows, at: nn.functional.embedding(at, rows),
    "take": torch.take,
    "scatter": lambda rows, at: rows.clone().index_fill(0, at, 1.0),
    "nll_loss": lambda rows, at: nn.functional.nll_loss(rows[:3], at),
}


@pytest.mark.parametrize("name", list(INDEXING))
def test_what_may_stop_the_device_is_not_launched_early(name, hasty, device):
    """A kernel that is given an index out of range ends all work on a GPU, and raises on the host."""
    table = Table(INDEXING[name]).to(device)
    g = rote.graph(table)
    called(g, torch.tensor([100, 103, 101], device=device))
    assert g.report().replayed == 4
    table.first = 0
    x = torch.tensor([0, 3, 1], device=device)
    assert torch.equal(g(x), table(x))
    if device.type == "cuda":
        torch.cuda.synchronize()


def test_numbers_that_are_no_indices_do_not_keep_it_back(hasty, device):
    m = nn.Linear(4, 4, device=device).requires_grad_(False)
    g = rote.graph(lambda x, steps: m(x) * (steps + 1).cumsum(0).where(steps > 0, 2)[:, None])
    called(g, torch.rand(3, 4, device=device), torch.arange(3, device=device))
    assert [variant.early.values for variant in variants(g)] == [True]
