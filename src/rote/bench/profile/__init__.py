"""Is a callable launch-bound, and what would a graph gain?"""

from .costs import OperationCost
from .measure import CALLS, p99, profile, profile_calls, refuse_unread
from .result import Profile
