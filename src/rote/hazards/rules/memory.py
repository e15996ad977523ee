"""Memory: calls that ask the allocator for something a capture does not allow."""

from __future__ import annotations

from ..finding import Severity
from .rule import Finder, Group, Rule

EMPTY_CACHE = Rule(
    "RT181",
    "allocator emptied inside the call",
    "Drop the line, or empty the cache between calls.",
    Severity.SPEED,
    Group.MEMORY,
    Finder.SCAN | Finder.TRIAL,
    """
    ``torch.cuda.empty_cache()``, ``torch.cuda.ipc_collect()``, ``gc.collect()`` inside the call.

    Why: A replay frees nothing. During a capture torch 2.11 takes the call without an error; earlier and
    eager calls wait for the device, and what is freed has to be allocated again.

    Limits: Callbacks of the garbage collector are not seen.

    Bad::

        y = x.exp()
        torch.cuda.empty_cache()
        return y * 2

    Good::

        y = x.exp()
        return y * 2
    """,
)
PINNED_INSIDE = Rule(
    "RT182",
    "pinned memory allocated inside the call",
    "Allocate the pinned buffer once, outside, and fill it between calls.",
    Severity.STOPS,
    Group.MEMORY,
    Finder.SCAN | Finder.TRIAL,
    """
    ``x.pin_memory()``, ``torch.empty(n, pin_memory=True)`` inside the call.

    Why: Page-locking memory is a call of the driver that a capture refuses, or a block of the cache whose
    address is frozen into the graph while the next call gets another one.

    Limits: Pinning in a data loader is outside of the call and not reported.

    Bad::

        staged = torch.empty(4, pin_memory=True)
        staged.copy_(x)
        return staged

    Good::

        staged.copy_(x)
        return staged
    """,
)
MEMORY_ASKED = Rule(
    "RT183",
    "memory statistics read inside the call",
    "Ask between calls.",
    Severity.WRONG,
    Group.MEMORY,
    Finder.SCAN,
    """
    ``torch.cuda.memory_allocated()``, ``torch.cuda.mem_get_info()``, ``max_memory_allocated`` inside.

    Why: The number is that of the capture in every replay, so a chunk size or a branch that follows from it
    is frozen.

    Limits: Only the functions of ``torch.cuda`` and ``torch.accelerator`` are known.

    Bad::

        chunks = 1 if torch.cuda.memory_allocated() < limit else 4
        return torch.cat([part.exp() for part in x.chunk(chunks)])

    Good::

        return torch.cat([part.exp() for part in x.chunk(chunks)])
    """,
)
