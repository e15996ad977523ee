"""Numbers that are objects of their own.

A number is followed through a call by which object it is. Python keeps one object for each small integer, and
code keeps one for each of its constants, so a number that is to be followed is copied first. The copy has the
same type and the same bits: nothing but ``is`` tells it from the original.

Of a small integer Python itself makes no second object. One is allocated as Python allocates integers, and
the bytes behind its head are copied. That was tried with CPython 3.11; where it does not give an equal
integer, small integers are not followed.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

import numpy

from ...base import float_bits, float_of

_HEAD = object.__basicsize__
"""Bytes of an object that say which type it has, and how many refer to it."""
_LARGE = 1 << 60


def fresh(value: Any) -> Any:
    """An equal number that is another object, of the same type; None if there is none."""
    if type(value) is float:
        return float_of(float_bits(value))
    if isinstance(value, numpy.generic):
        return value.copy()
    made, again = value + _LARGE - _LARGE, value + _LARGE - _LARGE
    return made if made is not again else _small(made)


def _small(value: int) -> int | None:
    return _copied(value) if _copies() else None


@cache
def _copies() -> bool:
    """Whether a copy of a small integer is one."""
    if sys.implementation.name != "cpython" or not hasattr(ctypes, "pythonapi"):
        return False
    numbers = (-5, -1, 0, 1, 7, 255, 256)
    copies = [_copied(number) for number in numbers]
    as_expected = [
        copy == number and copy is not number and copy + 1 == number + 1 and hash(copy) == hash(number)
        for copy, number in zip(copies, numbers, strict=True)
    ]
    return all(as_expected)


def _copied(value: int) -> int:
    make = ctypes.pythonapi._PyLong_New
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_ssize_t,)
    made = make(1)
    ctypes.memmove(id(made) + _HEAD, id(value) + _HEAD, sys.getsizeof(1) - _HEAD)
    return made
