"""A replay: place the inputs, launch the segments, hand the result out; and the function generated for it."""

from .general import STEP_CLOCK, ReplayClock, Replayed, TimedStep, raised, replay, result_of, takes_back
from .generated import Counting, Counts, HotPath, KeyCounts, ReplayWriter, range_of
from .timed import TimedPath
