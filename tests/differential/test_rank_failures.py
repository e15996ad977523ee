"""One of two processes fails: the other gets the error of the backend, and both can go on."""

from __future__ import annotations

import signal
import sys

import pytest
import torch
from torch import distributed

from .ranks import RANKS, started

pytestmark = pytest.mark.skipif(
    not distributed.is_available() or not distributed.is_gloo_available(), reason="no gloo"
)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory, warm_path):
    return started(
        warm_path, "tests.differential.rank_failures", tmp_path_factory.mktemp("failures") / "store"
    )


@pytest.mark.parametrize("when", ["before", "anew"])
def test_they_replay_before_and_in_a_new_group(ranks, when):
    for found, errors in ranks:
        assert found[when]["right"] and found[when]["replayed"] >= 2, (found, errors)


def test_a_rank_that_raises_leaves_the_other_with_an_error(ranks):
    (one, errors), (other, _) = ranks
    assert one["raises"]["error"] == "RuntimeError", errors
    assert other["raises"]["error"] == "IndexError"


def test_a_rank_that_dies_leaves_the_other_with_an_error(ranks):
    found, errors = ranks[0]
    assert found["dies"]["error"] == "RuntimeError", errors
    assert found["alone"]["right"] and found["alone"]["replayed"] >= 2, found


@pytest.mark.multi_gpu
@pytest.mark.parametrize(("how", "line"), [("goes on", 23), ("reads", 29)])
def test_a_rank_that_stops_while_the_other_replays_captured_collectives(tmp_path, how, line):
    """Nothing of PyTorch's watches those; the process ends with the name of the line."""
    if torch.cuda.device_count() < RANKS:
        pytest.skip("needs two GPUs")
    module = "tests.differential.rank_stops"
    said = started(sys.executable, module, tmp_path / "store", how, ends=(signal.SIGABRT,))
    for found, errors in said:
        assert found["before"]["right"] and found["before"]["replayed"] >= 6, (found, errors)
        assert found["before"]["islands"] == 0, found
    found, errors = said[0]
    assert "went on" not in found
    assert "rank 0: replays have waited for another rank for 8 s" in errors, errors
    assert "allreduce at " in errors and f"rank_stops.py:{line}" in errors, errors
