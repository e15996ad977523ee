"""The corpus itself: every case runs, labels are well placed, and on a GPU they are what happens."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from . import truth
from .score import LEAST_PRECISION, LEAST_RECALL, by_source, by_trial, on_page, page, used
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


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES, ids=[case.name.replace(" ", "-") for case in CASES])
def test_the_case_runs(case):
    if case.name in NEEDS_CUDA and not torch.cuda.is_available():
        pytest.skip("needs a GPU to run")
    seed()
    fn, args = case.build("cuda" if case.name in NEEDS_CUDA else "cpu")
    fn(*args)
    fn(*args)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES, ids=[case.name.replace(" ", "-") for case in CASES])
def test_the_check_finds_what_is_labelled(case):
    """All but what the page lists, in a process of its own."""
    text = PAGE.read_text()
    if case.needs and used() not in text:
        pytest.skip(f"{used()} The page has other versions")
    found, stated = by_trial(case), on_page(text, "trial run", [case])
    assert (found.missed, found.false) == (stated.missed, stated.false)


def test_the_page_has_the_figures_of_what_it_lists():
    text = PAGE.read_text()
    trial, source = on_page(text, "trial run", everything()), on_page(text, "source alone", CASES)
    assert trial.recall >= LEAST_RECALL and trial.precision >= LEAST_PRECISION
    scanned = by_source()
    assert (scanned.missed, scanned.false) == (source.missed, source.false)
    if not LEFT_OUT and used() in text:  # the page is of all cases, and of the lines of certain versions
        assert text == page(trial, scanned), "python -m tests.corpus.score --page docs/corpus.md"


@pytest.mark.cuda
def test_the_labels_are_what_happens(capsys):
    if not torch.cuda.is_available():
        pytest.skip("torch.cuda.is_available() is False")
    assert truth.main(["--workers", "4"]) == 0, capsys.readouterr().out
