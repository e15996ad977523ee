"""On which device a call runs."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import torch

from ..pytorch import plain_functions
from .key import Call

_CPU = torch.device("cpu")


def device_of(call: Call, reached: Iterable[Any]) -> torch.device:
    """The device of a tensor on a GPU among the arguments, else among what is reached, else the CPU."""
    # To look takes as long as some hundred operations: not where there can be no tensor on a GPU.
    state = reached if torch.cuda.is_initialized() else ()
    with plain_functions():  # to look at a tensor is not to use it
        for each in chain(call.leaves, state):
            if issubclass(type(each), torch.Tensor) and each.device.type == "cuda":
                return each.device
    return _CPU
