"""On which device a call runs."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..signature.key import Call
from ..signature.snapshot import Snapshot

_CPU = torch.device("cpu")


def device_of(call: Call, walk: Callable[[Call], Snapshot]) -> torch.device:
    """That of a tensor on a GPU among the arguments, else among what the call can reach, else the CPU.

    Args:
        call: The arguments.
        walk: Takes a snapshot of what can be reached.
    """
    for leaf in call.leaves:
        if isinstance(leaf, torch.Tensor) and leaf.device.type == "cuda":
            return leaf.device
    # The walk takes as long as some hundred operations: not where there can be no tensor on a GPU.
    for found in walk(call).tensors.values() if torch.cuda.is_initialized() else ():
        if found[0][1].device.type == "cuda":
            return found[0][1].device
    return _CPU
