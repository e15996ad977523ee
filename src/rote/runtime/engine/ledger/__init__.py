"""What tracing may cost: one ledger for each callable, in seconds."""

from .ledger import FREE_TRACES, Ledger, Means, Misses
from .pace import Mark, Pace
