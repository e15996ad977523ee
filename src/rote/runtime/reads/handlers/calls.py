"""Reads and writes of calls: Python code is followed, C callables are looked up in the table."""

from __future__ import annotations

import sys
from abc import get_cache_token
from collections.abc import Callable
from functools import partial
from importlib import import_module
from random import Random
from types import FunctionType, MethodDescriptorType, MethodWrapperType, WrapperDescriptorType
from typing import Any

import numpy
import torch

from ....base import identity, is_own
from ...numbers import GLOBAL_GENERATORS, can_draw, is_drawing
from ...objects import (
    is_graphed,
    is_of_pybind,
    is_python,
    is_standard,
    made_by,
    said_module,
    said_name,
)
from ...operators import CALL_OF_SCRIPT, globals_of_launch
from ...pytorch import SCRIPTS, GroupCall, is_quiet
from ...state import SUBCLASS, lying_in
from ..table import NAMES, REFUSED, UNKNOWN, is_nobody, lookup, name_of
from ..trace import (
    CLASS,
    CONTAINERS,
    FUNCTION,
    IN_C,
    METHOD,
    OTHER,
    PLAIN,
    SAID_OF_OUTPUT,
    Trace,
    is_called_by_output,
    is_for_output,
    is_in_c,
    is_readable,
    library_of_output,
    writes_by_method,
)
from .apart import TAKING, taken_apart
from .attributes import attribute, delete_attribute, handles, of_namespace, store_attribute
from .containers import change, content, merged, number_of, special, spread, tell_members, text, whole
from .importing import before_import_module
from .names import of_globals
from .random_settings import computes

_BUILTIN = ("builtins", "torch")
_HARMLESS = NAMES["harmless"]
_HASHED = (dict, set, frozenset)
_HASHING = frozenset({"builtins.dict.fromkeys", "_collections._count_elements"})
"""Callables besides the methods of those types that hash what their arguments hold."""
_OF_CYTHON = NAMES["cython"]
_OF_TYPE: type = type(torch.FloatTensor)
"""The class of the constructors of tensors of one type."""
_CLOCK = "clock"
_KEEPING = NAMES["keeping"]
_SHALLOW = NAMES["shallow"]
_LOOKING_INSIDE = ("__eq__", "__lt__", "__gt__", "__le__", "__ge__", "__repr__")
"""What methods of containers that compare or write their members ask these for."""
_RENEWING = NAMES["renewing"]
_SEEDING = NAMES["seeding"]
_MAKING_GENERATORS = frozenset({"numpy.random.default_rng"})
"""Functions of numpy's that are not about its global generator, among those that are written in Cython."""
_GROWING: dict[str, Callable[[tuple[Any, ...]], int]] = {
    "builtins.list.append": lambda given: 1,
    "collections.deque.append": lambda given: 1,
    "builtins.list.extend": lambda given: number_of(given[0]) if given else -1,
    "collections.deque.extend": lambda given: number_of(given[0]) if given else -1,
}
"""Callables that append to a container, with the number of members they add."""
_DISPATCHES = "numpy._ArrayFunctionDispatcher.__call__"
_VIEWING_BY_NUMPY = frozenset({"transpose", "expand_dims", "squeeze", "swapaxes", "moveaxis", "rollaxis"})
"""Functions of numpy's that give a view of an array."""
_VIEWING = frozenset({
    "numpy.ndarray.transpose", "numpy.ndarray.squeeze", "numpy.ndarray.swapaxes", "numpy.ndarray.diagonal",
})  # fmt: skip
"""Methods that do."""
_CONTAINERS = frozenset({"builtins.dict", "collections.OrderedDict"})
"""Classes whose new instances hold what they are given by name."""
_TELL_MODES = NAMES["modules_of_modes"]
_LOOKING = frozenset({"sort", "update"})
"""Methods that change their object, and look into what they are given."""
_SLOTS = (MethodWrapperType, WrapperDescriptorType)
_OF_ATTRIBUTES: dict[str, Callable[..., None]] = {
    "__getattr__": attribute, "__setattr__": store_attribute, "__delattr__": delete_attribute,
}  # fmt: skip
"""Methods that a graphed callable forwards to the callable it wraps."""


def called(trace: Trace, names: tuple[str, ...], function: Any, *args: Any) -> None:
    """Note a call; ``names`` are the names of the last arguments."""
    if trace.printing is not None and trace.printing[0] == identity(trace.running.frame()):
        trace.printing = None
    if trace.running.rows.is_pure(function):
        trace.running.trusts = True
        for each in args:
            content(trace, each)
        return
    what = trace.kinds[type(function)]
    if what == FUNCTION:
        trace.callables.run(function)
        if function is import_module:
            given, named = _split(names, args)
            before_import_module(trace, *given, **named)
        if is_own(function.__code__.co_filename):
            _own(trace, names, function, args)
    elif what == METHOD:
        called(trace, names, function.__func__, function.__self__, *args)
    elif what == IN_C:
        c_call(trace, function, *_split(names, args))
    elif what == CLASS:
        _construct(trace, function, names, args)
    else:
        _object(trace, function, names, args)


def _own(trace: Trace, names: tuple[str, ...], function: Any, args: tuple[Any, ...]) -> None:
    """Note a call of rote's own function, whose code is not followed: its arguments may run instead."""
    for each in args:
        trace.callables.run(each)
    for name, table in globals_of_launch(function, args):
        trace.outside.pin(of_globals(trace, name, table))
    if not args or not is_graphed(args[0]):
        return
    wrapped, name = args[0].__wrapped__, function.__name__
    trace.outside.find(wrapped, args[0], "")
    given = args[1:]
    if name in _OF_ATTRIBUTES:
        if given and issubclass(type(given[0]), str):
            _OF_ATTRIBUTES[name](trace, *given, wrapped)
        return
    if name == "__class__":
        trace.outside.kind(wrapped)
        return
    method = lookup.find(type(wrapped), name).value
    if name == "__call__" or method is lookup.MISSING:
        called(trace, names, wrapped, *given)
    else:
        called(trace, names, method, wrapped, *given)


def called_spread(trace: Trace, function: Any, args: Any, kwargs: Any = None) -> None:
    """Note a call with ``*args`` and ``**kwargs``."""
    whole(trace, args)
    if kwargs is not None:
        merged(trace, kwargs)
    named = dict(kwargs) if type(kwargs) is dict else {}
    called(trace, tuple(named), function, *(spread(args) or ()), *named.values())


def gathered(trace: Trace, args: Any) -> None:
    """Note that ``*args`` become a tuple, as by ``tuple(args)``."""
    called(trace, (), tuple, args)


def _split(names: tuple[str, ...], args: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    count = len(args) - len(names)
    return args[:count], dict(zip(names, args[count:], strict=True))


def _construct(trace: Trace, kind: type, names: tuple[str, ...], args: tuple[Any, ...]) -> None:
    """Note a call of a class."""
    meta = type(kind)
    if meta is not type:
        trace.callables.run(trace.classes.read(meta, "__call__"))
    if lookup.can_change(kind):  # C makes no instance of a class with abstract methods
        of_namespace(trace, "__abstractmethods__", kind)
    if (kind is torch.Tensor or meta is _OF_TYPE) and not names and _of_array(trace, args):
        return
    tensors = issubclass(kind, torch.Tensor) and kind is not torch.Tensor
    if tensors and is_in_c(lookup.find(kind, "__new__").value):
        trace.makes(kind)
    in_c = True
    for name in ("__new__", "__init__"):
        look = trace.classes.read if lookup.can_change(kind) else trace.classes.look_up
        found = look(kind, name)
        if not is_in_c(found) and not is_of_pybind(found):
            trace.callables.run(found)
            in_c = False
    of_python = not in_c and said_module(kind) not in _BUILTIN
    if of_python and issubclass(kind, Random) and found is not Random.__init__:  # C has seeded it before
        c_call(trace, made_by(kind), args, {})
    if issubclass(kind, BaseException):
        for each in args:
            content(trace, each, inside=False)
    elif not of_python:
        c_call(trace, made_by(kind) if in_c else kind, *_split(names, args))
    elif trace.outside.has(kind) and not tensors:
        trace.callables.called.add(identity(kind))


def _of_array(trace: Trace, args: tuple[Any, ...]) -> bool:
    """Note that a constructor makes a tensor of an array: over its memory, which operations convert."""
    if len(args) != 1 or type(args[0]) is not numpy.ndarray or args[0].dtype.hasobject:
        return False
    if not trace.outside.is_tensors(args[0]):
        trace.outside.makes_tensor(args[0])
    return True


def _object(trace: Trace, function: Any, names: tuple[str, ...], args: tuple[Any, ...]) -> None:
    """Note a call of an object that is neither a function nor a class."""
    if type(function).__name__ in _OF_CYTHON:
        given, named = _split(names, args)
        c_call(trace, lookup.find(type(function), "__call__").value, (function, *given), named)
        return
    row = trace.running.rows.of_instances(type(function))
    if issubclass(type(function), SCRIPTS):
        trace.runs_script(function)
    if type(function) is torch.jit.ScriptFunction:  # while calls are traced its class has a method of rote's
        given, named = _split(names, args)
        c_call(trace, CALL_OF_SCRIPT, (function, *given), named)
    elif row.handler is not None:
        row.handler(trace, function, *_split(names, args))
    elif is_of_pybind(function):
        called(trace, names, function.__func__, *args)
    elif special(trace, function, "__call__"):
        found = lookup.find(type(function), "__call__").value
        if (
            type(found) is FunctionType
            and trace.outside.has(function)
            and not is_own(found.__code__.co_filename)
        ):
            trace.callables.called.add(identity(function))
        if isinstance(found, (staticmethod, classmethod)):
            called(trace, names, found.__func__, *args)
        if is_in_c(found):
            c_call(trace, found, (function, *_split(names, args)[0]), _split(names, args)[1])


def c_call(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note a call of a C callable."""
    if type(function) in _SLOTS and _calls_instance(trace, function, args, kwargs):
        return
    row = trace.running.rows.of(function)
    trace.running.trusts = trace.running.trusts or trace.running.rows.is_shipped(row.name)
    computes(trace, row.name)
    owner = getattr(function, "__self__", None)
    free = is_nobody(type(owner)) and type(function) is not MethodWrapperType
    if free or (issubclass(type(owner), type) and not issubclass(type(function), type)):
        owner = None
    if row.name in _HASHING or issubclass(_whose(function, owner), _HASHED):
        for each in args:
            tell_members(trace, each)
    if row.name in _CONTAINERS:
        kwargs = {name: each for name, each in kwargs.items() if not trace.outside.is_tensors(each)}
    if row.handler is not None:
        row.handler(trace, function, args, kwargs)
        return
    if row.row == "none":
        for each in (owner, *args, *kwargs.values()):
            trace.outside.pin(each)
        return
    if row.row == "acting":
        trace.collective = GroupCall.of(function, args, kwargs, trace.running.frame())
    given = (*args, *kwargs.values())
    if issubclass(type(function), (MethodDescriptorType, WrapperDescriptorType)) and args:
        owner, given = args[0], given[1:]
    if given and type(given[0]) is numpy.ndarray and _is_view_by_numpy(trace, row.name, owner, given):
        given = given[1:]
    elif type(owner) is numpy.ndarray and _is_view(trace, row.name, owner):
        owner = None
    if owner is not None and function.__name__ in TAKING:
        taken_apart(trace, owner)
    looks = not row.name.startswith("torch") and (row.row != "writes" or function.__name__ in _LOOKING)
    looks = looks and function is not partial  # who is given that may run it
    for each in given:
        what = trace.kinds[type(each)]
        if looks and what != PLAIN:
            trace.callables.hand(each)
        if what in (FUNCTION, METHOD) or (
            what == IN_C and row.row == "pure" and not row.name.startswith("torch")
        ):
            handed_on(trace, each)
    name, how = row.name, row.row
    if name == _DISPATCHES:
        said = f"numpy.{getattr(owner, '__name__', '')}"
        known = trace.running.rows.row_of(said)
        name, how = (said, known) if known in REFUSED else (name, how)
    _by_row(trace, name, how, function, owner, given)


def _calls_instance(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Note a call of an instance by a method of C; False if it is another method, or in no row."""
    given = (function.__self__, *args) if type(function) is MethodWrapperType else args
    row = trace.running.rows.of_instances(function.__objclass__)
    if function.__name__ != "__call__" or row.handler is None or not given:
        return False
    own = type(given[0])
    if own is function.__objclass__ or trace.running.rows.of_instances(own).handler is None:
        row.handler(trace, given[0], given[1:], kwargs)
    return True


def given_back(trace: Trace, value: Any) -> None:
    """Note that code which C runs or iterates over gives C a value."""
    trace.callables.hand(value, calls=False)
    content(trace, value)


def _whose(function: Any, owner: Any) -> type:
    """The class whose constructor or whose method a callable is."""
    own = function if isinstance(function, type) else getattr(function, "__objclass__", None)
    return own if isinstance(own, type) else type(owner)


def _is_view(trace: Trace, name: str, array: Any) -> bool:
    """Whether a method gives a view of an array that is over the memory of a tensor, whatever it is given."""
    known = name in _VIEWING or (name == "numpy.ndarray.reshape" and array.flags.c_contiguous)
    return known and trace.outside.is_tensors(array)


def _is_view_by_numpy(trace: Trace, name: str, function: Any, given: tuple[Any, ...]) -> bool:
    """Whether a function of numpy's gives such a view of its first argument."""
    known = name == _DISPATCHES and function.__name__ in _VIEWING_BY_NUMPY
    return known and said_module(type(function)) == "numpy" and trace.outside.is_tensors(given[0])


def read_partial(trace: Trace, value: partial[Any]) -> None:
    """Note that the parts of a ``partial`` are read."""
    for name in ("func", "args", "keywords"):
        attribute(trace, name, value)
    for part in (value.args, value.keywords):
        whole(trace, part)


def _partial_handed_on(trace: Trace, value: partial[Any]) -> None:
    read_partial(trace, value)
    if trace.kinds[type(value.func)] not in (
        FUNCTION,
        METHOD,
    ):  # C looks into what it is given, and may call it
        for each in (*value.args, *value.keywords.values()):
            content(trace, each)
            if trace.kinds[type(each)] in (FUNCTION, METHOD):
                trace.callables.run(each)
    handed_on(trace, value.func)


def handed_on(trace: Trace, value: Any) -> None:
    """Note that C receives a value and may call it, with arguments that no note sees."""
    what = trace.kinds[type(value)]
    if what in (FUNCTION, METHOD):
        trace.callables.run(value)
        return
    if type(value) is partial:
        _partial_handed_on(trace, value)
        return
    if what == IN_C or (what == CLASS and not is_python(value)):
        row = trace.running.rows.of(value)
    elif what == OTHER and lookup.find(type(value), "__call__").owner is not None:
        if not is_in_c(lookup.find(type(value), "__call__").value):
            special(trace, value, "__call__")
            return
        row = trace.running.rows.of_instances(type(value))
    else:
        return
    running = trace.running
    running.trusts = running.trusts or running.rows.is_shipped(row.name) or running.rows.is_pure(value)
    computes(trace, row.name)
    owner = getattr(value, "__self__", None)
    content(trace, owner)
    outside = trace.outside
    if type(owner) in CONTAINERS and not outside.has(owner) and outside.given.branch(owner) is None:
        return  # the call made this container
    known = row.handler is None and row.row in ("pure", "none", "fixed")
    if row.name not in _HARMLESS and (not known or row.name.rpartition(".")[2] in TAKING):
        trace.running.refuse(row.name, f"has {row.name} called by a function in C, with what it does not say")


def _by_row(trace: Trace, name: str, row: str, function: Any, owner: Any, given: tuple[Any, ...]) -> None:
    if type(owner).__name__ in _OF_CYTHON:  # a Cython function is the owner itself
        function, name, is_method = owner, name_of(owner), "." in owner.__qualname__
        row, owner = trace.running.rows.row_of(name), given[0] if is_method and given else None
        given = given[1:] if is_method else given
        if not is_method and name.startswith("numpy.random.") and name not in _MAKING_GENERATORS:
            owner = GLOBAL_GENERATORS[-1]
    if row not in ("writes", UNKNOWN) and function.__name__ in _RENEWING and trace.outside.has(owner):
        row = "writes"  # what is said of a type's other methods is not said of these
    if name.startswith("torch."):  # the operation notes which generator it draws from
        given = tuple([each for each in given if type(each) is not torch.Generator])
    if row in ("pure", "reads", "fixed"):
        for each in (owner, *given):
            content(trace, each, ("__eq__",) if row == "reads" else ())
    elif row == "members":
        for each in (owner, *given):
            content(trace, each, inside=False)
    elif row == "ask":
        _ask(trace, name, function, owner, given)
    elif row == "writes":
        if name in _SEEDING and all([each is None for each in given]):
            trace.running.refuse(name, f"calls {name} without a seed, which takes one from the system")
        if trace.outside.has(owner) and not trace.outside.can_compare(owner):
            trace.running.refuse(
                name, f"calls {name}, which changes something made outside that cannot be compared"
            )
        if is_readable(owner) and function.__name__ not in _SHALLOW:
            content(trace, owner, _LOOKING_INSIDE)
        # An append depends on no member: a replay adds its own members to the container as it then is.
        grows = name in _GROWING and not is_called_by_output(trace)
        if can_draw(owner) and trace.outside.has_generator(owner):
            trace.draws(owner, draws=is_drawing(owner, function.__name__, given, trace.outside.has))
        elif not (grows and trace.writes.append(owner, _GROWING[name](given))):
            change(trace, owner)
        for each in given:
            # An argument that is only stored is not compared, so its identity does not matter.
            stores = name in _KEEPING and each is given[-1]
            given_away = identity(each) in trace.outside.given.objects or trace.outside.is_tensors(each)
            if not (stores and given_away):
                content(trace, each, inside=False)
    elif row == "argument" and given:
        for each in given:
            content(trace, each)
        change(trace, given[0])
    elif row == "io" and is_standard(owner) and writes_by_method(trace, owner, function.__name__):
        for each in given:
            text(trace, each)
    elif row == "io" and not is_called_by_output(trace) and trace.writes.tells(owner, function, given, {}):
        for each in given:
            whole(trace, each)
    elif row in SAID_OF_OUTPUT and is_for_output(trace):
        return
    elif row == "io" and owner is not None and not trace.outside.has(owner) and not name.startswith("numpy."):
        for each in given:  # the call made the buffer
            content(trace, each)
    elif row in ("process", "ambient") and not _asks_for_itself(trace):
        return
    elif row == "acting":
        for each in (owner, *given):
            content(trace, each)
        of = owner if owner is not None else next(iter(given), None)
        if not is_quiet(function, of) and not trace.reducers.meets(function, of, trace.running.frame()):
            trace.acts(name)
    elif row == _CLOCK and trace.followed.reads_clock(function):
        return
    elif row in REFUSED:
        library = library_of_output(trace) if row == "io" else ""
        by = f"has {library} call {name}, perhaps with the time in it" if library else f"calls {name}"
        trace.running.refuse(name, f"{by}, which {REFUSED[row]}")
    elif row == UNKNOWN and not trace.reducers.keeps_versions(function, trace.running.frame()):
        trace.running.refuse(name, f"calls {name}, of which nothing is known", unknown=True)


def _asks_for_itself(trace: Trace) -> bool:
    """Whether code outside PyTorch asks for the modes in force; PyTorch's own code copes with any."""
    frame = trace.running.frame()
    while frame is not None and frame.f_globals.get("__name__") in _TELL_MODES:
        frame = frame.f_back
    module = frame.f_globals.get("__name__") if frame is not None else None
    return not (isinstance(module, str) and module.partition(".")[0] == "torch")


def _ask(trace: Trace, name: str, function: Any, owner: Any, given: tuple[Any, ...]) -> None:
    """Note that a C function returns a setting: the guard calls it again."""
    if owner is None:
        if any(trace.kinds[type(each)] != PLAIN for each in given):
            trace.running.refuse(name, f"asks {name} about what may change")
            return
        text = f"({', '.join(map(repr, given))})"
        trace.outside.ask(function, given, text if trace.outside.has(function) else f"{name}{text}")
    elif trace.outside.has(owner):
        trace.outside.ask(owner, function.__name__, f".{function.__name__}()")


def instance_of(trace: Trace, value: Any, kinds: Any) -> None:
    """Note ``isinstance(value, kinds)`` or ``issubclass(value, kinds)``; bases of the value decide it."""
    if issubclass(type(kinds), tuple):
        whole(trace, kinds)
        for each in kinds:
            instance_of(trace, value, each)
        return
    outside, kind = trace.outside.has(value), type(value)
    trace.outside.hold((kinds, kind))
    trace.seen.update((("isinstance", identity(kinds)), ("isinstance", identity(value) if outside else kind)))
    for each in (kind, value):
        if issubclass(type(each), type) and lookup.can_change(each):
            trace.classes.namespace(each)
    if outside and not issubclass(kind, type):
        trace.outside.kind(value)
        if lookup.find(type(value), "__class__").owner is not object:
            attribute(trace, "__class__", value)
    meta = type(kinds)
    if meta is not type and issubclass(meta, type):
        for name in ("__instancecheck__", "__subclasscheck__"):
            trace.callables.run(trace.classes.read(meta, name))


def subclass_of(trace: Trace, kind: Any, kinds: Any) -> None:
    """Note ``issubclass(kind, kinds)`` of an abstract class: a later registration may change the answer."""
    if issubclass(type(kind), type) and issubclass(type(kinds), type):
        trace.classes.namespace(kinds)
        trace.callables.run(trace.classes.read(kinds, "__subclasshook__"))
        if trace.classes.has_made(kind):  # nobody has asked before: hooks run, and are followed
            trace.outside.ask(get_cache_token, (), "abc.get_cache_token()")
            if kinds not in lookup.bases(kind):
                trace.outside.ask(kinds, "__subclasses__", ".__subclasses__()")
            return
        trace.outside.hold(kind)
        try:
            said = lying_in(SUBCLASS, kinds, kind)
        except ValueError:
            name = said_name(kinds)
            trace.running.refuse(
                name, f"asks whether {said_name(kind)} is a {name}, which nobody else can ask"
            )
            return
        trace.outside.read(SUBCLASS, kinds, kind, said, f" (whether {said_name(kind)} is one)")


def caught(trace: Trace, error: Any, kinds: Any) -> None:
    """Note the check of an ``except`` clause: the bases of the exception's class decide it."""
    if issubclass(type(kinds), tuple):
        whole(trace, kinds)
    if trace.outside.has(error):
        trace.outside.kind(error)
    if lookup.can_change(type(error)):
        trace.classes.namespace(type(error))


def match_class(trace: Trace, count: int, value: Any, kind: Any, names: tuple[str, ...]) -> None:
    """Note a match of a class pattern."""
    instance_of(trace, value, kind)
    if issubclass(type(kind), type):
        given = trace.classes.read(kind, "__match_args__")
        for name in (*(given[:count] if issubclass(type(given), tuple) else ()), *names):
            if issubclass(type(name), str):
                attribute(trace, name, value)


def raised(trace: Trace, count: int, *values: Any) -> None:
    """Note a ``raise``: it may call a class, or raise the exception being handled again."""
    if not count:
        handles(trace, sys.exc_info()[1])
    for value in values:
        if issubclass(type(value), type):
            called(trace, (), value)
        elif trace.outside.has(value):
            name = said_name(type(value))
            trace.running.refuse(name, f"raises a {name} made outside, which keeps where it was raised")
