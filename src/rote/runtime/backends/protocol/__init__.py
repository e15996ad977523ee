"""What the runtime asks of a device, and what both devices share."""

from .aliases import OWNING, Aliases, ResultSizeError, refill
from .base import (
    SHARED,
    Backend,
    Capabilities,
    CapturedCollective,
    CopyingSegment,
    Launch,
    Lock,
    OwnStreams,
    Segment,
    Session,
    Sharing,
    unwaited,
)
from .kernels import (
    ALIGNMENT,
    KERNEL,
    NAMES_OF_TYPES,
    KernelLaunch,
    LoadedKernel,
    check_apart,
    check_kernel,
    check_launch,
)
from .numbers import NumberCell, holds, replaced
from .shortage import first_line, is_shortage
from .timing import Timing
from .torch_private import raw_call
