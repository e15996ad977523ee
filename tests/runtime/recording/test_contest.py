"""Rounds of replays against plain calls: whose turn it is, when a round is lost, and when the next one is."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote.runtime.recording.contest.contest import (
    BLOCK,
    BLOCKS,
    CLEAR,
    CONFIRM,
    FACTOR,
    FEWEST_LOST,
    FIRST_ROUND,
    LEAST_S,
    LONG_S,
    MARGIN,
    NEVER,
    WAIT,
    WAITS,
    WARM,
    Contest,
    Figures,
    Turn,
    judge,
)
from rote.runtime.recording.contest.roundtrip import Cost, Kind


class Known:
    """A call of which it takes some time until it is told what it came to.

    Attributes:
        closed: How often it was said that nobody needs to know.
    """

    def __init__(
        self, seconds: float, asked: int = 0, kind: Kind = Kind.THERE, until: Kind = Kind.QUEUED
    ) -> None:
        self._cost = Cost(kind, seconds)
        self._until = until
        self._asked = asked
        self.closed = 0

    def cost(self) -> Cost:
        self._asked -= 1
        return self._cost if self._asked < 0 else Cost(self._until)

    def call_seconds(self) -> float | None:
        return self._cost.seconds

    def close(self) -> None:
        self.closed += 1


REPLAYS = [Turn.AGAIN] * WARM + [Turn.REPLAY] * BLOCK
PLAINLY = [Turn.WARM] * WARM + [Turn.PLAIN] * BLOCK
WHOLE = (REPLAYS + PLAINLY) * BLOCKS
"""A round that is not decided before its end."""


def play(
    contest: Contest, replays: int, replay_s: float, plain_s: float, kind: Kind = Kind.THERE
) -> tuple[list[Turn], int]:
    """A round, from its first turn on; the turns, and when the next one is."""
    turns: list[Turn] = []
    while True:
        turn, following = contest.turn(replays, walks=kind is Kind.BACK)
        turns.append(turn)
        if turn in (Turn.NOTHING, Turn.LOST):
            return turns, following
        assert following == replays
        if turn in (Turn.REPLAY, Turn.PLAIN):
            contest.add(turn, Known(replay_s if turn is Turn.REPLAY else plain_s, kind=kind))
        replays += turn in (Turn.AGAIN, Turn.REPLAY)


def fill(
    contest: Contest,
    replay: Callable[[], Known | None],
    plain: Callable[[], Known | None],
    *,
    walks: bool = False,
) -> None:
    """All calls of a round, up to where it is judged."""
    for _ in WHOLE:
        turn, _ = contest.turn(FIRST_ROUND, walks=walks)
        known = replay() if turn is Turn.REPLAY else plain() if turn is Turn.PLAIN else None
        if known is not None:
            contest.add(turn, known)


def test_in_blocks_by_turns_until_the_round_ends() -> None:
    turns, following = play(Contest(), FIRST_ROUND, 100e-6, 100e-6)
    assert turns == [*WHOLE, Turn.NOTHING]
    assert following == FIRST_ROUND + BLOCKS * len(REPLAYS) + FIRST_ROUND * FACTOR


def test_long_calls_are_timed_as_they_come() -> None:
    """That they are long shows in the first ones."""
    turns, _ = play(Contest(), FIRST_ROUND, 2 * LONG_S, 2 * LONG_S)
    few = FEWEST_LOST
    further = ([Turn.REPLAY] * few + [Turn.PLAIN] * few) * (BLOCKS - 1)
    assert turns == [*REPLAYS, *[Turn.PLAIN] * few, *further, Turn.NOTHING]


@pytest.mark.parametrize("before", [WARM + 1, len(REPLAYS)])
def test_a_replay_that_was_not_the_usual_one_is_made_again(before: int) -> None:
    contest = Contest()
    turns = [contest.turn(FIRST_ROUND)[0] for _ in range(before)]
    assert turns[-1] is Turn.REPLAY
    contest.retract()
    again, _ = play(contest, FIRST_ROUND, 100e-6, 100e-6)
    assert again == [*WHOLE[before - 1 :], Turn.NOTHING]


def test_what_the_next_call_is_for_is_told_before_it_is_made() -> None:
    contest = Contest()
    for turn in REPLAYS + PLAINLY:
        assert not contest.rests and contest.next is turn and contest.next is turn
        contest.advance()
    assert contest.rests  # there is a block of each kind


def test_calls_that_threads_make_at_once_end_a_block_all_the_same() -> None:
    contest = Contest()
    for turn in (Turn.REPLAY, Turn.PLAIN):
        for _ in range(WARM + BLOCK - 1):
            contest.advance()
        assert contest.next is turn
        contest.advance()
    contest.advance()  # another thread has seen the last one, too
    assert contest.rests


def test_a_clear_winner_costs_one_block_of_each() -> None:
    contest = Contest()
    turns, following = play(contest, FIRST_ROUND, 100e-6, 2 * CLEAR * 100e-6)
    assert turns == [*REPLAYS, *PLAINLY, Turn.NOTHING]
    assert contest.figures == Figures(100e-6, 2 * CLEAR * 100e-6)
    assert following == FIRST_ROUND + len(REPLAYS) + FIRST_ROUND * FACTOR


def test_rounds_are_ever_more_seldom() -> None:
    contest, replays, gaps = Contest(), FIRST_ROUND, list[int]()
    for _ in range(4):
        turns, following = play(contest, replays, 1e-6, 1e-3)
        gaps.append(following - replays - turns.count(Turn.AGAIN) - turns.count(Turn.REPLAY))
        replays = following
    assert gaps == [FIRST_ROUND * FACTOR**n for n in range(1, 5)]


def test_a_clear_loser_costs_one_round() -> None:
    """All replays of one block may be long since something else runs."""
    contest = Contest()
    turns, following = play(contest, FIRST_ROUND, 2 * CLEAR * 100e-6, 100e-6)
    assert turns == [*WHOLE, Turn.LOST]
    assert following == NEVER and contest.figures == Figures(2 * CLEAR * 100e-6, 100e-6)


def test_microseconds_are_no_clear_loss() -> None:
    turns, _ = play(Contest(), FIRST_ROUND, 0.5 * LEAST_S * 2 * CLEAR, 0.5 * LEAST_S * CLEAR)
    assert turns == [*WHOLE, Turn.NOTHING]


def test_two_lost_rounds_in_a_row() -> None:
    contest = Contest()
    turns, following = play(contest, FIRST_ROUND, 140e-6, 100e-6)
    assert turns[-1] is Turn.NOTHING and following == FIRST_ROUND + BLOCKS * len(REPLAYS) + CONFIRM
    turns, following = play(contest, following, 140e-6, 100e-6)
    assert turns[-1] is Turn.LOST and following == NEVER
    assert contest.figures == Figures(140e-6, 100e-6)


def test_a_round_that_is_not_lost_forgives_the_one_before() -> None:
    contest, replays = Contest(), FIRST_ROUND
    for _ in range(5):
        turns, replays = play(contest, replays, 140e-6, 100e-6)
        assert turns[-1] is Turn.NOTHING
        turns, replays = play(contest, replays, 100e-6, 100e-6)
        assert turns[-1] is Turn.NOTHING


def test_where_rounds_say_different_things_the_next_one_comes_soon() -> None:
    contest = Contest()
    _, replays = play(contest, FIRST_ROUND, 140e-6, 100e-6)
    turns, following = play(contest, replays, 100e-6, 100e-6)
    assert following == replays + BLOCKS * len(REPLAYS) + FIRST_ROUND and turns[-1] is Turn.NOTHING
    _, later = play(contest, following, 100e-6, 100e-6)
    assert later == following + BLOCKS * len(REPLAYS) + FIRST_ROUND * FACTOR


@pytest.mark.parametrize(
    ("replay_s", "lost"),
    [
        (1e-3 * MARGIN, False),
        (1e-3 * MARGIN + 1e-9, True),
        (1e-3, False),
    ],
)
def test_the_margin(replay_s: float, lost: bool) -> None:
    assert Figures(replay_s, 1e-3).lost is lost


def test_microseconds_are_no_loss() -> None:
    assert not Figures(10e-6 + LEAST_S * 0.99, 10e-6).lost
    assert Figures(10e-6 + LEAST_S * 1.01, 10e-6).lost


TIMED = BLOCK * BLOCKS
"""Calls of each kind that are timed in a round."""


SPOILT = TIMED - TIMED // 4 - 1
"""Calls of each kind that something else has made longer, without a say."""


@given(st.lists(st.floats(1e-6, LONG_S / 2), min_size=SPOILT, max_size=SPOILT))
def test_what_else_runs_on_the_machine_does_not_decide(noise: list[float]) -> None:
    """Most of the replays, however slow, lose no round where some are as fast as plain calls."""
    contest, slow = Contest(), iter([*noise, *[0.0] * TIMED])
    fill(contest, lambda: Known(100e-6 + next(slow)), lambda: Known(100e-6))
    turn, _ = contest.turn(FIRST_ROUND)
    assert turn is Turn.NOTHING
    assert contest.figures == Figures(100e-6, 100e-6)


def test_the_device_is_not_waited_for() -> None:
    contest = Contest()
    fill(contest, lambda: Known(140e-6, asked=6), lambda: Known(100e-6, asked=6))
    replays, waited = FIRST_ROUND, 0
    while True:
        turn, following = contest.turn(replays)
        assert turn is Turn.NOTHING
        if contest.figures is not None:
            break
        assert following == replays + WAIT
        replays, waited = following, waited + 1
    assert waited and following == replays + CONFIRM
    assert contest.figures.lost


def test_calls_that_were_no_samples_decide_nothing() -> None:
    contest = Contest()
    fill(contest, lambda: Known(1e-3), lambda: None)  # all plain calls raise
    turn, following = contest.turn(FIRST_ROUND)
    assert (turn, contest.figures) == (Turn.NOTHING, None)
    assert following == FIRST_ROUND + FIRST_ROUND * FACTOR


def test_calls_with_their_walks_back() -> None:
    contest = Contest()
    _, following = play(contest, FIRST_ROUND, 140e-6, 100e-6, Kind.BACK)
    turns, following = play(contest, following, 140e-6, 100e-6, Kind.BACK)
    assert turns[-1] is Turn.LOST and following == NEVER
    assert contest.figures == Figures(140e-6, 100e-6, walked=True)


def unsaid(contest: Contest, *kinds: Kind) -> tuple[Turn, int]:
    """A round of calls of some kinds by turns, whose results somebody walks back through; what it says."""
    given = cycle(kinds)
    fill(
        contest,
        lambda: Known(300e-6, kind=next(given)),
        lambda: Known(100e-6, kind=next(given)),
        walks=True,
    )
    return contest.turn(FIRST_ROUND, walks=True)


def test_where_somebody_walks_back_calls_that_were_no_samples_decide_nothing() -> None:
    contest = Contest()
    for factor in (FACTOR, FACTOR**2):
        assert unsaid(contest, Kind.VOID) == (Turn.NOTHING, FIRST_ROUND + FIRST_ROUND * factor)
    assert contest.figures is None


def test_calls_alone_decide_in_the_second_round_in_which_nobody_walks_back() -> None:
    contest = Contest()
    assert unsaid(contest, Kind.THERE) == (Turn.NOTHING, FIRST_ROUND + FIRST_ROUND)
    assert contest.figures is None
    turns, following = play(contest, FIRST_ROUND, 300e-6, 100e-6)
    assert turns[-1] is Turn.LOST and following == NEVER


def test_one_walk_in_between_and_calls_alone_decide_nothing() -> None:
    contest = Contest()
    for kinds in ([Kind.THERE], [Kind.THERE, Kind.THERE, Kind.VOID], [Kind.THERE]):
        turn, _ = unsaid(contest, *kinds)
        assert turn is Turn.NOTHING and contest.figures is None


def test_a_walk_may_come_late() -> None:
    contest = Contest()
    late = [Known(seconds, 3, Kind.BACK, Kind.OPEN) for seconds in [140e-6] * TIMED + [100e-6] * TIMED]
    replays, plain = iter(late[:TIMED]), iter(late[TIMED:])
    fill(contest, lambda: next(replays), lambda: next(plain))
    assert contest.turn(FIRST_ROUND) == (Turn.NOTHING, FIRST_ROUND + WAIT)
    turn, following = contest.turn(FIRST_ROUND + WAIT)
    while contest.figures is None:
        turn, following = contest.turn(following)
    assert turn is Turn.NOTHING and contest.figures == Figures(140e-6, 100e-6, walked=True)


def test_a_walk_is_not_waited_for_for_ever() -> None:
    """Of the calls that were walked by then, there are enough, or there are not."""
    contest, known = Contest(), list[Known]()

    def made(seconds: float) -> Known:
        asked = 0 if len(known) % BLOCK == BLOCK - 1 and len(known) > TIMED else 10**6
        known.append(Known(seconds, asked, Kind.BACK, Kind.OPEN))
        return known[-1]

    fill(contest, lambda: made(300e-6), lambda: made(100e-6))
    following = FIRST_ROUND
    for _ in range(WAITS):
        turn, following = contest.turn(following)
        assert turn is Turn.NOTHING and not any(each.closed for each in known)
    assert following == FIRST_ROUND + WAIT * WAITS
    assert contest.turn(following) == (Turn.NOTHING, following + FIRST_ROUND * FACTOR)
    assert contest.figures is None and all(each.closed == 1 for each in known)


def test_the_device_is_waited_for_as_long_as_it_takes() -> None:
    contest = Contest()
    fill(contest, lambda: Known(300e-6, asked=10**6), lambda: Known(300e-6, asked=10**6))
    for _ in range(4 * WAITS):
        assert contest.turn(FIRST_ROUND) == (Turn.NOTHING, FIRST_ROUND + WAIT)


def costs(kind: Kind, *seconds: float) -> list[Cost]:
    return [Cost(kind, each) for each in seconds]


def test_like_is_compared_with_like() -> None:
    """A replay that was walked is not compared with a plain call that was not."""
    walked, alone = costs(Kind.BACK, 3e-3, 3e-3), costs(Kind.THERE, 1e-3, 1e-3)
    assert judge(walked, alone, walks=True) is None
    assert judge(walked, alone, walks=False) is None


def test_a_loss_has_to_be_one_in_either_comparison() -> None:
    walked, alone = costs(Kind.BACK, 3e-3, 3e-3), costs(Kind.THERE, 1e-3, 1e-3)
    for plain_s, lost in [(2e-3, False), (0.5e-3, True)]:
        verdict = judge(
            [*walked, *alone],
            [*costs(Kind.BACK, 2e-3, 2e-3), *costs(Kind.THERE, plain_s, plain_s)],
            walks=True,
        )
        assert verdict is not None and verdict.lost is lost
        assert verdict.figures == Figures(3e-3, 2e-3, walked=True)


def test_figures_in_words() -> None:
    walked = "a replay took 24.7 us and a plain call 20.3 us, each with the walk back through its results"
    assert str(Figures(24.72e-6, 20.3e-6, walked=True)) == walked
    assert str(Figures(24.72e-6, 20.3e-6)) == "a replay took 24.7 us and a plain call 20.3 us"
    assert str(Figures(2.5e-3, 0.12)) == "a replay took 2.50 ms and a plain call 120.00 ms"
