"""Every footgun: rote is right to the bit, replays where a case says so, and else names code and line."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.footguns.case import Case, Kind
from tests.footguns.outcome import run
from tests.footguns.suite import CASES
from tests.footguns.ways import ByHand, Rote

LEAST_CASES, LEAST_CALLS = 80, 8


def parameters() -> list[Any]:
    """Each case, with a strict mark where rote is known to fail."""
    return [
        pytest.param(
            case,
            id=f"{case.group}-{case.program.__name__}",
            marks=pytest.mark.xfail(strict=True, raises=AssertionError, reason=case.broken)
            if case.broken
            else (),
        )
        for case in CASES
    ]


@pytest.fixture(autouse=True)
def _no_warnings_of_torch() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "Detected call of .lr_scheduler.step"
        )  # it does not see a replayed step
        yield


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", parameters())
def test_every_value_is_right(case: Case, device: torch.device) -> None:
    way = Rote(device)
    outcome = run(case, way, device)
    assert outcome.kind is Kind.RIGHT, f"{outcome.kind.value}: {outcome.detail}"
    assert sum(report.calls for report in way.reports()) >= LEAST_CALLS
    check_replays(case, way)
    check_reasons(case, way, "cuda" if device.type == "cuda" else "host")


def check_replays(case: Case, way: Rote) -> None:
    late = way.late()
    if case.replays is True:
        assert all(replayed for _, replayed in late), f"(late calls, replays): {late}\n{way.explain()}"
    elif case.replays is not None:
        assert not any(replayed for _, replayed in late), f"(late calls, replays): {late}"
        assert case.markers(), "a case that runs eagerly states the reason beside a line"


def check_reasons(case: Case, way: Rote, backend: str) -> None:
    told = way.told()
    for marker in case.markers():
        if marker.backend in (None, backend):
            assert (marker.code, marker.where) in told, f"{marker} is not reported, but {sorted(told)}"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.group}-{case.program.__name__}")
def test_a_graph_captured_by_hand_fails_as_stated(case: Case) -> None:
    """A silent footgun goes off on the host too: the case can fail."""
    host = torch.device("cpu")
    outcome = run(case, ByHand(host), host)
    assert outcome.kind is case.by_hand, f"{outcome.kind.value}: {outcome.detail}"


def test_the_suite() -> None:
    names = [case.program.__name__ for case in CASES]
    assert len(set(names)) == len(names) >= LEAST_CASES
    assert all(case.title.endswith(".") for case in CASES)
    kinds = [list(Kind).index(case.by_hand) for case in CASES]
    assert kinds == sorted(kinds), "silent failures come first"
