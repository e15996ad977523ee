"""What each noted instruction or call reads and writes."""

from __future__ import annotations

from .calls import called
from .handlers import HANDLERS, follow_function
from .notes import Notes
