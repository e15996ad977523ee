"""Two processes that act on each other: every rank has what it has plainly, to the bit."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import distributed

from .rank_programs import PROGRAMS, Program
from .ranks import RANKS, started

pytestmark = pytest.mark.skipif(
    not distributed.is_available() or not distributed.is_gloo_available(), reason="no gloo"
)
ON_GPUS = [name for name, program in PROGRAMS.items() if not program.host]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory, warm_path):
    """What each rank says of each program."""
    return started(warm_path, Program.__module__, tmp_path_factory.mktemp("ranks") / "store")


@pytest.fixture(scope="module")
def ranks_on_gpus(tmp_path_factory):
    """The same over NCCL."""
    if torch.cuda.device_count() < RANKS:
        pytest.skip("needs two GPUs")
    file = tmp_path_factory.mktemp("ranks_on_gpus") / "store"
    return started(sys.executable, Program.__module__, file, "cuda")


@pytest.fixture(scope="module")
def ranks_that_capture(tmp_path_factory):
    """The same over NCCL, with the collectives in the graphs."""
    if torch.cuda.device_count() < RANKS:
        pytest.skip("needs two GPUs")
    file = tmp_path_factory.mktemp("ranks_that_capture") / "store"
    return started(sys.executable, Program.__module__, file, "cuda", "", "captured")


def check_right(ranks, name):
    for found, errors in ranks:
        assert name in found, errors
        assert "error" not in found[name], found[name]["error"]
        assert found[name]["equal"] == [True] * (PROGRAMS[name].calls + 2), found[name]


def check_replayed(ranks, code, least, name, *, tiers=True):
    for found, _ in ranks:
        told = found[name]
        if code:
            assert told["replayed"] == 0 and code in told["codes"], told
        else:
            assert told["replayed"] >= least, str(told)
        assert not PROGRAMS[name].part or told["parts"] >= least, told
        assert not PROGRAMS[name].walks or told["walked"] >= least, told
        assert not tiers or told["optimised"] == PROGRAMS[name].optimised, told


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_rank_is_right(ranks, name):
    check_right(ranks, name)


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_rank_replays_or_says_why(ranks, name):
    check_replayed(ranks, PROGRAMS[name].code, PROGRAMS[name].least, name)


@pytest.mark.multi_gpu
@pytest.mark.parametrize("name", ON_GPUS)
@pytest.mark.parametrize("way", ["ranks_on_gpus", "ranks_that_capture"])
def test_each_rank_is_right_on_gpus(request, way, name):
    check_right(request.getfixturevalue(way), name)


@pytest.mark.multi_gpu
@pytest.mark.parametrize("name", ON_GPUS)
@pytest.mark.parametrize("way", ["ranks_on_gpus", "ranks_that_capture"])
def test_each_rank_replays_or_says_why_on_gpus(request, way, name):
    program = PROGRAMS[name]
    code = program.code if program.nccl is None else program.nccl
    found = request.getfixturevalue(way)
    check_replayed(found, code, program.least, name, tiers=way == "ranks_on_gpus")
