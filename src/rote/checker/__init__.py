"""The check: a callable runs on pretended device tensors, and what a capture would mind is noted."""

from __future__ import annotations

from .entry import LIMIT_S, check, check_work
