"""State of FSDP's own (``fully_shard``) that calls replace, and that says nothing where no step is under way.

Python does what FSDP does, so a traced call follows that like other code: its state is a condition, and ends
where it began. Not so a table of events, which a backward fills and then replaces by a new one.
"""

from __future__ import annotations

import weakref
from typing import Any

_FSDP = "torch.distributed.fsdp._fully_shard"
EVENTS = "_last_post_reduce_events"
"""Events of the reductions of one backward, by stream. Seen in torch 2.13; 2.11 keeps one in each group."""
RESTS = ""
"""What :func:`under_way` says of a context in which no backward is under way."""


def is_gathered(value: Any) -> bool:
    """Whether a value is a parameter that FSDP gathers, or a context in which it does so.

    What such a thing makes at its first use it keeps.
    """
    return type(value).__module__.startswith(_FSDP)


def under_way(context: weakref.ref[Any]) -> str:
    """What of a backward is left in a context, in a few words."""
    found = context()
    if found is None:
        return "a model that is gone"
    events = vars(found).get(EVENTS)
    return "events of a backward that is not over" if events or type(events) is not dict else RESTS
