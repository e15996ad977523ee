"""The examples run as a user runs them: as programs, in a process of their own."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STEPS, EPISODES = 5, 2


@pytest.mark.transformers
@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="needs transformers")
@pytest.mark.parametrize("views", [1, 2])
def test_pi0_policy_replays_and_equals_eager(tmp_path: Path, views: int) -> None:
    out = tmp_path / "result.json"
    command = [
        sys.executable,
        "examples/pi0_policy.py",
        "--device",
        "cpu",
        "--size",
        "small",
        "--out",
        str(out),
    ]
    command += ["--views", str(views), "--steps", str(STEPS), "--episodes", str(EPISODES)]
    paths = os.pathsep.join(["src", *filter(None, [os.environ.get("PYTHONPATH")])])

    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=240,
    )

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
