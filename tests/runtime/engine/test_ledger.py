"""What tracing takes is bounded by what plain calls take and replays save, at any time and in any order."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.clock import ALLOWS_WORK, COSTS

from rote.runtime.engine.ledger.ledger import (
    AHEAD_AT_ONCE,
    AT_ONCE,
    COMPLETED_AT_ONCE,
    EARLY_CALLS,
    FIRST_WORK_S,
    FOR_WORK,
    FREE_AHEAD,
    FREE_CALLS,
    FREE_IN_PARTS,
    FREE_KEYS,
    FREE_LESSONS,
    FREE_PART_TRACES,
    FREE_RECORDINGS,
    FREE_SEARCHES,
    FREE_TRACES,
    FREE_WRAPPERS,
    INVESTED,
    LATE_SHARE,
    LONGEST_REST,
    MOST,
    PATH_S,
    PATH_SHARE,
    REINVESTED,
    REMEMBERED,
    SHARE,
    WAIT,
    Ledger,
    Means,
    Misses,
)

TRACED_S, PLAIN_S = 1.0, 0.1
SURPLUS_S = TRACED_S - PLAIN_S


@pytest.fixture(autouse=True)
def _as_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times are those that a test gives."""
    for method in COSTS:
        monkeypatch.setattr(Ledger, method.__name__, method)
    monkeypatch.setattr(Ledger, "allows_work", ALLOWS_WORK)


def call(ledger: Ledger) -> bool:
    """One call of a program that never settles; whether it was traced."""
    if ledger.allows():
        ledger.add_trace(TRACED_S, recorded=False)
        return True
    ledger.add_plain(PLAIN_S)
    return False


def traced_in_a_row(ledger: Ledger) -> int:
    """Calls that are traced before one is not."""
    count = 0
    while call(ledger):
        count += 1
    return count


def worn(**options: Any) -> Ledger:
    """Nothing is free any more."""
    ledger = Ledger(**options)
    for _ in range(FREE_CALLS):
        call(ledger)
    return ledger


def test_half_of_what_is_free_is_traced_at_once_and_the_others_ever_more_seldom():
    ledger = Ledger()
    traced = [n for n in range(FREE_CALLS) if call(ledger)]
    assert traced[:AT_ONCE] == [*range(AT_ONCE)] and len(traced) <= FREE_TRACES
    between = [later - earlier - 1 for earlier, later in pairwise(traced)][AT_ONCE - 1 :]
    waits_s = [WAIT * TRACED_S * 2**number for number in range(len(between))]
    assert len(between) > 2
    assert [calls * PLAIN_S for calls in between] == pytest.approx(waits_s, abs=2 * PLAIN_S)


def test_what_never_settles_loses_little_more_than_what_is_traced_at_once():
    """However long a traced call takes."""
    for traced_s in (2 * PLAIN_S, 10 * PLAIN_S, 100 * PLAIN_S):
        ledger, lost = Ledger(), 0.0
        for calls in range(FREE_CALLS):
            if ledger.allows():
                ledger.add_trace(traced_s, recorded=False)
                lost += traced_s - PLAIN_S
            else:
                ledger.add_plain(PLAIN_S)
            further = math.log2(1 + calls * PLAIN_S / (WAIT * traced_s))
            assert lost <= (AT_ONCE + 1 + further) * traced_s


def test_replays_shorten_a_wait():
    ledger = Ledger()
    ledger.add_plain(PLAIN_S)
    assert traced_in_a_row(ledger) == AT_ONCE
    ledger.add_replays(round(WAIT * TRACED_S / PLAIN_S) + 1)
    assert ledger.allows()


def test_what_was_observed_is_recorded_though_other_calls_wait():
    ledger = Ledger()
    traced_in_a_row(ledger)
    assert not ledger.allows() and ledger.allows(completes=True)
    for _ in range(COMPLETED_AT_ONCE - AT_ONCE):
        assert ledger.allows(completes=True)
        ledger.add_trace(TRACED_S, recorded=False)
    assert not ledger.allows(completes=True)


def test_calls_are_looked_at_while_they_wait():
    """Or one that comes again would not be found."""
    ledger = Ledger()
    ledger.add_plain(PLAIN_S)
    traced_in_a_row(ledger)
    assert not ledger.allows() and not ledger.rest() and ledger.is_free


def test_one_that_never_settles_is_bounded_from_then_on():
    ledger = worn()
    for calls, share in ((EARLY_CALLS - FREE_CALLS, SHARE), (20_000, LATE_SHARE)):
        traced = sum([call(ledger) for _ in range(calls)])
        assert 0 < traced * SURPLUS_S <= share * calls * PLAIN_S + SURPLUS_S


def test_what_is_recorded_is_not_in_vain():
    ledger = Ledger()
    for _ in range(FREE_CALLS // 2):
        assert ledger.allows()
        ledger.add_trace(TRACED_S, recorded=True)
        ledger.add_replays(1)


def test_recordings_that_nothing_replays_are_in_vain():
    """Sizes that are new in each call: each second call records a way that no other one goes."""
    ledger, traced = Ledger(), 0
    while ledger.allows():
        ledger.add_trace(TRACED_S, recorded=traced % 2 == 1)
        traced += 1
    assert traced == AT_ONCE + 2 * FREE_RECORDINGS


def test_a_replay_is_for_one_recording():
    """Sizes of which one comes again now and then."""
    ledger, traced = Ledger(), 0
    while ledger.allows():
        ledger.add_trace(TRACED_S, recorded=traced % 2 == 1)
        traced += 1
        ledger.add_replays(traced % 8 == 0)
    assert traced <= AT_ONCE + 3 * FREE_RECORDINGS


def test_calls_that_learn_something_are_not_in_vain():
    ledger, traced = Ledger(), 0
    while ledger.allows():
        ledger.add_trace(TRACED_S, recorded=False, learned=traced % 2 == 1)
        traced += 1
    assert traced == AT_ONCE + 2 * FREE_LESSONS
    ledger = Ledger()
    for _ in range(FREE_CALLS // 2 - 1):
        ledger.add_trace(TRACED_S, recorded=False, learned=True)
        ledger.add_replays(1)
        assert ledger.allows()


def test_each_instance_adds_to_what_is_free():
    ledger = Ledger()
    for _ in range(30):
        ledger.add_wrapper()
        assert call(ledger)
    assert traced_in_a_row(ledger) == AT_ONCE
    for _ in range(1000):
        ledger.add_wrapper()
    assert traced_in_a_row(ledger) == FREE_WRAPPERS - 31


def test_replays_pay_for_traced_calls():
    ledger = worn()
    while ledger.allows():
        call(ledger)
    ledger.compare(replay_s=0.05, plain_s=PLAIN_S)
    ledger.add_replays(1000)  # 50 seconds saved, of which most may be spent
    assert sum([call(ledger) for _ in range(100)]) >= 25


@pytest.mark.parametrize(("replay_s", "share"), [(0.0, FOR_WORK), (PLAIN_S, INVESTED), (PLAIN_S / 2, 0.15)])
def test_what_is_optimised_is_paid_for_though_traces_are_free(replay_s, share):
    """By calls that save much, and by long ones that save little before they are optimised."""
    ledger = Ledger()
    ledger.compare(replay_s=replay_s, plain_s=PLAIN_S)
    ledger.add_trace(TRACED_S, recorded=True)
    for _ in range(3):
        replays, told = 0, ledger.replays_for_work(unknown=10**6)
        while not ledger.allows_work:
            ledger.add_replays(1)
            replays += 1
        assert replays == pytest.approx(told, abs=1)
        assert replays * PLAIN_S * share == pytest.approx(SURPLUS_S, rel=0.1)
        ledger.add_work(SURPLUS_S)


def test_what_replays_earn_while_kernels_are_compiled_is_kept():
    ledger = Ledger()
    ledger.compare(replay_s=0.0, plain_s=PLAIN_S)
    ledger.add_trace(TRACED_S, recorded=True)
    ledger.add_replays(math.ceil(3 * SURPLUS_S / (FOR_WORK * PLAIN_S)))
    for _ in range(3):
        assert ledger.allows_work
        ledger.add_work(SURPLUS_S)
    assert not ledger.allows_work


def test_nobody_knows_when_work_is_paid_for_before_a_plain_call_was_timed():
    ledger = Ledger()
    ledger.add_trace(TRACED_S, recorded=True)
    ledger.add_replays(1000)
    assert ledger.replays_for_work(unknown=128) == 128


def test_work_that_is_far_from_paid_for_is_not_thought_of_each_time():
    """Calls of some 50 us would earn the first step in years of looks."""
    ledger = Ledger()
    ledger.compare(replay_s=50e-6, plain_s=50e-6)
    ledger.add_trace(5e-3, recorded=True)
    assert ledger.replays_for_work(unknown=128) == LONGEST_REST


@pytest.mark.parametrize("plain_s", [5e-6, 50e-6, 5e-3])
def test_a_path_of_plain_calls_is_asked_as_often_as_calls_pay_for(plain_s):
    ledger = Ledger()
    assert ledger.rest_from_paths() == 0
    ledger.add_plain(plain_s)
    calls = ledger.rest_from_paths()
    assert calls == LONGEST_REST or PATH_S <= PATH_SHARE * plain_s * (calls + 1) <= PATH_S + plain_s


def test_the_shorter_of_two_times_is_that_of_a_plain_call():
    """One of them may have come behind a look, which empties caches."""
    for first_s, compared_s in ((2 * PLAIN_S, PLAIN_S), (PLAIN_S, 2 * PLAIN_S)):
        ledger = Ledger()
        ledger.add_plain(first_s)
        ledger.add_trace(TRACED_S + first_s, recorded=True)
        ledger.compare(replay_s=PLAIN_S, plain_s=compared_s)
        assert ledger.price == pytest.approx(TRACED_S / PLAIN_S)


def test_short_calls_wait_for_the_first_step():
    """It takes longer than their traced calls: compilers are started in it."""
    ledger, plain_s = Ledger(), 1e-3
    ledger.compare(replay_s=0.0, plain_s=plain_s)
    ledger.add_trace(20 * plain_s, recorded=True)
    ledger.add_replays(int(0.9 * FIRST_WORK_S / (FOR_WORK * plain_s)))
    assert not ledger.allows_work
    ledger.add_replays(int(0.2 * FIRST_WORK_S / (FOR_WORK * plain_s)))
    assert ledger.allows_work


def test_searches_are_paid_for_once_some_were_free():
    ledger = Ledger()
    for _ in range(FREE_SEARCHES):
        assert ledger.allows_search
        ledger.add_search(10 * PLAIN_S)
    assert not ledger.allows_search
    calls = 0
    while not ledger.allows_search:
        ledger.add_plain(PLAIN_S)
        calls += 1
    assert calls * SHARE * PLAIN_S >= 10 * PLAIN_S


def traced_misses(every: int, calls: int) -> list[int]:
    """The numbers of the misses that are traced, where all other calls are replayed."""
    ledger = Ledger()
    misses, found = Misses(ledger), []
    for number in range(1, calls + 1):
        if number % every:
            ledger.add_replays(1)
        elif misses.admit():
            ledger.add_trace(TRACED_S, recorded=False)
            misses.add_vain()
            found.append(number // every)
        else:
            ledger.add_plain(PLAIN_S)
    return found


def test_misses_that_come_to_nothing_are_traced_ever_more_seldom():
    assert traced_misses(every=20, calls=1000) == [1, 2, 4, 7, 12, 21, 38]


def test_misses_get_their_share_of_what_is_free():
    assert traced_misses(every=1, calls=18) == [*range(1, 19)]
    assert traced_misses(every=4, calls=40) == [1, 2, 3, 4, 5, 6, 8]


def test_misses_are_traced_again_once_one_has_recorded():
    misses = Misses(Ledger())
    for _ in range(2 * FREE_TRACES):
        misses.add_vain()
    assert not misses.admit()
    misses.forget()
    assert misses.admit()


def test_misses_of_an_unbounded_ledger_are_all_traced():
    misses = Misses(Ledger(bounded=False))
    for _ in range(2 * FREE_TRACES):
        assert misses.admit()
        misses.add_vain()


def test_replays_that_save_nothing_pay_for_nothing():
    ledger = worn()
    ledger.compare(replay_s=2 * PLAIN_S, plain_s=PLAIN_S)
    while ledger.allows():
        call(ledger)
    ledger.add_replays(10**6)
    assert not ledger.allows()


def test_only_so_much_is_saved_up():
    ledger = worn()
    ledger.compare(replay_s=0.0, plain_s=PLAIN_S)
    ledger.add_replays(10**9)
    traced = 0
    while ledger.allows():
        ledger.add_trace(TRACED_S, recorded=False)
        traced += 1
    assert MOST <= traced <= MOST * 1.2


def test_a_plain_call_is_timed_first():
    ledger = Ledger()
    for _ in range(FREE_CALLS):
        ledger.add_trace(TRACED_S, recorded=False)
    ledger.add_replays(10**6)
    assert not ledger.allows() and not ledger.rest()
    ledger.add_plain(PLAIN_S)
    assert ledger.allows()  # by the replays that came before


def test_a_key_has_to_come_twice_once_nothing_is_free():
    ledger = worn()
    ledger.compare(replay_s=0.0, plain_s=PLAIN_S)
    ledger.add_replays(10**6)
    assert [ledger.admits(1), ledger.admits(2), ledger.admits(1)] == [False, False, True]
    for key in range(100, 100 + REMEMBERED):
        assert not ledger.admits(key)
    assert not ledger.admits(2)  # forgotten for the others


def test_keys_that_came_are_recorded_before_others_are_observed():
    """As many lengths as a prompt has, and the same ones in the next prompt."""
    ledger, known, recorded = Ledger(), set(), set()
    for key in [*range(FREE_CALLS // 2)] * 2:
        if key in known and ledger.allows(completes=True):
            ledger.add_trace(TRACED_S, recorded=True)
            recorded.add(key)
        elif key not in known and ledger.admits(key):
            ledger.add_trace(TRACED_S, recorded=False)
            known.add(key)
        else:
            ledger.add_plain(PLAIN_S)
    assert recorded == set(range(FREE_KEYS)) <= known


def test_a_call_that_records_takes_back_what_its_observation_took():
    ledger = Ledger()
    for _ in range(FREE_TRACES // 2):
        ledger.add_trace(TRACED_S, recorded=False)
        ledger.add_trace(TRACED_S, recorded=True)
        ledger.add_replays(1)
    assert traced_in_a_row(ledger) == AT_ONCE


def ahead(ledger: Ledger, key: int) -> bool:
    """The first call at another length: whether it was recorded."""
    if not ledger.admits(key, ahead=True):
        ledger.add_plain(PLAIN_S)
        return False
    ledger.add_trace(TRACED_S, recorded=True, ahead=True)
    return True


def test_lengths_that_do_not_come_again_are_free_at_first_and_no_more():
    ledger = Ledger()
    recorded = [number for number in range(FREE_CALLS) if ahead(ledger, number)]
    assert recorded[:AHEAD_AT_ONCE] == [*range(AHEAD_AT_ONCE)]
    assert AHEAD_AT_ONCE < len(recorded) <= FREE_AHEAD
    recorded = sum([ahead(ledger, number % 200) for number in range(200, 600)])
    assert recorded * SURPLUS_S <= SHARE * 600 * PLAIN_S  # it was paid for


def test_nothing_but_lengths_waits_for_lengths():
    ledger = Ledger()
    for number in range(AT_ONCE):
        assert ahead(ledger, number)
    ledger.add_plain(PLAIN_S)
    assert traced_in_a_row(ledger) == AT_ONCE


def test_a_length_that_is_replayed_makes_room_for_another():
    ledger = Ledger()
    while ahead(ledger, ledger._calls):
        pass
    ledger.add_use()
    assert ahead(ledger, -1) and not ahead(ledger, -2)


def test_what_comes_after_many_replays_is_traced_once_they_have_paid_for_it():
    """A rate that is lowered after a thousand steps is new: to trace its call takes as long as ten."""
    for saved, due in ((0.5, 1000), (0.01, 10_000)):
        ledger = Ledger()
        ledger.add_trace(TRACED_S, recorded=False)
        ledger.add_trace(TRACED_S, recorded=True)
        ledger.add_replays(due - 1)
        assert not ledger.allows()  # nobody knows what they save
        ledger.compare(replay_s=(1 - saved) * PLAIN_S, plain_s=PLAIN_S)
        ledger.add_replays(1)
        assert ledger.allows() and REINVESTED * saved * due * PLAIN_S >= SURPLUS_S
    ledger = Ledger()
    ledger.add_trace(TRACED_S, recorded=True)
    ledger.compare(replay_s=PLAIN_S, plain_s=PLAIN_S)
    ledger.add_replays(10_000)
    assert not ledger.allows()  # they save nothing


def test_a_rest_lasts_until_the_next_traced_call_is_paid_for():
    ledger = worn()
    while ledger.allows():
        call(ledger)
    calls = ledger.rest()
    for _ in range(calls):
        assert not ledger.allows()
        ledger.add_plain(PLAIN_S)
    ledger.add_plain(PLAIN_S)
    assert ledger.allows()


def test_looks_are_paid_for_too():
    ledger = worn()
    for _ in range(EARLY_CALLS):
        ledger.add_plain(PLAIN_S)
    ledger.add_look(0.01)
    assert ledger.rest() >= 4  # 0.01 s are 2 % of 5 plain calls


def test_a_rest_has_an_end():
    ledger = Ledger()
    for _ in range(FREE_TRACES):
        ledger.add_trace(3600.0, recorded=False)
    for _ in range(FREE_CALLS):
        ledger.add_plain(1e-6)
    assert ledger.rest() == LONGEST_REST


def test_without_a_bound():
    ledger = worn(bounded=False)
    assert all(call(ledger) for _ in range(1000))
    assert ledger.admits(1) and not ledger.rest()


def test_forgetting_everything():
    ledger = worn()
    ledger.clear()
    assert ledger.allows() and ledger.admits(1)


@given(
    st.lists(st.tuples(st.sampled_from(["call", "replays", "look"]), st.floats(PLAIN_S, 10.0)), max_size=400)
)
def test_whatever_happens_tracing_stays_within_what_was_earned(events: list[tuple[str, float]]) -> None:
    ledger, spent, earned, dearest = worn(), 0.0, 0.0, SURPLUS_S
    earned += FREE_CALLS * SHARE * PLAIN_S
    for kind, seconds in events:
        if kind == "replays":
            ledger.add_replays(3)
            earned += 3 * PLAIN_S
        elif kind == "look":
            ledger.add_look(seconds)
            spent += seconds
        elif ledger.allows():
            ledger.add_trace(seconds, recorded=False)
            surplus = seconds - PLAIN_S
            spent, dearest = spent + surplus, max(dearest, surplus)
            assert spent <= earned + dearest + 1e-9
        else:
            ledger.add_plain(PLAIN_S)
            earned += SHARE * PLAIN_S


# ---------------------------------------------------------------------- parts


def test_what_is_free_for_parts_is_one_sum() -> None:
    whole, means = Ledger(), Means()
    parts = [Ledger(of=whole, means=means) for _ in range(FREE_TRACES)]
    counts = [traced_in_a_row(part) for part in parts]
    tried = FREE_IN_PARTS // FREE_PART_TRACES
    assert counts == [FREE_PART_TRACES] * tried + [0] * (FREE_TRACES - tried)
    for _ in range(FREE_PART_TRACES):
        parts[0].add_trace(TRACED_S, recorded=True)
        parts[0].add_replays(1)
    assert means.has_free and traced_in_a_row(parts[-1]) == FREE_PART_TRACES


def test_nothing_is_free_for_parts_after_the_first_calls() -> None:
    means = Means()
    for _ in range(FREE_CALLS):
        means.add_call()
    part = Ledger(of=Ledger(), means=means)
    assert not means.has_free and not part.allows()


def test_a_callable_and_its_parts_have_one_share() -> None:
    whole = worn()
    whole.share_with_parts(shares=True)
    means = Means()
    for _ in range(FREE_CALLS):
        means.add_call()
    parts = [Ledger(of=whole, means=means) for _ in range(2)]
    spent, plain = 0.0, 0.0
    while plain < 300.0:  # the two parts are all that the callable does
        began = sum(call(part) for part in parts)
        spent += SURPLUS_S * (began + call(whole))
        plain += 2 * PLAIN_S
    assert 0 < spent <= SHARE * plain + 3 * TRACED_S
    whole.share_with_parts(shares=False)
    assert whole.left_to_parts == 0.5


def test_what_one_part_has_earned_pays_for_another() -> None:
    means = Means()
    first, second = (Ledger(of=Ledger(), means=means) for _ in range(2))
    for _ in range(FREE_CALLS):
        means.add_call()
    second.add_plain(PLAIN_S)
    second.add_trace(TRACED_S, recorded=False)
    assert not second.allows()
    first.add_plain(PLAIN_S)
    first.add_trace(TRACED_S, recorded=True)
    first.compare(PLAIN_S / 2, PLAIN_S)
    first.add_replays(100)
    assert second.allows()


def test_a_part_is_vain_until_it_is_recorded() -> None:
    part = Ledger(of=Ledger(), means=Means())
    traced_in_a_row(part)
    assert part.is_vain
    part.add_trace(TRACED_S, recorded=True)
    assert not part.is_vain


def test_what_parts_take_is_known_though_it_is_free():
    means = Means()
    part = Ledger(of=Ledger(), means=means)
    part.add_trace(TRACED_S, recorded=False)
    assert means.taken_s == TRACED_S and means.earned_s == 0.0
    while part.is_free:
        part.add_trace(TRACED_S, recorded=False)
    taken_s = means.taken_s
    part.add_look(PLAIN_S)
    assert means.taken_s == taken_s + PLAIN_S and means.earned_s == -PLAIN_S
