"""Numbers that change among the values of which a tensor is made."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch

from ...numbers import Computed, TrackedNumbers
from ...objects import pointer_of
from ...program import HostBytes
from ...recording import OperationCall

_PLAIN = frozenset({int, float, bool})


@dataclass(frozen=True)
class BuiltNumbers:
    """A number, or lists of numbers, some of which replays compute."""

    values: Any

    def fits(self, dtype: torch.dtype) -> bool:
        """Whether a tensor of a type can be made of all numbers of the types that these have."""
        kinds = {type(each.value) for each in _leaves(self.values) if type(each) is Computed}
        return dtype.is_floating_point or (dtype is torch.int64 and kinds == {int})

    def made(self, tensor: torch.Tensor) -> Callable[[], OperationCall] | None:
        """Tells the operation that makes a tensor like one made of this, if that is a single number."""
        found = _leaves(self.values)
        if len(found) != 1:
            return None
        kind = {"dtype": tensor.dtype, "device": tensor.device}
        operands = (list(tensor.shape), found[0])
        return lambda: OperationCall(torch.ops.aten.full.default, operands, kind)

    def now(self) -> Any:
        """The numbers of this replay."""
        return _now(self.values)


@dataclass(frozen=True)
class BuiltArray:
    """An array that replays compute, of which a tensor is made.

    Attributes:
        dtype: The type that the tensor has.
        device: The type of its device; None where it lies in the memory of the array.
    """

    array: Computed
    dtype: torch.dtype
    device: str | None

    @classmethod
    def of(cls, numbers: TrackedNumbers, array: Any, tensor: torch.Tensor) -> BuiltArray | None:
        """What a tensor was made of; None if that is not followed."""
        computed = numbers.computed(array)
        if computed is None:
            return None
        lent = tensor.is_cpu and tensor.data_ptr() == pointer_of(array)
        return cls(computed, tensor.dtype, None if lent else tensor.device.type)

    def data(self, tensor: torch.Tensor) -> HostBytes:
        """The same as an operand."""
        if self.device is None:
            return HostBytes(tuple(tensor.shape), tensor.dtype, self.array, self.dtype)
        value = self.array.value
        return HostBytes(value.shape, value.dtype.str, self.array, self.dtype, self.device)


def built_of(numbers: TrackedNumbers, data: Any) -> BuiltNumbers | None:
    """What a tensor is made of, if that is numbers and some of them change; None else."""
    try:
        values = _followed(numbers, data)
    except TypeError:
        return None
    found = any([type(each) is Computed for each in _leaves(values)])
    return BuiltNumbers(values) if found else None


def _followed(numbers: TrackedNumbers, data: Any) -> Any:
    if type(data) in (list, tuple, deque):
        return tuple([_followed(numbers, each) for each in data])
    if type(data) not in _PLAIN:
        raise TypeError
    computed = numbers.computed(data)
    return data if computed is None else computed


def _leaves(values: Any) -> list[Any]:
    if type(values) is not tuple:
        return [values]
    return [leaf for each in cast("list[Any]", values) for leaf in _leaves(each)]


def _now(values: Any) -> Any:
    if type(values) is tuple:
        return tuple([_now(each) for each in values])
    return values.value if type(values) is Computed else values
