"""The self-check: replayed calls are made again plainly and compared, and the first difference is located."""

from .mismatch import compare_tensors
from .verify import Verifier
