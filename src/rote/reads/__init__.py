"""What a call reads and writes outside of itself, noted while it runs."""

from .noted import Effect, Noted, Output, Setting, Unseen
from .output import is_shown
from .trace import Trace
from .watch import WATCH, Watch

__all__ = ["WATCH", "Effect", "Noted", "Output", "Setting", "Trace", "Unseen", "Watch", "is_shown"]
