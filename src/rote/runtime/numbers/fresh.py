"""Numbers that are objects of their own.

A number is followed through a call by which object it is. Python keeps one object for each small integer, and
code keeps one for each of its constants, so a number that is to be followed is copied first. The copy has the
same type and the same bits: nothing but ``is`` tells it from the original.

Of a small integer Python itself makes no second object. One is allocated as Python allocates integers, and
the bytes behind its head are copied. That was tried with CPython 3.11; where it does not give an equal
integer, small integers are not followed. The same goes for texts of one character.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

import numpy

from ...base import float_bits, float_of, is_instance

_HEAD = object.__basicsize__
"""Bytes of an object that say which type it has, and how many refer to it."""
_LARGE = 1 << 60


def fresh(value: Any) -> Any:
    """An equal number that is another object, of the same type; None if there is none."""
    if type(value) is float:
        return float_of(float_bits(value))
    if is_instance(value, numpy.generic):
        return value.copy()
    if type(value) is str:
        return value[:1] + value[1:] if len(value) > 1 else _letter(value)
    made, again = value + _LARGE - _LARGE, value + _LARGE - _LARGE
    return made if made is not again else _small(made)


def _letter(value: str) -> str | None:
    if not value.isascii():  # Python keeps one object for each of Latin-1
        made, again = (value + " ")[:1], (value + " ")[:1]
        return made if made is not again else None
    return _written(value) if value.isascii() and value and _writes_letters() else None


@cache
def _writes_letters() -> bool:
    """Whether a text of one character can be made that is an object of its own."""
    made = [(_written(letter), letter) for letter in ("0", "a", "~")] if _has_pythonapi() else []
    as_expected = [
        copy == letter and copy is not letter and copy + "" == letter and hash(copy) == hash(letter)
        for copy, letter in made
    ]
    return bool(made) and all(as_expected)


def _written(letter: str) -> str:
    make = ctypes.pythonapi.PyUnicode_New
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_ssize_t, ctypes.c_uint32)
    made = make(1, 127)
    ctypes.memmove(id(made) + sys.getsizeof("") - 1, letter.encode(), 1)  # behind the head of such a text
    return made


def _has_pythonapi() -> bool:
    return sys.implementation.name == "cpython" and hasattr(ctypes, "pythonapi")


def _small(value: int) -> int | None:
    return _copied(value) if _copies() else None


@cache
def _copies() -> bool:
    """Whether a copy of a small integer is one."""
    if not _has_pythonapi():
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
