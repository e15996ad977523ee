"""The check: a callable runs on pretended device tensors, and its hazards are noted."""

from .entry import LIMIT_S, check, check_work
