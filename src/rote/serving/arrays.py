"""Numpy arrays in messages: a map of three fields and a mark, as openpi's clients write it.

An array from outside is checked before anything is allocated for it: its type has to be one of a short list,
and its shape has to have exactly the bytes that came. What else numpy could make of the text of a type is
refused: objects and pickles, structures, dates, numbers whose size depends on the machine. So are bytes that
are no values of their type: a boolean that is neither 0 nor 1, a letter beyond Unicode.

The arrays that are made can be written, and have the byte order of this machine.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base import MisuseError, cut

ARRAY, GENERIC, DATA, TYPE, SHAPE = b"__ndarray__", b"__npgeneric__", b"data", b"dtype", b"shape"
"""Keys of the map that stands for an array or for a number of numpy's."""

_KNOWN = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248]|[US]0*[1-9][0-9]{0,7})", re.ASCII)
_PYTHON: Mapping[str, tuple[type, ...]] = {
    "b": (bool,), "i": (int,), "u": (int,), "f": (float, int), "U": (str,), "S": (bytes,),
}  # fmt: skip
_MOST_DIMENSIONS = 32  # of numpy 1, which clients have
_LAST_LETTER = 0x10FFFF


class MessageError(MisuseError):
    """A message that is refused: malformed, over a limit, or with something in it that is not accepted."""


@dataclass(frozen=True)
class WireLimits:
    """What a message may be.

    Attributes:
        message_bytes: The longest message.
        array_bytes: The largest array in it.
        values: How many values it may have: numbers, texts, arrays, lists, maps and their keys.
        depth: How deep lists and maps may lie in each other.
    """

    message_bytes: int = 32 << 20
    array_bytes: int = 16 << 20
    values: int = 10_000
    depth: int = 16


def is_known(dtype: np.dtype[Any]) -> bool:
    """Whether arrays of a type can be sent."""
    return _KNOWN.fullmatch(dtype.str) is not None


def array_of(fields: Mapping[Any, Any], limits: WireLimits) -> np.ndarray[Any, Any]:
    """The array that a map stands for.

    Raises:
        MessageError: A field is missing, unknown or malformed, the type is not accepted, the bytes are not
            those of the shape, or there are too many.
    """
    _check_fields(fields, ARRAY, (DATA, TYPE, SHAPE))
    dtype, data, shape = _type_of(fields[TYPE]), fields[DATA], fields[SHAPE]
    if not isinstance(data, bytes):
        raise MessageError(f"the data of an array is to be bytes, and is a {type(data).__name__}")
    if len(data) > limits.array_bytes:
        raise MessageError(f"an array has {len(data):,} bytes, and {limits.array_bytes:,} are the limit")
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise MessageError("the shape of an array is to be a list of sizes")
    _check_shape(shape, dtype, len(data), limits)
    _check_values(data, dtype)
    array = np.frombuffer(data, dtype).reshape(shape)
    return array.astype(dtype.newbyteorder("="), copy=True)


def generic_of(fields: Mapping[Any, Any]) -> np.generic:
    """The number, or text, of a numpy type that a map stands for.

    Raises:
        MessageError: A field is missing, unknown or malformed, or the value is none of the type.
    """
    _check_fields(fields, GENERIC, (DATA, TYPE))
    dtype, value = _type_of(fields[TYPE]), fields[DATA]
    if type(value) not in _PYTHON[dtype.kind]:
        raise MessageError(f"a value of type {dtype.str} cannot be made of a {type(value).__name__}")
    try:
        with np.errstate(over="ignore"):
            return dtype.type(value)
    except (OverflowError, ValueError) as error:
        raise MessageError(f"{cut(repr(value), 40)} is no value of type {dtype.str}") from error


def _check_fields(fields: Mapping[Any, Any], mark: bytes, wanted: tuple[bytes, ...]) -> None:
    if set(fields) != {mark, *wanted} or fields[mark] is not True:
        names = ", ".join(name.decode() for name in wanted)
        raise MessageError(
            f"a map with {mark.decode()} is to have {mark.decode()}: true, {names} and nothing else"
        )


def _type_of(text: Any) -> np.dtype[Any]:
    if not isinstance(text, str):
        raise MessageError(f"the type of an array is to be a text, and is a {type(text).__name__}")
    if _KNOWN.fullmatch(text) is None:
        raise MessageError(
            f"arrays of type {cut(text, 40)!r} are not accepted; booleans, integers, floats of 2, 4 and 8 "
            "bytes and texts are"
        )
    return np.dtype(text)


def _check_shape(shape: list[int], dtype: np.dtype[Any], came: int, limits: WireLimits) -> None:
    if len(shape) > _MOST_DIMENSIONS:
        raise MessageError(f"an array has {len(shape)} dimensions, and {_MOST_DIMENSIONS} are the limit")
    if math.prod(filter(None, shape)) * dtype.itemsize > limits.array_bytes:  # an empty one has sizes as well
        raise MessageError(
            f"an array has a shape of more than {limits.array_bytes:,} bytes, which are the limit"
        )
    if (needed := math.prod(shape) * dtype.itemsize) != came:
        raise MessageError(f"an array {dtype.str}{shape} has {needed:,} bytes, and {came:,} came")


def _check_values(data: bytes, dtype: np.dtype[Any]) -> None:
    if dtype.kind == "b" and np.any(np.frombuffer(data, np.uint8) > 1):
        raise MessageError("an array of booleans has bytes that are neither 0 nor 1")
    if dtype.kind == "U":
        letters = np.frombuffer(data, np.dtype(np.uint32).newbyteorder(dtype.byteorder))
        if np.any(letters > _LAST_LETTER):
            raise MessageError("an array of texts has letters that are none")
