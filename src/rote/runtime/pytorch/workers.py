"""PyTorch's own threads: a backward on a device runs on one, while the thread that asked for it waits.

So what such a thread runs belongs to the call that waits. The user's threads do not, even if they work on
backward passes of their own.
"""

from __future__ import annotations

import threading
from _thread import get_ident

from .torch_private import in_backward


def is_worker() -> bool:
    """Whether this thread was not made by Python, and works on a backward."""
    return in_backward() and get_ident() not in _made_by_python()


def _made_by_python() -> set[int | None]:
    """Threads that Python knows, without stand-ins for PyTorch's threads that asked for their own name."""
    return {each.ident for each in threading.enumerate() if type(each).__name__ != "_DummyThread"}
