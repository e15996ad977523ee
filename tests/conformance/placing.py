"""Where operations with numbers that change are placed."""

from __future__ import annotations

import rote
from rote.runtime.backends.cuda.session import CudaSession
from rote.runtime.backends.host.session import HostSession

NEVER = eval(compile("lambda *_: False", rote.__file__, "eval"))
"""Counts as code of rote's: that of a test would be seen by traced calls."""


def between_segments(monkeypatch):
    """They run between two segments, as where nobody knows what a graph makes of their numbers."""
    for session in (HostSession, CudaSession):
        monkeypatch.setattr(session, "takes", NEVER)
