"""The runner of the suite: outcomes as JSON, bad workers survived, and a page that follows from results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.footguns_worker import Worker
from tests.footguns.suite import CASES

from benchmarks import footguns_page

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.usefixtures("warm_python")


@pytest.mark.long
def test_a_run_on_the_host(tmp_path: Path) -> None:
    out = tmp_path / "results" / "footguns.json"
    names = ["held_over_many_calls", "python_counter_beside"]
    command = [sys.executable, "-m", "benchmarks.footguns", "--device", "cpu", "--workers", "1"]
    paths = os.pathsep.join(["src", *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [*command, "--case", *names, "--out", str(out)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(out.read_text())
    assert set(document) == {"date", "device", "versions", "seconds", "cases"}
    trusting = [each.pop("trusting")["outcome"] for each in document["cases"].values()]
    assert trusting == ["wrong", "wrong"]
    assert document["cases"] == {
        "outputs/held_over_many_calls": {
            "eager": {"outcome": "right", "detail": ""},
            "dynamo": {"outcome": "right", "detail": ""},
            "rote": {"outcome": "right", "detail": "", "replays": True, "calls": 12, "replayed": 10,
                     "codes": []},
        },
        "state/python_counter_beside": {
            "eager": {"outcome": "right", "detail": ""},
            "dynamo": {"outcome": "right", "detail": ""},
            "rote": {"outcome": "right", "detail": "", "replays": True, "calls": 12, "replayed": 7,
                     "codes": ["RT201"]},
        },
    }  # fmt: skip
    resumed = [*command, "--case", *names, "--out", str(out), "--resume", "--limit", "0"]
    document["cases"]["state/python_counter_beside"].pop("rote")
    out.write_text(json.dumps(document))
    again = subprocess.run(
        resumed,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert again.returncode == 0, again.stderr
    assert "1 not run, 1 right" in again.stdout  # what was there is kept, and no time was left for more
    assert json.loads(out.read_text())["cases"] == document["cases"]


def test_the_page_of_a_run(tmp_path: Path) -> None:
    ours = {"outcome": "right", "detail": ""}
    calls = {"calls": 12, "replayed": 0, "replays": False, "codes": ["RT201"]}
    cases = {
        "outputs/held_over_many_calls": {
            "eager": ours,
            "rote": {**ours, **calls, "replays": True, "codes": []},
        },
        "state/python_counter_beside": {"eager": ours, "rote": {**ours, **calls}},
    }
    versions = {"torch": "2.13", "python": "3.12", "cuda": None}
    out = tmp_path / "footguns.json"
    out.write_text(json.dumps({"date": "", "device": "CPU", "versions": versions, "cases": cases}))
    text = footguns_page.page(out)
    assert "| eager | 2 | 0 | 0 |\n| rote | 2 | 0 | 0 |\n\nIn 1 of 2 programs rote answers" in text
    assert "[state](../tests/footguns/cases/state.py) | right | right, eager: RT201 |" in text


@pytest.mark.parametrize(
    ("program", "timeout_s", "detail"),
    [
        ("import sys, time; print('ready', flush=True); input(); time.sleep(60)", 1.0, "no answer in 1 s"),
        ("import os; print('ready', flush=True); input(); os.abort()", 60.0, "the process died (SIGABRT)"),
        (
            "print('ready', flush=True); input(); raise SystemExit(3)",
            60.0,
            "the process died (exit status 3)",
        ),
        ("import os; os.close(0); print('ready', flush=True); raise SystemExit(4)", 60.0, "exit status 4"),
    ],
    ids=["hangs", "aborts", "exits", "is gone before"],
)
def test_a_worker_that_fails_is_an_answer(program: str, timeout_s: float, detail: str) -> None:
    worker = Worker("rote", "cpu", [sys.executable, "-c", program])
    try:
        answer = worker.ask("outputs/held_over_many_calls", timeout_s=timeout_s)
    finally:
        worker.stop()
    assert answer["outcome"] == "refused" and answer["healthy"] is False
    assert detail in answer["detail"]


def test_the_order_of_the_page(tmp_path: Path) -> None:
    """What most peers get silently wrong comes first, then what most refuse."""
    named = {case.program.__name__: case for case in CASES}
    wanted = {
        "view_held": ("wrong", "wrong"),
        "unique": ("refused", "wrong"),
        "dropout": ("right", "refused"),
    }
    peers = footguns_page.PEERS[:2]
    cases = {
        f"{named[name].group}/{name}": {
            way: {"outcome": outcome, "detail": "CudaError: at 0x12ab, 7 times"}
            for way, outcome in zip(peers, outcomes, strict=True)
        }
        for name, outcomes in wanted.items()
    }
    versions = {"torch": "2.11", "python": "3.12", "cuda": "13.0"}
    results = tmp_path / "footguns.json"
    results.write_text(json.dumps({"date": "", "device": "GPU", "versions": versions, "cases": cases}))
    text = footguns_page.page(results)
    rows = [text.index(f"| **{name.replace('_', ' ')}**") for name in wanted]
    assert rows == sorted(rows) and rows[-1] < text.index("| not run |")
    assert "| `torch.cuda.graph` by hand | 1 | 1 | 1 |" in text
    assert "`make_graphed_callables`, 1: `CudaError: at N, N times`" in text


def test_the_committed_page_is_made_from_the_committed_results() -> None:
    results = footguns_page.preferred()
    command = f"python -m benchmarks.footguns --table {results.relative_to(ROOT)}"
    assert footguns_page.PAGE.read_text() == footguns_page.page(results), f"run: {command}"
