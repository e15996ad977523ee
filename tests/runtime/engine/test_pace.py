"""Windows of calls with rote and without it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from rote.runtime.engine.ledger.pace import (
    FEWEST,
    FIRST,
    LENGTHS,
    MOST,
    MOST_VOID,
    ORDER,
    PAIRS,
    SHARE,
    WARM,
    Mark,
    Pace,
)

PLAIN_S = 1e-3


def calls_of(pairs: int, *, plainly: bool) -> int:
    """Calls of one kind in the first windows of a round."""
    return sum([LENGTHS[at] + WARM for at in range(2 * pairs) if ORDER[at] is plainly])


Costs = Callable[[int], float]


class Loop:
    """A loop that makes calls as a pace says; what one takes is a function of its number, for each kind."""

    def __init__(self, ours: Costs, plain: Costs = lambda number: PLAIN_S) -> None:
        self.pace = Pace()
        self.costs = (ours, plain)
        self.now, self.others, self.thread, self.asked_s, self.alone_s = 0.0, 0, 1, 0.0, 0.0
        self.kinds: list[bool] = []
        self.lost_s = 0.0
        self._left = self.pace.left

    def make(self, calls: int) -> Loop:
        for _ in range(calls):
            number = len(self.kinds)
            if self._left == 0:
                self.pace.turn(Mark(number, self.now, self.others, self.thread, self.alone_s))
                self.now += self.asked_s
                self.pace.go_on(self.now)
                self._left = self.pace.left
            self._left -= 1
            self.kinds.append(self.pace.plainly)
            seconds = self.costs[self.pace.plainly](number)
            self.now += seconds
            self.lost_s += seconds - self.costs[True](number)
        return self

    def share(self, begin: int) -> float:
        """Of the calls from one on, how many ran plainly."""
        return sum(self.kinds[begin:]) / len(self.kinds[begin:])


def always(times: float) -> Costs:
    return lambda number: times * PLAIN_S


@pytest.mark.parametrize("times", [1.04, 1.2, 1.7, 5.0, 50.0])
def test_what_is_slower_is_left(times: float) -> None:
    """However much slower it is: in the long run it takes no more than a share of the time."""
    loop = Loop(always(times)).make(40_000)
    assert loop.share(400) > 0.9 and loop.share(20_000) > 0.96
    first_s = (FIRST + calls_of(FEWEST, plainly=False)) * (times - 1) * PLAIN_S  # until anything is known
    assert loop.lost_s - first_s <= 1.5 * SHARE * 40_000 * PLAIN_S
    assert "from call to call it took" in loop.pace.lost or any(loop.kinds[-9:])


@pytest.mark.parametrize("times", [0.51, 0.6, 0.7])
def test_what_is_clearly_faster_loses_three_windows(times: float) -> None:
    loop = Loop(always(times)).make(FIRST + 100)
    assert sum(loop.kinds) == calls_of(FEWEST, plainly=True)
    assert loop.make(40_000).share(0) < 0.01


@pytest.mark.parametrize("between", [0.0, 1.0])
def test_what_is_faster_than_a_plain_call_by_itself_is_known_without_one(between: float) -> None:
    """Where the caller takes as long between two calls, that is not known."""
    loop = Loop(always(0.1 + between), always(1.0 + between))
    loop.alone_s = PLAIN_S
    assert any(loop.make(40_000).kinds) is bool(between)
    assert loop.pace.saved_s == pytest.approx(0.9 * PLAIN_S)


@pytest.mark.parametrize("times", [0.95, 1.0, 1.01])
def test_about_as_fast_is_not_slower(times: float) -> None:
    loop = Loop(always(times)).make(FIRST + 100)
    assert sum(loop.kinds) == calls_of(PAIRS, plainly=True)
    assert loop.make(40_000).share(0) < 0.1


def test_the_time_is_that_of_all_keys() -> None:
    """Each fifth call takes ten times as long, and the others save a little: no key of theirs loses."""
    loop = Loop(lambda number: PLAIN_S * (10 if number % 5 == 0 else 0.8)).make(5000)
    assert loop.share(200) > 0.9
    loop = Loop(lambda number: PLAIN_S * (1.5 if number % 5 == 0 else 0.4)).make(5000)
    assert loop.share(200) < 0.05


def test_a_loop_whose_steps_are_not_alike() -> None:
    """Episodes of ten to forty calls, each with a training step behind it that takes as long as eight."""
    dice, ends, at = random.Random(0), set[int](), 0
    while at < 10_000:
        at += dice.randrange(10, 40)
        ends.add(at)
    plain = lambda number: PLAIN_S * (9 if number in ends else 1)  # noqa: E731
    assert Loop(lambda number: 2 * plain(number), plain).make(10_000).share(1000) > 0.9
    assert Loop(lambda number: 0.5 * plain(number), plain).make(10_000).share(1000) < 0.1


def test_what_happens_now_and_then() -> None:
    """Each n-th call is followed by what takes as long as ten, whichever kind it is of."""
    wrong, loops = list[tuple[int, int, float]](), 0
    for every in (*range(3, 20), 25, 32, 50, 64, 100):
        for begin in range(0, every, 4):
            for times, most, least in ((0.7, 0.15, 0.0), (1.5, 1.0, 0.8)):
                share = Loop(*[after(every, begin, each) for each in (times, 1.0)]).make(3000).share(600)
                loops += 1
                if not least <= share <= most:
                    wrong.append((every, begin, times))
    assert len(wrong) <= 0.05 * loops, wrong


def after(every: int, begin: int, times: float) -> Costs:
    return lambda number: PLAIN_S * (times + 10 * (number % every == begin))


def test_others_that_use_the_machine() -> None:
    """One in twenty calls is interrupted for as long as ten calls take."""
    dice = random.Random(1)
    interrupted = [1 + 10 * (dice.random() < 0.05) + 0.1 * dice.random() for _ in range(20_000)]
    for times, most, least in ((1.2, 1.0, 0.8), (0.8, 0.2, 0.0)):
        found = Loop(lambda number, times=times: times * PLAIN_S * interrupted[number],
                     lambda number: PLAIN_S * interrupted[number]).make(20_000)  # fmt: skip
        assert least <= found.share(2000) <= most


def test_a_program_that_comes_to_what_replays() -> None:
    loop = Loop(lambda number: PLAIN_S * (2 if number < 1000 else 0.3)).make(1000)
    assert loop.share(FIRST + 50) > 0.9
    assert loop.make(8 * MOST).share(3 * MOST) < 0.1


def test_a_program_that_comes_to_what_is_slower() -> None:
    loop = Loop(lambda number: PLAIN_S * (0.3 if number < 20_000 else 2.0)).make(20_000 + 2 * MOST)
    assert loop.share(20_000 + MOST + 200) > 0.9


def test_a_window_with_a_traced_call_says_nothing() -> None:
    loop = Loop(lambda number: PLAIN_S * (100 if number == FIRST + 2 else 0.5))
    loop.make(FIRST + 3)
    loop.others += 1
    assert sum(loop.make(200).kinds) == calls_of(FEWEST, plainly=True)
    assert loop.pace.lost == ""


@pytest.mark.parametrize("what", ["others", "thread"])
def test_a_round_of_windows_that_say_nothing_is_given_up(what: str) -> None:
    loop = Loop(always(3.0)).make(FIRST)
    for _ in range(10 * (MOST_VOID + 2)):
        setattr(loop, what, getattr(loop, what) + 1)
        loop.make(1)
    assert not loop.pace.plainly and loop.pace.left == FIRST
    assert loop.make(1000).share(FIRST + 300) > 0.8  # the next one says it


def test_what_is_twice_as_long_in_each_call_is_known_at_once() -> None:
    for times in (0.3, 3.0):
        loop = Loop(always(times)).make(FIRST + calls_of(1, plainly=True) + calls_of(1, plainly=False) + 1)
        assert not loop.pace.is_in_round and loop.pace.plainly is (times > 1)


@pytest.mark.parametrize("times", [0.9, 1.5])
def test_what_it_takes_to_ask_is_made_up_for(times: float) -> None:
    """Of calls of some microseconds, to look at the clock takes as long as several."""
    loop = Loop(always(times))
    loop.asked_s = 2 * PLAIN_S
    loop.make(60_000)
    asked = sum([one != other for one, other in zip(loop.kinds, loop.kinds[1:], strict=False)])
    assert asked and loop.now - sum(loop.costs[kind](0) for kind in loop.kinds) <= 2 * SHARE * loop.now


def test_rounds_that_cost_much_are_made_up_for() -> None:
    loop = Loop(always(1000.0)).make(FIRST + 100)
    assert loop.pace.plainly and loop.pace.left >= math.floor(LENGTHS[0] * 999 / SHARE)
