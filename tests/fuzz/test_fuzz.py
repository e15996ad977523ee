"""A few hundred random scenes; the longer run is ``python -m tests.fuzz.run``."""

from __future__ import annotations

import pytest

pytest.importorskip("hypothesis")

from hypothesis import HealthCheck, given, settings

from .play import LEAST_REPLAYED, Tally, check_text
from .scene import KINDS, scenes


@pytest.mark.parametrize("kind", sorted(set(KINDS)))
def test_graphed_equals_plain(device, kind, monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic algorithms ask for it
    tally = Tally()

    @settings(
        max_examples=50,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(scenes(device.type, [kind]))
    def play(scene):
        check_text(scene, tally)

    play()
    assert tally.replaying and tally.share >= LEAST_REPLAYED / 4, tally
