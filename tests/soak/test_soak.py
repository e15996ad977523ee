"""A short soak: nothing is left over after many calls, recordings and wrappers (see ``benchmarks.soak``)."""

from __future__ import annotations

import pytest
from benchmarks.soak import SPARE_OBJECTS, soak, verdicts


@pytest.mark.slow
def test_nothing_leaks(device):
    phases = soak(device, calls=900, recordings=120, wrappers=60)
    assert set(phases) == {"calls", "re-recordings", "wrappers"}
    for name, points in phases.items():
        assert len(points) == 5, name
        assert all(verdicts(points).values()), (name, points)


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
