"""Where operations with numbers that change are placed."""

from __future__ import annotations

from rote.runtime.backends.cuda.session import CudaSession
from rote.runtime.backends.host.session import HostSession


def between_segments(monkeypatch):
    """They run between two segments, as where nobody knows what a graph makes of their numbers."""
    for session in (HostSession, CudaSession):
        monkeypatch.setattr(session, "takes", lambda *_: False)
