"""Which operations fused kernels may calculate on a device, and why not the others.

Each operator, for each type, is proved as a recording would have it proved: held against PyTorch's own. The
table says what came out; nothing is timed but the whole.

``python -m benchmarks.run --case proofs --device cuda`` writes the JSON.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch

from rote.base import NOWHERE
from rote.runtime.backends import PROCESS
from rote.runtime.fusion import DeviceKernels, Fusible, KernelRequest, NoKernelError
from rote.runtime.fusion.proofs import proof_of
from rote.runtime.program import NEW, Look, Operation, Token
from rote.runtime.program import operations as ops
from rote.runtime.program.operations import number_of

from .common import Outcome, Settings

NEEDS_GPU = False
REAL = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
WHOLE = (torch.int64, torch.int32, torch.bool)
COUNT = 8

UNARY = (
    "neg", "abs", "sqrt", "rsqrt", "floor", "ceil", "reciprocal", "exp", "log", "sin", "cos", "tanh", "erf",
    "sigmoid", "silu", "relu", "trunc", "round", "exp2", "expm1", "log2", "log1p", "hardswish", "hardsigmoid",
)  # fmt: skip
BINARY = ("add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "maximum", "minimum")
COMPARED = ("eq.Tensor", "lt.Tensor", "ge.Tensor")
BITS = ("bitwise_and.Tensor", "bitwise_or.Tensor")
NUMBERS = (
    ("add.Tensor", 0.1), ("mul.Tensor", 0.3), ("div.Tensor", 3.3), ("rsub.Scalar", 1), ("lt.Scalar", 0.1),
    ("pow.Tensor_Scalar", 2), ("clamp_min", 0.1), ("leaky_relu", 0.01),
)  # fmt: skip


def run(settings: Settings) -> Outcome:
    """Every operator for every type."""
    out = Outcome()
    device = DeviceKernels(PROCESS.choose("auto", settings.device))
    cases = dict(_cases(settings.device))
    began = time.perf_counter()
    proved, refused = _prove(device, cases)
    out.facts["seconds"] = time.perf_counter() - began
    out.facts["proved"] = proved
    out.facts["refused"] = refused
    out.checks["something is proved"] = bool(proved)
    return out


def _prove(device: DeviceKernels, cases: dict[str, Operation]) -> tuple[dict[str, str], dict[str, str]]:
    """What is proved, and how; what is refused, and why."""
    found: dict[str, Fusible] = {}
    proved: dict[str, str] = {}
    refused: dict[str, str] = {}
    for name, operation in cases.items():
        try:
            found[name] = Fusible.of(0, operation)
            proof_of(found[name])
        except NoKernelError as why:
            refused[name] = str(why)
            found.pop(name, None)
    request = KernelRequest(device, [], found.values())
    while not (request.compiled and request.prove()):
        time.sleep(0.01)
    for name, each in found.items():
        why = device.refusal(each)
        proof = proof_of(each)
        if why is not None:
            refused[name] = why
        elif proof is None:
            proved[name] = "moves elements"
        else:
            proved[name] = f"{proof.trials * proof.count} elements tried"
    return proved, refused


def _cases(device: torch.device) -> Iterator[tuple[str, Operation]]:
    for dtype in REAL:
        for name in UNARY:
            yield _case(device, name, (dtype,))
        for name in (*BINARY, *COMPARED):
            yield _case(device, name, (dtype, dtype))
        for name, number in NUMBERS:
            yield _case(device, name, (dtype,), number)
        yield _case(device, "gelu", (dtype,))
        yield _case(device, "gelu", (dtype,), approximate="tanh")
        yield _case(device, "where.self", (torch.bool, dtype, dtype))
        yield _case(device, "masked_fill.Scalar", (dtype, torch.bool), float("-inf"))
        for other in (*REAL, torch.bool):
            yield _case(device, "_to_copy", (dtype,), dtype=other)
    for dtype in WHOLE:
        for name in (*BINARY, *COMPARED, *BITS):
            yield _case(device, name, (dtype, dtype))
        for other in (*REAL, *WHOLE):
            yield _case(device, "_to_copy", (dtype,), dtype=other)


def _case(
    device: torch.device, name: str, types: tuple[torch.dtype, ...], *numbers: float, **named: Any
) -> tuple[str, Operation]:
    """An operator on tensors of some types, and numbers."""
    packet, _, overload = name.partition(".")
    func = getattr(getattr(torch.ops.aten, packet), overload or "default")
    on_host = device.type == "cpu"
    tensors = [Token((NEW, at), Look(dtype, (COUNT,), (1,), on_host), 0) for at, dtype in enumerate(types)]
    given = [torch.ones(COUNT, dtype=dtype, device="meta") for dtype in types]
    try:
        dtype = func(*given, *numbers, **named).dtype
    except RuntimeError:  # there is no such operator for such types
        dtype = types[0]
    result = Token((NEW, len(types)), Look(dtype, (COUNT,), (1,), on_host), 0)
    operands = (*tensors, *map(number_of, numbers))
    operation = Operation(
        ops.CAPTURED, func.name(), operands, tuple(named.items()), (result,), "one", NOWHERE
    )
    told = [*[str(each).removeprefix("torch.") for each in types], *map(str, numbers)]
    told += [f"{key}={str(value).removeprefix('torch.')}" for key, value in named.items()]
    return f"{name}({', '.join(told)})", operation
