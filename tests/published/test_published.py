"""Published layers with published remedies: by rote they are what they are in eager, and most replay."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import rote
from benchmarks import published

from .cell import CALLS, LAYERS, Cell, CellAnswer, cells, run
from .layers import CALIBRATION, WIDTH, DuQuantLinear, FirstBatch, QuantPolicy
from .remedies import REMEDIES
from .runtimes import NEEDS_GPU, RUNTIMES, Runtime

ROOT = Path(__file__).resolve().parents[2]
WITHOUT = REMEDIES[0]
REMEDY = {remedy.name: remedy for remedy in REMEDIES}


@pytest.fixture(autouse=True)
def _compiles_anew():
    logging.getLogger("torch").setLevel(
        logging.ERROR
    )  # recompilations of what is written to be compiled anew
    torch._dynamo.reset()
    variables = dict(os.environ)  # some remedies set one
    yield
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    torch._dynamo.reset()


def named(cell: Cell) -> str:
    return f"{cell.layer}-{cell.remedy.name}-{cell.runtime}".replace(" ", "_")


def of(runtime: str) -> list[Cell]:
    return [cell for cell in cells() if cell.runtime == runtime]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("cell", of("rote.graph"), ids=named)
def test_graphed(cell, device):
    answer = run(cell, device)
    assert answer.outcome == "right", answer
    assert answer.replayed, answer


COMPILED_SLOWLY = {
    "quantile in each call, kept on self",
    "calibrator that becomes full",
    "counter of calls, by the layer's name",
    "layers compiled one by one",
}


@pytest.mark.sampled(2)
@pytest.mark.filterwarnings("ignore:TensorFloat32")  # Inductor says on a GPU what would be quicker
@pytest.mark.parametrize("runtime", ["torch.compile", "backend rote"])
@pytest.mark.parametrize(
    "layer",
    [pytest.param(each, marks=[pytest.mark.long] if each in COMPILED_SLOWLY else []) for each in LAYERS],
)
def test_compiled_as_they_were_written(layer, runtime, device):
    answer = run(Cell(layer, WITHOUT, runtime), device)
    assert answer.outcome == "right", answer
    if runtime == "backend rote":
        assert answer.replayed == (not layer.startswith("counter")), answer


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:TensorFloat32")
@pytest.mark.parametrize("runtime", ["torch.compile", "backend rote"])
@pytest.mark.parametrize("remedy", REMEDIES, ids=lambda remedy: remedy.name.replace(" ", "_"))
def test_compiled_with_each_remedy(remedy, runtime, device):
    answer = run(Cell("all of it", remedy, runtime), device)
    assert answer.outcome == "right" and answer.replayed == (runtime == "backend rote"), answer


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False")
@pytest.mark.parametrize("layer", ["all of it", "scale of the first batch"])
def test_reduce_overhead_still_fails_on_them(layer):
    """The day it does not, the page needs other words; in a process of its own."""
    code = (
        "import torch; from tests.published.cell import *; from tests.published.remedies import REMEDIES;"
        f"print(run(Cell({layer!r}, REMEDIES[0], 'reduce-overhead'), torch.device('cuda')).detail)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment(), capture_output=True, text=True
    )
    assert "overwritten by a subsequent run" in done.stdout, done.stdout + done.stderr


# ---------------------------------------------------------------------- the layers are what they are to be


def test_the_calibrator_becomes_full_and_the_scale_stays():
    torch.manual_seed(0)
    layer = DuQuantLinear("layer")
    scales = []
    for number in range(CALIBRATION + 2):
        layer(torch.randn(8, WIDTH) * (1 + number))
        scales.append(layer._act_scale.clone())
    assert not any(torch.equal(a, b) for a, b in pairwise(scales[:CALIBRATION]))
    assert torch.equal(scales[CALIBRATION - 1], scales[-1])


def test_a_check_names_what_the_first_call_keeps():
    """It is settled after one call for rote, and its buffer is told."""
    model = QuantPolicy(FirstBatch)
    (found,) = rote.check(model, torch.randn(4, WIDTH))
    assert found.code == "RT213" and not found.severity.is_error
    assert found.source == "self._act_scale = scale" and found.evidence == "float32[32], 2 times"
    assert 'self.register_buffer("_act_scale", torch.zeros((32,), dtype=torch.float32))' in found.remedy
    buffered = REMEDY["buffer, warm-up, and results cloned"].build(FirstBatch)
    buffered(torch.randn(4, WIDTH))
    assert not rote.check(buffered, torch.randn(4, WIDTH))


def test_variables_that_published_scripts_set_are_read_by_nobody():
    cell = next(cell for cell in cells() if cell.remedy.variables)
    package = Path(torch.__file__).parent
    read = [
        path
        for path in (package / "_inductor").rglob("*.py")
        for name in cell.remedy.variables
        if name in path.read_text()
    ]
    assert not read


# ---------------------------------------------------------------------- what is wrong is seen


class Overwriting(Runtime):
    """Results lie in memory that the next call overwrites, as those of a graph that is never checked."""

    def wrap(self, function):
        memory = []

        def call(x):
            result = function(x)
            memory[:] = memory or [result]
            return memory[0].copy_(result)

        return call


class Frozen(Runtime):
    """Each call gives what the third one gave."""

    def wrap(self, function):
        results = []

        def call(x):
            results.append(function(x))
            return results[min(len(results) - 1, 2)].clone()

        return call


class Raising(Runtime):
    """The second call raises."""

    def wrap(self, function):
        calls = []

        def call(x):
            calls.append(x)
            if len(calls) == 2:
                raise RuntimeError("accessing tensor output\nat length")
            return function(x)

        return call


class Losing(Runtime):
    """What the call stores on the module is lost."""

    def wrap(self, function):
        def call(x):
            result = function(x)
            for layer in function.layers:
                layer._act_scale = torch.ones(WIDTH)
            return result

        return call


@pytest.mark.parametrize(
    ("kind", "outcome", "where"),
    [
        (Overwriting, "wrong", "held results"),
        (Frozen, "wrong", "call 4"),
        (Raising, "error", "call 2"),
        (Losing, "wrong", "call 5"),
    ],
)
def test_what_is_not_right_is_seen(kind, outcome, where, monkeypatch):
    monkeypatch.setitem(RUNTIMES, "bad", kind)
    found = run(Cell("calibrator that becomes full", WITHOUT, "bad"), torch.device("cpu"))
    assert (found.outcome, found.where, found.replayed) == (outcome, where, False)
    if outcome == "error":
        assert found.detail == "RuntimeError: accessing tensor output"


def test_clones_by_the_caller_keep_results_that_are_overwritten(monkeypatch):
    monkeypatch.setitem(RUNTIMES, "bad", Overwriting)
    remedy = REMEDY["results cloned by the caller"]
    assert run(Cell("scale of the first batch", remedy, "bad"), torch.device("cpu")) == CellAnswer("right")


def test_replayed_means_each_of_the_last_calls(monkeypatch):
    class Some(Runtime):
        asked = 0

        def replays(self):
            self.asked += 1
            return min(self.asked, most)

    monkeypatch.setitem(RUNTIMES, "some", Some)
    cell = Cell("scale of the first batch", WITHOUT, "some")
    most = CALLS
    assert run(cell, torch.device("cpu")).replayed
    most = CALLS - 1
    assert not run(cell, torch.device("cpu")).replayed


# ---------------------------------------------------------------------- the runner


def environment() -> dict[str, str]:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}


@pytest.mark.usefixtures("warm_python")
def test_the_runner(tmp_path):
    out = tmp_path / "published.json"
    only = ("scale of the first batch", WITHOUT.name)
    command = [
        sys.executable,
        "-m",
        "benchmarks.published",
        "--device",
        "cpu",
        "--out",
        str(out),
        "--only",
        *only,
    ]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(out.read_text())
    assert document["runtimes"] == [name for name in RUNTIMES if name not in NEEDS_GPU]
    (row,) = document["cells"]["scale of the first batch"].values()
    right = {"outcome": "right", "where": "", "detail": ""}
    assert row["rote.graph"] == row["backend rote"] == {**right, "replayed": True}
    assert row["eager"] == row["torch.compile"] == {**right, "replayed": False}
    assert "1 right; 1 right and replayed" in done.stdout


def test_what_is_known_is_not_run_again_and_what_is_left_at_the_limit_is_missing(monkeypatch):
    def run_two(works, *limits):
        return {cell: {"outcome": "new"} for cell in list(works)[:2]}

    monkeypatch.setattr(published.forked, "run_all", run_two)
    for variable in ("TORCHINDUCTOR_CACHE_DIR", "PYTORCH_NVML_BASED_CUDA_CHECK"):
        monkeypatch.setenv(variable, "1")  # and back
    first, *others = list(cells())[: len(RUNTIMES)]
    known = {first.layer: {first.remedy.name: {first.runtime: {"outcome": "old"}}}}
    answers = published.measure([first, *others], known, published.parse([]))
    (row,) = answers[first.layer].values()
    assert [(name, answer["outcome"]) for name, answer in row.items()] == [
        (first.runtime, "old"),
        *((cell.runtime, "new") for cell in others[:2]),
    ]
