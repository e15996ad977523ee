"""The nodes that add gradients into parameters, one for each parameter, shared by all living graphs.

Autograd runs such a node on the stream on which it was made, which is when the first graph that is still
alive used the parameter. If that was the default stream, a capture that reaches the node fails (the legacy
stream cannot wait for a capture), and which graphs are alive is up to the caller: ``loss`` of the step before
usually is. So a recorded call gets nodes of its own, made on the stream of the capture, and the caller's
graphs get new ones afterwards; graphs that exist keep theirs, which go on adding into the same ``.grad``.

The node is replaced by the public way that exists: PyTorch forgets it when ``.data`` is set to another type.
It is left alone where somebody may have hooked it: with tensor hooks, and in distributed training, whose
reducers hook the nodes themselves. There a backward that cannot be captured runs eagerly.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch


def renew_accumulators(parameters: Iterable[torch.Tensor]) -> None:
    """Make the next graphs that use these parameters accumulate through new nodes."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return
    for parameter in parameters:
        plain = type(parameter) in (torch.Tensor, torch.nn.Parameter) and parameter.layout is torch.strided
        if plain and parameter.is_leaf and parameter.requires_grad and not _is_hooked(parameter):
            _renew(parameter)


def _is_hooked(parameter: torch.Tensor) -> bool:
    """A backward over graphs from before and after would run the hooks on each part of the gradient."""
    return bool(parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None))


def _renew(parameter: torch.Tensor) -> None:
    own = parameter.data
    other = torch.float32 if own.dtype is torch.float64 else torch.float64
    parameter.data = own.new_empty(0, dtype=other)
    parameter.data = own
