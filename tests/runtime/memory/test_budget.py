"""What recordings are worth: recent replays count more."""

from __future__ import annotations

import pytest

from rote.runtime.backends.host.backend import HostBackend
from rote.runtime.backends.protocol.base import Sharing
from rote.runtime.memory.budget import HALF_LIFE, SLABS, Budgets, DeviceBudget
from rote.runtime.memory.holding import Account, Holding, Worth


class Recorded:
    """A recording without memory in the pool."""

    def __init__(self, nbytes, replays=0):
        self.nbytes, self.replays = nbytes, replays
        self.busy = False
        self.gone = ""

    def placed_bytes(self):
        return 0 if self.gone else self.nbytes

    def evict(self, why):
        self.gone = why


class Session:
    def __init__(self):
        self.released = False

    def regions(self):
        return ()

    def release(self):
        self.released = True


def hold(budget, backend, account, owner):
    """A holding, kept alive as a variant would (a budget keeps nothing alive)."""
    holding = Holding(backend, False, account, lambda: owner, operations=1)
    holding.sessions.append(Session())
    budget.add(holding)
    vars(backend).setdefault("held_by_the_test", []).append(holding)
    return holding


@pytest.fixture
def backend():
    return HostBackend()


def test_replays_fade():
    worth = Worth(replays=10)
    assert worth.fresh(10) == 0 and worth.score == 1.0
    worth.age(0.5, 14)
    assert worth.score == 4.5 and worth.fresh(14) == 0
    worth.age(0.5, 14)
    assert worth.score == 2.25


def test_an_early_favourite_does_not_stay_for_ever(backend):
    budget, account = DeviceBudget(backend), Account("f", 250)
    early, late = Recorded(100), Recorded(100)
    holdings = [hold(budget, backend, account, early), hold(budget, backend, account, late)]
    early.replays = 100
    assert budget.settle(holdings[1]) is None and not early.gone
    late.replays = 12 * HALF_LIFE
    fresh = hold(budget, backend, account, Recorded(100))
    assert budget.settle(fresh) is None
    assert early.gone == "300 B were held where the budget of f allows 250 B" and not late.gone


def test_one_that_was_used_often_outlives_one_that_was_not(backend):
    budget, account = DeviceBudget(backend), Account("f", 250)
    seldom, often = Recorded(100, 3), Recorded(100, 3)
    hold(budget, backend, account, seldom), hold(budget, backend, account, often)
    often.replays += 20
    budget.settle(hold(budget, backend, account, Recorded(100)))
    assert seldom.gone and not often.gone


def test_a_limit_that_cannot_be_held_is_told(backend):
    budget, account = DeviceBudget(backend), Account("f", 250)
    busy = Recorded(200)
    busy.busy = True
    hold(budget, backend, account, busy)
    excess = budget.settle(hold(budget, backend, account, Recorded(100)))
    assert str(excess) == "300 B are held where the budget of f allows 250 B" and not busy.gone


def test_only_the_accounts_own_recordings_count_and_go(backend):
    budget, own, others = DeviceBudget(backend), Account("f", 250), Account("g")
    neighbour = Recorded(1000)
    hold(budget, backend, others, neighbour)
    mine = Recorded(200)
    hold(budget, backend, own, mine)
    assert budget.settle(hold(budget, backend, own, Recorded(100))) is None
    assert mine.gone and not neighbour.gone
    budget.limit = 500
    budget.trim()
    assert neighbour.gone.endswith("where rote.set_budget allows 500 B")


def test_room_is_made_only_as_far_as_needed(backend):
    budget, account = DeviceBudget(backend), Account("f")
    recorded = [Recorded(100, n) for n in range(6)]
    for owner in recorded:
        hold(budget, backend, account, owner)
        owner.replays += owner.replays
    budget.make_room(250, None)
    assert [bool(owner.gone) for owner in recorded] == [True, True, True, False, False, False]
    budget.make_room(10_000, None)
    assert all(owner.gone for owner in recorded)


def test_what_shares_and_how_large_slabs_are(backend):
    budget, own, others = DeviceBudget(backend), Account("f", 800), Account("g")
    assert budget.sharing(others, 0) == Sharing() and not budget.sharing(others, 10**9).too_large
    assert budget.sharing(own, 7) == Sharing(id(own), 800 // SLABS, 7)
    budget.limit = 80
    assert budget.sharing(others, 0) == Sharing(None, 80 // SLABS)
    assert [budget.sharing(others, n).too_large for n in (10, 11)] == [False, True]
    assert budget.smallest_limit(own) == (80, "rote.set_budget")


def test_limits_by_device(backend):
    budgets = Budgets()
    assert budgets.limit(100, None) is None and budgets.of(backend).limit == 100
    assert budgets.limit(5, backend.device) == 100 and budgets.of(backend).limit == 5
    assert budgets.limit(None, backend.device) == 5 and budgets.of(backend).limit is None
    assert budgets.limit(7, None) == 100 and budgets.of(backend).limit == 7
