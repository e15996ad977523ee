"""Autocast: its cache of cast weights."""

from __future__ import annotations

from ..finding import Severity
from .rule import Finder, Group, Rule

AUTOCAST_AROUND = Rule(
    "RT431",
    "autocast around a capture with its cache on",
    "Use torch.autocast(..., cache_enabled=False), or put autocast inside the captured callable.",
    Severity.WRONG,
    Group.AUTOCAST,
    Finder.SCAN,
    """
    ``with torch.autocast("cuda"):`` around ``with torch.cuda.graph(g):`` or ``make_graphed_callables``.

    Why: Autocast remembers the casts of weights until its outermost context ends. A cast that was made before
    the capture is not in the graph: replays use freed memory, or weights of before an update. The other way
    round, what is cast inside the capture lies in the graph's memory and is used by eager code after it.

    Limits: ``rote.graph`` records without that cache; a call of it under autocast is not reported.

    Bad::

        with torch.autocast("cuda", torch.bfloat16):
            with torch.cuda.graph(graph):
                y = model(x)

    Good::

        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            with torch.cuda.graph(graph):
                y = model(x)
    """,
)
AUTOCAST_CLEARED = Rule(
    "RT432",
    "autocast state set by hand inside the call",
    "Use with torch.autocast(...), which undoes what it did.",
    Severity.WRONG,
    Group.AUTOCAST,
    Finder.SCAN,
    """
    ``torch.clear_autocast_cache()``, ``torch.set_autocast_enabled(...)``, ``torch.set_autocast_dtype(...)``
    inside the call.

    Why: The state outlives the call and is not set by a replay; casts of weights made before and after differ
    in memory.

    Limits: None known.

    Bad::

        torch.set_autocast_enabled(x.device.type, True)
        y = self.layer(x)
        torch.set_autocast_enabled(x.device.type, False)
        return y

    Good::

        with torch.autocast(x.device.type, torch.bfloat16):
            return self.layer(x)
    """,
)
