"""Global switches of PyTorch that change which kernels run: who reads them, and where they lie in memory.

Every name here was seen in torch 2.11 and 2.13. A missing accessor is left out; a missing address says None.
"""

from __future__ import annotations

import ctypes
import json
import platform
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

_ACCESSORS = (
    "_get_cublas_allow_fp16_reduced_precision_reduction",
    "_get_cublas_allow_bf16_reduced_precision_reduction",
    "_get_cudnn_enabled",
    "_get_cudnn_benchmark",
    "_get_cudnn_deterministic",
    "_get_flash_sdp_enabled",
    "_get_mem_efficient_sdp_enabled",
    "_get_math_sdp_enabled",
    "_get_cudnn_sdp_enabled",
    "_get_mkldnn_enabled",
    "_get_deterministic_algorithms",
)

_precision: Any = getattr(torch._C, "_get_fp32_precision_getter", None)
"""What ``torch.backends.cuda.matmul.fp32_precision`` reads. The accessors of ``allow_tf32`` raise once a
program has used the newer names."""

_LEGACY = ("_get_cublas_allow_tf32", "_get_cudnn_allow_tf32")


def _accessors() -> dict[str, Callable[[], Any]]:
    found: dict[str, Callable[[], Any]] = {}
    for name in _ACCESSORS if _precision is not None else (*_LEGACY, *_ACCESSORS):
        accessor = getattr(torch._C, name, None)
        if accessor is not None:
            found[name] = accessor
    for operation in ("matmul", "conv", "rnn") if _precision is not None else ():
        found[operation] = partial(_precision_of, operation)
    return found


def _precision_of(operation: str) -> str:
    """The precision of float32 in operations of a kind on CUDA; nothing said is the standard's."""
    found = _precision("cuda", operation)
    return "ieee" if found == "none" else found


ACCESSORS = _accessors()
"""Argument-less readers of the switches by their names, cheap enough to call at every call."""

_checks: Any = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
_state_guard: Any = getattr(_checks, "GlobalStateGuard", None)

_STATE = {
    "allow_tf32": _LEGACY[0] if _precision is None else "matmul",
    "allow_fp16_reduce": "_get_cublas_allow_fp16_reduced_precision_reduction",
    "allow_bf16_reduce": "_get_cublas_allow_bf16_reduced_precision_reduction",
    "deterministic_algorithms": "_get_deterministic_algorithms",
}
"""Fields of a state guard that are switches."""

STATE_SWITCHES = tuple([ACCESSORS[name] for name in _STATE.values() if name in ACCESSORS])
"""The switches that :func:`state_check` looks at."""


def state_check() -> Callable[[], bool] | None:
    """A function that says in one call of C++ whether the state of this moment is in force; None without it.

    It looks at grad mode, the default type, autocast, :data:`STATE_SWITCHES`, and at more: where it says no,
    these may be as they were.
    """
    return _state_guard().check if _has_state_guard() else None


@cache
def _has_state_guard() -> bool:
    """Whether there are state guards, and they say that they look at what they are here for."""
    try:
        fields: dict[str, Any] = json.loads(_state_guard().__getstate__())
    except (AttributeError, TypeError, ValueError):
        return False
    expected = {"grad_mode", "default_dtype", "autocast_state", *_STATE}
    options = [fields.get(f"allow_{kind}_reduce") for kind in ("fp16", "bf16")]
    return expected <= fields.keys() and all(type(option) is int for option in options)  # three each


class Place(NamedTuple):
    """Where the switches lie in ``at::Context``, as ``ATen/Context.h`` declares it, in bytes.

    Attributes:
        first: The first of them.
        end: Behind the last of those that accessors ask for.
        table: The table of precisions, a ``std::unordered_map``.
    """

    first: int
    end: int
    table: int

    @property
    def flags(self) -> dict[str, int]:
        """Switches that are one byte, by the name of the accessor."""
        return _FLAGS


_FLAGS = {
    "_get_cudnn_enabled": 1008,
    "_get_cudnn_deterministic": 1009,
    "_get_deterministic_algorithms": 1011,
    "_get_flash_sdp_enabled": 1036,
    "_get_mem_efficient_sdp_enabled": 1038,
    "_get_math_sdp_enabled": 1039,
    "_get_cudnn_sdp_enabled": 1040,
    "_get_cudnn_benchmark": 1043,
    "_get_mkldnn_enabled": 1068,
}
_PLACES = {version: Place(1008, 1072, 1088) for version in ("2.11", "2.13")}


def place_of_switches() -> tuple[int, Place] | None:
    """The address of ``at::globalContext()``, and what lies where in it; None where that is not known."""
    place = _PLACES.get(".".join(torch.__version__.split(".")[:2]))
    if place is None or sys.platform != "linux" or platform.machine() != "x86_64":
        return None
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).with_name("lib") / "libtorch_cpu.so"))
        found = library._ZN2at13globalContextEv
    except (OSError, AttributeError):
        return None
    found.restype, found.argtypes = ctypes.c_void_p, ()
    return found(), place
