"""Numpy arrays and tensors over the same memory.

A recording knows the memory of tensors. So an array among the arguments of a call, or one that a call makes
of a tensor, is a tensor to it, and the caller gets an array over such memory again.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy
import torch

_TYPES = (
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32",
    "float64", "complex64", "complex128",
)  # fmt: skip
ARRAY_FACTS = frozenset({"dtype", "itemsize", "nbytes", "ndim", "shape", "size", "strides"})
"""Attributes of an array that follow from what a tensor over its memory tells."""


class ArrayForm(NamedTuple):
    """What there is to an array beside what a tensor over its memory tells."""

    writeable: bool
    strides: tuple[int, ...]


@cache
def _codes() -> frozenset[str]:
    """The codes of the types that the arrays of tensors have; others of the same size are other types."""
    return frozenset([numpy.dtype(name).char for name in _TYPES])


def form_of(array: Any) -> ArrayForm | None:
    """The form of a plain array; None if no tensor tells the rest of it."""
    if type(array) is not numpy.ndarray:
        return None
    kind = array.dtype
    if kind.char not in _codes() or not kind.isnative or kind.metadata is not None:
        return None
    size = kind.itemsize
    if any([stride < 0 or stride % size for stride in array.strides]):
        return None
    return ArrayForm(array.flags.writeable, array.strides)


def is_view(array: Any, key: Any) -> bool:
    """Whether an array has a view of itself at an index, and no copy and no number."""
    parts: tuple[Any, ...] = key if type(key) is tuple else (key,)
    if any([type(each) not in (int, slice, type(None), type(Ellipsis)) for each in parts]):
        return False
    return (
        any([each is Ellipsis for each in parts]) or sum([type(each) is int for each in parts]) < array.ndim
    )


def tensor_over(array: Any) -> torch.Tensor:
    """A tensor over the memory of an array that has a form; PyTorch would warn of one that is read-only."""
    return torch.from_numpy(array if array.flags.writeable else numpy.asarray(_Writeable(array)))


def array_over(tensor: torch.Tensor, form: ArrayForm) -> Any:
    """An array of a form over the memory of a tensor."""
    array = tensor.detach().numpy()
    if array.strides != form.strides:  # in dimensions of one element they may be any
        array = numpy.lib.stride_tricks.as_strided(array, strides=form.strides)
    if not form.writeable:
        array.flags.writeable = False
    return array


class _Writeable:
    """Says of the memory of an array that it can be written, and keeps it alive."""

    def __init__(self, array: Any) -> None:
        told = array.__array_interface__
        self.__array_interface__ = {**told, "data": (told["data"][0], False)}
        self._array = array
