"""Handlers of C callables that read or write in their own way; the table describes the others."""

from __future__ import annotations

import codecs
import csv
import decimal
import gc
import sys
import warnings
from _string import formatter_field_name_split  # pyright: ignore
from collections.abc import Callable
from datetime import datetime, tzinfo
from functools import cache, cached_property
from io import StringIO
from operator import attrgetter
from string import Formatter
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy
import torch
import torch.autograd.function

from ....base import COLLECTOR, ENVIRONMENT, identity, is_internal
from ...objects import UNSET, Content, asked_key, cached_in, is_full, is_standard, members, remembered
from ...state import ASKED, CACHED, ORDER, VARIABLE, answer
from ..table import HANDLED, NAMES, lookup, name_of
from ..trace import PLAIN, Trace, is_in_c, prints, writes
from .apart import pickled, taken_apart
from .attributes import (
    attribute,
    delete_attribute,
    handles,
    is_inside,
    looks_around,
    plain_attribute,
    plain_store,
    referent,
    store_attribute,
    through_descriptor,
)
from .calls import called, handed_on, instance_of, read_partial, subclass_of
from .classes import asked_or_made, stated
from .containers import (
    DICTS,
    advance,
    compare,
    contains,
    content,
    content_once,
    dict_item,
    item,
    iterate,
    length,
    looked_up,
    looks_up,
    merged,
    refuse_identity,
    same,
    special,
    spread,
    stays_itself,
    store_item,
    text,
    truth,
    update,
    whole,
)
from .known import is_known_identity

_FUNCTION_BASES = frozenset({torch.autograd.Function, *torch.autograd.Function.__mro__})

_USUAL_CODING = NAMES["codecs"]
_BY_ADDRESS = (object.__hash__, torch.Tensor.__hash__, MethodType.__hash__, BuiltinFunctionType.__hash__)
_READS_STORAGE = NAMES["storages"]
_MOST_CACHED = 20_000
_OF_DIALECTS = [name for name in dir(csv.get_dialect("excel")) if not name.startswith("_")]
Handler = Callable[[Trace, Any, tuple[Any, ...], dict[str, Any]], None]


def _bound(function: Any, args: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    """The object and the first arguments of a method, bound or not, padded with None."""
    owner = getattr(function, "__self__", None)
    given = (
        args if owner is None or (issubclass(type(owner), type) and function is not owner) else (owner, *args)
    )
    return (*given, *(None,) * count)[:count]


def _each(note: Callable[[Trace, Any], object], count: int | None = None) -> Handler:
    """A handler that notes each argument, or the first ``count`` and all named ones."""

    def handler(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for each in (*args[:count], *kwargs.values()):
            note(trace, each)

    return handler


def _one(note: Callable[[Trace, Any], None]) -> Handler:
    """A handler that notes the object whose method is called."""
    return lambda trace, function, args, kwargs: note(trace, _bound(function, args, 1)[0])


def _pair(note: Callable[[Trace, Any, Any], None]) -> Handler:
    """A handler that notes two arguments together; a call with any other number raises by itself."""

    def handler(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if len(args) == 2:
            note(trace, *args)

    return handler


def _member(note: Callable[[Trace, Any, Any], object], kind: type = object) -> Handler:
    """A handler that notes a key or name in the object whose method is called."""

    def handler(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        value, key = _bound(function, args, 2)
        if issubclass(type(key), kind):
            note(trace, key, value)

    return handler


def _named(note: Callable[..., None], count: int) -> Handler:
    """A handler that notes an object, the name of an attribute, and the arguments after them."""

    def handler(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if len(args) >= count and issubclass(type(args[1]), str):
            note(trace, str.__str__(args[1]), *args[2:count], args[0])

    return handler


def _asks(name: str) -> Handler:
    """A handler that notes a read of an attribute of the first argument."""
    return _each(lambda trace, value: attribute(trace, name, value), 1)


def _as_object(trace: Trace, name: str, value: Any) -> None:
    """Note a read by ``__getattribute__`` of a base class, which skips overrides."""
    whole = issubclass(type(value), type) or type(value).__name__ == "module"
    (attribute if whole else plain_attribute)(trace, name, value)


def _store_as_object(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    value, name, new = _bound(function, args, 3)
    if issubclass(type(name), str):
        plain_store(trace, name, value, new, deletes=function.__name__ == "__delattr__")


def _set_default(trace: Trace, key: Any, value: Any) -> None:
    looks_up(trace, key, value, None)
    if trace.kinds[type(key)] != PLAIN or not dict.__contains__(value, key):
        store_item(trace, None, value, key, None)


def _set_key(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    value, key = _bound(function, args, 2)
    if issubclass(type(value), (dict, list)):
        store_item(trace, args[-1], value, key, None)


def _updated(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    owner = getattr(function, "__self__", None)
    value, *others = (owner, *args) if issubclass(type(owner), dict) else args or (None,)
    update(trace, value, tuple(others), kwargs)


def _hashed(trace: Trace, value: Any) -> None:
    looked_up(trace, value)
    special(trace, value, "__hash__")
    content(trace, value)
    _hashed_by_address(trace, value)


def _hashed_by_address(trace: Trace, value: Any) -> None:
    """Note a hash that goes by where something lies, which of what a call makes nobody knows."""
    kind = type(value)
    if issubclass(kind, (tuple, frozenset)):
        for each in tuple(value) if kind in (tuple, frozenset) else ():
            _hashed_by_address(trace, each)
    elif lookup.find(kind, "__hash__").value in _BY_ADDRESS and trace.kinds[kind] != PLAIN:
        _hash_of(trace, value)


def _hash_of(trace: Trace, value: Any) -> None:
    """Note a hash by the method of ``object`` itself."""
    if trace.outside.has_tensor(value):
        trace.outside.pin(value)
    else:
        _identified(trace, value)


def _callable(trace: Trace, value: Any) -> None:
    if trace.outside.has(value):
        trace.outside.kind(value)
    trace.classes.read(type(value), "__call__")


def _identified(trace: Trace, value: Any) -> None:
    """Note ``id(value)``, which is what it was as long as it is asked of the same object."""
    trace.outside.pin(value)
    if trace.outside.given.is_one(value):
        trace.outside.identify(value, "asks for its id")
    elif not stays_itself(trace, value):
        text = f"asks for the id of a {type(value).__qualname__} that may be another one in the next call"
        refuse_identity(trace, "id", text)


def _len(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    for each in args:
        if issubclass(type(each), torch.UntypedStorage):
            _size_of_storage(trace, function, args, kwargs)
        length(trace, each)


def _cleared(trace: Trace, value: Any) -> None:
    """Note that a container is emptied, whatever is in it; where nothing is, that is a condition.

    What others put there since dies in the call, and may tell so.
    """
    if trace.outside.has(value) and not members.length(value):
        length(trace, value)
    trace.writes.change(value)


def _iter(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if len(args) == 2:  # iter(function, end) calls the function until it returns the end
        handed_on(trace, args[0])
        for each in args:
            trace.callables.hand(each)
            content(trace, each)
    for each in args[: len(args) == 1]:
        iterate(trace, each)


def _print(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    file = kwargs.get("file")
    for each in args:
        text(trace, each)
    if type(file) is StringIO and not trace.outside.has(file):
        return  # the call made the buffer
    named = {name: each for name, each in kwargs.items() if name != "file"}
    if file is not None and trace.writes.tells(file, function, args, named, file=file):
        return
    prints(trace)
    if file is not None and not is_standard(file):
        trace.running.refuse("builtins.print", "prints to a file that is neither of the standard streams")
    else:
        writes(trace, "print", file)


def _local_time(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note a conversion of a time: without a time zone it goes by that of the process, which C knows."""
    given = (getattr(function, "__self__", None), *args, *kwargs.values())
    for each in given:
        content(trace, each)
    named = function.__name__ == "timestamp" or any([isinstance(each, tzinfo) for each in given])
    if not named or any([isinstance(each, datetime) and each.tzinfo is None for each in given]):
        trace.running.refuse(name_of(function), f"calls {name_of(function)}, which asks for the time zone")


def _dialect(name: str) -> tuple[Any, ...] | None:
    """What a dialect of this name says; None if there is none."""
    try:
        dialect = csv.get_dialect(name)
    except csv.Error:
        return None
    return tuple([getattr(dialect, each) for each in _OF_DIALECTS])


def _csv_reader(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note that a reader is made; C asks the dialect, which may be a class, for all it says."""
    for each in (*args, *kwargs.values()):
        content(trace, each)
    for dialect in (*args[1:], *[kwargs[name] for name in kwargs if name == "dialect"]):
        if type(dialect) is str:
            trace.outside.ask(_dialect, (dialect,), f"csv.get_dialect({dialect!r})")
        for name in _OF_DIALECTS:
            attribute(trace, name, dialect)


def _csv_writer(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note that a writer is made; it calls ``write`` of its first argument for each row."""
    for each in args[:1]:
        if trace.outside.has(each):
            trace.running.refuse("_csv.writer", "writes rows to what was made outside")
        attribute(trace, "write", each)
        trace.callables.run(lookup.find(type(each), "write").value)
    _csv_reader(trace, function, (None, *args[1:]), kwargs)


def _coded(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note that text is encoded or bytes are decoded; unusual codecs are looked up again by the guard."""
    for each in (*_bound(function, args, 1), *args):
        content(trace, each)
    if function in (str, bytes, bytearray) or name_of(function).startswith("_codecs."):
        if function is str:
            for each in args[:1]:
                text(trace, each)
        args = args[1:]
    for place, (name, asked) in enumerate((("encoding", codecs.lookup), ("errors", codecs.lookup_error))):
        said = args[place] if len(args) > place else kwargs.get(name)
        if type(said) is str and said not in _USUAL_CODING:
            trace.outside.ask(asked, (said,), f"codecs.{asked.__name__}({said!r})")


def _is(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if len(args) == 2 and not is_known_identity(trace, *args):
        same(trace, *args)


def _warn(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note a warning: the filters decide whether it is shown, dropped or raised."""
    attribute(trace, "filters", warnings)
    content(trace, warnings.filters)
    if _is_shown(*args[:2]):
        writes(trace, "warnings.warn", sys.stderr)


def _is_shown(message: Any, category: Any = None) -> bool:
    """Whether a warning may be shown; filters for single lines or modules are skipped."""
    kind = type(message) if isinstance(message, Warning) else category or UserWarning
    for action, pattern, which, module, line in warnings.filters:
        fits = issubclass(type(kind), type) and issubclass(kind, which) and module is None and not line
        if fits and (pattern is None or pattern.match(str(message))):
            return action != "ignore"
    return True


def _new_decimal_context(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note that a context is made; it takes what its arguments leave out from ``DefaultContext``."""
    trace.outside.find(decimal.DefaultContext, None, "decimal.DefaultContext")
    for each in (*args, *kwargs.values()):
        content(trace, each)


def _dir(trace: Trace, value: Any) -> None:
    """Note that all names of a value are read: its own, and those of its classes."""
    special(trace, value, "__dir__")
    table = lookup.attributes_of(value)
    if table is not None:
        attribute(trace, "__dict__", value)
        whole(trace, table)
    for kind in lookup.bases(value if issubclass(type(value), type) else type(value)):
        if lookup.can_change(kind):
            table = trace.classes.namespace(kind)
            trace.outside.read(ORDER, table, None, Content(tuple(table)), " (its names)", kind)


def _globals(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    frame = trace.running.frame()
    if frame is not None:
        trace.outside.find(frame.f_globals, None, "")


def _weak(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    referent(trace, function)


def _variable(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    variable = function.__self__
    trace.outside.find(variable, None, variable.name)
    trace.outside.read(VARIABLE, variable, None, variable.get(UNSET), ".get()")


def _cached(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    attribute(trace, "__wrapped__", function)
    of_library = trace.outside.has(function) and _is_of_library(function.__wrapped__)
    made = not of_library and trace.asks_cache(function, (*args, *kwargs.values()))
    if trace.outside.has(function) and not made:
        asked = asked_key(function, args, kwargs) if of_library or not is_full(function) else None
        info = function.cache_info()
        told = ("cached", identity(function), info.misses, info.currsize)
        if not (of_library and asked is None and told in trace.writes.told):
            found = cached_in(function, asked)
            if len(found) > _MOST_CACHED:
                text = f"answers from a cache of more than {_MOST_CACHED} results"
                trace.running.refuse(trace.outside.name(function), text)
            elif not of_library:  # a cache of the standard library returns what its function would
                held = Content(remembered(function, asked))
                trace.outside.read(CACHED, function, asked, held, " (what its cache holds)")
            for each in found:
                trace.outside.find(each, function, " (its cache)")
                if type(each) is tuple:  # a key made of arguments, compared with those of other calls
                    content_once(trace, each)
            if asked is None:
                trace.writes.tell(told, ())
    trace.callables.run(function.__wrapped__)
    for each in (*args, *kwargs.values()):
        looked_up(trace, each)
        content(trace, each)


def _is_of_library(function: Any) -> bool:
    """Whether a function belongs to Python's standard library."""
    home = function.__globals__.get("__name__", "") if type(function) is FunctionType else ""
    return str(home).partition(".")[0] in sys.stdlib_module_names


def _partial(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    read_partial(trace, function)
    named = {**function.keywords, **kwargs}
    called(trace, tuple(named), function.func, *function.args, *args, *named.values())


def _attrgetter(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    for path in function.__reduce__()[1]:
        for each in args[:1]:
            _attribute_of(trace, each, path)


def _attribute_of(trace: Trace, value: Any, path: str) -> Any:
    """Note a read by ``attrgetter``; gives what it finds, or None where the user's code would have to run."""
    *names, last = path.split(".")
    for number, name in enumerate((*names, last)):
        attribute(trace, name, value)
        found = lookup.find(type(value), name).value
        is_property = issubclass(type(found), property)
        getter = found.fget if is_property else lookup.find(type(found), "__get__").value
        kept = not is_property and name in (lookup.attributes_of(value) or ())
        runs = type(getter) is FunctionType and not kept
        if runs and number == len(names):
            trace.callables.hand(found.func if type(found) is cached_property else getter)
            return None
        try:
            value = None if runs else object.__getattribute__(value, name)
        except AttributeError:
            runs = True
        if runs:
            text = f"reads {path} by operator.attrgetter, which is not followed"
            trace.running.refuse(f"attrgetter({path!r})", text)
            return None
    return value


def _itemgetter(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    for key in function.__reduce__()[1]:
        for each in args[:1]:
            item(trace, each, key)


def _methodcaller(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    made, given = function.__reduce__()[:2]
    name, *rest = given if made is type(function) else (*made.args, *given)
    named = {} if made is type(function) else made.keywords
    for each in args[:1]:
        attribute(trace, name, each)
        found = lookup.find(type(each), name).value
        if found is not lookup.MISSING:
            called(trace, tuple(named), found, each, *rest, *named.values())


def _length_hint(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    for each in args[:1]:
        found = lookup.find(type(each), "__length_hint__").value
        if found is lookup.MISSING or not is_in_c(found):
            length(trace, each)
            special(trace, each, "__length_hint__")
        elif trace.outside.has(each):
            trace.writes.change(each)


def _json_encoder(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    for each in args:
        target = getattr(each, "__func__", each)
        if type(target) is FunctionType and not is_internal(target.__code__.co_filename):
            trace.running.refuse("json.dumps", "has what a function of its own returns looked into by json")
        elif target is not each or type(each) is not FunctionType:
            handed_on(trace, each)


def _of_pairs(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note an iteration over several arguments, with or without a function for the items."""
    names = _BY_MEMBERS.get(function.__name__, ())
    given = (*args, *kwargs.values())
    for place, each in sorted(enumerate(given), key=lambda pair: type(pair[1]) is attrgetter):
        is_iterated = function.__name__ in _ITERATE and place < len(args)
        if not (is_iterated or (type(each) is attrgetter and _gets_each(trace, each, given))):
            handed_on(trace, each)
        if function.__name__ not in _TAKEN_OVER:
            # A dict takes over what another one holds, and asks its keys alone.
            trace.callables.hand(members.keys(each) if function is dict and type(each) in DICTS else each)
        iterate(trace, each)
        if identity(each) in trace.outside.given.objects:
            merged(trace, each)
        else:
            content(trace, each, names, inside=function.__name__ not in _HAND_OUT)


def _gets_each(trace: Trace, getter: Any, given: tuple[Any, ...]) -> bool:
    """Note that an ``attrgetter`` reads all members of the other arguments; False if they are unknown."""
    found = [spread(each) for each in given if each is not getter]
    for part in found if None not in found else ():
        for each in part or ():
            for path in getter.__reduce__()[1]:
                content(trace, _attribute_of(trace, each, path))
    return None not in found


_HAND_OUT = NAMES["hand_out"]

_ITERATE = NAMES["iterate"]
_TAKEN_OVER = frozenset({"list", "tuple"})
"""Builtins whose result is looked into where it is used."""

_BY_MEMBERS = {
    "sorted": ("__lt__", "__gt__"), "min": ("__lt__", "__gt__"), "max": ("__lt__", "__gt__"),
    "sum": ("__add__", "__radd__"), "any": ("__bool__", "__len__"), "all": ("__bool__", "__len__"),
    "set": ("__hash__", "__eq__"), "frozenset": ("__hash__", "__eq__"), "dict": ("__hash__", "__eq__"),
}  # fmt: skip
"""The methods of its arguments' members that each builtin calls."""


def _format(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note ``str.format``: its fields read items and attributes."""
    shown = function.__self__ if type(function.__self__) is str else args[0] if args else ""
    for each in (*args, *kwargs.values()):
        content(trace, each)
    for _, field, spec, _ in Formatter().parse(shown) if type(shown) is str else ():
        if field and ("." in field or "[" in field):
            _format_field(trace, field, args if function.__self__ is shown else args[1:], kwargs)
        elif field is not None:
            for each in (*args, *kwargs.values()):
                text(trace, each)
        if spec and "{" in spec:
            trace.running.refuse("builtins.str.format", "has a format within a format")


def _format_field(trace: Trace, field: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    first, rest = formatter_field_name_split(field)
    known = kwargs.get(first) if isinstance(first, str) else dict(enumerate(args)).get(first)
    for is_attribute, name in rest:
        if is_attribute:
            attribute(trace, name, known)
            table = lookup.attributes_of(known) or {}
        else:
            item(trace, known, name)
            held: Any = known
            listed = dict(enumerate(held)) if type(held) in (list, tuple) else {}
            table = held if type(held) is dict else listed
        if name not in table:
            trace.running.refuse(
                "builtins.str.format", f"reads {{{field}}} by a format; write it as an expression"
            )
            return
        known = table[name]
    text(trace, known)


def _format_map(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    _format(trace, function, args, kwargs)
    for each in args[:1]:
        trace.callables.hand(each)
        special(trace, each, "__getitem__")
        special(trace, each, "__missing__")
        whole(trace, each)


def _taken_apart(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    for each in _bound(function, args, 1):
        if issubclass(type(each), torch.Generator):
            _asks_state(trace, each, function.__name__)
        else:
            taken_apart(trace, each)


def follow_function(trace: Trace, kind: type) -> None:
    """Follow the methods of a ``torch.autograd.Function``, which C calls now and in the backward."""
    for name in ("forward", "setup_context", "backward", "jvp", "vjp", "vmap"):
        if lookup.find(kind, name).owner not in _FUNCTION_BASES:
            trace.callables.run(trace.classes.read(kind, name))
    for name in ("apply", "apply_jvp", "_get_user_fn", "_get_compiled_autograd_symints"):
        trace.callables.run(lookup.find(torch.autograd.function.BackwardCFunction, name).value)


def _function(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    kind = function.__self__
    if issubclass(type(kind), type):
        follow_function(trace, kind)
    for each in (*args, *kwargs.values()):
        content(trace, each)


def _sys_frame(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note ``sys._getframe``; frames of the call itself depend on nothing but code that is followed."""
    _globals(trace, function, args, kwargs)
    at, depth = trace.running.frame(), args[0] if args else 0
    while type(depth) is int and depth > 0 and is_inside(at):
        at, depth = at.f_back, depth - 1
    if not is_inside(at):
        looks_around(trace)


def _exc_info(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note ``sys.exc_info``: the caller may be handling an exception, and no other note says so."""
    frame, error = trace.running.frame(), sys.exc_info()[1]
    if error is None or (frame is not None and not is_internal(frame.f_code.co_filename)):
        handles(trace, error)


def _size_of_storage(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse the size of a storage, which differs in a recording; code that reads its bytes may ask."""
    frame = trace.running.frame()
    while frame is not None and is_internal(frame.f_code.co_filename):
        if frame.f_code.co_name in _READS_STORAGE:
            return
        frame = frame.f_back
    storage = _bound(function, args, 1)[0]
    if not (isinstance(storage, torch.UntypedStorage) and trace.knows_size(storage)):
        trace.running.refuse("torch.UntypedStorage.nbytes", "asks how large the storage of a tensor is")


def _resize_storage(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note that a storage gets memory, or loses what the call has given it."""
    storage, nbytes = _bound(function, args, 2)
    if isinstance(storage, torch.UntypedStorage) and type(nbytes) is int and not kwargs:
        trace.resizes(storage, nbytes)
    else:
        trace.running.refuse("torch.UntypedStorage.resize_", "resizes the storage of a tensor")


def _acquire(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note whether a lock is free, unless the call waits for the lock or holds it already."""
    lock, given = _bound(function, args, 1)[0], args if hasattr(function, "__self__") else args[1:]
    if not given and not kwargs:
        trace.held[identity(lock)] += 1
    elif not trace.outside.has(lock) or trace.held[identity(lock)]:
        return
    elif hasattr(lock, "locked"):
        trace.outside.ask(lock, "locked", ".locked()")
        trace.held[identity(lock)] += not lock.locked()
    else:
        name = trace.outside.name(lock)
        trace.running.refuse(name, f"asks whether {name} is free, which cannot be asked again")


def _release(trace: Trace, lock: Any) -> None:
    """Note that a lock is released; a replay does not repeat that, unless the call has acquired it."""
    if trace.outside.has(lock) and not trace.held[identity(lock)]:
        name = trace.outside.name(lock)
        trace.running.refuse(name, f"releases {name}, which it has not acquired")
    trace.held[identity(lock)] -= 1


def _leave(trace: Trace, lock: Any) -> None:
    """Note the end of a ``with`` block; where its code is not followed, nobody noted the begin."""
    trace.held[identity(lock)] -= trace.held[identity(lock)] > 0


def _of_host_data(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note that tensors are made; each replay reads an array's numbers again, so they are no condition."""
    for each in (*args, *kwargs.values()):
        if not issubclass(type(each), numpy.ndarray) or each.dtype.hasobject:
            content(trace, each)
        else:
            trace.outside.makes_tensor(each)


_STATE_READ = NAMES["states"]
_SHARING_STATE = NAMES["shared_states"]


def _generator(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note that a random generator is asked for its state, or set."""
    owner, state = _bound(function, (*args, *kwargs.values()), 2)
    name = function.__name__
    if not issubclass(type(owner), torch.Generator):
        return
    if name in _SHARING_STATE:
        trace.running.refuse(name, f"calls {name}() of a generator, which is not followed")
    elif name in _STATE_READ:
        _asks_state(trace, owner, name)
    else:
        parts = state if type(state) is tuple else (state,)
        tensor = next((part for part in parts if issubclass(type(part), torch.Tensor)), None)
        if tensor is not None and trace.outside.has_tensor(tensor):
            trace.running.refuse(
                name, "sets a generator to a state that is kept in a tensor; seed it instead"
            )
        trace.sets(owner, tensor)


def _asks_state(trace: Trace, generator: torch.Generator, name: str) -> None:
    """Refuse a read of the state of a generator made outside: it differs in each call."""
    if trace.outside.has(generator):
        whose = trace.outside.name(generator)
        trace.running.refuse(whose, f"asks {whose} for its state ({name}), which is another one in each call")


_SETTINGS = COLLECTOR.settings


def _collector(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note that the collector's settings are asked or set."""
    if function is gc.get_threshold:
        COLLECTOR.wakes()
    trace.outside.read(ASKED, _SETTINGS, (), answer(_SETTINGS()), ".settings", gc)


@cache
def _asking(function: Any) -> list[Any]:
    """What tells of the settings that a function of PyTorch's sets, by its name."""
    module, _, name = name_of(function).rpartition(".")
    stems = tuple([name.removesuffix("_setter").replace("set_", word, 1) for word in ("get_", "is_")])
    return [each for called, each in vars(sys.modules[module]).items() if called.startswith(stems)]


def _sets(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note that a setting is set: no replay repeats that, so it has to be again what it was."""
    asking = _asking(function)
    if not asking:
        trace.running.refuse(name_of(function), "sets what nothing tells of")
    for each in asking:
        trace.outside.ask(each, args[:-1], f"{name_of(each)}()")


def _environment(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note that a variable of the process is set: no replay repeats that, so it has to be that already."""
    held = vars(ENVIRONMENT)["_data"]
    trace.outside.find(held, None, "os.environ._data")
    looks_up(trace, args[0], held, None)
    if held.get(args[0]) != (args[1] if len(args) > 1 else None):
        trace.running.refuse("os.environ", "changes the environment of the process")


_BY_WORD: dict[str, Handler] = {
    "abstract_instance": _pair(lambda trace, kinds, value: subclass_of(trace, type(value), kinds)),
    "abstract_subclass": _pair(lambda trace, kinds, kind: subclass_of(trace, kind, kinds)),
    "acquire": _acquire,
    "advance": _each(advance, 1),
    "as_object": _member(_as_object, str),
    "attrgetter": _attrgetter,
    "attribute": _named(attribute, 2),
    "attributes": _asks("__dict__"),
    "cached": _cached,
    "callable": _each(_callable, 1),
    "class": stated,
    "clear": _one(_cleared),
    "coded": _coded,
    "compared": _member(compare),
    "compiled": lambda trace, *_: None,  # a region is an operation and depends on nothing but its inputs
    "collector": _collector,
    "csv_reader": _csv_reader,
    "csv_writer": _csv_writer,
    "decimal_context": lambda trace, *_: trace.outside.find(
        decimal.getcontext(), None, "decimal.getcontext()"
    ),
    "delete_attribute": _named(delete_attribute, 2),
    "descriptor": _member(lambda trace, value, found: through_descriptor(trace, found, value)),
    "dir": _each(_dir, 1),
    "dir_of": _one(_dir),
    "environment": _environment,
    "evaluated": lambda trace, *_: trace.running.refuse(
        "builtins.eval", "runs text or code by eval or exec, which is not followed"
    ),
    "exc_info": _exc_info,
    "format": _format,
    "format_map": _format_map,
    "function": _function,
    "generator": _generator,
    "globals": _globals,
    "hash": _each(_hashed),
    "hash_of": _one(_hash_of),
    "id": _each(_identified),
    "instance": _pair(instance_of),
    "instance_by_class": _member(instance_of),
    "is_inference": _asks("is_inference"),
    "itemgetter": _itemgetter,
    "iter": _iter,
    "iterate": _of_pairs,
    "json_encoder": _json_encoder,
    "has_key": _member(lambda trace, key, value: contains(trace, key, value, None)),
    "key": _member(lambda trace, key, value: looks_up(trace, key, value, None)),
    "item_of_dict": _member(dict_item),
    "left": _one(_leave),
    "length": _len,
    "length_hint": _length_hint,
    "local_time": _local_time,
    "made_by_default": lambda trace, *_: trace.running.refuse(
        "collections.defaultdict.__missing__", "calls __missing__ of a defaultdict itself"
    ),
    "methodcaller": _methodcaller,
    "new_decimal_context": _new_decimal_context,
    "of_host_data": _of_host_data,
    "partial": _partial,
    "pickled": _each(pickled, 1),
    "plain_text": _each(lambda trace, value: text(trace, value, asks=())),
    "print": _print,
    "referred": _each(looked_up, 1),
    "release": _one(_release),
    "resize_storage": _resize_storage,
    "same": _is,
    "sets": _sets,
    "set_default": _member(_set_default),
    "set_key": _set_key,
    "size_of_storage": _size_of_storage,
    "store_as_object": _store_as_object,
    "store_attribute": _named(store_attribute, 3),
    "sys_frame": _sys_frame,
    "taken_apart": _taken_apart,
    "text": _each(text),
    "text_of": _one(text),
    "truth": _each(truth),
    "type": asked_or_made,
    "updated": _updated,
    "variable": _variable,
    "warn": _warn,
    "weak": _weak,
}
"""Handlers by their words in ``calls.toml``, whose rows name the callables."""

HANDLERS = {name: _BY_WORD[word] for word, names in HANDLED.items() for name in names}
"""Handlers by the full name of a callable; of an instance, the full name of its class with ``()``."""
