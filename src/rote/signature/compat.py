"""Global switches of PyTorch that change which kernels run, read through private accessors where that is faster.

Every name here was seen in torch 2.11 and 2.13. A missing accessor falls back on the public property.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

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
