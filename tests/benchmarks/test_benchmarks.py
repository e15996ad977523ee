"""The benchmark runner works and its JSON has the parts that readers rely on. No time is asserted."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from rote.quant import DuQuantConfig
from rote.quant.converting.convert import build_layer

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.usefixtures("warm_python")


def run(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return program("benchmarks.run", "--device", "cpu", "--quick", "--out", str(out), *arguments)


def program(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(["src", *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", module, *arguments]
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)


@pytest.mark.long
@pytest.mark.transformers
@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="needs transformers")
def test_the_quantized_policy_small(tmp_path: Path) -> None:
    out = tmp_path / "pi0-quant.json"
    done = program("benchmarks.pi0_quant", "--small", "--device", "cpu", "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    result: dict[str, Any] = json.loads(out.read_text())
    facts, checks = result["facts"], result["checks"]
    assert "failed" not in facts and "left out for lack of time" not in facts
    assert len(checks) == 10 and all(checks.values())

    ways = {(row["subject"], row["way"]) for row in result["rows"]}
    subjects = {"policy variant", "policy variant in integers", "DuQuant in integers"}
    assert ways >= {(subject, way) for subject in subjects for way in ("eager", "rote", "dense rote")}
    assert ways >= {("policy variant", f"{way}, eager") for way in ("reference", "public way")}
    for subject in subjects:
        assert facts[subject]["layers"] == 14 and 0 < facts[subject]["action difference"]["median"] < 0.05
    assert facts["policy variant"]["paths"] == ["fused"]
    assert facts["DuQuant in integers"]["paths"] == ["kernel"]

    shown = program("benchmarks.pi0_quant", "--show", str(out))
    assert shown.returncode == 0 and shown.stdout in done.stdout


@pytest.mark.long
@pytest.mark.transformers
@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="needs transformers")
def test_what_there_is_no_time_for_is_left_out_and_said(tmp_path: Path) -> None:
    out = tmp_path / "pi0-quant.json"
    done = program("benchmarks.pi0_quant", "--small", "--device", "cpu", "--out", str(out), "--seconds", "0")
    assert done.returncode == 0, done.stderr
    result = json.loads(out.read_text())
    assert result["facts"]["left out for lack of time"] == ["dense"] and not result["rows"]


def test_public_layers_have_the_numbers_of_the_policy_variant() -> None:
    from benchmarks.policy_layer import PublicLayer

    torch.manual_seed(0)
    rows, linear = torch.randn(40, 64), torch.nn.Linear(64, 48)
    layer = build_layer(linear, DuQuantConfig.vla(path="reference"), rows)
    found, wanted = PublicLayer(layer)(rows), layer(rows)
    assert (found - wanted).norm() < 1e-5 * wanted.norm()
    assert (found - linear(rows)).norm() > 1e-3 * wanted.norm()


@pytest.mark.long
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


@pytest.mark.long
def test_what_a_call_costs_is_measured_on_the_host_too(tmp_path: Path) -> None:
    out = tmp_path / "today.json"
    done = run(out, "--case", "overhead", "guards")
    assert done.returncode == 0, done.stdout + done.stderr
    cases = json.loads(out.read_text())["cases"]
    found = {row["subject"] for row in cases["overhead"]["rows"]}
    assert found == {
        *("no inputs", "1 input", "10 inputs", "100 inputs", "nested dict", "one island", "two chained")
    }
    assert all(case["checks"] and all(case["checks"].values()) for case in cases.values())
    assert set(cases["guards"]["facts"]["host_us above a bare replay"]) == {"0", "100", "1000"}


@pytest.mark.long
def test_tiers_are_counted_by_rule(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = run(out, "--case", "tiers")
    assert done.returncode == 0, done.stdout + done.stderr
    case = json.loads(out.read_text())["cases"]["tiers"]
    assert case["checks"] and all(case["checks"].values())
    for subject in ("denoise", "transformer"):
        found = case["facts"][subject]
        assert found["used"] and found["after"] < found["before"] and found["removed"]["recomputed"] > 0
        ways = {row["way"] for row in case["rows"] if row["subject"] == subject}
        assert ways == {"eager", "plain", "short", "exact", "near"}
    assert not case["facts"]["mlp"]["used"]


@pytest.mark.long
def test_lines_of_a_replay_are_timed(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = run(out, "--case", "hot_path")
    assert done.returncode == 0, done.stdout + done.stderr
    case = json.loads(out.read_text())["cases"]["hot_path"]
    assert case["checks"] and all(case["checks"].values())
    for found in case["facts"].values():
        assert len(found["lines"]) > 20 and any([line.endswith("return value") for line in found["lines"]])


@pytest.mark.long
def test_versions_are_timed(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = run(out, "--case", "chosen", "chosen_w4a8")
    assert done.returncode == 0, done.stdout + done.stderr
    cases = json.loads(out.read_text())["cases"]
    for case, subject in ((cases["chosen"], "denoise"), (cases["chosen_w4a8"], "64 rows")):
        assert case["checks"] and all(case["checks"].values())
        ways = {row["way"] for row in case["rows"] if row["subject"] == subject}
        assert ways == {"exact", "probed", "first", "chosen"}
    assert cases["chosen_w4a8"]["facts"]["64 rows"]["probed"]["near"][0]["operations"] == 2


@pytest.mark.long
def test_what_recording_costs_is_measured_by_phase(tmp_path: Path) -> None:
    out = tmp_path / "today.json"
    done = run(out, "--case", "recording")
    assert done.returncode == 0, done.stdout + done.stderr
    case = json.loads(out.read_text())["cases"]["recording"]
    subjects = {row["subject"] for row in case["rows"]}
    assert subjects == {
        *("chain of 100", "chain of 1,000", "transformer of 12 layers", "chain of 1,000, 2,000 live tensors")
    }
    ways = {
        "plain",
        "modes that do nothing",
        "observation",
        "recording",
        "first replay",
        "second replay",
        "third replay",
    }
    assert {row["way"] for row in case["rows"]} == ways
    assert case["checks"] and all(case["checks"].values())
    assert case["facts"]["chain of 1,000: operations"] == 1000
    for subject in subjects:
        phases = case["facts"][f"{subject}: phases of the recording call, ms per 1,000 operations"]
        assert all(phases[phase] > 0 for phase in ("trace", "capture", "begin", "judge and keep", "rest"))


@pytest.mark.long
@pytest.mark.transformers
@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="needs transformers")
@pytest.mark.skipif(importlib.util.find_spec("websockets") is None, reason="needs websockets")
@pytest.mark.skipif(importlib.util.find_spec("msgpack") is None, reason="needs msgpack")
def test_served_calls_are_measured(tmp_path: Path) -> None:
    out = tmp_path / "today.json"
    done = run(out, "--case", "serving")
    assert done.returncode == 0, done.stdout + done.stderr
    case = json.loads(out.read_text())["cases"]["serving"]
    assert len(case["checks"]) == 4 and all(case["checks"].values())
    assert {row["way"] for row in case["rows"]} == {"eager", "eager, policy", "rote", "rote, policy"}
    assert {row["samples"] for row in case["rows"]} == {20, 200}
    assert "PI0, 2 views: rote: p99 / median" in case["ratios"]


def test_a_case_that_needs_a_gpu_is_skipped_with_a_line(tmp_path: Path) -> None:
    out = tmp_path / "today.json"
    done = run(out, "--case", "linear_sgd")
    assert done.returncode == 0, done.stderr
    assert "linear_sgd: skipped: needs a GPU" in done.stdout
    assert not out.exists()
