"""Two processes that act on each other: every rank has what it has plainly, to the bit."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from torch import distributed

from .rank_programs import PROGRAMS, RANKS, STEPS, Program

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    not distributed.is_available() or not distributed.is_gloo_available(), reason="no gloo"
)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory, warm_path):
    """What each rank says of each program."""
    file = tmp_path_factory.mktemp("ranks") / "store"
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    surroundings = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [warm_path, "-W", "ignore", "-m", Program.__module__]
    started = [
        subprocess.Popen(
            [*command, str(rank), str(file)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=surroundings, cwd=ROOT,
        )
        for rank in range(RANKS)
    ]  # fmt: skip
    said = []
    try:
        for process in started:
            out, err = process.communicate(timeout=180)
            lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
            said.append(({line["name"]: line for line in lines}, err))
    finally:
        for process in started:
            process.kill()
    return said


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
