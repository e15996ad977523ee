"""A replay: place the inputs, launch the segments, hand the result out; and the function generated for it."""

from .clock import STEP_CLOCK, ReplayClock, TimedStep
from .counts import Counting, Counts, KeyCounts
from .general import Replayed, raised, replay, result_of
from .generated import HotPath, ReplayWriter
from .ranges import range_of
