"""What C can find in an object that it is given: where a number may lie that is followed.

C may look at whatever an object leads to. What it leads to is what the garbage collector is told of, for
types that take part in that. Python code that C calls on its way is followed like any other, so of functions
only that counts which belongs to them alone.

What does not work: to ask whether the call has stored a number in an object. It is stored in a container,
which is stored in another one, by code that may be C.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterable
from datetime import date, timedelta
from decimal import Decimal
from functools import lru_cache
from types import CellType, CodeType, FunctionType, ModuleType, WrapperDescriptorType
from typing import Any
from weakref import ReferenceType

import numpy
import torch

from ...base import is_instance

_SETTINGS = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, numpy.dtype)
_COPIES = frozenset({Decimal, date, timedelta})
"""Classes of C's whose objects hold copies of numbers; of those with a time zone C may call code."""
_WITHOUT_PARTS = frozenset({object, type(NotImplemented)})
_MADE_IN_PYTHON, _COLLECTED = 1 << 9, 1 << 14
"""Flags of classes: a class statement made it; the collector knows what its objects lead to."""
_CACHED: type = type(lru_cache(len))


def is_data(value: Any) -> bool:
    """Whether an object holds no number of Python's but copies, and C can call no Python code by it."""
    if is_instance(value, (torch.Tensor, torch.ScriptObject, numpy.generic, ModuleType, CodeType)):
        return True
    if is_instance(value, numpy.ndarray):
        return not value.dtype.hasobject
    if is_instance(value, type):
        return not value.__flags__ & _MADE_IN_PYTHON
    return type(value) in _COPIES or is_instance(value, _SETTINGS)


def is_told_by_content(kind: type) -> bool:
    """Whether C compares or hashes objects of a class by what they hold; ``object`` goes by which one it is.

    A method in Python that does it is followed, and says what it looks at.
    """
    for name in ("__eq__", "__hash__"):
        found = next((vars(each)[name] for each in kind.__mro__ if name in vars(each)), None)
        if type(found) is WrapperDescriptorType and found.__objclass__ is not object:
            return True
    return False


def is_sequence(value: Any) -> bool:
    """Whether C takes an object for a sequence, and finds objects of Python's in it."""
    kind = type(value)
    if issubclass(kind, (list, tuple, deque)):
        return True
    return (
        bool(kind.__flags__ & _MADE_IN_PYTHON) and hasattr(kind, "__getitem__") and not issubclass(kind, dict)
    )


def parts_of(value: Any) -> Iterable[Any] | None:
    """What an object leads to; None if that is not known, as of a frame or of what C keeps to itself."""
    kind = type(value)
    if kind in _WITHOUT_PARTS:
        return ()
    if kind is slice:
        return value.start, value.stop, value.step
    if kind is dict:
        return [part for pair in dict.items(value) for part in pair]
    if is_instance(value, type):
        made = [
            each for each in type.mro(value) if each.__flags__ & _MADE_IN_PYTHON and each is not torch.Tensor
        ]
        return [each for kind in made for each in vars(kind).values()]
    if kind is FunctionType:
        cells = value.__closure__ or ()
        return [*cells, *(value.__defaults__ or ()), value.__kwdefaults__, value.__dict__]
    if is_instance(value, ReferenceType):
        return [value()]
    if kind is _CACHED:  # of the arguments that it knows C keeps no more than it was shown
        return [value.__wrapped__, value.__dict__]
    if kind is not CellType and not kind.__flags__ & _COLLECTED:
        return None
    if any([hasattr(kind, name) for name in ("gi_frame", "cr_frame", "ag_frame", "f_locals")]):
        return None
    return gc.get_referents(value)
