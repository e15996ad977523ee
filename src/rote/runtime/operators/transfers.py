"""The operator that stands for waiting on a collective.

PyTorch has none: a handle of work is waited for by a method in C, past the dispatcher. A traced call gets
handles that call this one instead, so that a wait is an operation like any other, with its place among them.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch

_NAMESPACE = "rote_transfers"


class WaitOperator(NamedTuple):
    """The operator, and what keeps it defined.

    Attributes:
        overload: Takes the tensors of the collective, and its number in the call.
        library: Keeps the operator defined.
    """

    overload: Any
    library: torch.library.Library


@cache
def wait_operator() -> WaitOperator:
    """The operator; it is defined where the first call waits."""
    library = torch.library.Library(_NAMESPACE, "FRAGMENT")
    library.define("wait(Tensor[] tensors, int number) -> ()")
    return WaitOperator(torch.ops.rote_transfers.wait.default, library)
