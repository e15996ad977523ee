"""The benchmark runner works and its JSON has the parts that readers rely on. No time is asserted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def run(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(["src", *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [
        sys.executable,
        "-m",
        "benchmarks.run",
        "--device",
        "cpu",
        "--quick",
        "--out",
        str(out),
        *arguments,
    ]
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)


def test_a_quick_run_writes_what_it_measured_and_keeps_other_cases(tmp_path: Path) -> None:
    out = tmp_path / "results" / "today.json"
    first = run(out, "--case", "host_mlp")
    assert first.returncode == 0, first.stdout + first.stderr
    result: dict[str, Any] = json.loads(out.read_text())
    assert {"date", "device", "versions", "cases"} == set(result)
    assert {"python", "torch", "cuda", "driver", "transformers"} <= set(result["versions"])

    case = result["cases"]["host_mlp"]
    assert {row["way"] for row in case["rows"]} == {"eager", "rote"}
    assert all({"subject", "median_us", "p99_us", "host_us", "samples"} <= set(row) for row in case["rows"])
    assert set(case["ratios"]) == {"batch 8, width 64: eager / rote"}
    assert case["checks"] and all(case["checks"].values())
    assert case["facts"]["rote"]["replayed"] > 0, case["facts"]["rote"]["reasons"]
    assert case["quick"] is True
    assert {"before", "after"} == set(case["machine"])
    assert "host_mlp" in first.stdout

    result["cases"]["kept"] = {}
    out.write_text(json.dumps(result))
    assert run(out, "--case", "host_mlp").returncode == 0
    assert set(json.loads(out.read_text())["cases"]) == {"host_mlp", "kept"}


def test_a_case_that_needs_a_gpu_is_skipped_with_a_line(tmp_path: Path) -> None:
    out = tmp_path / "today.json"
    done = run(out, "--case", "linear_sgd", "overhead")
    assert done.returncode == 0, done.stderr
    assert "linear_sgd: skipped: needs a GPU" in done.stdout
    assert "overhead: skipped: needs a GPU" in done.stdout
    assert not out.exists()
