"""The self-check: replayed calls made again plainly, compared, and the first difference located."""

from __future__ import annotations

from .mismatch import compare_tensors
from .verify import Verifier
