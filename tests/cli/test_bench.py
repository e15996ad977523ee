"""``rote bench``: contenders in processes of their own, targets that misbehave, what is written."""

import json
import re

import pytest
import torch
from torch import nn

from rote.bench.worker.worker import Worker, Workload
from rote.cli.bench_worker import CONTENDERS

pytestmark = pytest.mark.usefixtures("warm_python")

TARGETS = """
import json, os, subprocess, sys
from dataclasses import dataclass

import torch
from torch import nn

print("NOISE at the import")

def contender():
    return json.loads(sys.argv[1])["contender"]

@dataclass
class Out:
    logits: torch.Tensor
    count: int

def forward(width=4, name="plain"):
    subprocess.run(["echo", "NOISE of a child"])
    model = nn.Linear(width, width).requires_grad_(False)

    def call(x, *, mask, cache):
        print("NOISE of a call")
        print("NOISE of an error", file=sys.stderr)
        cache["seen"].add_(x.sum())
        return Out(model(x) + mask, 3), [cache["seen"].clone(), None]

    kwargs = {"mask": torch.zeros(2, width), "cache": {"seen": torch.zeros(1)}}
    return call, (torch.randn(2, width),), kwargs

def differs():
    extra = 0.125 if contender() == "rote" else 0.0
    return (lambda x: x.round() + extra), (torch.randn(8) * 100,)

def dies():
    def call(x):
        if contender() == "rote":
            os._exit(3)
        return x + 1

    return call, (torch.randn(2),)

def exits():
    def call(x):
        sys.exit("enough")

    return call, (torch.randn(2),)

def reads():
    return (lambda x: x + len(input())), (torch.randn(2),)

def generates():
    return (lambda x: (y for y in x)), (torch.randn(2),)

def on_gpu():
    return torch.relu, (torch.randn(2, device="cuda"),)

def graphed():
    import rote
    return rote.graph(torch.relu), (torch.randn(2),)
"""


@pytest.fixture
def bench(rote):
    """Runs a target of the file above and returns the outcome, with the JSON as ``figures``."""
    rote.write("policy.py", TARGETS)
    out = rote.folder / "out.json"

    def run(target, *more, only="eager,rote"):
        only = ("--only", only) if only else ()
        done = rote("bench", f"policy.py:{target}", *only, "--seconds", 0.05, "--json", out, *more)
        done.figures = json.loads(out.read_text()) if out.exists() else {}
        done.rows = {row["name"]: row for row in done.figures.get("rows", [])}
        return done

    run.folder = rote.folder
    return run


def test_side_by_side(bench):
    plot = bench.folder / "out.png"
    done = bench("forward", "--arg", "width=3", "--arg", "name=big", "--plot", plot)
    assert done.exit_code == 0, done.output
    assert "NOISE" not in done.output and "Error" not in done.stderr
    assert "policy.py:forward (width=3, name=big) on " in done.stdout and "bitwise equal" in done.stdout
    figures, row = done.figures, done.rows["rote"]
    assert figures["arguments"] == ["width=3", "name=big"] and figures["device"] == "cpu"
    assert figures["versions"]["torch"] == torch.__version__ and figures["machine"].keys() == {
        "before",
        "after",
    }
    assert not figures["draws"] and not figures["rote_differs"] and figures["repeats"] is None
    assert row["equality"] == {"calls": 16, "bitwise": True, "largest": None, "what": "", "unseen": ""}
    assert row["samples"] > 0 and row["to_eager"] == row["median_us"] / done.rows["eager"]["median_us"]
    assert len(row["first_calls_s"]) == 8 and row["launches"] is None
    assert any(note.endswith("calls replayed") for note in row["notes"])
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_json_on_the_terminal_is_json_alone(rote):
    rote.write("policy.py", TARGETS)
    done = rote("bench", "policy.py:forward", "--only", "eager", "--seconds", 0.05, "--json", "-")
    assert done.exit_code == 0 and json.loads(done.stdout)["target"] == "policy.py:forward"


def training():
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, (torch.randn(3, 4),)


def test_what_trains_has_the_same_steps(tmp_path):
    answers = {}
    for name in ("eager", "rote"):
        torch.manual_seed(0)
        worker = Worker(CONTENDERS[name], lambda: Workload(*training(), {}), tmp_path)
        worker.answer({"do": "build"})
        answers[name] = worker.answer({"do": "warm", "calls": 8, "keep": name == "eager"})
        notes = worker.answer({"do": "notes"})["notes"]
    equality = answers["rote"]["equality"]
    assert equality["calls"] == 8 and equality["bitwise"], equality
    assert answers["eager"]["draws"] and re.fullmatch("[1-6] of 8 calls replayed", notes[0]), notes


def test_exit_status_where_rote_differs(bench):
    done = bench("differs")
    assert done.exit_code == 1, done.output
    assert done.rows["rote"]["equality"]["largest"] == 0.125 and done.figures["repeats"]["bitwise"]
    assert (
        "differ by 0.12" in done.stdout and "rote: call 0: result differs in 8 of 8 elements" in done.stdout
    )


def test_contenders_that_fail(bench, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    done = bench("dies", only=None)
    assert done.exit_code == 1 and done.rows["eager"]["status"] == "measured", done.output
    why = "the process died: exit status 3, after 'NOISE at the import' (call 1 of 8)"
    assert f"rote: failed: {why}" in done.stdout
    assert done.rows["compile"]["status"] == "failed" and "ompiler" in done.rows["compile"]["why"]
    why = "the target is on the CPU" if torch.cuda.is_available() else "there is no GPU"
    for name in ("by-hand", "make_graphed_callables", "reduce-overhead"):
        assert (done.rows[name]["status"], done.rows[name]["why"]) == ("needs a GPU", why)
    assert f"make_graphed_callables: needs a GPU: {why}" in done.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_target_that_needs_a_gpu(bench):
    done = bench("on_gpu")
    assert done.exit_code == 2 and not done.figures
    assert done.stderr.count("policy.py:on_gpu") == 1
    assert done.stderr.endswith("It needs a GPU, and PyTorch sees none here.\n")


@pytest.mark.parametrize(
    "target, message",
    [
        ("exits", "policy.py:exits does not run in eager: SystemExit: enough"),
        ("reads", "policy.py:reads does not run in eager: EOFError: EOF when reading a line (policy.py:5"),
        ("generates", "the callable returned a generator, which has run nothing yet: measure a function"),
        ("graphed", "policy.py:graphed returns a graphed callable; return the plain one"),
    ],
)
def test_a_target_that_does_not_run(bench, target, message):
    done = bench(target, only="eager")
    assert done.exit_code == 2 and message in done.stderr and not done.stdout


@pytest.mark.parametrize(
    "more, message",
    [
        (
            ["policy.py:forward", "--only", "rote,jax"],
            "--only jax: there is eager, by-hand, make_gra",
        ),
        (["policy.py:forward", "--json", "no/such/folder.json"], "there is no folder no/such"),
        (["absent.py:forward", "--only", "eager", "--arg", "n=1"], "there is no file absent.py"),
    ],
)
def test_misuse(rote, more, message):
    rote.write("policy.py", TARGETS)
    done = rote("bench", *more)
    assert done.exit_code == 2 and message in done.stderr and not done.stdout
