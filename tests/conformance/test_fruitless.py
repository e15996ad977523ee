"""Traced calls that lead to no replay are bounded by what they cost, are told, and go on ever more seldom."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from tests.clock import set_costs, set_saved
from torch import nn

import rote
from rote.runtime.engine.ledger.ledger import (
    AT_ONCE,
    FREE_CALLS,
    FREE_KEYS,
    FREE_TRACES,
    FREE_WRAPPERS,
    LATE_SHARE,
    SHARE,
    Ledger,
)
from rote.runtime.engine.specialization import Specialization

DEAR_S = 30e-3
"""What a traced call costs here; a plain one costs a millisecond."""
WAITED = 2
"""Traced calls that have waited for plain ones, where none records anything: for 7, and for 14 more."""


@pytest.fixture(autouse=True)
def _dear(monkeypatch):
    set_costs(monkeypatch, traced_s=DEAR_S)


@pytest.fixture
def traced(monkeypatch):
    """The calls that ran under the tracer, as a list of keys."""
    found, execute = [], Specialization._execute

    def counted(self, *args):
        found.append(self.description)
        return execute(self, *args)

    monkeypatch.setattr(Specialization, "_execute", counted)
    return found


def full(n, device):
    return torch.full((2,), float(n), device=device)


def call(g, values, device):
    for n in values:
        x = full(n, device)
        assert torch.equal(g(x), g.__wrapped__(x))


def scaled(x):
    return x / (x.sum() + 1).tolist()  # what item() gives is followed


# ---------------------------------------------------------------------- values


def test_a_value_that_is_new_in_every_call(device, traced, reason, where):
    g = rote.graph(scaled)
    call(g, range(FREE_CALLS), device)
    assert len(traced) == AT_ONCE + WAITED
    line = where(scaled, "tolist()")
    why = reason(g, "RT304")
    assert why.where == line and why.count == FREE_CALLS - len(traced)
    assert why.message == (
        "calls read values not seen before: tolist gave 65.0 (before: 33.0, 15.0, 13.0 and 6 more)"
    )
    why = reason(g, "RT307")
    assert why.where == line and why.count == len(traced) - 1  # the first one knows of no other value
    assert why.message == (
        "tolist gave 65.0, which was not seen before (before: 33.0, 15.0, 13.0 and 6 more)"
    )
    assert why.remedy == (
        "Return the tensor and read it outside, or keep it on the device: each value is a path, from its "
        "second time on."
    )
    why = reason(g, "RT309")
    assert why.message == f"tracing may take {100 * SHARE:g} % of the time of plain calls, and has taken that"
    assert why.count == FREE_CALLS - len(traced)


def test_what_tracing_takes_is_bounded(device, traced):
    g = rote.graph(scaled)
    counts = []
    for end in (FREE_CALLS, 500, 5000):
        while g.report().calls < end:
            g(full(g.report().calls, device))
        counts.append(len(traced))
    assert counts[0] == AT_ONCE + WAITED
    assert 0 <= (counts[1] - counts[0]) * DEAR_S <= SHARE * 500e-3 + DEAR_S
    assert 0 < (counts[2] - counts[0]) * DEAR_S <= SHARE * 500e-3 + LATE_SHARE * 4500e-3 + DEAR_S


def test_values_that_settle_are_found(device, traced):
    g = rote.graph(scaled)
    call(g, range(100), device)
    before, tried = g.report().replayed, len(traced)
    assert not before
    call(g, [7.0] * 8000, device)
    assert g.report().replayed > before and len(traced) - tried < 5


@pytest.mark.parametrize("values", [2, 4, 6])
def test_values_that_come_in_turn_replay(device, values):
    g = rote.graph(scaled)
    call(g, [n % values for n in range(FREE_CALLS)], device)
    before = g.report().replayed
    call(g, [n % values for n in range(3 * values)], device)
    assert g.report().replayed == before + 3 * values


def test_new_values_now_and_then_are_paid_for(device, reason):
    g = rote.graph(scaled)
    call(g, [0] * 3, device)
    for n in range(1, AT_ONCE):
        call(g, [0, 0, 0, 0, n], device)
    assert g.report().replayed >= 4 * (AT_ONCE - 1) and reason(g, "RT307").count == AT_ONCE - 1
    assert not [why for why in g.report().reasons if why.code == "RT304"]


def test_shapes_that_never_come_again(device, reason, where):
    def fn(x):
        return x[x > 0] * 2

    g = rote.graph(fn)
    for n in range(20):
        x = torch.cat([torch.ones(n, device=device), -torch.ones(40 - n, device=device)])
        assert torch.equal(g(x), fn(x))
    assert reason(g, "RT304").where == where(fn, "x[x > 0]")
    assert reason(g, "RT307").message == (
        "aten::index.Tensor gave shape [16], which was not seen before "
        "(before: shape [7], shape [6], shape [5] and 5 more)"
    )


def test_lists_and_numbers_are_shown(device, reason):
    g = rote.graph(lambda x: x * sum(x.tolist()))
    for n in range(3):
        g(full(n, device))
    assert reason(g, "RT307").message == (
        "tolist gave [2.0, 2.0], which was not seen before (before: [1.0, 1.0], [0.0, 0.0])"
    )
    g = rote.graph(lambda x: x if x.sum() > 1 else x + 1)
    for n in range(2):
        g(full(n, device))
    assert reason(g, "RT307").message.endswith("gave True, which was not seen before (before: False)")


def test_the_first_call_has_no_value_before_it(device):
    g = rote.graph(scaled)
    call(g, [1, 1, 1], device)
    assert not g.report().reasons


def test_kept_values_are_bounded_by_paths_alone(device, traced, reason):
    g = rote.graph(scaled, keep=True, max_paths=20)
    call(g, range(60), device)
    assert len(traced) == 21 and reason(g, "RT304").message == "21 ways were seen"
    call(g, [5] * 1000, device)
    assert len(traced) == 21  # for good


def test_strict_mode_goes_on_refusing(device):
    g = rote.graph(scaled, strict=True)
    call(g, [1, 1, 1], device)
    for n in range(2 * FREE_TRACES):
        with pytest.raises(rote.NotReplayedError, match=r"RT1\d\d at .*tolist"):
            g(full(n, device))


def test_a_rest_needs_no_general_path(device, monkeypatch, reason):
    g = rote.graph(scaled)
    call(g, range(2 * FREE_CALLS), device)
    rested = reason(g, "RT304").count
    with monkeypatch.context() as patch:
        patch.setattr(Specialization, "run", lambda *_: pytest.fail("the general path was taken"))
        call(g, range(100), device)
    assert reason(g, "RT304").count == rested + 100 and g.report().calls == 2 * FREE_CALLS + 100


def test_a_rest_is_no_rest_inside_of_a_trace(device):
    inner = rote.graph(scaled)
    call(inner, range(FREE_CALLS + 1), device)
    calls = inner.report().calls
    outer = rote.graph(lambda x: inner(x) * 2)
    outer(full(1, device))
    assert inner.report().calls == calls


def test_known_keys_replay_while_new_ones_are_left_alone(device, traced):
    g, x = rote.graph(times), full(1, device)
    for _ in range(5):
        g(x, "-1")
    for n in range(50):
        assert torch.equal(g(x, str(n)), x * n)
        before = g.report().replayed
        assert torch.equal(g(x, "-1"), -x) and g.report().replayed == before + 1


# ---------------------------------------------------------------------- states


def test_states_that_hardly_ever_come_again(device, traced):
    """One of eight does, which is no reason to trace the other seven for ever."""

    class Scale(nn.Module):
        by = 0

        def forward(self, x):
            return x * self.by

    scale = Scale()
    g = rote.graph(scale)
    for n in range(600):
        scale.by = n if n % 8 else 0
        x = full(n, device)
        assert torch.equal(g(x), x * scale.by)
    assert len(traced) < 120


def test_calls_that_raise(device, traced, reason):
    def fn(x):
        x = x + 1
        raise ValueError(f"no {x[0].item():.0f}")

    g = rote.graph(fn)
    for n in range(FREE_CALLS):
        with pytest.raises(ValueError, match=f"no {n + 1}"):
            g(full(n, device))
    assert AT_ONCE < len(traced) <= FREE_TRACES  # plain calls that raise are timed as others
    why = reason(g, "RT209")
    assert why.message == "the call raised ValueError" and why.count == FREE_CALLS - len(traced)


def test_calls_that_raise_are_left_alone(device, monkeypatch):
    """To find out that none is to be traced takes a hundred times as long as some of them."""

    def fn(x, numbers):
        return x + next(numbers)

    g, x, spent = rote.graph(fn), full(1, device), iter(())
    looks, find = [], Specialization.run
    monkeypatch.setattr(Specialization, "run", lambda self, *args: looks.append(1) or find(self, *args))
    set_costs(monkeypatch, traced_s=DEAR_S, plain_s=10e-6, look_s=100e-6)
    for _ in range(1000):
        with pytest.raises(StopIteration):
            g(x, spent)
    assert len(looks) <= FREE_CALLS + 10, looks
    assert g.report().calls == 1000


def test_a_call_that_raises_now_and_then(device):
    def fn(x):
        if x[0] > 5:
            raise ValueError("too large")
        return x * 2

    g = rote.graph(fn, keep=True)
    for _ in range(32):
        for n in (1, 1, 1, 1):
            assert torch.equal(g(full(n, device)), full(2 * n, device))
        with pytest.raises(ValueError, match="too large"):
            g(full(9, device))
    assert g.report().replayed == 126


# ---------------------------------------------------------------------- keys


def times(x, by):
    return x * float(by)  # a number would be followed


def test_keys_that_are_new_in_every_call(device, traced, reason):
    g, x = rote.graph(times), full(1, device)
    for n in range(300):
        assert torch.equal(g(x, str(n)), x * n)
    assert len(traced) == FREE_KEYS  # none comes twice
    why = reason(g, "RT309")
    assert why.message.startswith(
        f"tracing may take {100 * SHARE:g} % of the time of plain calls, and has taken that; args[1] was "
    )
    assert why.count == 300 - FREE_KEYS and g.report().calls == g.report().eager == 300


def test_a_key_that_comes_again_is_recorded(device):
    g, x = rote.graph(times), full(1, device)
    for n in range(200):
        g(x, str(n))
    for _ in range(6000):
        g(x, "-1")
    assert g.report().replayed


def test_many_keys_that_come_in_turn(device, monkeypatch):
    set_costs(monkeypatch, traced_s=3e-3)
    sizes, g = 24, rote.graph(times)
    for n in range(300 * sizes):
        g(torch.ones(1 + n % sizes, device=device), 2)
    before = g.report().replayed
    for n in range(sizes):
        g(torch.ones(1 + n % sizes, device=device), 2)
    assert g.report().replayed == before + sizes


def test_all_keys_are_looked_at_if_recordings_are_kept(device, traced):
    g, x = rote.graph(times, keep=True), full(1, device)
    for n in range(128):
        g(x, str(n))
    assert len(traced) == 128


def test_a_reset_forgets_that_keys_were_new(device, traced):
    g, x = rote.graph(times), full(1, device)
    for n in range(100):
        g(x, str(n))
    g.reset()
    g(x, "-1")
    assert len(traced) == FREE_KEYS + 1


def test_instances_that_live_for_one_call(device, traced):
    class Layer:
        @rote.graph
        def double(self, x):
            return x * 2

    x = full(1, device)
    for _ in range(200):
        assert torch.equal(Layer().double(x), x * 2)
    assert AT_ONCE <= len(traced) - (FREE_WRAPPERS - 1) <= FREE_TRACES
    kept = Layer()
    for _ in range(5000):
        assert torch.equal(kept.double(x), x * 2)
    assert kept.double.report().replayed


def test_many_instances_are_recorded_at_once(device):
    class Layer:
        @rote.graph
        def double(self, x):
            return x * 2

    layers, x = [Layer() for _ in range(40)], full(1, device)
    for _ in range(3):
        for layer in layers:
            assert torch.equal(layer.double(x), x * 2)
    assert sum(layer.double.report().replayed for layer in layers) == 40


def test_objects_made_for_each_call(device, traced):
    """They may be told apart by identity alone, and that of a dead one comes again."""

    class Setting:
        by = 3

    g, x = rote.graph(lambda x, setting: x * setting.by), full(1, device)
    for _ in range(1000):
        assert torch.equal(g(x, Setting()), x * 3)
    assert len(traced) < 2 * FREE_TRACES


# ---------------------------------------------------------------------- steady calls in between


def test_calls_that_are_steady_now_and_then(device, traced):
    """Gradients that are new in each round: one call is unsteady, two agree, one replays."""
    layer = nn.Linear(2, 2).to(device)

    @rote.graph
    def step(x):
        loss = layer(x).square().sum()
        loss.backward()
        return loss.detach()

    for n in range(1000):
        step(full(n % 3, device))
        if n % 4 == 3:
            layer.zero_grad()
    assert len(traced) <= 60 and step.report().replayed, step.explain()


def test_replays_between_unsteady_calls(device, monkeypatch):
    """What replays save pays for a counter that moves now and then."""
    set_costs(monkeypatch, traced_s=2e-3)
    monkeypatch.setattr(Ledger, "compare", lambda *_, **__: None)  # a replay saves half of a plain call
    holder = nn.Linear(2, 2).to(device)
    holder.count = 0
    times, between = 24, 12

    @rote.graph
    @torch.no_grad()
    def step(x, counts):
        holder.count += counts
        return holder(x)

    for _ in range(times):
        for n in range(between):
            step(full(n, device), False)
        step(full(0, device), True)
    assert step.report().replayed >= times * (between - 6), step.explain()


def test_recordings_that_can_never_be_valid_again_are_dropped(device):
    holder = nn.Linear(2, 2).to(device)
    g = rote.graph(torch.no_grad()(lambda x: holder(x)), keep=True)
    for _ in range(50):
        holder.weight = nn.Parameter(torch.randn(2, 2, device=device))
        for n in range(7):
            x = full(n, device)
            assert torch.equal(g(x), holder(x))
    report = g.report()
    assert len(report.recordings) == 1 and report.replayed == 50 * 5, g.explain()


def test_dear_looks_are_not_made_in_a_row(device, monkeypatch):
    """Where many slots are under guard, to look takes longer than to call; that is bounded as tracing is.

    Nothing is optimised: how often it is looked at kernels depends on how long it takes to compile them.
    """
    holder = nn.Linear(2, 2).to(device)
    holder.count = 0
    g = rote.graph(torch.no_grad()(lambda x: holder(x) * (1 + holder.count)), numerics="plain")
    call(g, [1] * 60, device)
    assert g.report().replayed
    looks, find = [], Specialization.run
    monkeypatch.setattr(Specialization, "run", lambda self, *args: looks.append(1) or find(self, *args))
    set_costs(monkeypatch, traced_s=DEAR_S, look_s=8e-3)
    for n in range(400):
        holder.count = n + 1
        call(g, [n], device)
    assert len(looks) <= 10, looks  # each pays for itself in some 130 plain calls, but for the first ones


def test_a_state_that_went_away_is_not_looked_for_in_each_call(device, monkeypatch):
    """There is a recording, and nothing has fitted it for long."""
    holder = nn.Linear(2, 2).to(device)
    holder.count = 0
    g = rote.graph(torch.no_grad()(lambda x: holder(x) * (1 + holder.count)))
    call(g, [1] * 5, device)
    assert g.report().replayed
    looks, find = [], Specialization.run
    monkeypatch.setattr(Specialization, "run", lambda self, *args: looks.append(1) or find(self, *args))
    set_costs(monkeypatch, traced_s=DEAR_S, look_s=0.1e-3)
    for n in range(1000):
        holder.count = n + 1
        call(g, [n], device)
    assert len(looks) < 400  # one call in two, then one in seven
    holder.count = 0
    before = g.report().replayed
    call(g, [1] * 200, device)
    assert g.report().replayed > before


# ---------------------------------------------------------------------- keys that come again late


def test_a_number_that_changes_shows_in_calls_that_are_not_traced(device):
    """What is free for keys that come for the first time was spent on others."""
    g = rote.graph(lambda x, scale: x * scale)
    for n in range(FREE_KEYS):
        g(torch.zeros(n + 3, device=device), 2.0)
    for n in range(40):
        x = full(n, device)
        assert torch.equal(g(x, n / 8), x * (n / 8))
    assert g.report().replayed >= 20, g.explain()


def test_a_refused_call_keeps_nothing_alive(device):
    class Scale:
        by = 2.0

    g = rote.graph(lambda x, scale: x * scale.by)
    for n in range(2 * FREE_KEYS):
        g(torch.zeros(n + 3, device=device), Scale())
    scale = Scale()
    known = weakref.ref(scale)
    g(torch.zeros(100, device=device), scale)
    del scale
    gc.collect()
    assert known() is None


def test_lengths_of_a_prompt_are_replayed_in_the_prompts_that_follow(device):
    """More lengths than keys are free, and none comes again before all others have come."""
    g = rote.graph(lambda x: x.cumsum(0) * 2)
    shares = []
    for _ in range(12):
        before = g.report().replayed
        for length in range(1, 33):
            x = torch.ones(length, device=device)
            assert torch.equal(g(x), x.cumsum(0) * 2)
        shares.append((g.report().replayed - before) / 32)
    assert shares[3] >= 0.25 and shares[-1] >= min(shares[3], 0.9), shares  # one call is compared


def test_a_stream_of_many_shapes_has_its_first_recordings_when_they_come_again(device):
    g = rote.graph(lambda x: x.cumsum(0) * 2)
    for _ in range(3):
        for length in range(1, 129):
            x = torch.ones(length, device=device)
            assert torch.equal(g(x), x.cumsum(0) * 2)
    assert g.report().replayed >= FREE_KEYS / 2, g.explain()


def test_a_rate_that_is_lowered_now_and_then_is_recorded_after_many_replays(device, monkeypatch):
    set_costs(monkeypatch)
    set_saved(monkeypatch)  # or nothing would pay for it
    state = {"rate": 1.0}
    g = rote.graph(lambda x: x * state["rate"])
    for n in range(400):
        state["rate"] = 1.0 - n // 100 / 8
        call(g, [n], device)
    assert g.report().replayed >= 350, g.explain()


# ---------------------------------------------------------------------- misses


@pytest.mark.parametrize("every", [5, 10, 25])
def test_calls_now_and_then_that_no_recording_answers(device, traced, every):
    """All others are replayed, so nearly all that is free would be there for them."""
    holder = nn.Linear(2, 2).to(device)
    holder.mode = ""
    g = rote.graph(torch.no_grad()(lambda x: holder(x) * (2 if holder.mode == "other" else 1)))
    misses = 0
    for n in range(40 * every):
        holder.mode = f"mode {n}" if n % every == every - 1 else ""
        misses += bool(holder.mode)
        call(g, [n], device)
    assert (
        len(traced) <= 2 + 2 + FREE_TRACES // every + 6
    )  # settling, free, its share, and twice as many each
    assert g.report().replayed >= 40 * every - misses - 40  # some are compared with plain calls
    assert sum([why.count for why in g.report().reasons if why.code == "RT309"]) >= misses - len(traced)


def test_a_state_that_comes_to_stay_is_recorded_after_many_misses(device, traced, monkeypatch):
    set_costs(monkeypatch)
    set_saved(monkeypatch)  # or nothing would pay for it
    holder = nn.Linear(2, 2).to(device)
    holder.mode = ""
    g = rote.graph(torch.no_grad()(lambda x: holder(x) * (2 if holder.mode == "other" else 1)))
    for n in range(200):
        holder.mode = f"mode {n}" if n % 10 == 9 else ""
        call(g, [n], device)
    holder.mode, before = "other", g.report().replayed
    call(g, range(40), device)
    assert g.report().replayed - before >= 20


def test_ways_that_are_dropped_since_others_come_were_recorded_in_vain(device, traced):
    """Thirty ways come in any order, and a recording has eight: it is dropped, and learned anew once."""
    g = rote.graph(lambda x: torch.nonzero(x).sum() * x)
    torch.manual_seed(0)
    for _ in range(400):
        x = torch.zeros(30, device=device)
        x[: int(torch.randint(1, 30, ()))] = 1
        assert torch.equal(g(x), g.__wrapped__(x))
    assert len(traced) <= 3 * FREE_TRACES
