"""PyTorch's own threads: a backward on a device runs on one, while the thread that asked for it waits.

So what such a thread runs belongs to the call that waits. Threads of the user's are none of it, even if they
work on backward passes of their own.
"""

from __future__ import annotations

import threading
from _thread import get_ident

from .torch_private import in_backward


def is_worker() -> bool:
    """Whether this thread is none that Python has made, and works on a backward."""
    return in_backward() and get_ident() not in _made_by_python()


def _made_by_python() -> set[int | None]:
    """A thread of PyTorch's that asked for its own name is among the known ones, as a stand-in."""
    return {each.ident for each in threading.enumerate() if type(each).__name__ != "_DummyThread"}
