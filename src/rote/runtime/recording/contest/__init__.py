"""Replays against plain calls, timed where they run."""

from __future__ import annotations

from .contest import FIRST_ROUND, NEVER, Contest, Turn
from .roundtrip import RoundTrip, Upstream
