"""Two processes or four that act on each other: every rank has what it has plainly, to the bit."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import pytest
import torch
from torch import distributed

from .rank_programs import PROGRAMS, Program
from .ranks import started

pytestmark = pytest.mark.skipif(
    not distributed.is_available() or not distributed.is_gloo_available(), reason="no gloo"
)
ON_GPUS = [name for name, program in PROGRAMS.items() if not program.host]


class OnGPUs(NamedTuple):
    """What ranks with a GPU each say, and whether their recordings have an exact tier."""

    said: Any
    tiers: bool


def started_on(python, tmp_path_factory, ranks, kind, asked, captured=""):
    """What each rank says of each program that is asked for."""
    if kind == "cuda" and torch.cuda.device_count() < ranks:
        pytest.skip(f"needs {ranks} GPUs")
    file = tmp_path_factory.mktemp("ranks") / "store"
    return started(python, Program.__module__, file, kind, ",".join(asked), captured, str(ranks), ranks=ranks)


@pytest.fixture(scope="module")
def asked(request):
    """The names of the programs that any test of this run is about."""
    cases = [item for item in request.session.items if item.path == request.path]
    return sorted({item.callspec.params["name"] for item in cases})


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory, warm_path, asked):
    return started_on(warm_path, tmp_path_factory, 2, "cpu", asked)


@pytest.fixture(scope="module")
def four_ranks(tmp_path_factory, warm_path, asked):
    """Sums of more than two numbers depend on their order."""
    return started_on(warm_path, tmp_path_factory, 4, "cpu", asked)


@pytest.fixture(scope="module", params=[(2, ""), (2, "captured"), (4, ""), (4, "captured")])
def on_gpus(request, tmp_path_factory, asked):
    """The same over NCCL, with the collectives between the graphs or in them."""
    ranks, captured = request.param
    return OnGPUs(started_on(sys.executable, tmp_path_factory, ranks, "cuda", asked, captured), not captured)


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


@pytest.mark.sampled(10)  # three seconds each
@pytest.mark.parametrize("name", PROGRAMS)
def test_each_of_two_ranks_is_right_and_replays_or_says_why(two_ranks, name):
    check_right(two_ranks, name)
    check_replayed(two_ranks, PROGRAMS[name].code, PROGRAMS[name].least, name)


@pytest.mark.long
@pytest.mark.parametrize("name", PROGRAMS)
def test_each_of_four_ranks_is_right_and_replays_or_says_why(four_ranks, name):
    check_right(four_ranks, name)
    check_replayed(four_ranks, PROGRAMS[name].code, PROGRAMS[name].least, name)


@pytest.mark.multi_gpu
@pytest.mark.parametrize("name", ON_GPUS)
def test_each_rank_is_right_on_gpus(on_gpus, name):
    check_right(on_gpus.said, name)


@pytest.mark.multi_gpu
@pytest.mark.parametrize("name", ON_GPUS)
def test_each_rank_replays_or_says_why_on_gpus(on_gpus, name):
    program = PROGRAMS[name]
    code = program.code if program.nccl is None else program.nccl
    check_replayed(on_gpus.said, code, program.least, name, tiers=on_gpus.tiers)
