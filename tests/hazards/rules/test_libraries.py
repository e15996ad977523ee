"""The remedies of the rules for libraries do what they promise: calls are replayed, without islands."""

from __future__ import annotations

import pytest
import torch

import rote
from rote.hazards.rules import RULES

from ..fixture import both

LIBRARIES = [pytest.param(rule, id=code) for code, rule in RULES.items() if code.startswith("RT7")]


@pytest.mark.parametrize("rule", LIBRARIES)
def test_the_remedy_replays(rule):
    good = both(rule)[1]
    g = good.made(torch.device("cuda" if good.needs == "cuda" else "cpu"))
    if not isinstance(g, rote.Graphed):
        pytest.skip("what replaces it is not graphed")
    report = g.report()
    g.reset()
    assert report.replayed and not any(recording.islands for recording in report.recordings), str(report)
