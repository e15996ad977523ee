"""Replays against plain calls, timed where they run."""

from .contest import FIRST_ROUND, NEVER, Contest, Turn
from .figures import Figures, told
from .roundtrip import RoundTrip, Upstream
