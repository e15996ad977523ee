"""Reads and writes of members of containers, and the methods that operators call on their operands."""

from __future__ import annotations

import gc
import threading
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Collection, Iterable
from datetime import datetime, time
from enum import Enum
from functools import partial
from types import CodeType, CoroutineType, FrameType, FunctionType, GeneratorType, MethodType, SimpleNamespace
from typing import Any

import numpy
import torch

from ....base import identity, is_internal, is_own
from ...numbers import GLOBAL_GENERATORS, INDEX_TYPES, can_draw
from ...objects import (
    Content,
    base_of,
    has_parts_in_c,
    is_hashed_in_c,
    is_python,
    is_view,
    key_of,
    members,
    said_module,
    said_name,
    text_of,
)
from ...state import BULK, ITEM, LENGTH, ORDER
from ..table import NAMES, lookup, name_of
from ..trace import (
    CLASS,
    CONTAINER,
    CONTAINERS,
    DERIVED,
    FIXED,
    FUNCTION,
    IN_C,
    METHOD,
    MODULE,
    OTHER,
    PLAIN,
    PLAIN_TYPES,
    SPECIAL,
    TENSOR,
    Trace,
    is_for_output,
    is_in_c,
    is_readable,
)
from .attributes import attribute, bind, everything, looks_through, plain_attribute, referent
from .known import is_nan, is_value
from .random_settings import settings, written

_LOCKS = frozenset({type(threading.Lock()), type(threading.RLock())})
_WITHOUT_METHODS = frozenset({PLAIN, TENSOR, CONTAINER, MODULE, FUNCTION, METHOD, IN_C})
_OF_COROUTINES = frozenset({"__aiter__", "__anext__", "__aenter__", "__aexit__", "__await__"})
"""Special methods that only coroutines call, and those are not followed."""
_SAID_OF_CLASSES = NAMES["classes"]
_OF_GENERATORS = ("send", "throw", "close")
_HASHING = ("__hash__", "__eq__")
_EQUAL = ("__eq__",)
_ASKING_WHICH = (_HASHING, _EQUAL)
"""Methods that compare by identity in most classes."""
_TEXTS = ("__format__", "__str__", "__repr__")
_NAMES = ("__qualname__", "__module__")
_WITH_ADDRESS = frozenset(
    vars(kind)["__repr__"]
    for kind in (object, FunctionType, GeneratorType, CoroutineType, CodeType, FrameType)
)
"""Methods that write an object as its class and its address."""
_HASHED = (dict, set, frozenset)
_KEYS = frozenset({type({}.keys()), type(OrderedDict[Any, Any]().keys())})
"""Views of the keys of a dict."""
DICTS = frozenset({dict, OrderedDict, defaultdict})
"""Mappings that take over what others hold without any code of the user's."""
_BY_MEMBER = frozenset(
    identity(vars(kind)[name])
    for kind in (dict, OrderedDict, list, tuple, deque)
    for name in ("__getitem__", "__setitem__", "__contains__")
    if name in vars(kind)
)
"""Methods of C that look at the member under a key alone; lists that are searched are told apart."""
_HASHES = frozenset(identity(each) for each in (object.__hash__, Enum.__hash__))
"""Methods by which objects are hashed that are what they are."""
_NUMBERS = frozenset({int, float})
_BESIDE_MEMBERS = {defaultdict: "default_factory", deque: "maxlen"}
"""Attributes of containers besides their members."""
_MANY = 4096
"""A container with more members is read as a whole if all are plain values, not member by member."""
_USUAL_INDICES = frozenset({*PLAIN_TYPES, torch.Tensor})
_VIEWS = (type({}.keys()), type({}.values()), type({}.items()))


def item(trace: Trace, value: Any, key: Any) -> None:
    """Note a read of ``value[key]``."""
    value = trace.outside.behind(value)
    kind = type(value)
    what = trace.kinds[kind]
    if what == TENSOR and _picks_by_memory(trace, key):
        return
    _as_key(trace, key)
    if what in (PLAIN, TENSOR):
        index(trace, key)
        return
    if kind is numpy.ndarray and is_view(value, key) and trace.outside.is_tensors(value):
        return
    if issubclass(kind, dict):
        looked_up(trace, key)
    if is_by_member(trace, value, key, "__getitem__"):
        if trace.outside.has(value):
            member(trace, value, key)
    elif what == CONTAINER:
        if trace.outside.has(value) and not _is_last(trace, value, key):
            whole(trace, value)
    else:
        if issubclass(type(value), type):
            trace.callables.run(trace.classes.read(value, "__class_getitem__"))
        special(trace, value, "__getitem__")
    if what != CONTAINER and issubclass(type(value), dict):
        _missing(trace, value, key, "__getitem__")


def _is_last(trace: Trace, value: Any, key: Any) -> bool:
    """Note a read of a slice of the last members of a list, if there are so many, and they are followed."""
    if type(value) is not list or type(key) is not slice or key.step is not None:
        return False
    first, end = key.start, key.stop if key.stop is not None else 0
    if type(first) is not int or type(end) is not int or not first < end <= 0:
        return False
    if -members.length(value) > first:
        trace.followed.wait(value)
        return False
    return all([trace.outside.read_last(value, -place) for place in range(first, end)])


def dict_item(trace: Trace, key: Any, value: Any) -> None:
    """Note a read of a member by the method of ``dict`` itself."""
    looks_up(trace, key, value, None)
    if type(value) is not dict and issubclass(type(value), dict):
        _missing(trace, value, key, None)


def _missing(trace: Trace, value: Any, key: Any, method: str | None) -> None:
    """Note what C does where a dict of one's own or a ``defaultdict`` has no such key."""
    kind = type(value)
    trace.callables.run(trace.classes.read(kind, "__missing__"))
    if issubclass(kind, defaultdict) and not (is_hashed_in_c(key) and dict.__contains__(value, key)):
        attribute(trace, "default_factory", value)
        if trace.outside.has(value):  # the members may have changed, and that has not
            trace.outside.find(value.default_factory, value, ".default_factory")
        trace.call((), value.default_factory)  # C calls it and stores the result
        if is_by_member(trace, value, key, method):
            _stores(trace, value, key)
        else:
            change(trace, value)


def is_by_member(trace: Trace, value: Any, key: Any, method: str | None) -> bool:
    """Whether C looks at one member of a container alone; the class of one's own is noted then.

    Without ``method`` it is the builtin class's own that is called, whatever the value's class has instead.
    """
    kind = type(value)
    if trace.kinds[type(key)] == PLAIN:
        if issubclass(type(key), slice):
            return False
    elif not is_fixed_key(trace, key):
        return False
    if trace.kinds[kind] == CONTAINER:
        return not issubclass(kind, (set, frozenset))
    if method is None:
        return issubclass(kind, (dict, list))
    if identity(trace.classes.look_up(kind, method)) not in _BY_MEMBER:
        return False
    if trace.outside.has(value):
        trace.outside.kind(value)
    if lookup.can_change(kind):
        trace.classes.read(kind, method)
    return True


def is_fixed_key(trace: Trace, key: Any) -> bool:
    """Whether an object is found by which it is, as members of enumerations are, or by plain values in it."""
    kind = type(key)
    if kind is tuple:
        return all([trace.kinds[type(each)] == PLAIN and type(each) is not slice for each in key])
    same = trace.classes.look_up(kind, "__eq__") is object.__eq__
    return same and issubclass(kind, Enum) and identity(trace.classes.look_up(kind, "__hash__")) in _HASHES


def _stores(trace: Trace, value: Any, key: Any) -> None:
    """Note that a container has something else under a key."""
    trace.writes.write(ITEM, value, key, value)


def update(trace: Trace, value: Any, others: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Note that a dict takes over what another one holds; others may give anything."""
    known = all([type(each) in DICTS for each in others]) and type(value) in DICTS
    for each in others:
        trace.callables.hand(members.keys(each) if type(each) in DICTS else each)
        merged(trace, each)
    keys = [key for each in (*others, named) for key in members.keys(each)] if known else []
    if not known or not all([trace.kinds[type(key)] == PLAIN or is_fixed_key(trace, key) for key in keys]):
        change(trace, value)
        return
    for key in keys:
        looked_up(trace, key)
        _stores(trace, value, key)


def _as_key(trace: Trace, key: Any) -> None:
    """Note that a key is looked up; its class finds it by identity, most often, so the identity matters."""
    for part in (key.start, key.stop, key.step) if type(key) is slice else (key,):
        methods(trace, part)
        trace.outside.stray(part)
        trace.outside.pin(part)
    if identity(key) in trace.outside.given.objects:
        trace.outside.identify(key, "looks for it in a container")


def looked_up(trace: Trace, key: Any) -> None:
    """Note a lookup by hash; it finds a tensor by identity, and a recording has tensors of its own."""
    what = trace.kinds[type(key)]
    if what == PLAIN:
        _nan(trace, key)
    elif what != TENSOR:
        _overridden(trace, key, _HASHING)
        content(trace, key, _HASHING)
    argument = trace.outside.arguments.get(identity(key)) if what == TENSOR else None
    if argument is not None:
        trace.running.refuse(
            f"{argument} (its identity)", f"looks {argument} up by which tensor it is; use a key of its own"
        )


def keyed(trace: Trace, *keys: Any) -> None:
    """Note that a dict or a set is made or extended."""
    for key in keys:
        if trace.kinds[type(key)] == TENSOR:
            trace.outside.tell(key)
        else:
            looked_up(trace, key)


def hashed(trace: Trace, value: Any) -> None:
    """Note that a set takes over what a value gives."""
    iterate(trace, value)
    tell_members(trace, value)


def tell_members(trace: Trace, value: Any, depth: int = 2) -> None:
    """Note that what a value gives is hashed: it matters which tensors there are among that.

    What an iterator gives is not known before it is asked: it may be any argument.
    """
    what = trace.kinds[type(value)]
    if trace.outside.tells_tensors or what == PLAIN:
        return
    if what == TENSOR:
        trace.outside.tell(value)
    elif is_readable(value) and depth:
        for each in members.keys(value):
            if not trace.classes.compare_by_identity(each):
                tell_members(trace, each, depth - 1)
    elif lookup.find(type(value), "__iter__").owner is not None:
        trace.outside.tells_tensors = bool(trace.outside.arguments)


def paired(trace: Trace, *given: Any) -> None:
    """Note that a dict is made or extended; keys and values alternate."""
    keyed(trace, *given[::2])


def bounds(trace: Trace, *given: Any) -> None:
    """Note that a slice is made: its bounds are turned into numbers by their methods."""
    for each in given:
        methods(trace, each)
        trace.outside.stray(each)


def sent(trace: Trace, receiver: Any, *_: Any) -> None:
    """Note that ``yield from`` passes a sent value on."""
    advance(trace, receiver)
    if not is_in_c(trace.classes.look_up(type(receiver), "__next__")):
        for name in _OF_GENERATORS:
            attribute(trace, name, receiver)


def index(trace: Trace, key: Any) -> None:
    """Note that a tensor is indexed: C reads the index."""
    if type(key) is tuple and not trace.outside.has(key):
        for part in key:
            index(trace, part)
        return
    if not _picks_by_memory(trace, key):
        _made_tensor(trace, key)


def _made_tensor(trace: Trace, value: Any) -> None:
    """Note that C makes a tensor of what a tensor is indexed by, or what is written to it."""
    if type(value) not in _USUAL_INDICES:
        content(trace, value)
    if issubclass(type(value), numpy.ndarray):
        trace.outside.stray(value)
        trace.outside.makes_tensor(value)


def _picks_by_memory(trace: Trace, key: Any) -> bool:
    """Whether an array of indices is over memory that the program knows: PyTorch makes a tensor over that."""
    return (
        type(key) is numpy.ndarray
        and key.ndim > 0
        and key.dtype.type in INDEX_TYPES
        and trace.outside.is_tensors(key)
    )


def member(trace: Trace, value: Any, key: Any) -> None:
    """Note a read of one member of a builtin container made outside the call."""
    if issubclass(type(value), dict):
        trace.outside.read_member(value, key)
        return
    outside = trace.outside
    if type(key) is int and (
        outside.read_last(value, -key) if key < 0 else outside.read_from_end(value, key)
    ):
        return
    if type(key) in (str, int):
        trace.outside.members.add((identity(value), key))
    if issubclass(type(value), (list, tuple, deque)) and issubclass(type(key), int):
        length = members.length(value)
        if not 0 <= key < length:
            trace.outside.read(LENGTH, value, None, Content(length), " (length)")
        index = int(key) + (length if key < 0 else 0)
        if 0 <= index < length:
            trace.outside.read(ITEM, value, index, members.member(value, index), f"[{index}]")


def contains(trace: Trace, key: Any, value: Any, method: str | None = "__contains__") -> None:
    """Note ``key in value``: of a number in a dict nobody asks which it is."""
    value = _searched(trace, value)
    by_key = issubclass(type(value), dict) and is_by_member(trace, value, key, method)
    if by_key and trace.outside.has(value) and type(dict.get(value, key)) in _NUMBERS:
        _as_key(trace, key)
        trace.outside.present(value, key, f"[{text_of(key)}]")
    else:
        looks_up(trace, key, value, method)


def _searched(trace: Trace, value: Any) -> Any:
    """What is searched for a key: of a view of a dict's keys that is the dict."""
    if type(value) not in _KEYS:
        return trace.outside.behind(value)
    shown = members.behind(value.mapping)
    if trace.outside.has(value):
        trace.outside.find(shown, value, ".mapping")
    return shown


def looks_up(trace: Trace, key: Any, value: Any, method: str | None = "__contains__") -> None:
    """Note a search for a key in a container, which gives what lies there."""
    value = _searched(trace, value)
    _as_key(trace, key)
    what = trace.kinds[type(value)]
    if what in (PLAIN, TENSOR):
        return
    if issubclass(type(value), _HASHED):
        looked_up(trace, key)
    if issubclass(type(value), dict) and is_by_member(trace, value, key, method):
        if trace.outside.has(value):
            member(trace, value, key)
    elif what == CONTAINER or method is None:
        whole(trace, value)
        content(trace, (key,), _EQUAL)
        content_once(trace, value, _EQUAL)
    elif not special(trace, value, method):
        trace.callables.hand(value)
        iterate(trace, value)


def whole(trace: Trace, value: Any, *_: Any) -> None:
    """Note a read of a whole container; one that is not builtin is read by its methods."""
    value = trace.outside.behind(value)
    if not is_readable(value):
        iterate(trace, value)
        return
    if trace.kinds[type(value)] == DERIVED:
        _overridden(trace, value, ("__iter__",))
    if not trace.outside.has(value) or ("[:]", identity(value)) in trace.seen:
        return
    trace.seen.add(("[:]", identity(value)))
    if issubclass(type(value), dict):
        _items(trace, value, members.items(value))
    elif issubclass(type(value), (set, frozenset)):
        found = members.keys(value)
        trace.outside.read(BULK, value, None, Content(found), "")
        for each in found:
            trace.outside.find(each, value, "")
    else:
        _sequence(trace, value)


def sliced(trace: Trace, value: Any, start: Any, end: Any) -> None:
    """Note a read of ``value[start:end]``."""
    bounds(trace, start, end)
    item(trace, value, slice(start, end))


def merged(trace: Trace, value: Any) -> None:
    """Note a read of ``**value``, by its methods if they are Python code."""
    value = trace.outside.behind(value)
    if type(value) is not dict and trace.kinds[type(value)] not in (PLAIN, TENSOR):
        for name in ("keys", "__iter__", "__getitem__"):
            special(trace, value, name)
    if is_readable(value):
        whole(trace, value)


def spread(value: Any) -> tuple[Any, ...] | None:
    """The members of ``*value``; None if they can only be had by running code."""
    if type(value) in (*PLAIN_TYPES, *CONTAINERS):
        return tuple(value) if isinstance(value, Iterable) else ()
    if is_readable(value):
        return members.keys(value) if is_in_c(lookup.find(type(value), "__iter__").value) else None
    return () if issubclass(type(value), torch.Tensor) else None


def _items(trace: Trace, value: Any, found: tuple[tuple[Any, Any], ...]) -> None:
    trace.outside.read(ORDER, value, None, Content(tuple([key for key, _ in found])), " (order)")
    trace.outside.read(LENGTH, value, None, Content(len(found)), " (length)")
    if len(found) > _MANY and all([type(each) in PLAIN_TYPES for _, each in found]):
        trace.outside.read(BULK, value, None, Content(found), "")
        return
    for key, each in found:
        trace.outside.find(key, value, "")
        trace.outside.read(ITEM, value, key_of(key), each, f"[{text_of(key)}]")


def _sequence(trace: Trace, value: Any) -> None:
    found = members.keys(value)
    if not issubclass(type(value), tuple):
        trace.outside.read(LENGTH, value, None, Content(len(found)), " (length)")
    if len(found) > _MANY and all([type(each) in PLAIN_TYPES for each in found]):
        trace.outside.read(BULK, value, None, Content(found), "")
        return
    for index, each in enumerate(found):
        trace.outside.read(ITEM, value, index, each, f"[{index}]")


def content(trace: Trace, value: Any, names: tuple[str, ...] = (), *, inside: bool = True) -> Collection[Any]:
    """Note that C reads a value and everything in it, at any depth; returns the objects it reads.

    ``names`` are the methods that C calls. Without ``inside``, C does not read the members of the value.
    """
    met: dict[int, Any] = {}  # keeps temporary objects alive, so that no identity is used twice
    value = trace.outside.behind(value)
    left = [value]
    compared = "__eq__" in names
    while left:
        part = trace.outside.behind(left.pop())
        what = trace.kinds[type(part)]
        if compared:
            _nan(trace, part)
        if what == PLAIN or identity(part) in met:
            continue
        met[identity(part)] = part
        settings(trace, part)
        if names in _ASKING_WHICH and what == OTHER and trace.classes.compare_by_identity(part):
            continue
        if names and what != TENSOR:
            _overridden(trace, part, names)
        if compared and issubclass(type(part), weakref.ref) and _compares_referents(part):
            left.append(referent(trace, part))
        if what == TENSOR or (names and what in (FUNCTION, METHOD)):
            trace.outside.pin(part)
            if compared:
                trace.outside.tell(part)
            continue  # comparing or writing a function does not call it
        parts = _look_into(trace, part, part is value, compared)
        if inside:
            left.extend(parts)
    return met.values()


def _compares_referents(reference: weakref.ref[Any]) -> bool:
    """Whether weak references are hashed and compared by what they lead to, as long as that lives."""
    return lookup.find(type(reference), "__eq__").owner is weakref.ref


def content_once(trace: Trace, value: Any, names: tuple[str, ...] = ()) -> None:
    """Note that C reads the members of a container; once noted, only a write to it makes that news.

    The call may write to a container that it has made without anybody noticing, as while it collects the
    modules of a model. There it is the members that are noted once: they are looked for again after each.
    """
    if not trace.outside.has(value):
        told = trace.writes.told_members(names)
        for each in members.keys(value):
            if identity(each) not in told:
                _member_once(trace, each, names)
        return
    told = ("content", identity(value), names)
    if told not in trace.writes.told:
        met = content(trace, value if type(value) is tuple else members.keys(value), names)
        trace.writes.tell(told, (value, *met))


def _member_once(trace: Trace, value: Any, names: tuple[str, ...]) -> None:
    what = trace.kinds[type(value)]
    if what == PLAIN:
        if "__eq__" in names:
            _nan(trace, value)
        return
    if what == TENSOR and trace.outside.has_pinned(value) and ("settings", type(value)) in trace.seen:
        return
    _, *met = content(trace, (value,), names)
    if trace.outside.has(value):
        trace.writes.tell_member(value, names, met)


def _nan(trace: Trace, value: Any) -> None:
    """Refuse a NaN: C takes an object as equal to itself, and a NaN alone is not, so its identity matters."""
    if is_nan(value):
        trace.running.refuse(
            "NaN", "looks for a NaN or compares what holds one, where it matters which object it is"
        )


def _look_into(trace: Trace, value: Any, handed: bool, compared: bool) -> Iterable[Any]:
    """Note that C reads one object; returns the members that C reads without calling methods of the object.

    ``handed``: C received the object itself, not a container of it. ``compared``: C compares the object,
    by identity unless its class says otherwise.
    """
    looks_through(trace, type(value))
    methods(trace, value)
    if trace.outside.has(value):
        trace.looks_at_state(value)
    if trace.outside.has(value) and not issubclass(type(value), type):
        trace.outside.kind(value)
    if not is_readable(value):
        trace.outside.pin(value)
    if not handed and trace.kinds[type(value)] in (FUNCTION, METHOD):
        trace.callables.run(value)
        return ()
    if is_readable(value):
        whole(trace, value)
        for kind, name in _BESIDE_MEMBERS.items():
            if issubclass(type(value), kind):
                plain_attribute(trace, name, value)
        if issubclass(type(value), dict):
            return [part for pair in members.items(value) for part in pair]
        return members.keys(value)
    by_numbers = handed and type(value) is numpy.ndarray
    if (handed or compared) and not by_numbers and identity(value) in trace.outside.given.objects:
        trace.outside.identify(value, "hands it to a function in C, or compares it")
    return _object(trace, value, handed)


def _object(trace: Trace, value: Any, handed: bool = True) -> Iterable[Any]:
    """Note that C reads an object that is no builtin container; returns its members."""
    kind, outside = type(value), trace.outside.has(value)
    if kind is SimpleNamespace:
        if outside:
            everything(trace, value)
        return list(vars(value).values())
    if issubclass(kind, BaseException):
        return _error(trace, value, outside)
    if issubclass(kind, numpy.ndarray):
        return _array(trace, value)
    parts = _parts(value)
    if not outside:
        return parts.values()
    if trace.classes.look_up(kind, "__next__") is not lookup.MISSING:
        trace.writes.change(value)
    elif not parts and handed:
        _known(trace, value)
    for suffix, part in parts.items():
        trace.outside.find(part, value, suffix)
    if kind in _VIEWS:
        whole(trace, parts[""])
    return parts.values()


def _error(trace: Trace, value: BaseException, outside: bool) -> list[Any]:
    """An exception: its arguments, and what C keeps besides, such as the name of a file."""
    names = ("args", *lookup.slots(type(value)))
    if outside:
        for name in names:
            plain_attribute(trace, name, value)
    return [getattr(value, name, None) for name in names]


def _array(trace: Trace, value: numpy.ndarray[Any, Any]) -> list[Any]:
    trace.outside.stray(value)
    trace.outside.look_into(value)
    if not value.dtype.hasobject:
        return []
    if trace.outside.has(value):
        find_held(trace, value, 2)
    return value.ravel().tolist()


def _parts(value: Any) -> dict[str, Any]:
    """The objects inside an object of C, by the suffix that the user writes to reach them."""
    kind = type(value)
    if issubclass(kind, partial):
        return {".func": value.func, ".args": value.args, ".keywords": value.keywords}
    if kind in _VIEWS:
        return {"": gc.get_referents(value)[0]}
    if issubclass(kind, (datetime, time)):
        return {".tzinfo": value.tzinfo}
    return {".obj": value.obj} if kind is memoryview else {}


def _known(trace: Trace, value: Any) -> None:
    """Refuse an object of an unknown type."""
    kind = type(value)
    if issubclass(kind, FIXED) or trace.outside.by_content(kind) or is_python(kind):
        return
    name, rows = name_of(kind), trace.running.rows
    if not rows.is_pure(kind) and rows.row_of(name) not in ("fixed", "none", "acting"):
        text = f"uses a {name} made outside of it, of which nothing is known"
        trace.running.refuse(name, text, unknown=True)


def store_item(trace: Trace, new: Any, value: Any, key: Any, method: str | None = "__setitem__") -> None:
    """Note ``value[key] = new``, or a store by the builtin class's own method."""
    trace.callables.run(new)  # C may call a stored function later
    what = trace.kinds[type(value)]
    if what == TENSOR and _picks_by_memory(trace, key):
        _made_tensor(trace, new)
        return
    _as_key(trace, key)
    if issubclass(type(value), dict):
        looked_up(trace, key)
    if what == TENSOR:
        index(trace, key)
        _made_tensor(trace, new)
        return
    if type(key) is slice:
        iterate(trace, new)
    by_member = is_by_member(trace, value, key, method)
    if by_member and issubclass(type(value), dict):
        _stores(trace, value, key)
    elif by_member and type(key) is int and -members.length(value) <= key < members.length(value):
        _store_member(trace, value, key)
    elif what != CONTAINER and method is not None:
        if type(lookup.find(type(value), "__setitem__").value) is not FunctionType:
            trace.outside.stray(new)  # C takes its numbers
        special(trace, value, method, writes=True)
    else:
        change(trace, value)


def _store_member(trace: Trace, value: Any, key: int) -> None:
    """Note a store into a list; the length says which member a negative index means."""
    if trace.outside.given.branch(value) is not None:
        change(trace, value)
    elif trace.outside.has(value):
        length = members.length(value)
        trace.outside.read(LENGTH, value, None, Content(length), " (length)")
        before = trace.writes.length_before(value)
        if before is None:
            trace.writes.write(ITEM, value, key % length, value)
        elif key % length < before:  # behind that lies what the call has added itself
            trace.writes.change(value)


def store_slice(trace: Trace, new: Any, value: Any, start: Any, end: Any) -> None:
    """Note ``value[start:end] = new``."""
    bounds(trace, start, end)
    store_item(trace, new, value, slice(start, end))


def delete_item(trace: Trace, value: Any, key: Any) -> None:
    """Note ``del value[key]``."""
    _as_key(trace, key)
    if issubclass(type(value), dict):
        looked_up(trace, key)
    what = trace.kinds[type(value)]
    if what == CONTAINER:
        change(trace, value)
    elif what != TENSOR:
        special(trace, value, "__delitem__", writes=True)


def change(trace: Trace, value: Any) -> None:
    """Note a change of a container that may depend on all its members."""
    if type(value) is numpy.ndarray:
        trace.outside.stray(value, writes=True)
    if any(value is each for each in GLOBAL_GENERATORS):
        trace.draws(value, draws=False)
    elif not trace.outside.has(value):
        written = base_of(value) if type(value) is numpy.ndarray else value
        looks = written is not value and trace.outside.has(written)
        if looks or trace.outside.given.branch(value) is not None or trace.outside.has_taken(written):
            trace.writes.change(written)
        return
    elif is_readable(value):
        whole(trace, value)
        trace.writes.change(value)
    elif trace.outside.by_content(type(value)):
        trace.writes.change(value)


def special(trace: Trace, value: Any, name: str, *, writes: bool = False) -> bool:
    """Note that an operator calls a special method; returns whether the class has it."""
    kind = type(value)
    looks_through(trace, kind)
    outside = trace.outside.has(value)
    if outside and not issubclass(type(value), type):
        trace.outside.kind(value)
    if (kind, name, "()") in trace.seen:
        found = trace.classes.look_up(kind, name)
    else:
        trace.seen.add((kind, name, "()"))
        trace.outside.hold(kind)
        found = trace.classes.read(kind, name)
        bind(trace, found)
    if found is lookup.MISSING or found is None:
        return False
    if type(found) is FunctionType and is_own(found.__code__.co_filename):
        trace.call((), found, value)
    elif type(found) in (FunctionType, MethodType, staticmethod, classmethod):
        trace.callables.run(found)
    elif not is_in_c(found):
        trace.call((), found, value)
    else:
        _special_in_c(trace, value, outside, writes)
    return True


def _special_in_c(trace: Trace, value: Any, outside: bool, writes: bool) -> None:
    if type(value) is numpy.ndarray:
        trace.outside.stray(value, writes=writes)
    if writes:
        settings(trace, value)
        change(trace, value)
    if outside and is_readable(value):
        whole(trace, value)
    elif outside:
        _object(trace, value)


def iterate(trace: Trace, value: Any) -> None:
    """Note ``iter(value)``."""
    value = trace.outside.behind(value)
    what = trace.kinds[type(value)]
    if what in (PLAIN, TENSOR):
        return
    if what == CONTAINER:
        if trace.outside.has(value):
            whole(trace, value)
    elif not special(trace, value, "__iter__"):
        special(trace, value, "__getitem__")


def advance(trace: Trace, value: Any) -> None:
    """Note that an iterator moves on."""
    found = trace.classes.look_up(type(value), "__next__")
    if not is_in_c(found):
        special(trace, value, "__next__")
    elif trace.outside.has(value):
        if can_draw(value):
            trace.draws(value, draws=True)
        else:
            trace.writes.change(value)
        find_held(trace, value, 3)


def find_held(trace: Trace, value: Any, depth: int) -> None:
    """Note that the objects held by a C object made outside the call were made outside, too."""
    found = value.ravel().tolist() if issubclass(type(value), numpy.ndarray) else gc.get_referents(value)
    for each in found:
        if trace.kinds[type(each)] not in (PLAIN, TENSOR, CLASS, MODULE) and not trace.outside.has(each):
            trace.outside.find(each, value, "[...]")
            if depth and (is_readable(each) or trace.outside.by_content(type(each))):
                find_held(trace, each, depth - 1)


def length(trace: Trace, value: Any) -> None:
    """Note ``len(value)``."""
    value = trace.outside.behind(value)
    what = trace.kinds[type(value)]
    if what == CONTAINER or type(value) is deque:
        if trace.outside.has(value):
            trace.outside.read(LENGTH, value, None, Content(len(value)), " (length)")
    elif what == DERIVED and is_in_c(trace.classes.read(type(value), "__len__")):
        if trace.outside.has(value):
            trace.outside.kind(value)
            trace.outside.read(LENGTH, value, None, Content(members.length(value)), " (length)")
    elif type(value) is numpy.ndarray:
        attribute(trace, "shape", value)
    elif what not in (PLAIN, TENSOR):
        special(trace, value, "__len__")


def truth(trace: Trace, value: Any) -> None:
    """Note ``bool(value)``."""
    value = trace.outside.behind(value)
    what, kind = trace.kinds[type(value)], type(value)
    if what in (CONTAINER, PLAIN, TENSOR) or (
        what == DERIVED and trace.classes.read(kind, "__bool__") is lookup.MISSING
    ):
        length(trace, value)
    elif not special(trace, value, "__bool__"):
        special(trace, value, "__len__")
    if trace.outside.has(value):
        trace.seen.add(("truth", identity(value)))


def _overridden(trace: Trace, value: Any, names: tuple[str, ...]) -> None:
    """Follow the named methods of a value's class, if they are Python code."""
    kind = type(value)
    settings(trace, value)
    methods(trace, value)
    for name in names:
        found = trace.classes.look_up(kind, name)
        if found is not lookup.MISSING and not is_in_c(found):
            trace.callables.run(trace.classes.read(kind, name))


def methods(trace: Trace, value: Any) -> None:
    """Note that C may call any special method of a value's class: the list of them is read as well."""
    kind = type(value)
    if trace.kinds[kind] in _WITHOUT_METHODS or (SPECIAL, kind) in trace.seen:
        return
    trace.outside.hold(kind)
    trace.seen.add((SPECIAL, kind))
    for each in lookup.bases(kind):
        if not lookup.can_change(each) or has_parts_in_c(each) or said_module(each).startswith("torch"):
            continue
        table = trace.classes.namespace(each)
        trace.outside.read(ORDER, table, None, Content(tuple(table)), " (its names)", each)
        for name in tuple(table):
            said = not name.startswith("__") or not name.endswith("__") or name in _SAID_OF_CLASSES
            if not said and name not in _OF_COROUTINES:
                trace.callables.run(trace.classes.read(kind, name))


_COMPARING = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")


def compare(trace: Trace, left: Any, right: Any) -> None:
    """Note a comparison of two values."""
    for one in (left, right):
        if trace.kinds[type(one)] not in (PLAIN, TENSOR):
            in_c = is_in_c(lookup.find(type(one), "__eq__").value)
            if identity(one) in trace.outside.given.objects and not in_c:
                _overridden(trace, one, _COMPARING)
            else:
                content(trace, one, _COMPARING)


def same(trace: Trace, left: Any, right: Any) -> None:
    """Note ``left is right``, of two objects of one type.

    Numbers and strings are refused: a replay does not keep their identity. So are objects from outside in
    whose place equal ones will do: sets, arrays, bound methods. Two arguments that are taken apart
    are fine, since the key says which arguments are one object. One such argument and any other object are
    refused. Other objects made outside stay the same objects. So are tensors: an argument that is one from
    outside is no argument to copy.
    """
    trace.outside.pin(left)
    trace.outside.pin(right)
    if trace.outside.may_be_argument(left, right):
        trace.outside.tells_tensors = True
    if trace.outside.given.is_one(left) or trace.outside.given.is_one(right):
        if not (trace.outside.given.is_one(left) and trace.outside.given.is_one(right)):
            trace.outside.identify(left, "asks whether it is another object")
            trace.outside.identify(right, "asks whether it is another object")
        return
    if _is_replaced(trace, left, right):
        kind = type(left).__qualname__
        refuse_identity(trace, "is", f"asks whether two {kind} are one object; write == instead of is")


def stays_itself(trace: Trace, value: Any) -> bool:
    """Whether a replay finds the very object from outside that the call has found."""
    outside = trace.outside
    if trace.kinds[type(value)] == TENSOR:
        return identity(value) in outside.tensors and identity(value) not in outside.arguments
    return outside.has(value) and not _is_replaced(trace, value, value)


def _is_replaced(trace: Trace, left: Any, right: Any) -> bool:
    """Whether equal ones may lie in the place of these in the next call."""
    kind, is_tuple = type(left), trace.outside.given.is_tuple
    if is_value(kind) or trace.kinds[kind] == PLAIN or any(map(is_tuple, (left, right))):
        return True
    if trace.kinds[kind] in (TENSOR, IN_C) or not (trace.outside.by_content(kind) or kind is MethodType):
        return False
    return trace.outside.has(left) and trace.outside.has(right)


def refuse_identity(trace: Trace, name: str, text: str) -> None:
    """Refuse a call that depends on the identity of a value, which a replay does not know."""
    frame = trace.running.frame()
    if frame is None or not (is_internal(frame.f_code.co_filename) or is_for_output(trace)):
        trace.running.refuse(name, text)


def number_of(added: Any) -> int:
    """The number of members that something adds to a list; -1 if it is unknown."""
    known = type(added) in (list, tuple) or (type(added) is torch.Tensor and added.dim())
    return len(added) if known else -1


def binary(trace: Trace, operator: str, left: Any, right: Any) -> None:
    """Note an operator with two operands."""
    in_place = operator.startswith("INPLACE_")
    name = OPERATORS_AS_METHODS.get(operator.removeprefix("INPLACE_"), "")
    if name == "mod" and issubclass(type(left), (str, bytes)):
        trace.callables.hand(right)
        text(trace, right)
    for one, forms in ((left, (f"__{name}__", f"__i{name}__")), (right, (f"__r{name}__",))):
        if trace.kinds[type(one)] in (PLAIN, TENSOR):
            continue
        _overridden(trace, one, forms)
        if in_place and name == "or" and one is left and type(left) in DICTS and type(right) in DICTS:
            update(trace, left, (right,), {})
            return
        if in_place and one is left and not issubclass(type(one), (tuple, frozenset)):
            if not (name == "add" and trace.writes.append(one, number_of(right))):  # as ``extend`` does
                change(trace, one)
        else:
            content(trace, one)


def unary(trace: Trace, value: Any) -> None:
    """Note an operator with one operand."""
    if trace.kinds[type(value)] not in (PLAIN, TENSOR):
        _overridden(trace, value, ("__neg__", "__pos__", "__invert__"))


def formatted(trace: Trace, how: str, value: Any, *_: Any) -> None:
    """Note that an instruction writes a value as text."""
    text(trace, value)


def joined(trace: Trace, *given: Any) -> None:
    """Texts become one: nothing of the call's is read."""


def text(trace: Trace, value: Any, *_: Any, asks: tuple[str, ...] = ("__str__", "__format__")) -> None:
    """Note that a value and its members are formatted; ``asks`` are the methods tried before ``__repr__``."""
    for part in content(trace, value, _TEXTS):
        _text_of(trace, part, asks if part is value else ())


def _text_of(trace: Trace, value: Any, asks: tuple[str, ...]) -> None:
    """Note that an object is written as text, with the names of its class and itself."""
    kind = type(value)
    written(trace, value)
    if trace.kinds[kind] == TENSOR:
        return
    for named in (kind, value):
        for name in _NAMES if issubclass(type(named), (type, FunctionType)) else ():
            attribute(trace, name, named)
    if _says_where(trace, value, asks) and not is_for_output(trace):
        name = said_name(kind)
        trace.running.refuse(name, f"writes a {name} that it has made as text, which says where that lies")


def _says_where(trace: Trace, value: Any, asks: tuple[str, ...]) -> bool:
    """Whether the text of an object contains its address, and the call has made that object."""
    kind = type(value)
    if trace.outside.has(value) or trace.classes.look_up(kind, "__repr__") not in _WITH_ADDRESS:
        return False
    return all([lookup.find(kind, name).owner is object for name in asks])


def enter(trace: Trace, value: Any) -> None:
    """Note the begin of a ``with`` block; of a lock, Python tells no profiler that it is acquired."""
    if type(value) in _LOCKS:
        trace.held[identity(value)] += 1
    special(trace, value, "__enter__")
    special(trace, value, "__exit__")


def match_kind(trace: Trace, value: Any) -> None:
    """Note that a pattern asks whether a value is a mapping or a sequence."""
    if trace.outside.has(value):
        trace.outside.kind(value)


def match_keys(trace: Trace, value: Any, keys: Any) -> None:
    """Note that a pattern matches keys of a mapping."""
    whole(trace, value)


OPERATORS_AS_METHODS = {
    "ADD": "add", "AND": "and", "FLOOR_DIVIDE": "floordiv", "LSHIFT": "lshift", "MATRIX_MULTIPLY": "matmul",
    "MULTIPLY": "mul", "OR": "or", "POWER": "pow", "REMAINDER": "mod", "RSHIFT": "rshift", "SUBTRACT": "sub",
    "TRUE_DIVIDE": "truediv", "XOR": "xor",
}  # fmt: skip
