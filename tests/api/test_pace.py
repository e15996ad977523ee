"""Windows of calls with the parts that train, and without them."""

from __future__ import annotations

import pytest

from rote.api.parts.parts import FIRST, ROUNDS, WARM, WINDOW, Pace


def played(with_parts, without, calls):
    """How often parts rested, and what came of it; a call takes so many seconds, and now and then longer."""
    pace, now, rests = Pace(), 0.0, []
    for number in range(calls):
        pace.begin(now)
        rests.append(pace.rests)
        now += (without if pace.rests else with_parts) + (50.0 if number == FIRST + WARM + 1 else 0.0)
    return pace, rests


@pytest.mark.parametrize(("with_parts", "without"), [(2.0, 1.0), (1.0, 1.0), (1.0, 2.0)])
def test_a_window_that_is_longer(with_parts, without):
    pace, rests = played(with_parts, without, FIRST + 8 * WINDOW)
    assert pace.is_over and not pace.rests and sum(rests) == ROUNDS * WINDOW
    assert pace.lost() == ((with_parts, without) if with_parts > without else None)


def test_nothing_is_said_before_all_windows_are_over():
    pace, rests = played(2.0, 1.0, FIRST + 2 * ROUNDS * WINDOW)
    assert not pace.is_over and pace.lost() is None and not any(rests[:FIRST])
