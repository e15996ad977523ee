"""Two processes that act on each other: every rank has what it has plainly, to the bit."""

from __future__ import annotations

import pytest
from torch import distributed

from .rank_programs import PROGRAMS, STEPS, Program
from .ranks import started

pytestmark = pytest.mark.skipif(
    not distributed.is_available() or not distributed.is_gloo_available(), reason="no gloo"
)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory, warm_path):
    """What each rank says of each program."""
    return started(warm_path, Program.__module__, tmp_path_factory.mktemp("ranks") / "store")


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_rank_is_right(ranks, name):
    for found, errors in ranks:
        assert name in found, errors
        assert "error" not in found[name], found[name]["error"]
        assert found[name]["equal"] == [True] * (STEPS + 2), found[name]


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_rank_replays_or_says_why(ranks, name):
    program = PROGRAMS[name]
    for found, _ in ranks:
        told = found[name]
        if program.code:
            assert told["replayed"] == 0 and program.code in told["codes"], told
        else:
            assert told["replayed"] >= program.least, told
