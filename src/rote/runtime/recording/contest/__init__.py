"""Replays against plain calls, timed where they run."""

from .contest import BLOCK, FIRST_ROUND, NEVER, WAIT, Contest, Figures, Turn, told
from .roundtrip import RoundTrip, TimedCall, Upstream
