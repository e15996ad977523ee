"""Replays against plain calls, timed where they run."""

from .contest import FIRST_ROUND, NEVER, SOON_ROUND, Contest, Figures, Turn, told
from .roundtrip import RoundTrip, Upstream
