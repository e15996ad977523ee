"""Whether a call is being traced."""

from __future__ import annotations

from contextvars import ContextVar

tracing: ContextVar[bool] = ContextVar("rote_tracing", default=False)
"""Whether a call is being traced in this context; wrappers called inside are plain then."""
