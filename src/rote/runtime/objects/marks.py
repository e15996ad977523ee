"""The form in which a slot's content is kept: an identity, an address, a copy, or a position."""

from __future__ import annotations

import datetime
import decimal
import fractions
import math
import pathlib
import random
import uuid
import weakref
from array import array
from collections import OrderedDict
from operator import itemgetter
from types import FunctionType
from typing import Any, NamedTuple, cast

import numpy
import torch

from ...base import bits_of, is_instance
from ..pytorch import has_memory, unseen_functions
from .classes import DEEPEST, UNSET, Itself, own, text_of
from .iterators import position
from .standard import memory_of
from .training import is_empty_stage_table

BY_IDENTITY = frozenset({dict, OrderedDict, list, tuple, FunctionType, type})
"""Types, of most values in a module, whose instances are kept as they are: their members have own slots."""
ARRAY_BYTES = 1 << 16
"""The largest array that is compared in full; a sample of a larger one is compared."""
_CONTEXT: Any = decimal.Context
_SIGNALS: Any = type(decimal.DefaultContext.flags)
_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
SAMPLE = 4096
SET_LENGTH = 4096
"""The largest set whose members are compared."""


class TensorMark(NamedTuple):
    """A tensor in a slot, compared by identity and address."""

    identity: int
    address: int
    requires_grad: bool


class Content(NamedTuple):
    """A value compared by a copy of its content."""

    value: Any


class Members(tuple[tuple[type, Any], ...]):
    """The members of a set with their types, in its order: equal sets may iterate in different orders."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{{{', '.join([text_of(member) for _, member in self])}}}"


_name = itemgetter(0)
_NO_OPERATORS = frozenset({"__annotations__", "__doc__", "__slotnames__"})
"""Names under which Python keeps what it finds out of a class."""


def _is_torchs(function: FunctionType) -> bool:
    return str(function.__globals__.get("__name__")).startswith("torch.")


class DefinedOperators(tuple[tuple[str, Any], ...]):
    """What a class defines itself under names that Python looks up for its operators, by which objects."""

    __slots__ = ()

    @classmethod
    def of(cls, namespace: dict[str, Any]) -> DefinedOperators:
        """Those in the namespace of a class."""
        now = namespace.copy()  # another thread may write
        names = [each for each in now if each[:2] == "__" == each[-2:] and each not in _NO_OPERATORS]
        return cls([(name, now[name]) for name in sorted(names)])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DefinedOperators) or [*map(_name, self)] != [*map(_name, other)]:
            return False
        return all([one[1] is another[1] for one, another in zip(self, other, strict=True)])

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        functions = [(name, value) for name, value in self if type(value) is FunctionType]
        own = [name for name, value in functions if not _is_torchs(value)]
        return f"with {', '.join(own)} of one's own" if own else "as PyTorch defines it"


PROXIES = frozenset({weakref.ProxyType, weakref.CallableProxyType})
"""Types whose instances stand for another object, and raise once that is gone."""

_LENGTHS = tuple([Content(length) for length in range(64)])


def counted(length: int) -> Content:
    """A length in the form in which it is compared; equal short lengths are one object."""
    return _LENGTHS[length] if length < len(_LENGTHS) else Content(length)


def mark(value: Any) -> Any:
    """The form in which a value is kept: tensors by address; arrays, memory and sets by class and content."""
    kind = type(value)
    if kind in BY_IDENTITY or issubclass(kind, Content):
        return value
    if kind in PROXIES:
        return Content((kind, id(value)))
    if is_instance(value, torch.Tensor):
        with unseen_functions():  # reading a mark must not count as a use of the tensor
            address = value.data_ptr() if has_memory(value) else 0
            return TensorMark(id(value), address, value.requires_grad)
    if is_instance(value, numpy.ndarray):
        return value if value.dtype.hasobject and value.size > SAMPLE else _array(value)
    if is_instance(value, numpy.void) and not value.dtype.hasobject:  # a record may be part of an array
        return Content((kind, repr(value.dtype), value.tobytes()))
    if is_instance(value, (set, frozenset)):
        return _set(value)
    if is_instance(value, (bytearray, array)):
        return Content((type(value), getattr(value, "typecode", ""), bytes(value)))
    if kind is _SIGNALS:
        return Content((kind, repr(value)))
    if issubclass(kind, _CONTEXT):
        return Content((kind, _CONTEXT.__repr__(value)))
    if is_empty_stage_table(value):
        return Content("empty")
    if is_instance(value, random.Random):
        return Content((kind, value.getstate()))
    if is_instance(value, numpy.random.RandomState):
        return Content((kind, _told(value.get_state(legacy=False))))
    if is_instance(value, numpy.random.Generator):
        return Content((kind, _told(value.bit_generator.state)))
    if is_instance(value, numpy.random.BitGenerator):
        return Content((kind, _told(value.state)))
    memory = memory_of(value)
    if memory is None:
        return position(value) or value
    return Content((kind, *_lies(memory), _numbers(memory)))


def _told(state: Any) -> Any:
    """The state of a generator of numpy's, so that it can be compared."""
    if isinstance(state, dict):
        return tuple([(key, _told(each)) for key, each in cast(dict[str, Any], state).items()])
    return state.tobytes() if isinstance(state, numpy.ndarray) else state


def _set(value: Any) -> Any:
    """A set by its members, a large one by its identity."""
    if len(value) > SET_LENGTH:
        return value
    held = [mark(item) if is_instance(item, torch.Tensor) else item for item in value]
    return Content((type(value), Members(zip(map(type, value), held, strict=True))))


def hooks_of(tensor: torch.Tensor) -> list[tuple[str, dict[int, Any]]]:
    """The hooks of a tensor that autograd calls, with the attribute that holds them."""
    tables = [(name, getattr(tensor, name, None)) for name in _HOOKS]
    return [(name, table) for name, table in tables if table]


def pointer_of(array: Any) -> int:
    """Address of a numpy array's memory."""
    return int(array.__array_interface__["data"][0])


def base_of(array: Any) -> Any:
    """The numpy array that owns an array's memory."""
    while isinstance(array.base, numpy.ndarray):
        array = array.base
    return array


def _array(array: Any) -> Content:
    """An array by its content, a large one by a sample and its identity."""
    if array.dtype.hasobject:  # the objects in it have slots of their own
        return Content((*_lies(array), tuple(map(id, array.flat))))
    large = array.nbytes > ARRAY_BYTES
    which = (id(array), pointer_of(array)) if large else ()
    return Content((*_lies(array), *which, _numbers(array)))


def _lies(array: Any) -> tuple[Any, ...]:
    """What there is to an array beside its numbers: how they lie, whether they can be written, its class."""
    return array.shape, _kind(array.dtype), array.strides, array.flags.num, type(array)


def _kind(dtype: Any) -> Any:
    """The type of an array's members; ``dtype.str`` leaves out the names of fields, ``repr`` has them."""
    return dtype.str if dtype.names is None else (repr(dtype),)


def _numbers(array: Any) -> bytes:
    """The bytes of an array, or of a sample spread over a large one."""
    if array.nbytes <= ARRAY_BYTES:
        return array.tobytes()
    steps, taken = [1] * array.ndim, list(array.shape)
    while math.prod(taken) > SAMPLE:
        widest = taken.index(max(taken))
        steps[widest] = 2 * steps[widest] + 1
        taken[widest] = -(-array.shape[widest] // steps[widest])
    return array[tuple([slice(None, None, step) for step in steps])].tobytes()


VALUES_BY_TEXT = frozenset({
    decimal.Decimal, fractions.Fraction, datetime.date, datetime.timedelta, uuid.UUID, torch.finfo,
    torch.iinfo, pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath, pathlib.WindowsPath,
})  # fmt: skip
"""Types whose values have the same text if, and only if, they are alike (``Decimal("1.0")`` and
``Decimal("1.00")``, which compare equal, are not)."""
_EQUAL = frozenset({
    int, bool, str, bytes, type(None), type(Ellipsis), torch.dtype, torch.device, torch.layout,
    torch.memory_format,
})  # fmt: skip
"""Types whose values are the same if they are equal and of one type."""


def exact(value: Any, depth: int = 0) -> Any:
    """What distinguishes a value from an equal one: 1 from True, 0.0 from -0.0, one NaN from another.

    Of an object that is no value of Python's own its class says which are equal, and may leave out what calls
    read: such an object is told by which it is.
    """
    kind = type(value)
    if kind is float or kind is complex:
        return bits_of(value)
    if kind is Itself:
        return id(value.value)
    if kind in _EQUAL:
        return kind
    if kind is range:
        return kind, value.start, value.stop, value.step
    if kind is slice:
        return kind, *[exact(each, depth + 1) for each in (value.start, value.stop, value.step)]
    if kind in VALUES_BY_TEXT:
        return kind, repr(value)
    if own(value, "__dict__") not in (UNSET, {}):
        return kind, id(value)
    if issubclass(kind, numpy.generic):
        return kind, value.dtype, value.tobytes()
    if issubclass(kind, tuple) and depth < DEEPEST:
        return kind, [exact(each, depth + 1) for each in tuple.__iter__(value)]
    if issubclass(kind, frozenset) and depth < DEEPEST:  # equal sets may iterate in different orders
        return kind, [(each, exact(each, depth + 1)) for each in frozenset.__iter__(value)]
    return kind, id(value)
