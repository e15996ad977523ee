"""The check: a callable runs on pretended device tensors, and its hazards are noted."""

from __future__ import annotations

from .entry import LIMIT_S, check, check_work
