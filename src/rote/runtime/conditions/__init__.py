"""What has to hold for a recording to answer a call."""

from .abandonment import abandoned, held_by, is_watched
from .changing import ChangingNumbers, SelectingLines
from .guards import Guard
from .quick import QuickGuard
from .reach import Slot, named_in, reached, slots_in, tensors_by_memory
