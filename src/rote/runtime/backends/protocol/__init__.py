"""What the runtime asks of a device, and what both devices share."""

from __future__ import annotations

from .aliases import OWNING, Aliases
from .base import (
    SHARED,
    Backend,
    Capabilities,
    CopyingSegment,
    Launch,
    Lock,
    Segment,
    Session,
    Sharing,
    Timing,
)
from .shortage import first_line, is_shortage
from .timing import HostTiming
from .torch_private import raw_call
from .waiting import unwaited
