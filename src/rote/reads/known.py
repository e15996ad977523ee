"""What a note would say that says nothing new: most notes of a call, since its code runs over and over.

Each question here is asked at every instruction that may read, and answers within a microsecond. It may say
no where a yes were right; the note is taken then, and comes to the same.
"""

from __future__ import annotations

import builtins
from types import BuiltinFunctionType, FunctionType, GeneratorType, MethodType, MethodWrapperType
from typing import Any

import torch

from ..base.identity import identity
from .kinds import CONTAINERS, PLAIN_TYPES
from .trace import Trace

PLAIN_OR_TENSOR = PLAIN_TYPES | {torch.Tensor, torch.nn.Parameter}
_BUILTIN_CONTAINERS = frozenset(CONTAINERS)
_LISTS = frozenset({list, tuple})
_KEYS = frozenset({str, int})
ERRORS = frozenset(
    each for each in vars(builtins).values() if isinstance(each, type) and issubclass(each, BaseException)
)
"""Python's own classes of exceptions: nobody can change them."""
_EQUAL_TO_ITSELF = PLAIN_TYPES - {float, complex}
_HASHED = frozenset({set, frozenset, dict})
_SHOWS_DICTS = frozenset({"items", "keys", "values"})
STEPPING = frozenset(
    type(iter(each))
    for each in ((), [], {}, {}.values(), {}.items(), set[int](), range(0), "", zip(), enumerate(()))
) | {GeneratorType}
"""Types of iterators of Python's own, and of those whose code is followed."""
_ASKS_ATTRIBUTES = frozenset({getattr, hasattr})


def is_known_attribute(trace: Trace, name: str, value: Any) -> bool:
    """Whether an attribute was read of this object, or of another of its class that the call has made."""
    if type(value) is super:
        through: Any = value
        return (through.__thisclass__, through.__self_class__, name) in trace.seen
    which = identity(value)
    return (which if which in trace.outside else type(value), name) in trace.seen


def is_known_member(trace: Trace, value: Any, key: Any) -> bool:
    """Whether a member of a builtin container was read, or the call has made the container."""
    if identity(value) in trace.outside:
        return type(key) in _KEYS and (identity(value), key) in trace.members
    if type(value) in _BUILTIN_CONTAINERS:
        return type(key) in _EQUAL_TO_ITSELF or (type(value) in _HASHED and trace.is_by_identity(key))
    return type(value) in PLAIN_OR_TENSOR and _are_plain(trace, (key,))


def is_known_whole(trace: Trace, value: Any) -> bool:
    """Whether all of a builtin container was read, or the call has made it."""
    if identity(value) in trace.outside:
        return type(value) in _BUILTIN_CONTAINERS and ("[:]", identity(value)) in trace.seen
    kind = type(value)
    return kind in _BUILTIN_CONTAINERS or kind in PLAIN_OR_TENSOR or kind in STEPPING


def is_known_call(trace: Trace, function: Any, args: tuple[Any, ...]) -> bool:
    """Whether a callable was met, and its arguments tell nothing either."""
    is_method = type(function) is MethodType
    target = function.__func__ if is_method else function
    which, kind = identity(target), type(target)
    if which in trace.called:
        return True
    if kind is FunctionType:
        return which not in trace.outside and trace.swaps.is_instrumented(target.__code__)
    if is_method:
        return False
    if kind is BuiltinFunctionType:
        return _is_known_builtin(trace, function, args)
    if kind is MethodWrapperType:
        if function.__name__ != "__getattribute__" or len(args) != 1:
            return False
        value = function.__self__
        whose = identity(value)
        return (whose if whose in trace.outside else type(value), args[0], "plain") in trace.seen
    if kind is type and function in ERRORS:
        return PLAIN_TYPES.issuperset(map(type, args))
    if function is type and len(args) == 1:
        which = identity(args[0])
        return which not in trace.outside or ("type", which) in trace.seen
    return which in trace.rows.plain and _are_plain(trace, args)


def _is_known_builtin(trace: Trace, function: Any, args: tuple[Any, ...]) -> bool:
    owner = function.__self__
    whose = type(owner)
    if whose is dict:
        if function.__name__ in _SHOWS_DICTS:
            return is_known_whole(trace, owner)
        return function.__name__ == "get" and is_known_member(trace, owner, args[0] if args else None)
    if whose is list and function.__name__ == "append" and identity(owner) not in trace.outside:
        return trace.given.branch(owner) is None and len(args) == 1 and type(args[0]) in PLAIN_OR_TENSOR
    if whose is set and identity(owner) not in trace.outside and function.__name__ == "add" and args:
        return type(args[0]) in _EQUAL_TO_ITSELF or trace.is_by_identity(args[0])
    if function is next and len(args) == 1:
        return type(args[0]) in STEPPING and identity(args[0]) not in trace.outside
    if function is isinstance and len(args) == 2:
        return _is_known_question(trace, *args)
    if function in _ASKS_ATTRIBUTES and len(args) > 1 and type(args[1]) is str:
        return is_known_attribute(trace, args[1], args[0])
    if function is len and len(args) == 1:
        return identity(args[0]) not in trace.outside and type(args[0]) in _BUILTIN_CONTAINERS
    if whose is type:
        key: Any = (owner, function.__name__)
    elif owner is not None and whose in PLAIN_OR_TENSOR:
        key = (whose, function.__name__)
    else:
        key = identity(function)
    if key in trace.rows.silent:
        return trace.outside.keys().isdisjoint(map(identity, args))
    return key in trace.rows.plain and _are_plain(trace, args)


def _is_known_question(trace: Trace, value: Any, kinds: Any) -> bool:
    """Whether it was asked of an instance, and of each class what it says of instances."""
    if identity(value) in trace.outside and ("isinstance", identity(value)) not in trace.seen:
        return False
    if type(kinds) is not tuple:
        return ("isinstance", identity(kinds)) in trace.seen
    if identity(kinds) in trace.outside:
        return False
    return all([("isinstance", identity(each)) in trace.seen for each in kinds])


def _are_plain(trace: Trace, args: tuple[Any, ...]) -> bool:
    """Whether C finds nothing in its arguments but tensors and values that cannot change."""
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
