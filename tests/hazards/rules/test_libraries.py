"""The remedies of the rules for libraries do what they promise: calls are replayed, without islands."""

from __future__ import annotations

import pytest
import torch

import rote
from rote.hazards.rules import RULES, Group

from ..fixture import both

LIBRARIES = [pytest.param(rule, id=rule.code) for rule in RULES.values() if rule.group is Group.LIBRARIES]


@pytest.mark.parametrize("rule", LIBRARIES)
def test_the_remedy_replays(rule):
    good = both(rule)[1]
    g = good.made(torch.device("cuda" if good.needs == "cuda" else "cpu"))
    if not isinstance(g, rote.Graphed):
        pytest.skip("what replaces it is not graphed")
    report = g.report()
    g.reset()
    assert report.replayed and not any(recording.islands for recording in report.recordings), str(report)
