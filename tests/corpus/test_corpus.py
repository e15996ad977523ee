"""The corpus itself: every case runs, labels are well placed, and on a GPU they are what happens."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from . import truth
from .score import LEAST_PRECISION, LEAST_RECALL, by_source, by_trial, page
from .suite import cases

ROOT = Path(__file__).resolve().parents[2]

CASES = cases()
NEEDS_CUDA = {"timed by events"}


def test_there_are_enough():
    assert len(CASES) >= 60
    assert sum(bool(case.labels()) for case in CASES) >= 30
    assert sum(not case.labels() for case in CASES) >= 25
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=[case.name.replace(" ", "-") for case in CASES])
def test_the_case_runs(case):
    if case.name in NEEDS_CUDA and not torch.cuda.is_available():
        pytest.skip("needs a GPU to run")
    torch.manual_seed(0)
    fn, args = case.build("cuda" if case.name in NEEDS_CUDA else "cpu")
    fn(*args)
    fn(*args)


def test_the_check_finds_what_is_labelled():
    trial, source = by_trial(), by_source()
    assert trial.recall >= LEAST_RECALL and trial.precision >= LEAST_PRECISION, page(trial, source)
    assert (ROOT / "docs" / "corpus.md").read_text() == page(trial, source), (
        "python -m tests.corpus.score --page docs/corpus.md"
    )


@pytest.mark.cuda
def test_the_labels_are_what_happens(capsys):
    if not torch.cuda.is_available():
        pytest.skip("torch.cuda.is_available() is False")
    assert truth.main(["--workers", "4"]) == 0, capsys.readouterr().out
