"""The exact tier of a recording: its program without the operations that give nothing new, captured anew."""

from .alternatives import Alternative
from .before import Before
from .effects import Effects, LeftAloneError
from .forks import Concurrent, forks
from .improving import improve
from .near import ALTERNATIVES, register_alternative
from .shortening import RULES, ShortStretch, shorten
from .stale import without_stale
