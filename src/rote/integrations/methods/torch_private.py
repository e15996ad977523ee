"""What has no public name in PyTorch: the function that ``torch.compile`` was given."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from torch._dynamo import external_utils


def as_written(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """The function of which ``torch.compile`` made this one, or None if it did not make it.

    A bound method lies behind a function of Dynamo's own. Seen in torch 2.11 and 2.13; where the names are
    others, nothing counts as compiled, and compiled code is recorded as it is.
    """
    given: Any = getattr(function, "_torchdynamo_orig_callable", None)
    while isinstance(given, FunctionType) and given.__code__.co_filename == external_utils.__file__:
        given = given.__dict__.get("__wrapped__")
    return given if callable(given) else None
