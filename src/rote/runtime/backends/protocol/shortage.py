"""What an exception of a device says: is it about memory that the device did not have?"""

from __future__ import annotations

import torch

from ....base import MemoryShortageError

_TEXTS = (
    "can't allocate memory",
    "cuda error: out of memory",
    "cuda out of memory",
    "cublas_status_alloc_failed",
)


def is_shortage(error: BaseException) -> bool:
    """Whether an allocation failed: an error of its own, or a ``RuntimeError`` with a known text."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError, MemoryShortageError)):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error).lower() for text in _TEXTS)


def first_line(error: BaseException) -> str:
    """The first line of an exception's text; its class if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
