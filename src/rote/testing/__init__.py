"""The public test kit: check your own graphs as rote checks itself."""

from .comparison import Arguments, assert_same, compare
from .pool import assert_pool_empty, count_recordings, poisoned

__all__ = ["Arguments", "assert_pool_empty", "assert_same", "compare", "count_recordings", "poisoned"]
