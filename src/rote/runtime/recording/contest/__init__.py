"""Replays against plain calls, timed where they run."""

from .contest import FIRST_ROUND, NEVER, WAIT, WARM, Contest, Figures, Turn, told
from .roundtrip import RoundTrip, TimedCall, Upstream
