"""Equality of results to the bit: values, metadata, structure, and which tensors share memory."""

from __future__ import annotations

from typing import Any

import torch

from ..base import cut
from ..runtime.arguments import bytes_of, flatten, numbers_of, paths, sharing


def assert_same(actual: Any, expected: Any, what: str = "result", *, tolerance: float = 0.0) -> None:
    """Check that two nested values are equal.

    Tensors have to agree in shape, stride, dtype, device, ``requires_grad`` and, bit for bit, in their
    values, where a NaN equals any other; tensors that share a storage in one value have to share one in the
    other.

    Args:
        actual: A tensor, a plain value, or a nested structure of them.
        expected: The value to compare it with.
        what: Its name in messages.
        tolerance: Allowed absolute and relative difference; 0 compares bits.

    Raises:
        AssertionError: A leaf differs; the message names it, its value and the expected one.
    """
    ours: list[Any] = []
    theirs: list[Any] = []
    spec, wanted = flatten(actual, ours), flatten(expected, theirs)
    if spec != wanted:
        given, outline = cut(repr(actual), 60), cut(repr(expected), 60)
        raise AssertionError(f"{what} has another structure: {given} instead of {outline}")
    for name, mine, other in zip(paths(spec, what), ours, theirs, strict=True):
        _assert_leaf(name, mine, other, tolerance)
    if sharing(ours) != sharing(theirs):
        shared = f"{sharing(ours)} instead of {sharing(theirs)}"
        raise AssertionError(f"other tensors of {what} share memory: {shared}")


def _assert_leaf(name: str, actual: Any, expected: Any, tolerance: float) -> None:
    if not isinstance(actual, torch.Tensor) or not isinstance(expected, torch.Tensor):
        if type(actual) is not type(expected) or not _equal(actual, expected):
            raise AssertionError(f"{name} is {actual!r} and should be {expected!r}")
        return
    for aspect in ("shape", "dtype", "device", "layout", "requires_grad"):
        mine, other = getattr(actual, aspect), getattr(expected, aspect)
        if mine != other:
            raise AssertionError(f"{name}.{aspect} is {mine} and should be {other}")
    if actual.layout is torch.strided and actual.numel() and actual.stride() != expected.stride():
        raise AssertionError(f"{name}.stride() is {actual.stride()} and should be {expected.stride()}")
    if actual.is_meta:
        return
    wrong = _wrong(actual.detach(), expected.detach(), tolerance)
    if wrong:
        raise AssertionError(
            f"{name} differs in {wrong} of {actual.numel()} elements: {_excerpt(actual)} and should be "
            f"{_excerpt(expected)}"
        )


def _wrong(actual: torch.Tensor, expected: torch.Tensor, tolerance: float) -> int:
    """Number of elements that differ."""
    if actual.layout is not torch.strided:
        actual, expected = actual.to_dense(), expected.to_dense()
    if tolerance and actual.dtype.is_floating_point:
        close = torch.isclose(actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
        return int((~close).sum())
    if actual.numel() == 0:
        return 0
    differs = (bytes_of(actual) != bytes_of(expected)).any(-1)
    if actual.dtype.is_floating_point or actual.dtype.is_complex:
        differs &= ~_same_numbers(actual, expected)
    return int(differs.sum())


def _same_numbers(actual: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Which elements are equal to the sign, or NaN on both sides: PyTorch's own kernels make several NaNs."""
    ours, theirs = numbers_of(actual), numbers_of(expected)
    same = (ours == theirs) & (ours.signbit() == theirs.signbit())
    return (same | (ours.isnan() & theirs.isnan())).all(-1)


def _equal(actual: Any, expected: Any) -> bool:
    if isinstance(actual, float):
        return actual.hex() == expected.hex()
    return actual is expected or bool(actual == expected)


def _excerpt(tensor: torch.Tensor) -> str:
    values = tensor.detach().reshape(-1)[:4].tolist()
    return f"{values}{'...' if tensor.numel() > 4 else ''}"
