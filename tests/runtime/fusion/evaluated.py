"""Bodies of kernels, calculated by PyTorch's own operators: what a kernel means, without a compiler."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence

import pytest
import torch
from torch import Tensor

from rote.runtime.backends.host.backend import HostBackend
from rote.runtime.backends.host.kernels import HostKernel
from rote.runtime.backends.protocol import LoadedKernel
from rote.runtime.compiling import KernelSource
from rote.runtime.fusion import (
    Body,
    DeviceKernels,
    ElementPosition,
    Fusible,
    NoKernelError,
    OperationProof,
    device,
)
from rote.runtime.fusion.body import (
    Calculated,
    Converted,
    Loaded,
    Picked,
    RealNumber,
    Summed,
    Value,
    WholeNumber,
)
from rote.runtime.fusion.positions import Term
from rote.runtime.fusion.rows import SUMS, RowOrder

_fma: Callable[[float, float, float], float] = ctypes.CDLL(None).fma
_fma.restype, _fma.argtypes = ctypes.c_double, [ctypes.c_double] * 3  # pyright: ignore[reportFunctionMemberAccess]


def multiply_and_add(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """In one step: the product of two numbers of 32 bits has no rounding in 64, that of larger ones has."""
    if a.dtype is not torch.float64:
        return (a.double() * b.double() + c.double()).to(a.dtype)
    rows = zip(*[each.reshape(-1).tolist() for each in torch.broadcast_tensors(a, b, c)], strict=True)
    shape = torch.broadcast_shapes(a.shape, b.shape, c.shape)
    return torch.tensor([_fma(*row) for row in rows], dtype=torch.float64).reshape(shape)


FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "add": torch.add,
    "subtract": torch.sub,
    "multiply": torch.mul,
    "divide": torch.div,
    "multiply and add": multiply_and_add,
    "root": torch.sqrt,
    "negate": torch.neg,
    "absolute": torch.abs,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "at least": lambda a, b: torch.where(a < b, b, a),
    "at most": lambda a, b: torch.where(b < a, b, a),
    "where": torch.where,
    "equal": torch.eq,
    "less": torch.lt,
    "greater": torch.gt,
    "bits and": torch.bitwise_and,
    "bits or": torch.bitwise_or,
    "not": torch.logical_not,
}


def offsets(position: ElementPosition, count: int) -> Tensor:
    """Where the element for each ``t`` lies."""
    found = torch.full((count,), position.start)
    for term in position.terms:
        found += (digits(term, count) - term.low) * term.step
    return found


def digits(term: Term, count: int) -> Tensor:
    return torch.arange(count) // term.span % term.size


def evaluate(
    body: Body, tensors: Sequence[Tensor], reals: Sequence[float], integers: Sequence[int]
) -> list[Tensor]:
    """What a kernel stores, for the tensors that it reads as flat ones."""
    values: list[Tensor] = []
    for value in body.values:
        values.append(_value(body, value, values, tensors, reals, integers))
        assert values[-1].dtype is value.dtype and values[-1].shape == (body.count,), value
    return [values[place] for place in body.stores]


def _value(
    body: Body,
    value: Value,
    values: Sequence[Tensor],
    tensors: Sequence[Tensor],
    reals: Sequence[float],
    integers: Sequence[int],
) -> Tensor:
    if isinstance(value, Loaded):
        return _load(value, tensors[value.tensor], body.count)
    if isinstance(value, RealNumber):
        return torch.full((body.count,), reals[value.index], dtype=value.dtype)
    if isinstance(value, WholeNumber):
        return torch.full((body.count,), integers[value.index], dtype=value.dtype)
    if isinstance(value, Converted):
        return values[value.operand].to(value.dtype)
    if isinstance(value, Summed):
        return summed(values[value.operand].view(value.order.rows, -1), value.order)
    operands = [values[place] for place in value.operands]
    if isinstance(value, Calculated):
        return FUNCTIONS[value.function.name](*operands)
    return _picked(value, operands, body.count)


def summed(matrix: Tensor, order: RowOrder) -> Tensor:
    """The sum of its row for each element, added up lane by lane."""
    held = torch.zeros(order.rows, order.lanes, SUMS)
    for column in range(order.columns):
        place = column % (SUMS * order.lanes)
        lane, number = divmod(place, SUMS) if order.vectors else divmod(place, order.lanes)[::-1]
        held[:, lane, number] += matrix[:, column]
    lanes = held[:, :, 0]
    for number in range(1, SUMS):
        lanes = lanes + held[:, :, number]
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    return lanes.expand(order.rows, order.columns).reshape(-1)


def _load(value: Loaded, tensor: Tensor, count: int) -> Tensor:
    places = offsets(value.position, count)
    for term in value.within:
        found = digits(term, count)
        places = torch.where((found >= term.low) & (found < term.high), places, -1)
    assert int(places.max()) < tensor.numel()
    elements = tensor[places.clamp_min(0)]
    return torch.where(places < 0, torch.zeros_like(elements), elements)


def _picked(value: Picked, operands: Sequence[Tensor], count: int) -> Tensor:
    found = digits(value.digit, count)
    result = operands[-1]
    for high, piece in reversed(list(zip(value.highs, operands[:-1], strict=True))):
        result = torch.where(found < high, piece, result)
    return result


# ---------------------------------------------------------------------- in the place of compiled ones


class EvaluatedKernel(HostKernel):
    """A kernel of the host that is no machine code."""

    def __init__(self, source: KernelSource, body: Body) -> None:
        self.source = source
        self._body = body

    def __call__(
        self, tensors: Sequence[Tensor], reals: Sequence[float] = (), integers: Sequence[int] = ()
    ) -> None:
        self.bound(tensors, reals, integers)()

    def bound(
        self, tensors: Sequence[Tensor], reals: Sequence[float], integers: Sequence[int]
    ) -> Callable[[], None]:
        reads = len(self._body.reads)

        def run() -> None:
            with torch.no_grad(), torch.inference_mode(False):
                found = evaluate(self._body, tensors[:reads], reals, integers)
                for target, stored in zip(tensors[reads:], found, strict=True):
                    target.copy_(stored)

        return run


class EvaluatedKernels(DeviceKernels):
    """The kernels of the host, without a compiler: they are there at once."""

    def __init__(self, backend: HostBackend) -> None:
        super().__init__(backend)
        self._bodies: dict[KernelSource, Body] = {}

    def refusal(self, each: Fusible, *, probed: bool = False) -> str | None:
        del probed
        try:
            functions = {
                value.function.name for value in each.alone().body.values if isinstance(value, Calculated)
            }
        except NoKernelError as why:
            return str(why)
        return None if functions <= FUNCTIONS.keys() else "nobody evaluates it"

    def source(self, body: Body, aligned: Sequence[bool]) -> KernelSource:
        source = super().source(body, aligned)
        self._bodies[source] = body
        return source

    def proofs(self, calculated: Iterable[Fusible]) -> list[OperationProof]:
        del calculated
        return []

    def loaded(self, source: KernelSource) -> LoadedKernel:
        return EvaluatedKernel(source, self._bodies[source])


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the kernels of the host evaluated, not compiled."""
    monkeypatch.setattr(device, "_DEVICES", {torch.device("cpu"): EvaluatedKernels(HostBackend())})
