"""Is a callable launch-bound, and what would a graph gain?"""

from .costs import OperationCost
from .measure import CALLS, profile, profile_calls
from .result import Profile
from .times import p99, refuse_unread
