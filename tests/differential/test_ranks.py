"""Two processes that act on each other: every rank has what it has plainly, to the bit."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from torch import distributed

from .rank_programs import PROGRAMS, RANKS, STEPS

ROOT = Path(__file__).parents[2]
REPLAYED = {"ddp_around", "parallel_on_one_device", "rank_read"}
SEVERAL = {"on_one_branch"}
WRAPPED = {"ddp", "ddp_called", "ddp_whole_step", "sharded"}

pytestmark = pytest.mark.skipif(
    not distributed.is_available() or not distributed.is_gloo_available(), reason="no gloo"
)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory, warm_path):
    """What each rank says of each program."""
    file = tmp_path_factory.mktemp("ranks") / "store"
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    surroundings = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [warm_path, "-W", "ignore", "-m", f"{PROGRAMS['ddp'].__module__}"]
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
        assert found[name]["equal"] == [True] * STEPS, found[name]


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_rank_says_why(ranks, name):
    for found, _ in ranks:
        told = found[name]
        if name in REPLAYED:
            assert told["replayed"] >= STEPS - 4 and not {"RT801", "RT803"} & set(told["codes"]), told
        else:
            assert told["replayed"] == 0 or name in SEVERAL, told
            assert ("RT803" if name in WRAPPED else "RT801") in told["codes"], told
