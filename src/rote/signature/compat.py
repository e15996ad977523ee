"""Global switches of PyTorch that change which kernels run, by private accessors where those are faster.

Every name here was seen in torch 2.11 and 2.13. A missing accessor falls back on the public property.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.amp import grad_scaler
from torch.autograd import forward_ad
from torch.utils import _device

_ACCESSORS = (
    "_get_cublas_allow_tf32",
    "_get_cublas_allow_fp16_reduced_precision_reduction",
    "_get_cublas_allow_bf16_reduced_precision_reduction",
    "_get_cudnn_enabled",
    "_get_cudnn_benchmark",
    "_get_cudnn_deterministic",
    "_get_cudnn_allow_tf32",
    "_get_flash_sdp_enabled",
    "_get_mem_efficient_sdp_enabled",
    "_get_math_sdp_enabled",
    "_get_cudnn_sdp_enabled",
    "_get_mkldnn_enabled",
    "_get_deterministic_algorithms",
)


def _accessors() -> tuple[Callable[[], Any], ...]:
    found = [getattr(torch._C, name, None) for name in _ACCESSORS]
    return tuple(accessor for accessor in found if accessor is not None)


SWITCHES: tuple[Callable[[], Any], ...] = _accessors()
"""Argument-less readers of the global switches, cheap enough to call at every call."""

_function_modes: Callable[[], int] = getattr(torch._C, "_len_torch_function_stack", lambda: 0)
_dispatch_modes: Callable[[], int] = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
_interpreter: Any = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", lambda: None)


fresh_scaler_state: Any = getattr(grad_scaler, "_refresh_per_optimizer_state", None)
"""Makes the entries of a ``GradScaler``'s table; tells that table from others. Without it, a scaler in a
graphed callable keeps the call eager (its table is another object after each step)."""


plain_functions: Any = torch._C.DisableTorchFunctionSubclass
"""Context in which tensor subclasses are treated as plain tensors. Seen in torch 2.11 and 2.13; no fallback
is needed, the class is part of the documented extension interface under this name."""


def default_device() -> Any:
    """The device set by ``torch.set_default_device`` or ``with torch.device(...)``, or None."""
    return getattr(_device, "CURRENT_DEVICE", None)


def foreign_modes() -> bool:
    """Whether somebody else interprets operations: function or dispatch modes, ``vmap``, forward-mode AD.

    The default device is a function mode too; it is allowed, and part of the key.
    """
    allowed = 0 if default_device() is None else 1
    if _function_modes() > allowed or _dispatch_modes() > 0 or _interpreter() is not None:
        return True
    return getattr(forward_ad, "_current_level", -1) >= 0
