"""Arrays of numpy's that change from call to call, and what is computed from them.

An array is followed as a number is, by which object it is, and has an expression, too. It is not copied: the
call has made it, and who writes to it is told. Functions are applied by their names, so that operands may be
given by name.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy

LARGEST_ARRAY, LARGEST_FILLED = 1 << 24, 1 << 16
"""Bytes of an array that is followed, and of one outside that the call writes: each write makes a copy."""
OF_ARRAYS = frozenset({
    "all", "allclose", "amax", "amin", "any", "append", "arange", "argmax", "argmin", "argsort", "array",
    "array_equal", "asarray", "ascontiguousarray", "average", "broadcast_to", "clip", "column_stack",
    "concatenate", "copy", "count_nonzero", "cumprod", "cumsum", "diff", "digitize", "dot", "expand_dims",
    "flip", "full", "full_like", "geomspace", "hstack", "inner", "isclose", "linspace", "logspace", "max",
    "mean", "median", "min", "nan_to_num", "nanmax", "nanmean", "nanmin", "nansum", "ones_like", "outer",
    "percentile", "prod", "ptp", "quantile", "ravel", "repeat", "reshape", "roll", "round", "searchsorted",
    "sort", "squeeze", "stack", "std", "sum", "take", "tile", "transpose", "var", "vstack", "where",
    "zeros_like",
})  # fmt: skip
"""Functions of numpy's that look at nothing but their operands, and write none."""
METHODS = frozenset({
    "all", "any", "argmax", "argmin", "argsort", "astype", "clip", "copy", "cumsum", "dot",
    "flatten", "item", "max", "mean", "min", "prod", "ravel", "repeat", "reshape", "round",
    "squeeze", "std", "sum", "tolist", "transpose", "var",
})  # fmt: skip
"""Methods of arrays that do the same."""
_UFUNCS: Mapping[str, Any] = {
    name: each
    for name, each in vars(numpy).items()
    if type(each) is numpy.ufunc and each.nout == 1 and each.__name__ == name
}
_FUNCTIONS: Mapping[str, Any] = {
    **_UFUNCS, **{name: getattr(numpy, name) for name in OF_ARRAYS if hasattr(numpy, name)},
}  # fmt: skip
SAME = frozenset({"asarray", "ascontiguousarray", "astype"})
"""Functions that may give an array that they are given; others have written it then."""
NAME_OF: Mapping[Any, str] = {each: name for name, each in _FUNCTIONS.items()}
_WRITING = frozenset({"out", "where", "casting", "subok", "order", "mode", "initial", "like"})
"""Names of operands that make more of a function than what it gives for arrays."""
FUNCTION, METHOD, ITEM, MEMBERS = "function of arrays", "method of an array", "item of an array", "members"
SLICED = "slice"
STORED, STORED_ALONG = "an array with another item", "an array with others along an axis"
IN_PLACE: Mapping[str, Callable[[Any, Any], Any]] = {
    "INPLACE_ADD": operator.iadd, "INPLACE_SUBTRACT": operator.isub, "INPLACE_MULTIPLY": operator.imul,
    "INPLACE_TRUE_DIVIDE": operator.itruediv, "INPLACE_FLOOR_DIVIDE": operator.ifloordiv,
    "INPLACE_POWER": operator.ipow,
}  # fmt: skip
"""Operators that write an array, by their instructions."""
WRITE_AT: Mapping[Any, str] = {
    each: f"{each.__name__}.at"
    for each in (numpy.add, numpy.subtract, numpy.multiply, numpy.maximum, numpy.minimum)
}
"""Functions whose ``at`` writes an array at places which may be there several times."""
NAMED = frozenset({FUNCTION, METHOD})
"""Functions whose first operand is a name."""


class ArrayKind(NamedTuple):
    """What an array is, but for its numbers."""

    dtype: numpy.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def kind_of(value: Any) -> Any:
    """What has to be the same of a number or an array in each call."""
    if type(value) is not numpy.ndarray:
        return type(value)
    pairs = zip(value.shape, value.strides, strict=True)  # along one element they may be any
    return ArrayKind(value.dtype, value.shape, tuple([stride if size > 1 else 0 for size, stride in pairs]))


def can_be_copied(array: Any) -> bool:
    """Whether a copy of an array is alike in all but its memory."""
    return is_array(array) and array.flags.writeable and all([stride > 0 for stride in array.strides])


def copied(array: Any) -> Any:
    """An equal array with the same strides, as functions may add in the order of the memory."""
    size, strides = array.itemsize, array.strides
    if array.flags.c_contiguous or any([stride < 0 or stride % size for stride in strides]):
        return array.copy()
    last = [(count - 1) * stride // size for count, stride in zip(array.shape, strides, strict=True)]
    memory = numpy.empty(1 + sum(last) if array.size else 0, array.dtype)
    found = numpy.lib.stride_tricks.as_strided(memory, array.shape, strides)
    found[...] = array
    return found


def can_be_filled(array: Any) -> bool:
    """Whether it is followed what a call writes to an array outside: it has little memory, of its own."""
    fits = is_array(array) and array.nbytes <= LARGEST_FILLED
    return fits and array.base is None and array.flags.c_contiguous and array.flags.writeable


def array_token(array: Any) -> Any:
    """An array in a form that can be compared."""
    return kind_of(array), array.tobytes()


def is_array(value: Any) -> bool:
    """Whether it is an array of numbers that is not large."""
    return type(value) is numpy.ndarray and value.dtype.kind in "biuf" and value.nbytes <= LARGEST_ARRAY


class SliceForm(NamedTuple):
    """A slice, so that it can be compared."""

    start: Any
    stop: Any
    step: Any


INDEX_TYPES = frozenset({numpy.int64, numpy.int32, numpy.uint8, numpy.bool_})
"""What arrays are of by which PyTorch indexes tensors."""
_INDICES = frozenset({int, type(None), type(Ellipsis)})
HANDED = object()
"""The operand that C gets itself, as a number of a tensor."""


def index_form(key: Any) -> Any:
    """An index of numbers and of arrays of integers or truth values; None if it is something else."""
    parts: Sequence[Any] = key if type(key) is tuple else (key,)
    found = tuple([
        SliceForm(each.start, each.stop, each.step) if type(each) is slice else each for each in parts
    ])  # fmt: skip
    for each in found:
        whole = each if type(each) is SliceForm else (each,)
        if not all(
            [type(one) in _INDICES or one is HANDED or (one is each and _is_index(one)) for one in whole]
        ):
            return None
    return found


def as_handed(key: Any, is_handed: Callable[[Any], bool]) -> Any:
    """An index with ends of slices of which C gets the numbers itself marked."""
    if type(key) is tuple:
        return tuple([as_handed(each, is_handed) for each in key])
    if type(key) is not slice or key.step is not None:
        return key
    return slice(*[HANDED if is_handed(end) else end for end in (key.start, key.stop)])


def handed_in(operand: Any) -> int:
    """How many numbers C gets itself for an operand."""
    if type(operand) is tuple or type(operand) is SliceForm:
        return sum(map(handed_in, operand))
    return int(operand is HANDED)


def with_handed(operand: Any, handed: Iterator[Any]) -> Any:
    """An operand with the numbers that C has got."""
    if type(operand) is SliceForm:
        return SliceForm(*[with_handed(each, handed) for each in operand])
    if type(operand) is tuple:
        return tuple([with_handed(each, handed) for each in operand])
    return next(handed) if operand is HANDED else operand


def _is_index(value: Any) -> bool:
    return is_array(value) and value.dtype.kind in "biu"


def _key_of(form: Sequence[Any]) -> Any:
    key = tuple([slice(*each) if type(each) is SliceForm else each for each in form])
    return key if len(key) != 1 else key[0]


def _item(array: Any, form: Sequence[Any]) -> Any:
    return array[_key_of(form)]


def _stored(array: Any, form: Sequence[Any], new: Any) -> Any:
    written = copied(array)
    written[_key_of(form)] = new
    return written


def _written(write: Callable[[Any, Any], Any], array: Any, other: Any) -> Any:
    return write(copied(array), other)


def _written_at(write: Callable[[Any, Any, Any], None], array: Any, form: Sequence[Any], new: Any) -> Any:
    written = copied(array)
    write(written, _key_of(form), new)
    return written


def _stored_along(array: Any, places: Any, new: Any, axis: int) -> Any:
    written = copied(array)
    numpy.put_along_axis(written, places, new, axis)
    return written


def takes_names(names: tuple[str, ...]) -> bool:
    """Whether operands may be given by these names."""
    return _WRITING.isdisjoint(names)


def _split(names: Sequence[str], given: Sequence[Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    count = len(given) - len(names)
    return given[:count], dict(zip(names, given[count:], strict=True))


def _by_function(name: str, names: Sequence[str], *given: Any) -> Any:
    args, named = _split(names, given)
    return _FUNCTIONS[name](*args, **named)


def _by_method(name: str, names: Sequence[str], array: Any, *given: Any) -> Any:
    args, named = _split(names, given)
    return getattr(array, name)(*args, **named)


APPLIED_TO_ARRAYS: Mapping[str, Callable[..., Any]] = {
    FUNCTION: _by_function, METHOD: _by_method, ITEM: _item, MEMBERS: lambda *members: members,
    SLICED: SliceForm, STORED: _stored, STORED_ALONG: _stored_along,
    **{name: partial(_written, each) for name, each in IN_PLACE.items()},
    **{name: partial(_written_at, each.at) for each, name in WRITE_AT.items()},
}  # fmt: skip
"""Functions of expressions."""
