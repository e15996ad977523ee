"""The operators that stand for waiting: on a collective, and for the device.

PyTorch has none: a handle of work is waited for by a method in C, past the dispatcher, and so is a device. A
traced call gets handles that call an operator instead, and functions that do, so that a wait is an operation
like any other, with its place among them.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch

_NAMESPACE = "rote_transfers"


class WaitOperator(NamedTuple):
    """An operator, and what keeps it defined.

    Attributes:
        overload: Takes what is waited for.
        library: Keeps the operator defined.
    """

    overload: Any
    library: torch.library.Library


@cache
def wait_operator() -> WaitOperator:
    """Takes the tensors of a collective, and its number in the call. Defined where the first call waits."""
    library = torch.library.Library(_NAMESPACE, "FRAGMENT")
    library.define("wait(Tensor[] tensors, int number) -> ()")
    return WaitOperator(torch.ops.rote_transfers.wait.default, library)


@cache
def synchronize_operator() -> WaitOperator:
    """Takes the number of a device, and has the host wait until that has nothing left to do."""
    library = torch.library.Library(_NAMESPACE, "FRAGMENT")
    library.define("synchronize(int device) -> ()")
    library.impl("synchronize", _synchronize, "CompositeExplicitAutograd")
    return WaitOperator(torch.ops.rote_transfers.synchronize.default, library)


_synchronize: Any = torch.cuda.synchronize
"""The function itself, whose name is replaced in traced calls."""
