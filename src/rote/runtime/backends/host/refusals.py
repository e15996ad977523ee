"""What the host refuses to capture although it could: what a CUDA device refuses.

The host runs every operation, so it could record a host read or a data-dependent shape, and replay nonsense.
It refuses them as a CUDA capture does, with the same error class: what is captured here is captured there.
Tensors without plain strided memory are refused because a recording names memory by storage.

Where this is laxer than CUDA: storing one number through a Boolean mask is captured there if the number is on
the CPU (PyTorch turns the store into ``masked_fill``); here all numbers look alike.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from ....base import CaptureError
from ...operators import filled_in, is_mask, is_region
from ...pytorch import is_lazy_zero
from .operations import HostOperation
from .torch_private import OpOverload


def check_call(
    operation: HostOperation, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Refuse, before it runs, a call that a CUDA capture would refuse, whatever its tensors look like.

    Raises:
        CaptureError: The message names the operation and the reason.
    """
    if operation.restricted:
        _check_restricted(operation, func, args, kwargs)
    device = kwargs.get("device")
    if device is not None and torch.device(device).type != "cpu":
        _refuse(func, f"it moves data between devices (from cpu to {device})")


def _check_restricted(
    operation: HostOperation, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    facts = operation.facts
    if facts.reads or facts.checks:
        _refuse(func, "it reads a tensor's value on the host, which would have to wait for the device")
    if facts.apart:
        _refuse(func, f"it {facts.refused}")
    if facts.indexed:
        if any(map(is_mask, args[1])) and filled_in(facts, args, kwargs) is None:
            _refuse(
                func, "it indexes with a Boolean mask, and how many elements that selects depends on values"
            )
    elif facts.dynamic and operation.composite is None and kwargs.get("output_size") is None:
        _refuse(func, "the shape of its result depends on values")


def check_tensor(func: OpOverload, verb: str, tensor: torch.Tensor) -> None:
    """Refuse a tensor that has no plain memory on the CPU; compiled code may have some on ``meta``.

    Raises:
        CaptureError: The message says whether the operation takes or returns it, and what is wrong with it.
    """
    if tensor.is_meta and is_region(func):
        return
    if not tensor.is_cpu:
        _refuse(func, f"it {verb} a tensor on {tensor.device}; a host recording holds cpu tensors only")
    if tensor.layout is not torch.strided or tensor.is_nested:
        layout = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
        _refuse(func, f"it {verb} a tensor of layout {layout}, which has no storage of its own")
    if tensor.is_quantized:
        _refuse(func, f"it {verb} a quantized tensor, whose scale is not part of its memory")
    if is_lazy_zero(tensor):
        _refuse(func, f"it {verb} a zero tensor of forward-mode autograd, which has no memory")


def check_operation(func: Any) -> None:
    """Refuse what is no operator overload (higher-order operations carry Python functions).

    Raises:
        CaptureError: The message names it and its type.
    """
    if not isinstance(func, OpOverload):
        _refuse(func, f"it is a {type(func).__name__}, not an operator overload")


def _refuse(func: Any, reason: str) -> NoReturn:
    raise CaptureError(
        f"{func} was refused while a segment was being captured on the host, as CUDA would refuse it: "
        f"{reason}. Let it run between two segments, or move it out of the callable."
    )
