"""What a recorded forward keeps for its backward.

The graph of a recorded call is walked many times, while replays write new values into the tensors that it
saved and optimizers step the parameters. Autograd would call that a modification between forward and
backward. It does not check versions under saved-tensor hooks, so a recorded call runs under hooks that keep
each tensor as it is. :mod:`.backward` makes the check that matters, between one replay and its own backward.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from ..pytorch import standing_hooks

Quietly = Callable[[Callable[[], Any]], Any]
"""Does something that the tracer of a call does not see."""


class SavedRead(NamedTuple):
    """A tensor made outside that the graph saved.

    Attributes:
        tensor: The tensor itself, weakly (it may be rebound to other memory).
        alias: The memory that was saved, with the tensor's version counter.
    """

    tensor: weakref.ref[torch.Tensor]
    alias: torch.Tensor


class Saved(NamedTuple):
    """What the graph of a recorded path saved, besides what the path made.

    Eager refuses a backward if one of these was modified in place since the forward. The recording has its
    own copies of arguments and results, and refuses all the same.

    Attributes:
        reads: Tensors made outside.
        arguments: Numbers of argument leaves.
        results: Numbers of results that require grad.
    """

    reads: list[SavedRead]
    arguments: list[int]
    results: list[int]


@contextmanager
def saving(quietly: Quietly, keep: Callable[[torch.Tensor], None]) -> Generator[None]:
    """Run a recorded forward.

    Args:
        quietly: Makes the aliases, so that the tracer of the call does not see it.
        keep: Takes what the graph saves, aliases that share the version counters.
    """
    used = [(quietly, keep)]  # emptied at the end: autograd keeps hooks where no garbage collector looks

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        quietly, keep = used[0]
        alias = quietly(tensor.detach)  # a saved result that kept its node would be a cycle
        keep(alias)
        return alias

    try:
        with standing_hooks(pack, _same):
            yield
    finally:
        used.clear()


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def modified(alias: torch.Tensor, version: int) -> RuntimeError:
    """What autograd says of a saved tensor that is no longer what it was."""
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{alias.type()} {list(alias.shape)}] is at version {alias._version}; expected version {version} "
        "instead."
    )
