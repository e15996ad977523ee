"""Calls that are timed give what others give: every footgun, with each third call made by ``g.trace``."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.footguns.case import Case, Kind
from tests.footguns.outcome import run
from tests.footguns.suite import CASES
from tests.footguns.ways import Rote

import rote

HELD_BY_A_MODULE = {"one_layer_of_a_model"}
"""Cases that put the graphed callable into a module, which takes no stand-in."""


class Tracing:
    """Stands for a graphed callable; every third call is traced, and the eighth is reported, too."""

    def __init__(self, graphed: rote.Graphed, folder: Path) -> None:
        self._graphed, self._folder, self._calls = graphed, folder, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._calls += 1
        if self._calls == 8:
            self._graphed.save_report(self._folder / "report.html")
        if self._calls % 3:
            return self._graphed(*args, **kwargs)
        path = self._folder / f"{threading.get_ident()}.json"
        value = self._graphed.trace(path, args, kwargs)
        assert json.loads(path.read_text())["traceEvents"]
        return value

    def __getattr__(self, name: str) -> Any:
        return getattr(self._graphed, name)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self._graphed.__get__(instance, owner)


@pytest.mark.long
@pytest.mark.parametrize(
    "case",
    [each for each in CASES if each.program.__name__ not in HELD_BY_A_MODULE],
    ids=lambda case: f"{case.group}-{case.program.__name__}",
)
@pytest.mark.filterwarnings("ignore")
def test_a_program_is_right_while_it_is_traced(case: Case, device: torch.device, tmp_path: Path) -> None:
    class TracingRote(Rote):
        def wrap(self, function: Callable[..., Any]) -> Any:
            return Tracing(super().wrap(function), tmp_path)

    outcome = run(case, TracingRote(device), device)
    assert outcome.kind is Kind.RIGHT, outcome.detail
