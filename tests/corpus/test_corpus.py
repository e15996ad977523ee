"""The corpus itself: every case runs, labels are well placed, and on a GPU they are what happens."""

from __future__ import annotations

import pytest
import torch

from .suite import cases

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
