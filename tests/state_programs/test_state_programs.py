"""The state programs themselves: each can be run, is the same every time, and stands where it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.footguns.case import Kind
from tests.footguns.outcome import run
from tests.footguns.ways import Eager, Rote

from .program import POINTS, StateProgram
from .suite import PROGRAMS

ROOT = Path(__file__).resolve().parents[2]
LEAST, LEAST_REPLAYED = 490, 40


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.label)
def test_a_program_is_deterministic(program: StateProgram, device) -> None:
    """Run twice in one process: it puts back what it changes outside its own world."""
    outcome = run(program, Eager(device), device)
    assert outcome.kind is Kind.RIGHT, outcome.detail


HIDDEN = frozenset(
    {
        "attribute_of_a_parameters_class", "bases_asked_for", "bases_asked_for_by_hooks",
        "classes_that_are_equal", "config_swapped", "dict_of_an_argument",
        "functions_made_from_text", "gradient_of_an_argument_that_needs_none",
        "gradient_of_another_type", "layer_swapped_again_and_again", "methods_of_one_tensor",
        "names_by_a_base", "number_kept_for_a_backward", "one_tuple_for_two_arguments",
        "one_tuple_in_two_places", "operator_of_parameters", "operators_of_a_tensor",
        "origin_of_a_tensor", "slices_between_anything", "slot_behind_a_slot", "tuples_handed_back",
        "weak_reference_to_a_class",
    }
)  # fmt: skip
"""Programs about what no attribute lookup of the call says, and about what only identities tell."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(HIDDEN))
def test_what_no_lookup_says(name: str, device) -> None:
    (program,) = [each for each in PROGRAMS if each.name == name]
    outcome = run(program, Rote(device), device)
    assert outcome.kind is Kind.RIGHT, outcome.detail


def test_the_suite() -> None:
    assert len({program.label for program in PROGRAMS}) == len(PROGRAMS) >= LEAST
    assert {program.point for program in PROGRAMS} == set(POINTS)
    assert all(program.title.endswith(".") for program in PROGRAMS)
    assert sum(program.replays is True for program in PROGRAMS) >= LEAST_REPLAYED


@pytest.mark.usefixtures("warm_python")
def test_the_runner(tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    command = [sys.executable, "-m", "benchmarks.state_programs", "--device", "cpu", "--out", str(out)]
    paths = os.pathsep.join(["src", *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [*command, "--only", "attributes/instance", "attributes/slot"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(out.read_text())
    assert document["counts"]["rote"]["right"] == 2 and document["counts"]["dynamo"]["right"] == 2
    assert set(document["programs"]) == {"attributes/instance", "attributes/slot"}
