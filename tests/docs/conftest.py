"""The generators of the pages lie beside the pages, not beside the tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.clock import set_costs

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))


@pytest.fixture(autouse=True)
def _dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """A traced call costs as many plain ones as that of a small model does."""
    set_costs(monkeypatch, traced_s=30e-3)
