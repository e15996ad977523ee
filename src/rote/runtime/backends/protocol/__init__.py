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
    Magnitudes,
    NumberCell,
    OwnStreams,
    Segment,
    Session,
    Sharing,
    Timing,
    cells_of,
    first_line,
    holds,
    is_shortage,
    replaced,
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
from .torch_private import raw_call
