"""Which code is seen to run, and by whom rote steps aside for its own bookkeeping."""

from __future__ import annotations

import gc
import sys

import pytest
import torch

import rote
from rote.base.collector import COLLECTOR
from rote.base.location import Sites, user_site
from rote.runtime.backends.host.backend import HostBackend
from rote.runtime.state.executed import ExecutedCode, our_profiler

FACTOR = 2.0


@torch.library.custom_op("rote_executed::scaled", mutates_args=())
def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * factor_now()


def factor_now() -> float:
    return FACTOR


def names_of(g: rote.Graphed) -> set[str]:
    """Names of the functions that were seen to run."""
    return {code.co_name for entry in g._keys.entries.values() for code in entry.executed.globals}


def helper(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def test_code_before_between_and_after_operations_is_seen(device):
    def late(x):
        return helper(x * 2)

    def call(x):
        return late(helper(x).relu()).sum()

    g = rote.graph(call)
    for _ in range(4):
        assert g(torch.ones(3, device=device)).item() == 15
    assert {"call", "late", "helper"} <= names_of(g)
    assert g.report().replayed == 2


def test_the_python_code_of_a_kernel_is_seen(device):
    """Rote's bookkeeping runs out of the profiler's sight, the operation itself does not."""
    g = rote.graph(lambda x: (scaled(x.relu()) + 1).relu())
    for _ in range(4):
        assert torch.equal(g(torch.ones(3, device=device)), torch.full((3,), 3.0, device=device))
    assert {"scaled", "factor_now"} <= names_of(g)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="there is no profiler")
def test_what_is_done_around_a_call_is_not_watched(monkeypatch):
    around, inside, streams = [], [], HostBackend.call_streams

    def looking(self, **how):
        around.append(sys.getprofile())
        return streams(self, **how)

    def call(x):
        inside.append(sys.getprofile() is not None)
        return x * 2

    monkeypatch.setattr(HostBackend, "call_streams", looking)
    rote.graph(call)(torch.ones(3))
    assert around == [None] and inside == [True] and sys.getprofile() is None


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="there is no profiler")
def test_a_call_that_takes_the_profiler_away_is_not_watched():
    def call(x):
        sys.setprofile(None)
        return x * 2

    g = rote.graph(call)
    for _ in range(4):
        assert torch.equal(g(torch.ones(3)), torch.full((3,), 2.0))
    assert g.report().replayed == 0, g.explain()


def test_nothing_of_ours_counts_as_the_callables(device):
    g = rote.graph(lambda x: (x * torch.tensor(3.0, device=device)).relu()[x > 0].sum())
    for _ in range(4):
        g(torch.ones(3, device=device))
    entries = g._keys.entries.values()
    seen = [space["__name__"] for entry in entries for space in entry.executed.globals.values()]
    assert seen and not [name for name in seen if name.partition(".")[0] == "rote"]


@pytest.mark.skipif(hasattr(sys, "monitoring"), reason="there is a better way than a profiler")
def test_only_our_own_profiler_is_stepped_out_of():
    def foreign(*_: object) -> None:
        return None

    assert our_profiler() is None
    sys.setprofile(foreign)
    try:
        assert our_profiler() is None
    finally:
        sys.setprofile(None)
    with ExecutedCode():
        assert our_profiler() is sys.getprofile() is not None
    assert our_profiler() is None


def test_a_profiler_that_the_callable_starts_stays(device):
    seen: list[object] = []

    def foreign(frame, event, argument) -> None:
        seen.append(event)

    def call(x):
        sys.setprofile(foreign)
        y = x * 2
        kept.append(sys.getprofile() is foreign)
        sys.setprofile(None)
        return y.relu()

    kept: list[bool] = []
    g = rote.graph(call)
    for _ in range(3):
        assert torch.equal(g(torch.ones(3, device=device)), torch.full((3,), 2.0, device=device))
    assert kept and all(kept) and seen
    assert sys.getprofile() is None


def test_the_table_of_lines_says_what_looking_says():
    sites = Sites()

    def asked():  # what stands for the operation
        return handled()

    def handled():
        return taken()

    def taken():
        return noted()

    def noted():
        return sites.here(), user_site(sys._getframe(3))

    first, second = asked(), asked()
    assert first[0] == first[1] == second[0] and first[0].function == "asked"
    assert first[0] is second[0]


def test_collections_are_off_inside_and_as_before_afterwards():
    before = gc.get_threshold()
    assert gc.isenabled() and before[0]
    with COLLECTOR.rests(), COLLECTOR.rests():
        assert gc.isenabled() and gc.get_threshold() == (0, *before[1:])
        assert COLLECTOR.settings()[:2] == (True, before)
    assert gc.isenabled() and gc.get_threshold() == before
    gc.disable()
    try:
        with COLLECTOR.rests():
            assert not gc.isenabled()
        assert not gc.isenabled() and gc.get_threshold() == before
    finally:
        gc.enable()


def test_collections_are_on_after_a_callable_that_raises(device):
    def call(x):
        raise ValueError(f"collecting: {gc.isenabled()}")

    g = rote.graph(call)
    with pytest.raises(ValueError, match="collecting: True"):
        g(torch.ones(3, device=device))
    assert gc.isenabled()
