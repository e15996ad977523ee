"""How a number of a call was computed from numbers that it was given, as data.

An expression is evaluated by the very functions that Python ran, on objects of the same types, so its value
has the bits that Python's own has. Only functions are here that look at nothing but numbers, and give a
number or a truth value for them.
"""

from __future__ import annotations

import csv
import json
import math
import operator
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from typing import Any

import numpy

from ...base import float_bits, identity, is_instance
from .arrays import APPLIED_TO_ARRAYS, array_token, copied

OF_NUMPY: frozenset[type] = frozenset({numpy.float64, numpy.float32, numpy.int64, numpy.int32})
KINDS: frozenset[type] = frozenset({int, float}) | OF_NUMPY
"""Types of numbers that are followed."""
TRUTHS: frozenset[type] = frozenset({bool, numpy.bool_})
_RESULTS = KINDS | TRUTHS
TEXTS: frozenset[type] = frozenset({str})
"""Types of what numbers are written as, which are followed as they are."""
SCALARS = KINDS | TEXTS
"""Types of what a call may be given and is followed."""
_NUMPY = "numpy."
MOST_STEPS = 4096
"""What a call computes that is followed; a number that is computed behind that is known by its value."""

BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "ADD": operator.add, "SUBTRACT": operator.sub, "MULTIPLY": operator.mul, "TRUE_DIVIDE": operator.truediv,
    "FLOOR_DIVIDE": operator.floordiv, "REMAINDER": operator.mod, "POWER": operator.pow,
    "LSHIFT": operator.lshift, "RSHIFT": operator.rshift, "AND": operator.and_, "OR": operator.or_,
    "XOR": operator.xor,
}  # fmt: skip
"""Operators with two operands, as the interpreter calls them."""
UNARY: Mapping[str, Callable[[Any], Any]] = {
    "UNARY_NEGATIVE": operator.neg, "UNARY_POSITIVE": operator.pos, "UNARY_INVERT": operator.invert,
    "CALL_INTRINSIC_1": operator.pos,
}  # fmt: skip
"""Operators with one operand, by their instructions."""
COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip
"""Comparisons."""
_OF_MATH = (
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "comb", "copysign", "cos",
    "cosh", "degrees", "erf", "erfc", "exp", "exp2", "expm1", "fabs", "factorial", "floor", "fmod", "gamma",
    "gcd", "hypot", "isfinite", "isinf", "isnan", "isqrt", "lcm", "ldexp", "lgamma", "log", "log10",
    "log1p", "log2", "nextafter", "perm", "pow", "radians", "remainder", "sin", "sinh", "sqrt", "tan",
    "tanh", "trunc", "ulp",
)  # fmt: skip
_OF_LISTS = ("mean", "sum", "max", "min", "std", "var", "median", "prod")
CALLED: Mapping[Any, str] = {
    **{each: f"numpy.{each.__name__}" for each in OF_NUMPY},
    **{
        each: f"numpy.{name}"
        for name, each in vars(numpy).items()
        if type(each) is numpy.ufunc and each.nout == 1 and each.__name__ == name
    },
    float.is_integer: "is_integer",
    int.bit_length: "bit_length",
    numpy.generic.item: "item",
    **{each: each.__name__ for each in (float, int, bool, abs, round, min, max, pow)},
    **{getattr(math, name): f"math.{name}" for name in _OF_MATH},
    **{
        getattr(operator, name): f"operator.{name}" for name in ("neg", "add", "sub", "mul", "truediv", "pow")
    },
}
"""Functions of numbers, with the names that they have in an expression."""
UNITS: Mapping[Any, str] = {getattr(numpy, name): f"numpy.{name}" for name in ("interp", "clip", "round")}
"""The same, of functions in Python: what their code does is nothing of the call's."""

OF_MEMBERS: Mapping[Any, str] = {
    each: f"{each.__name__} of members" for each in (sum, min, max, math.fsum, math.prod)
}
"""Functions of all numbers in a container."""
UNITS_OF_MEMBERS: Mapping[Any, str] = {getattr(numpy, name): f"numpy.{name} of members" for name in _OF_LISTS}
"""The same, of functions in Python."""


WRITES: Mapping[Any, str] = {
    format: "format", str: "str", repr: "repr", ascii: "ascii", str.format: "str.format", str.join: "join",
}  # fmt: skip
"""Functions that write numbers as text, or make one text of several."""
OF_TEXTS: Mapping[Any, str] = {
    getattr(str, name): f"str.{name}"
    for name in (
        "capitalize", "center", "expandtabs", "ljust", "lower", "lstrip", "removeprefix", "removesuffix",
        "replace", "rjust", "rstrip", "strip", "swapcase", "title", "upper", "zfill",
    )
}  # fmt: skip
"""Methods that make a text of a text, and look at nothing else."""
JOINED, JOINED_BY = "joined", "joined by a text"
"""Texts behind one another, as an f-string has them."""
LENGTH = "length"
"""How long a text is."""
_CONVERTED: Mapping[str, Callable[..., str]] = {
    f"format {each.__name__}": partial(lambda write, value, *form: format(write(value), *form), each)
    for each in (str, repr, ascii)
}
"""What an f-string does behind ``!s``, ``!r`` and ``!a``."""
ROW_LENGTH = "length of a row"
"""How long a row is, as a writer of :mod:`csv` writes it that was made without an option."""
WRITES_BY_NAME: Mapping[Any, str] = {str.format: "str.format by name", json.dumps: "json.dumps"}
"""Functions that write numbers as text, some of which are given by name: their names come first."""
LISTED, PAIRED = "list", "dict"
"""What holds operands, as a tuple of them is :data:`MEMBERS`; the keys of a dict come first."""


class KeysOf:
    """Which keys a mapping has, when that is asked; two are equal if they are of one mapping."""

    __slots__ = ("_mapping",)

    def __init__(self, mapping: Any) -> None:
        self._mapping = mapping

    def __contains__(self, key: Any) -> bool:
        return key in self._mapping

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeysOf) and self._mapping is other._mapping

    def __hash__(self) -> int:
        return identity(self._mapping)


HAS = "has"
"""Whether a mapping has a key."""


def _by_name(function: Callable[..., str], names: Sequence[str], *given: Any) -> str:
    count = len(given) - len(names)
    return function(*given[:count], **dict(zip(names, given[count:], strict=True)))


def _of_members(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *members: function(members)


STRICT = partial(numpy.errstate, all="raise")
"""A context in which numpy raises what it warns of: that is of the call's, which may look for it."""
FROM_TABLE, LOOKED_UP = "from a table", "from a table, if it is there"
"""What lies in a table that does not change, at a place that does."""
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    FROM_TABLE: operator.getitem, LOOKED_UP: dict.get,
    HAS: operator.contains, **BINARY, **UNARY, **COMPARED,
    **{name: function for function, name in CALLED.items()},
    **{name: function for function, name in UNITS.items()},
    **{name: function for function, name in {**WRITES, **OF_TEXTS}.items()}, **_CONVERTED,
    **{name: partial(_by_name, function) for function, name in WRITES_BY_NAME.items()},
    JOINED: lambda *texts: "".join(texts), JOINED_BY: lambda text, *texts: text.join(texts), LENGTH: len,
    ROW_LENGTH: lambda row: csv.writer(StringIO()).writerow(row), LISTED: lambda *members: [*members],
    PAIRED: lambda keys, *members: dict(zip(keys, members, strict=True)),
    **{name: _of_members(function) for function, name in {**OF_MEMBERS, **UNITS_OF_MEMBERS}.items()},
    **APPLIED_TO_ARRAYS,
}  # fmt: skip
"""All functions of expressions."""


@dataclass(frozen=True, slots=True)
class GivenNumber:
    """A number that the call was given."""

    index: int

    @property
    def given(self) -> frozenset[int]:
        """The places of the given numbers in it."""
        return frozenset({self.index})

    def __str__(self) -> str:
        return f"n{self.index}"


@dataclass(frozen=True, slots=True)
class Fixed:
    """A number that is always the same, or a truth value; 1, 1.0 and True differ, and a NaN equals itself.

    Attributes:
        bits: Those of a float, else the number.
    """

    kind: type
    bits: Any
    value: Any = field(compare=False)

    @property
    def given(self) -> frozenset[int]:
        """The places of the given numbers in it: none."""
        return frozenset()

    @classmethod
    def of(cls, value: Any) -> Fixed:
        """A number as it is now."""
        return cls(type(value), _bits(value), _kept(value))

    def __str__(self) -> str:
        return repr(self.value)


def _kept(value: Any) -> Any:
    """A value that stays as it is: the call may change a container that it has computed with."""
    if type(value) is numpy.ndarray:
        return copied(value)
    if type(value) in (list, tuple):
        return type(value)([_kept(each) for each in value])
    return {key: _kept(each) for key, each in value.items()} if type(value) is dict else value


def _bits(value: Any) -> Any:
    if type(value) is float:
        return float_bits(value)
    if is_instance(value, numpy.generic):
        return value.tobytes()
    if is_instance(value, numpy.ndarray):
        return array_token(value)
    if type(value) in (list, tuple):
        return tuple([(type(each), _bits(each)) for each in value])
    if type(value) is dict:
        return tuple([(type(key), key, type(each), _bits(each)) for key, each in value.items()])
    return value


@dataclass(frozen=True, slots=True, eq=False)
class Applied:
    """What a function gave. An operand may be one of many: a sum that a loop has made is used in the next.

    Attributes:
        given: The places of the given numbers in it.
        of_numpy: Whether numpy computes something in it.
        code: Its hash.
    """

    function: str
    operands: tuple[Expression, ...]
    given: frozenset[int]
    of_numpy: bool
    code: int

    @classmethod
    def to(cls, function: str, *operands: Expression) -> Applied:
        """A function, applied to operands."""
        given = frozenset[int]().union(*[each.given for each in operands])
        of_numpy = function.startswith(_NUMPY) or any(map(is_of_numpy, operands))
        return cls(function, operands, given, of_numpy, hash((function, operands)))

    def __hash__(self) -> int:
        return self.code

    def __eq__(self, other: object) -> bool:
        if self is other or type(other) is not Applied:
            return self is other
        return (self.code, self.function, self.operands) == (other.code, other.function, other.operands)

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.operands))})"


Expression = GivenNumber | Fixed | Applied
"""How a number was computed."""


def computed_in(expression: Expression, known: Container[Expression]) -> list[Applied]:
    """What is computed for an expression and is not known yet, operands first, each once."""
    found: dict[Applied, None] = {}
    left = [expression]
    while left:
        each = left[-1]
        inner = [] if not isinstance(each, Applied) or each in found or each in known else each.operands
        missing = [one for one in inner if isinstance(one, Applied) and one not in found and one not in known]
        left.extend(missing)
        if not missing:
            left.pop()
            if inner and isinstance(each, Applied):
                found[each] = None
    return [*found]


def value_of(
    expression: Expression, given: Callable[[int], Any], known: dict[Expression, Any] | None = None
) -> Any:
    """What it gives for some numbers; with what is ``known`` to be computed from these, which it adds to.

    Arrays are not kept: there may be one for each number that a loop has written.
    """
    values = known if known is not None else {}

    def value(each: Expression) -> Any:
        if isinstance(each, GivenNumber):
            return given(each.index)
        return each.value if isinstance(each, Fixed) else values[each]

    steps = computed_in(expression, values)
    for each in steps:
        values[each] = FUNCTIONS[each.function](*map(value, each.operands))
    found = value(expression)
    for each in steps:
        if type(values[each]) not in _RESULTS:
            del values[each]
    return found


def is_of_numpy(expression: Expression) -> bool:
    """Whether numpy computes something in it."""
    if isinstance(expression, Fixed):
        return expression.kind is numpy.ndarray
    return isinstance(expression, Applied) and expression.of_numpy


_ONE_TO_ONE = frozenset({"ADD", "SUBTRACT", "UNARY_NEGATIVE", "UNARY_POSITIVE", "float"})


def tells(expression: Expression) -> int | None:
    """The given number that an expression tells, since it has another value for each other number."""
    while isinstance(expression, Applied):
        if expression.function == FROM_TABLE:  # one of several that were read together, or of a fixed table
            expression = expression.operands[0]
            continue
        numbers = [each for each in expression.operands if not isinstance(each, Fixed)]
        exact = all([each.kind is int for each in expression.operands if isinstance(each, Fixed)])
        if expression.function not in _ONE_TO_ONE or len(numbers) != 1 or not exact:
            return None
        expression = numbers[0]
    return expression.index if isinstance(expression, GivenNumber) else None
