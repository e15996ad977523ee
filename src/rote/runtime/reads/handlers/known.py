"""Questions whether a note says anything new; most do not, since the code of a call runs over and over.

Every instruction that may read asks one of them, so each answers within a microsecond. It may say no where
yes is right: the note is then taken, with the same result.
"""

from __future__ import annotations

import builtins
import datetime
import decimal
from collections.abc import Callable
from types import (
    BuiltinFunctionType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
    MethodWrapperType,
)
from typing import Any

import numpy
import torch

from ....base import identity
from ...objects import VALUES_BY_TEXT
from ..bytecode import LOOKS, entry_of, spreads
from ..trace import CONTAINERS, PLAIN_TYPES, Trace, is_readable

PLAIN_OR_TENSOR = PLAIN_TYPES | {torch.Tensor, torch.nn.Parameter}
CONTAINERS_OF_PYTHON = frozenset(CONTAINERS)
_LISTS = frozenset({list, tuple})
KEYS = frozenset({str, int})
ERRORS = frozenset(
    each for each in vars(builtins).values() if isinstance(each, type) and issubclass(each, BaseException)
)
"""Python's own exception classes, which cannot be changed."""
_WITH_NAN = frozenset({float, complex})
_EQUAL_TO_ITSELF = PLAIN_TYPES - _WITH_NAN
_HASHED = frozenset({set, frozenset, dict})
_SHOWS_DICTS = frozenset({"items", "keys", "values"})
STEPPING = frozenset(
    type(iter(each))
    for each in ((), [], {}, {}.values(), {}.items(), set[int](), range(0), "", zip(), enumerate(()))
) | {GeneratorType}
"""Types of Python's own iterators, and of generators, whose code is followed."""
_SINGLE = frozenset({
    bool, type(None), type(Ellipsis), type(NotImplemented), torch.dtype, torch.layout, torch.memory_format,
})  # fmt: skip
_VALUES = PLAIN_TYPES - _SINGLE | VALUES_BY_TEXT | {frozenset, datetime.datetime, datetime.time}
"""Types of which an equal value may lie in the place of another one: nobody knows which object it is."""
CALLED = frozenset({FunctionType, MethodType, staticmethod, classmethod})
_GENERATORS = frozenset({GeneratorType, CoroutineType})
_LOOKED_AT = frozenset({
    "__contains__", "__dir__", "__eq__", "__exit__", "__ge__", "__gt__", "__instancecheck__", "__le__",
    "__lt__", "__ne__", "__subclasscheck__", "__subclasshook__",
})  # fmt: skip
"""Methods of which C takes what they give for true or false, or as names."""
_ASKS_ATTRIBUTES = frozenset({getattr, hasattr})


def is_known_through_super(trace: Trace, name: str, value: Any) -> bool:
    """Whether the attribute was read through such a ``super`` object before."""
    through: Any = value
    return type(value) is super and (through.__thisclass__, through.__self_class__, name) in trace.seen


def are_plain(trace: Trace, *given: Any) -> bool:
    """Whether all operands are tensors and immutable values."""
    return {*map(type, given)} <= PLAIN_OR_TENSOR


def is_known_receiver(trace: Trace, receiver: Any, value: Any) -> bool:
    """Whether ``yield from`` passes values to a generator or a coroutine."""
    return type(receiver) in _GENERATORS


def is_given_to_python(trace: Trace, value: Any) -> bool:
    """Whether the code that gives a value back was not handed to C, nor run by who looks at it."""
    if not trace.callables.handed and not is_readable(value):
        return True
    frame = trace.running.frame()
    if frame is None:
        return True
    handed = identity(trace.running.swaps.original(frame.f_code)) in trace.callables.handed
    return not handed and not _is_looked_at(trace, frame, value)


def _is_looked_at(trace: Trace, frame: FrameType, value: Any) -> bool:
    """Whether C looks into a container from outside that a frame is about to give back to it."""
    caller, name = frame.f_back, frame.f_code.co_name
    if not is_readable(value) or not trace.outside.has(value) or caller is None:
        return False
    if not trace.running.swaps.is_instrumented(caller.f_code):
        return False
    return name in _LOOKED_AT or entry_of(caller) == LOOKS or (name == "keys" and spreads(caller))


def is_value(kind: type) -> bool:
    """Whether which object a value is tells nothing, as an equal one may lie in its place."""
    return kind in _VALUES or issubclass(kind, numpy.generic)


def is_nan(value: Any) -> bool:
    """Whether a number is none, so that it is found, and equals another, by which object it is alone."""
    kind = type(value)
    if kind is decimal.Decimal:
        return value.is_nan()
    return (kind in _WITH_NAN or issubclass(kind, numpy.inexact)) and bool(value != value)


def is_known_identity(trace: Trace, left: Any, right: Any) -> bool:
    """Whether ``left is right`` has an answer that no guard has to ask for."""
    if type(left) is not type(right):
        return True
    if is_value(type(left)) and (left is right or is_nan(left) or left == right):
        return False
    if (
        identity(left) in trace.outside
        and identity(right) in trace.outside
        and not trace.outside.has_pinned(left, right)
    ):
        return False
    if trace.outside.may_be_argument(left, right):
        return False
    given = trace.outside.given
    return not any([given.is_one(each) or given.is_tuple(each) for each in (left, right)])


def is_plain_text(trace: Trace, how: str, value: Any, *_: Any) -> bool:
    """Whether the value is immutable, so that its text needs no note."""
    return type(value) in PLAIN_TYPES


def are_known_keys(trace: Trace, *keys: Any) -> bool:
    """Whether all keys are tensors, immutable values, or objects compared by identity.

    Of a tensor among the arguments it is told once that it matters which it is. A NaN is none that is known.
    """
    told, given = trace.outside.tells_tensors, trace.outside.arguments
    return all(
        [
            (type(key) in PLAIN_OR_TENSOR or trace.classes.compare_by_identity(key))
            and (told or identity(key) not in given)
            and not is_nan(key)
            for key in keys
        ]
    )


def are_known_pairs(trace: Trace, *given: Any) -> bool:
    """Whether the same holds for keys that alternate with values."""
    return are_known_keys(trace, *given[::2])


def is_known_raise(trace: Trace, count: int, *values: Any) -> bool:
    """Whether the call raises what it has made, so that no class is called."""
    outside = trace.outside
    return count > 0 and not any(
        [issubclass(type(each), type) or identity(each) in outside for each in values]
    )


def is_known_error(trace: Trace, error: Any, kinds: Any) -> bool:
    """Whether the call raised an exception of Python's own, and names the classes it catches itself."""
    named = type(kinds) is not tuple or identity(kinds) not in trace.outside
    return named and type(error) in ERRORS and identity(error) not in trace.outside


def is_known_member(trace: Trace, value: Any, key: Any) -> bool:
    """Whether the member of a builtin container was read, or the call has made the container."""
    if identity(value) in trace.outside:
        return type(key) in KEYS and (identity(value), key) in trace.outside.members
    if type(value) in CONTAINERS_OF_PYTHON:
        by_identity = trace.classes.compare_by_identity
        return type(key) in _EQUAL_TO_ITSELF or (type(value) in _HASHED and by_identity(key))
    return type(value) in PLAIN_OR_TENSOR and (type(key) in PLAIN_OR_TENSOR or _are_plain(trace, (key,)))


def is_known_whole(trace: Trace, value: Any) -> bool:
    """Whether a whole builtin container was read, or the call has made it."""
    if identity(value) in trace.outside:
        return type(value) in CONTAINERS_OF_PYTHON and ("[:]", identity(value)) in trace.seen
    kind = type(value)
    return kind in CONTAINERS_OF_PYTHON or kind in PLAIN_OR_TENSOR or kind in STEPPING


def is_known_key(trace: Trace, key: Any, value: Any) -> bool:
    """Whether ``key in value`` was asked before; see :func:`is_known_member`."""
    if type(key) is str and identity(value) in trace.outside:
        return (identity(value), key) in trace.outside.members
    return is_known_member(trace, value, key)


def is_known_spread(trace: Trace, function: Any, args: Any, kwargs: Any = None) -> bool:
    """Whether a call with ``*args`` and ``**kwargs`` says nothing new."""
    if type(args) is not tuple or identity(args) in trace.outside:
        return False
    if kwargs is not None and (type(kwargs) is not dict or identity(kwargs) in trace.outside):
        return False
    if identity(function) in trace.callables.called:
        return True
    return is_known_call(trace, (), function, *args, *(kwargs or {}).values())


def is_known_call(trace: Trace, names: tuple[str, ...], function: Any, *args: Any) -> bool:
    """Whether a call says nothing new; the note has looked into ``trace.callables.called`` before."""
    asks = _KNOWN_CALLS.get(type(function))
    if asks is not None:
        return asks(trace, function, args)
    if type(function) is type:
        if function in ERRORS:
            return PLAIN_TYPES.issuperset(map(type, args))
        if function is type and len(args) == 1:
            return identity(args[0]) not in trace.outside or ("type", identity(args[0])) in trace.seen
    return identity(function) in trace.running.rows.plain and (
        {*map(type, args)} <= PLAIN_OR_TENSOR or _are_plain(trace, args)
    )


def _is_known_function(trace: Trace, function: FunctionType, args: tuple[Any, ...]) -> bool:
    return identity(function) not in trace.outside and trace.running.swaps.is_instrumented(function.__code__)


def _is_known_method(trace: Trace, method: MethodType, args: tuple[Any, ...]) -> bool:
    function = method.__func__
    if identity(function) in trace.callables.called:
        return True
    return type(function) is FunctionType and _is_known_function(trace, function, args)


def _is_known_wrapper(trace: Trace, function: MethodWrapperType, args: tuple[Any, ...]) -> bool:
    if function.__name__ != "__getattribute__" or len(args) != 1:
        return False
    value = function.__self__
    return (
        identity(value) if identity(value) in trace.outside else type(value),
        args[0],
        "plain",
    ) in trace.seen


def _is_known_builtin(trace: Trace, function: Any, args: tuple[Any, ...]) -> bool:
    if function in _ASKS_ATTRIBUTES and len(args) > 1 and type(args[1]) is str:
        value = args[0]
        whose: Any = identity(value) if identity(value) in trace.outside else type(value)
        return type(value) is not super and (whose, args[1]) in trace.seen
    owner = function.__self__
    whose = type(owner)
    if whose is dict:
        if function.__name__ in _SHOWS_DICTS:
            return is_known_whole(trace, owner)
        return function.__name__ == "get" and is_known_member(trace, owner, args[0] if args else None)
    if whose is list and function.__name__ == "append" and identity(owner) not in trace.outside:
        own = trace.outside.given.branch(owner) is None
        return own and len(args) == 1 and type(args[0]) in PLAIN_OR_TENSOR
    if whose is set and identity(owner) not in trace.outside and function.__name__ == "add" and args:
        return type(args[0]) in _EQUAL_TO_ITSELF or trace.classes.compare_by_identity(args[0])
    if function is next and len(args) == 1:
        return type(args[0]) in STEPPING and identity(args[0]) not in trace.outside
    if function is isinstance and len(args) == 2:
        return _is_known_question(trace, *args)
    if function is len and len(args) == 1:
        return identity(args[0]) not in trace.outside and type(args[0]) in CONTAINERS_OF_PYTHON
    if whose is type:
        key: Any = (owner, function.__name__)
    elif owner is not None and whose in PLAIN_OR_TENSOR:
        key = (whose, function.__name__)
    else:
        key = identity(function)
    if key in trace.running.rows.silent:
        return trace.outside.keys().isdisjoint(map(identity, args))
    return key in trace.running.rows.plain and (
        {*map(type, args)} <= PLAIN_OR_TENSOR or _are_plain(trace, args)
    )


_KNOWN_CALLS: dict[type, Callable[[Trace, Any, tuple[Any, ...]], bool]] = {
    FunctionType: _is_known_function, MethodType: _is_known_method, BuiltinFunctionType: _is_known_builtin,
    MethodWrapperType: _is_known_wrapper,
}  # fmt: skip
"""Whether a call says nothing new, by the type of the callable; of others see :func:`is_known_call`."""


def _is_known_question(trace: Trace, value: Any, kinds: Any) -> bool:
    """Whether ``isinstance`` was asked of the value before, and of each of the classes."""
    whose: Any = identity(value) if identity(value) in trace.outside else type(value)
    if type(value) not in PLAIN_OR_TENSOR and ("isinstance", whose) not in trace.seen:
        return False
    if type(kinds) is not tuple:
        return ("isinstance", identity(kinds)) in trace.seen
    if identity(kinds) in trace.outside:
        return False
    return all([("isinstance", identity(each)) in trace.seen for each in kinds])


def _are_plain(trace: Trace, args: tuple[Any, ...]) -> bool:
    """Whether the arguments are tensors, immutable values, or lists and tuples of such that the call made."""
    for each in args:
        kind = type(each)
        if kind in PLAIN_OR_TENSOR:
            continue
        if kind not in _LISTS or identity(each) in trace.outside:
            return False
        for part in each:
            if type(part) not in PLAIN_OR_TENSOR:
                return False
    return True
