"""The examples run as a user runs them: as programs, in a process of their own."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch import distributed

ROOT = Path(__file__).resolve().parents[2]
STEPS, EPISODES = 3, 2

pytestmark = pytest.mark.usefixtures("warm_python")


def run(script: str, out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The program on the CPU, with the small policy."""
    command = [sys.executable, f"examples/{script}", "--device", "cpu", "--size", "small", "--out", str(out)]
    command += ["--steps", str(STEPS), "--episodes", str(EPISODES), *arguments]
    paths = os.pathsep.join(["src", *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)


@pytest.mark.transformers
@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="needs transformers")
@pytest.mark.parametrize("views", [pytest.param(1, marks=pytest.mark.long), 2])
def test_pi0_policy_replays_and_equals_eager(tmp_path: Path, views: int) -> None:
    out = tmp_path / "result.json"
    done = run("pi0_policy.py", out, "--views", str(views))

    assert done.returncode == 0, done.stdout + done.stderr
    assert "chunks bitwise equal: yes" in done.stdout
    result = json.loads(out.read_text())
    assert result["equal"] is True
    assert (result["size"], result["views"]) == ("small", views)
    for way in ("eager", "rote"):
        times = result["times"][way]
        assert len(times["call_ms"]) == STEPS * EPISODES
        assert len(times["episode_ms"]) == EPISODES
    report = result["report"]
    assert report["calls"] == STEPS * EPISODES
    assert report["replayed"] > 0, report["reasons"]


@pytest.mark.transformers
@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="needs transformers")
@pytest.mark.parametrize("variant", [pytest.param("duquant", marks=pytest.mark.long), "vla"])
def test_pi0_quantized_is_near_the_dense_policy_and_replays(tmp_path: Path, variant: str) -> None:
    out = tmp_path / "result.json"
    done = run("pi0_quantized.py", out, "--variant", variant)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "bitwise equal: yes" in done.stdout
    result = json.loads(out.read_text())
    assert result["equal"] is True and result["quantized"] == 20
    quantized = [row["name"] for row in result["layers"] if not row["reason"]]
    assert all(".language_model." in name or (".dit." in name and ".mlp." in name) for name in quantized)
    assert {row["reason"] for row in result["layers"]} == {"", "fits no pattern of include"}
    assert all(1e-5 < difference < 0.05 for difference in result["differences"])
    assert result["report"]["replayed"] > 0, result["report"]["reasons"]


def run_ranks(script: str, out: Path, *arguments: str) -> Any:
    """What a program on two processes has written."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += [f"examples/{script}", *arguments, "--out", str(out)]
    paths = os.pathsep.join(["src", *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(out.read_text())


NO_GLOO = not distributed.is_available() or not distributed.is_gloo_available()


@pytest.mark.transformers
@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="needs transformers")
@pytest.mark.skipif(NO_GLOO, reason="no gloo")
def test_ranks_that_fine_tune_pi0_replay_and_equal_eager(tmp_path: Path) -> None:
    found = run_ranks("torchrun_pi0.py", tmp_path / "result.json", "--steps", "9")
    assert all([row["equal"] == 9 and row["replayed"] >= 3 for row in found["ranks"]]), found


@pytest.mark.skipif(NO_GLOO, reason="no gloo")
def test_ranks_of_a_transformer_replay_and_equal_eager(tmp_path: Path) -> None:
    found = run_ranks("torchrun_transformer.py", tmp_path / "result.json", "--steps", "8")
    assert {(row["way"], row["rank"]) for row in found} == {
        (way, rank)
        for way in ("ddp", "wrapped", "whole", "fsdp", "step", "decode", "sharded")
        for rank in range(2)
    }
    assert all([row["equal"] == row["steps"] and row["replayed"] >= 4 for row in found]), found
