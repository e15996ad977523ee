"""Private PyTorch calls of the recording layer, each with a probe and a fallback."""

from __future__ import annotations

from typing import Any

import torch

_use_count: Any = getattr(torch._C, "_storage_Use_Count", None)
"""Seen in torch 2.11 and 2.13."""


_tensor_count: Any = getattr(torch.Tensor, "_use_count", None)
"""Seen in torch 2.11 and 2.13."""


def tensor_owners(tensor: torch.Tensor) -> int:
    """How many references from C++ a tensor has; a large number when PyTorch cannot say."""
    return int(_tensor_count(tensor)) if _tensor_count is not None else 1 << 30


def storage_owners(storage: torch.UntypedStorage) -> int:
    """How many references a storage has; a large number when PyTorch cannot say (then rote copies)."""
    return int(_use_count(storage._cdata)) if _use_count is not None else 1 << 30


plain_functions: Any = torch._C.DisableTorchFunctionSubclass
"""Context in which tensor subclasses are treated as plain tensors. Seen in torch 2.11 and 2.13; no fallback
is needed, the class is part of the documented extension interface under this name."""


_foreach_copy: Any = getattr(torch, "_foreach_copy_", None)
"""Seen in torch 2.11 and 2.13."""


def copy_all(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    """Copy tensors of equal shapes pairwise, in one operation where PyTorch has one."""
    if _foreach_copy is not None and len(targets) > 1:
        _foreach_copy(targets, sources)
        return
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)
