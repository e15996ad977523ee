"""What calls keep in Python is there, to the bit, whoever else changes it in between."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.conformance.kept_in_containers import PROGRAMS as IN_CONTAINERS
from tests.conformance.kept_in_generators import PROGRAMS as IN_GENERATORS
from tests.conformance.kept_in_objects import PROGRAMS as IN_OBJECTS
from tests.conformance.kept_programs import World, play

PROGRAMS = {**IN_OBJECTS, **IN_CONTAINERS, **IN_GENERATORS}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_what_is_kept(program: Callable[[], World]) -> None:
    play(program)


def test_most_programs_replay() -> None:
    names = [
        "prop",
        "slots",
        "default_arg",
        "moving_list",
        "sched",
        "meter",
        "eps_greedy",
        "ema_mod",
        "deque_ops",
        "np_lr",
        "tuple_key",
    ]
    assert [name for name in names if play(PROGRAMS[name]) < 8] == []
