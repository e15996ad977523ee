"""A short soak: nothing is left over after many calls, recordings and wrappers (see ``benchmarks.soak``)."""

from __future__ import annotations

import pytest
from benchmarks.common import Settings
from benchmarks.soak import SPARE_OBJECTS, run, verdicts


@pytest.mark.long
@pytest.mark.slow
def test_nothing_leaks(device):
    outcome = run(Settings(device, quick=True))
    assert set(outcome.facts) == {"calls", "re-recordings", "wrappers"}
    for name, fact in outcome.facts.items():
        assert len(fact["points"]) == 5, name
    assert outcome.checks and all(outcome.checks.values()), outcome.checks


def test_a_leak_would_show():
    point = {
        "steps": 1,
        "tensors": 5,
        "objects": 1000,
        "pool_bytes": 64,
        "device_bytes": 0,
        "rss_bytes": 1 << 30,
    }
    assert all(verdicts([point, point]).values())
    for name in ("tensors", "objects", "pool_bytes", "device_bytes", "rss_bytes"):
        grown = {**point, name: point[name] + (1 << 30 if name == "rss_bytes" else SPARE_OBJECTS + 1)}
        assert list(verdicts([point, grown]).values()).count(False) == 1
