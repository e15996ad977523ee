"""What tracing may cost: one ledger for each callable, in seconds."""

from .ledger import FREE_TRACES, MOST, REMEMBERED, WAIT, Ledger, Means, Misses
