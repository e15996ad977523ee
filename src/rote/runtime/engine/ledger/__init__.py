"""What tracing may cost: one ledger for each callable, in seconds."""

from .ledger import (
    AHEAD_AT_ONCE,
    AT_ONCE,
    COMPLETED_AT_ONCE,
    EARLY_CALLS,
    FIRST_WORK_S,
    FOR_WORK,
    FREE_AHEAD,
    FREE_KEYS,
    FREE_LESSONS,
    FREE_PART_TRACES,
    FREE_RECORDINGS,
    FREE_SEARCHES,
    FREE_WRAPPERS,
    INVESTED,
    LATE_SHARE,
    LONGEST_REST,
    MOST,
    REINVESTED,
    REMEMBERED,
    SHARE,
    WAIT,
    Ledger,
)
from .means import FREE_CALLS, FREE_IN_PARTS, FREE_TRACES, Means
from .misses import FREE_MISSES, Misses
