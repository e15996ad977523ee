"""The corpus itself: every case runs, labels are well placed, and on a GPU they are what happens."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from . import truth
from .score import LEAST_PRECISION, LEAST_RECALL, by_source, by_trial, page, used
from .suite import cases, everything, seed

PAGE = Path(__file__).resolve().parents[2] / "docs" / "corpus.md"

CASES = cases()
LEFT_OUT = [case for case in everything() if case not in CASES]
NEEDS_CUDA = {"timed by events"}


def test_there_are_enough():
    assert len(CASES) >= 60
    assert sum(case.is_taken for case in CASES) >= 20
    for package in ("transformers", "torchvision", "timm"):
        assert sum(case.needs == package for case in everything()) >= 8
    assert sum(bool(case.labels()) for case in CASES) >= 30
    assert sum(not case.labels() for case in CASES) >= 25
    assert len({case.name for case in CASES}) == len(CASES)


def test_none_is_left_out():
    if LEFT_OUT:
        needs = sorted({case.needs or "" for case in LEFT_OUT})
        names = ", ".join(case.name for case in LEFT_OUT)
        pytest.skip(f"{len(LEFT_OUT)} cases need {' and '.join(needs)}: {names}")


@pytest.mark.parametrize("case", [case for case in CASES if case.elsewhere], ids=lambda case: case.name)
def test_labels_elsewhere_are_on_lines_that_are_there(case):
    """With the versions that the page was made with; another version may have other lines."""
    if used() not in PAGE.read_text():
        pytest.skip(f"{used()} The page has other versions")
    assert case.labels_elsewhere() == list(case.elsewhere)


@pytest.mark.parametrize("case", CASES, ids=[case.name.replace(" ", "-") for case in CASES])
def test_the_case_runs(case):
    if case.name in NEEDS_CUDA and not torch.cuda.is_available():
        pytest.skip("needs a GPU to run")
    seed()
    fn, args = case.build("cuda" if case.name in NEEDS_CUDA else "cpu")
    fn(*args)
    fn(*args)


@pytest.mark.timeout(1800)  # it checks all cases, each in a process of its own
def test_the_check_finds_what_is_labelled():
    trial, source = by_trial(), by_source()
    assert trial.recall >= LEAST_RECALL and trial.precision >= LEAST_PRECISION, page(trial, source)
    if LEFT_OUT or used() not in PAGE.read_text():
        return  # the page is of all cases, and of the lines of certain versions
    assert PAGE.read_text() == page(trial, source), "python -m tests.corpus.score --page docs/corpus.md"


@pytest.mark.cuda
def test_the_labels_are_what_happens(capsys):
    if not torch.cuda.is_available():
        pytest.skip("torch.cuda.is_available() is False")
    assert truth.main(["--workers", "4"]) == 0, capsys.readouterr().out
