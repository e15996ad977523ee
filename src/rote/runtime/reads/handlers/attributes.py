"""Reads and writes of attributes, with the lookups in classes that Python makes for them."""

from __future__ import annotations

import weakref
from collections import OrderedDict, namedtuple
from threading import local
from types import (
    CodeType,
    FrameType,
    FunctionType,
    GenericAlias,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, TypeGuard

import numpy
import torch
import torch.autograd.function

from ....base import identity, is_instance, is_own
from ...objects import ARRAY_FACTS, PROXIES, UNSET, Content, counted, is_getter_of_pybind, mark, said_name
from ...state import ASKED, ATTRIBUTE, ITEM, KIND, LENGTH, ORDER, REFERENT, SAID, answer
from ..table import NAMES, lookup
from ..trace import (
    C_FUNCTIONS,
    CLASS,
    MODULE,
    OF_CLASS,
    OTHER,
    PLAIN,
    TENSOR,
    Trace,
    handled_kind,
    is_for_output,
    is_in_c,
    tells_when,
)

_MISSING = lookup.MISSING
_IDENTIFYING = NAMES["identifying"]
_COUNTING = NAMES["counting"]
_GETATTRIBUTE = object.__dict__["__getattribute__"]
_IN_NAMESPACE = NAMES["namespace"]
_FIXED_IN_C = (*C_FUNCTIONS, MemberDescriptorType, GetSetDescriptorType, CodeType)
"""Types whose instances never change."""
_PYTHON = frozenset({FunctionType, MethodType, staticmethod, classmethod})
"""Types of methods in Python; their code is followed."""
_HANDS_ON = {MethodType: "__func__", GenericAlias: "__origin__"}
"""Types whose instances give the attributes of another object, by the name under which they hold it."""
_FIELD: Any = type(namedtuple("_Named", "field").field)  # pyright: ignore[reportUntypedNamedTuple, reportAttributeAccessIssue]
"""The type of the descriptors of a named tuple's fields."""
_OF_COMPILER = "__dynamo_disable"
"""The attribute in which a function of PyTorch keeps a variant of itself that skips the compiler."""
_NODE = torch.autograd.function.BackwardCFunction
_OF_NODES = NAMES["nodes"]
_OF_ARRAYS = NAMES["arrays"]
_STANDING = NAMES["frames"]
_OF_CLASSES = NAMES["parameters"]
_TORCHS = frozenset({torch.Tensor, torch.nn.Parameter})
_GETATTR: Any = torch.nn.Module.__getattr__
_TABLES = ("_parameters", "_buffers", "_modules")
"""Where a module has what it gives as attributes, in the order in which it looks."""
_WHEN_CALLED = "_compiled_call_impl"
"""What a module is asked for first when it is called."""
_OF_CALLS = ("_call_impl", "forward")
_HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
"""What it is asked for then."""
IF_THERE, ALWAYS, OF_CLASS_ALONE = "there", "always", "class"
"""Of an attribute of a class's instances only the instance says anything new: if it has it; whether it has it
or not; nor does the instance."""


def attribute(trace: Trace, name: str, value: Any) -> None:
    """Note a read of ``value.name``."""
    kind, which = type(value), identity(value)
    settled = trace.callables.settled.get((kind, name))
    if settled is not None and which in trace.outside and _is_settled(trace, name, value, settled):
        return
    what = trace.kinds[kind]
    if what == PLAIN or name == _OF_COMPILER:
        return
    if kind is numpy.ndarray and name not in ARRAY_FACTS:
        _of_array(trace, name, value)
        return
    if kind is OrderedDict and (name == "__dict__" or not hasattr(OrderedDict, name)):
        _of_ordered(trace, name, value)
    elif which not in trace.outside and which not in trace.outside.tensors:
        trace.outside.hold(kind)
        trace.seen.add((kind, name))
    else:
        trace.seen.add((which, name))
    if what == MODULE and kind is ModuleType:
        _of_module(trace, name, value)
    elif what == CLASS:
        trace.classes.namespace(value)
        _of_class(trace, name, value)
    elif kind is super:
        if value.__self_class__ is not None:
            through_super(trace, name, value.__thisclass__, value.__self_class__, value.__self__)
    elif what == TENSOR:
        _of_tensor(trace, name, value, kind)
    else:
        _of_instance(trace, name, value, kind)


def _of_ordered(trace: Trace, name: str, value: OrderedDict[Any, Any]) -> None:
    """Refuse what a dict among the arguments has as an attribute: the key has what it holds."""
    number = trace.outside.given.branch(value)
    if number is not None:
        whose = trace.outside.given.names[number]
        trace.running.refuse(whose, f"reads the attribute {name} of {whose}, which is taken apart as a dict")


def _of_array(trace: Trace, name: str, value: Any) -> None:
    """Note a read of what an array has besides facts about it; which array it is may make a difference."""
    if name == "T" and trace.outside.is_tensors(value):
        return
    if type(lookup.find(numpy.ndarray, name).value) is not MethodDescriptorType:
        trace.outside.stray(value)
    _of_instance(trace, name, value, numpy.ndarray)
    for known in (numpy.ndarray, identity(value)):
        trace.seen.discard((known, name, "plain"))


def _is_settled(trace: Trace, name: str, value: Any, settled: str) -> bool:
    """Note a read of which the instance alone may say anything new; returns whether that is all."""
    which = identity(value)
    table = trace.classes.tables.get(which)
    if table is None:
        table = lookup.attributes_of(value)
        if table is None:
            return False
        trace.outside.kind(value)
        table_of(trace, value, table)
        trace.classes.tables[which] = table
    if settled == IF_THERE and name not in table:
        return False
    trace.seen.update(((which, name), (which, name, "plain")))
    if settled == OF_CLASS_ALONE:
        return True
    trace.outside.read_attribute(table, name, value)
    if name not in table and trace.classes.look_up(type(value), "__getattr__") is _GETATTR:
        _in_tables(trace, name, table)
    if name == _WHEN_CALLED and issubclass(type(value), torch.nn.Module):
        _when_called(trace, value, table)
    return True


def _in_tables(trace: Trace, name: str, attributes: dict[str, Any]) -> None:
    """Note what ``nn.Module.__getattr__`` is about to read; its own notes say nothing new then."""
    trace.outside.pin(name)
    for each in _TABLES:
        trace.outside.read_member(attributes, each)
        table = attributes.get(each)
        if type(table) is not dict:
            return
        trace.outside.read_member(table, name)
        if name in table:
            return


def _when_called(trace: Trace, module: Any, attributes: dict[str, Any]) -> None:
    """Note what ``nn.Module.__call__`` is about to read of a module, if it is known of its class."""
    kind, which = type(module), identity(module)
    for name in _OF_CALLS:
        if trace.callables.settled.get((kind, name)) == ALWAYS:
            trace.seen.update(((which, name), (which, name, "plain")))
            trace.outside.read_attribute(attributes, name, module)
    for name in _HOOKS:
        hooks = attributes.get(name)
        if name in attributes and (kind, name) in trace.callables.settled:
            trace.seen.update(((which, name), (which, name, "plain")))
            trace.outside.read_attribute(attributes, name, module)
            if type(hooks) is OrderedDict and trace.outside.has(hooks):
                trace.outside.read(LENGTH, hooks, None, counted(len(hooks)), " (length)")
                trace.seen.add(("truth", identity(hooks)))


def _of_module(trace: Trace, name: str, value: ModuleType) -> None:
    if trace.outside.has(value):
        trace.outside.kind(value)  # it may be given a class with properties
    table = lookup.attributes_of(value) or {}
    if name == "__dict__":
        trace.outside.find(table, value, ".__dict__")
    elif name in table:
        trace.outside.read(ITEM, table, name, table[name], f".{name}", value)
    elif lookup.find(ModuleType, name).owner is None:
        trace.outside.absent(table, name, f".{name}", value)
        if name != "__getattr__":
            _of_module(trace, "__getattr__", value)
            trace.call((), table.get("__getattr__"), name)


def _of_class(trace: Trace, name: str, value: type) -> None:
    meta = type(value)
    above = trace.classes.read(meta, name) if meta is not type else lookup.find(type, name).value
    if above is not _MISSING and _is_data(trace, above):
        _get(trace, above, name, value)
        return
    found = trace.classes.read(value, name)
    if found is not _MISSING:
        bind(trace, found)
    elif above is _MISSING and meta is not type:
        trace.callables.run(trace.classes.read(meta, "__getattr__"))


def through_super(trace: Trace, name: str, this: type, kind: type, target: Any) -> None:
    """Note a read of an attribute through ``super``."""
    found = trace.classes.read(kind, name, this)
    if found is _MISSING:
        return
    if _is_data(trace, found):
        _get(trace, found, name, target)
    else:
        trace.outside.hold((this, kind))
        trace.seen.add((this, kind, name))
        bind(trace, found)


def super_attribute(trace: Trace, name: str, function: Any, kind: Any, value: Any) -> None:
    """Note a read of ``super().name`` by a single instruction."""
    if function is super and issubclass(type(kind), type):
        through_super(trace, name, kind, value if issubclass(type(value), type) else type(value), value)


def _of_tensor(trace: Trace, name: str, value: Any, kind: type) -> None:
    """Note a read of a tensor's attribute; the key and the program cover what C answers."""
    found = trace.classes.read(kind, name)
    argument = trace.outside.arguments.get(identity(value))
    if found is _MISSING or name in _IDENTIFYING:
        trace.seen.discard((kind, name))  # each tensor has its own
    if found is _MISSING:
        _added(trace, name, value, argument)
    elif name == "__dict__":
        _all_added(trace, value)
    elif name == "is_inference" and not value.is_inference():
        return  # the tensor of a replay answers the same: inference mode is in the key
    elif name in _IDENTIFYING and argument is not None:
        trace.running.refuse(
            f"{argument}.{name}", f"reads {argument}.{name}, which is not what a replay computes with"
        )
    elif not _is_data(trace, found):
        bind(trace, found)
        if kind not in _TORCHS:
            trace.seen.discard((kind, name))
            _added(trace, name, value, argument)
        elif identity(value) in trace.outside.tensors:  # one that the call has made has what it has set
            _added(trace, name, value, argument)
    elif not lookup.is_in_c(found):
        _get(trace, found, name, value)
    elif name in _COUNTING and not _is_torchs(trace):
        trace.running.refuse(
            f"Tensor.{name}", f"reads {name} of a tensor, which is not what a replay computes with"
        )


def _is_torchs(trace: Trace) -> bool:
    """Whether PyTorch's own code does the reading."""
    frame = trace.running.frame()
    module = frame.f_globals.get("__name__") if frame is not None else None
    return isinstance(module, str) and module.partition(".")[0] == "torch"


def _added(trace: Trace, name: str, value: Any, argument: str | None) -> None:
    """Note a read of an attribute that Python code has set on a tensor."""
    table = lookup.attributes_of(value)
    if table is None or trace.writes.wrote(ITEM, table, name) or name in _OF_CLASSES:
        return
    if argument is not None and name not in table:
        return  # the key says so
    if argument is not None:
        text = f"reads the attribute {name!r} of the tensor {argument}, which is another one in each call"
        trace.running.refuse(f"{argument}.{name}", text)
    elif name in table:
        trace.outside.read(ITEM, table, name, table[name], f".{name}", value)
    else:
        trace.outside.absent(table, name, f".{name}", value)


def _all_added(trace: Trace, value: Any) -> None:
    """Note a read of all attributes that Python code has set on a tensor."""
    table, argument = lookup.attributes_of(value), trace.outside.arguments.get(identity(value))
    trace.seen.discard((type(value), "__dict__"))  # each tensor has its own
    if argument is None:
        trace.outside.find(table, value, ".__dict__")
    elif table:
        text = f"reads the attributes of the tensor {argument}, which is another one in each call"
        trace.running.refuse(f"{argument}.__dict__", text)


def looks_through(trace: Trace, kind: type) -> None:
    """Refuse a proxy: it reads another object in C, which no note sees."""
    if kind in PROXIES and not is_for_output(trace):
        trace.running.refuse("weakref.proxy", "looks at an object through a weakref.proxy; use a weakref.ref")


def referent(trace: Trace, reference: Any) -> Any:
    """What a weak reference leads to; note that the call gets there."""
    target = reference() if type(reference) is weakref.WeakMethod else weakref.ref.__call__(reference)
    if trace.outside.given.number_of(target) is not None and trace.outside.given.is_one(target):
        return target  # the reference and its target are both in the arguments
    if trace.outside.has(reference):
        trace.outside.read(REFERENT, reference, None, Content(target is not None), " (whether it lives)")
        parts = (target.__self__, target.__func__) if type(target) is MethodType else (target,)
        for part in parts if target is not None else ():
            if not trace.outside.has(part):
                trace.outside.anchored.add(identity(part))  # reads of the target do not keep it alive
        trace.outside.find(target, reference, "()")
        if _lives_on(trace, target):
            text = f"looks at a {type(target).__name__} by a weak reference; keep the object itself"
            trace.running.refuse("weakref.ref", text)
    return target


def _lives_on(trace: Trace, target: Any) -> bool:
    """Whether what a recording keeps of an object keeps it alive, whose death it could not tell then."""
    if trace.kinds[type(target)] == TENSOR:
        return not issubclass(type(target), torch.nn.Parameter)
    return is_instance(target, (type, CodeType, torch.Generator)) or mark(target) is not target


def _of_instance(trace: Trace, name: str, value: Any, kind: type) -> None:
    looks_through(trace, kind)
    if trace.outside.has(value):
        trace.outside.kind(value)
    asks = trace.classes.read(kind, "__getattribute__")
    if asks is not _GETATTRIBUTE and not _is_plain(asks, "__getattribute__"):
        _hand_on(trace, asks, value, name)
        return
    behind = _HANDS_ON.get(kind)
    if behind is not None and lookup.find(kind, name).owner in (None, object):
        target = object.__getattribute__(value, behind)
        if trace.outside.has(value):
            trace.outside.find(target, value, f".{behind}")
        trace.seen.discard((kind, name))  # each instance stands for its own target
        attribute(trace, name, target)
        return
    if issubclass(kind, local):
        trace.callables.run(trace.classes.read(kind, "__init__"))  # C calls it once in each thread
    plain_attribute(trace, name, value, settles=_has_own_table(trace, kind))


def _has_own_table(trace: Trace, kind: type) -> bool:
    """Whether instances have their attributes in one dict, for all threads and as Python gives it."""
    descriptor = type(trace.classes.look_up(kind, "__dict__"))
    return descriptor is GetSetDescriptorType and not issubclass(kind, local)


def plain_attribute(trace: Trace, name: str, value: Any, *, settles: bool = False) -> None:
    """Note a read as ``object.__getattribute__`` makes it, with ``__getattr__`` as the fallback.

    If it ``settles``, other instances of the class are asked in the same way from now on.
    """
    kind = type(value)
    whose = identity(value) if trace.outside.has(value) else kind
    if tells_when(trace, kind, name):
        trace.seen.discard((whose, name))  # the answer depends on the reader, so each read is noted
        settles = False
    else:
        trace.outside.hold(kind)
        trace.seen.add((whose, name, "plain"))
    found = trace.classes.read(kind, name)
    if found is not _MISSING and _is_data(trace, found):
        _get(trace, found, name, value)
        if settles and name == "__dict__":
            trace.callables.settled[kind, name] = OF_CLASS_ALONE
        return
    table = lookup.attributes_of(value)
    if table is not None and trace.outside.has(value):
        table_of(trace, value, table)
        trace.outside.read_attribute(table, name, value)
    if table is not None and name in table:
        if settles:
            trace.callables.settled.setdefault((kind, name), IF_THERE)
        return
    if found is not _MISSING:
        bind(trace, found)
    else:
        asks = trace.classes.read(kind, "__getattr__")
        _hand_on(trace, asks, value, name)
        settles = settles and (asks is _MISSING or _is_followed(asks))
    if settles:
        trace.callables.settled[kind, name] = ALWAYS


def _is_data(trace: Trace, found: Any, *, stored: bool = False) -> bool:
    """Whether a class attribute is a data descriptor, which takes precedence over the instance's attributes.

    A descriptor with a ``__set__`` but no ``__get__`` counts for stores only: a read goes to the instance.
    """
    if lookup.can_change(type(found)):
        if trace.outside.has(found):
            trace.outside.kind(found)
        for name in ("__get__", "__set__", "__delete__"):
            trace.classes.read(type(found), name)
    return lookup.is_data(found) and (stored or lookup.find(type(found), "__get__").owner is not None)


def _hand_on(trace: Trace, found: Any, value: Any, *given: Any) -> None:
    """Note a call of a class's ``__getattr__`` or its like; rote's own are handled by name.

    It may be an object that is no function, or a function of C: ``__getattr__ = dict.__getitem__``.
    """
    if _is_followed(found):
        trace.callables.run(found)
    elif found is not _MISSING:
        trace.seen.discard((type(value), given[0]))  # each instance gives its own answer
        trace.seen.discard((type(value), given[0], "plain"))
        trace.call((), found, value, *given)


def _is_followed(method: Any) -> bool:
    """Whether a method is Python code, and not rote's own."""
    return type(method) in _PYTHON and not (
        type(method) is FunctionType and is_own(method.__code__.co_filename)
    )


def _is_plain(found: Any, method: str) -> bool:
    """Whether a method is the ordinary one of a C type, and not another C function under its name."""
    return is_in_c(found) and found.__name__ == method


def table_of(trace: Trace, value: Any, table: dict[str, Any]) -> None:
    """Note that the ``__dict__`` of an object made outside the call is read."""
    if not trace.outside.has(table):
        trace.outside.find_table(table, value)
        how = ATTRIBUTE if issubclass(type(value), local) else KIND  # a local has one per thread
        trace.outside.read(how, value, "__dict__", table, " (its attributes)")


def bind(trace: Trace, found: Any) -> None:
    """Note that a class attribute is bound: as a method, or by a descriptor in Python."""
    if issubclass(type(found), (staticmethod, classmethod)):
        trace.outside.find(found.__func__, found, "")
    elif issubclass(type(found), property):
        _get(trace, found, "", None)
    elif not is_in_c(found):
        trace.callables.run(trace.classes.read(type(found), "__get__"))


def _get(trace: Trace, descriptor: Any, name: str, value: Any) -> None:
    """Note that a data descriptor gives the attribute."""
    if issubclass(type(descriptor), property) and is_getter_of_pybind(descriptor.fget):
        if name:  # without a name, the property itself is read
            _of_c(trace, name, value)
    elif issubclass(type(descriptor), property):
        trace.outside.find(descriptor.fget, descriptor, "")
        trace.call((), descriptor.fget, value)
    elif issubclass(type(descriptor), (MemberDescriptorType, GetSetDescriptorType)):
        if _is_hidden(trace, descriptor, name, value):
            said = trace.outside.name(value, f".{name}")
            trace.running.refuse(said, f"reads {said} of a base class, which hides another {name}")
        else:
            _of_c(trace, name, value)
    elif type(descriptor) is _FIELD:
        place = descriptor.__reduce__()[1][0]
        if issubclass(type(value), tuple) and trace.outside.has(value) and place < tuple.__len__(value):
            trace.outside.read(ITEM, value, place, tuple.__getitem__(value, place), f".{name}")
    else:
        get = trace.classes.read(type(descriptor), "__get__")
        if not is_in_c(get):
            trace.callables.run(get)
        elif name and getattr(value, name, UNSET) is getattr(value, name, UNSET):
            _of_c(trace, name, value)  # it gives one object each time, so that can be compared
        elif trace.outside.has(value) and not trace.outside.by_content(type(value)):
            said = trace.outside.name(value, f".{name}")
            trace.running.refuse(said, f"reads {said}, made by C each time")


def through_descriptor(trace: Trace, descriptor: Any, value: Any) -> None:
    """Note a read of an attribute by its descriptor, whatever the class has under that name."""
    name = descriptor.__name__
    attribute(trace, name, value)
    if _is_hidden(trace, descriptor, name, value):
        _get(trace, descriptor, name, value)


def _is_hidden(trace: Trace, descriptor: Any, name: str, value: Any) -> bool:
    """Whether an object outside has something else under the name of a descriptor."""
    if not name or not trace.outside.has(value):
        return False
    return trace.classes.look_up(type(value), name) is not descriptor


def _of_c(trace: Trace, name: str, value: Any) -> None:
    """Note a read of an attribute that C gives: a slot, or a fact about an object of C."""
    if name == "_cdata" and issubclass(type(value), torch.UntypedStorage):
        trace.running.refuse(name, "reads _cdata of a storage, which is another one in each call")
        return
    if type(value) is FrameType:
        _of_frame(trace, name, value)
        return
    if name == "__context__" and issubclass(type(value), BaseException):
        _of_context(trace, value)
    if name == "metadata" and lookup.find(type(value), "next_functions").owner is not None:
        trace.running.refuse("metadata", "reads what somebody has kept in a node of a tensor's history")
        return
    if trace.kinds[type(value)] == TENSOR and name == "__dict__":
        _all_added(trace, value)
    if not trace.outside.has(value) or trace.kinds[type(value)] == TENSOR or name == "__class__":
        return
    if name == "__dict__":
        table = lookup.attributes_of(value)
        if issubclass(type(value), type):
            trace.outside.find(trace.classes.namespace(value), value, ".__dict__")
        elif table is not None:
            table_of(trace, value, table)
        return
    if issubclass(type(value), type) and (name in _IN_NAMESPACE or not lookup.can_change(value)):
        if lookup.can_change(value):
            of_namespace(trace, name, value)
        return
    if name in _OF_NODES and issubclass(type(value), _NODE):
        return
    try:
        found = getattr(value, name)
    except AttributeError:
        found = UNSET
    if issubclass(type(value), numpy.ndarray) and name not in _OF_ARRAYS:
        trace.outside.look_into(value)
        if name != "base":
            return  # C makes the answer anew each time, from the numbers just noted
    if issubclass(type(value), _FIXED_IN_C):
        trace.outside.find(found, value, f".{name}")
        return
    if type(found) in (tuple, list, dict, set) and getattr(value, name) is not found:  # made at each read
        trace.outside.read(SAID, value, name, answer(found), f".{name}")
    else:
        trace.outside.read(ATTRIBUTE, value, name, found, f".{name}")


def handles(trace: Trace, error: BaseException | None) -> None:
    """Note that the call sees the exception being handled, or none; the caller may be handling it."""
    if error is None and trace.handled is None:
        trace.outside.read(ASKED, handled_kind, (), answer(None), "the exception that the caller handles")
    elif error is not None and identity(error) == trace.handled and not is_for_output(trace):
        trace.running.refuse("sys.exc_info", "depends on the exception that its caller is handling")


def _of_context(trace: Trace, value: BaseException) -> None:
    """Note a read of ``__context__``: the exception that was being handled when this one was raised."""
    for known in (type(value), identity(value)):
        trace.seen.discard((known, "__context__"))  # each exception has its own
        trace.seen.discard((known, "__context__", "plain"))
    handles(trace, value.__context__)


def _of_frame(trace: Trace, name: str, frame: FrameType) -> None:
    """Note a read of a frame; only the frames that the call itself has made are allowed.

    A frame found outside is kept there, or belongs to a generator made there. No slot tells its position.
    """
    trace.seen.discard((FrameType, name))
    trace.seen.discard((FrameType, name, "plain"))
    if not is_inside(frame) or (name == "f_back" and not is_inside(frame.f_back)):
        looks_around(trace)
    elif trace.outside.has(frame) and name not in _STANDING:
        trace.running.refuse(
            name, f"reads {trace.outside.name(frame, f'.{name}')}, of a frame that is not of the call"
        )
    for table in (frame.f_globals, frame.f_builtins):
        trace.outside.find(table, None, "")


def is_inside(frame: FrameType | None) -> TypeGuard[FrameType]:
    """Whether a frame belongs to the call; the frames around the call are rote's own."""
    return frame is not None and not is_own(frame.f_code.co_filename)


def looks_around(trace: Trace) -> None:
    """Refuse a look at the callers of the call, unless it is for output."""
    if not is_for_output(trace):
        trace.running.refuse("sys._getframe", "looks at the frames around it")


def of_namespace(trace: Trace, name: str, value: type) -> None:
    """Note a read of a fact about a class that lies in its namespace."""
    table = trace.classes.namespace(value)
    if name in table:
        trace.outside.read(ITEM, table, name, table[name], f".{name}", value)
    else:
        trace.outside.absent(table, name, f".{name}", value)


def everything(trace: Trace, value: Any) -> None:
    """Note that C reads all attributes of an object."""
    kind = type(value)
    table = lookup.attributes_of(value)
    names: list[Any] = [*(table or ()), *lookup.slots(kind)]
    for name in names:
        if issubclass(type(name), str):
            plain_attribute(trace, name, value)
    if table is not None and trace.outside.has(value):
        table_of(trace, value, table)
        trace.outside.read(ORDER, table, None, Content(tuple(table)), " (its attributes)", value)


def store_attribute(trace: Trace, name: str, new: Any, value: Any) -> None:
    """Note ``value.name = new``."""
    trace.callables.run(new)  # C may call a stored function later
    if name != _OF_COMPILER:
        _store(trace, "__setattr__", value, name, new)


def delete_attribute(trace: Trace, name: str, value: Any) -> None:
    """Note ``del value.name``."""
    _store(trace, "__delattr__", value, name)


def _store(trace: Trace, method: str, value: Any, name: str, *new: Any) -> None:
    looks_through(trace, type(value))
    found = trace.classes.read(type(value), method)
    if found is not _MISSING and not _is_plain(found, method):
        _hand_on(trace, found, value, name, *new)
        return
    plain_store(trace, name, value, *new, deletes=not new)
    own = trace.kinds[type(value)] == OTHER and not trace.outside.has(value)
    if own and name not in OF_CLASS and type(value) is not numpy.ndarray:
        trace.outside.hold(type(value))
        trace.seen.add((type(value), name, method))


def plain_store(trace: Trace, name: str, value: Any, new: Any = None, *, deletes: bool = False) -> None:
    """Note that an attribute is set or deleted as by ``object.__setattr__``."""
    trace.outside.stray(value)
    shares = name == "__dict__" and trace.outside.has(new) and not trace.outside.has(value)
    _write(trace, name, value, _MISSING if deletes else new)
    if deletes:
        of_class = issubclass(type(value), type)
        table = trace.classes.namespace(value) if of_class else lookup.attributes_of(value)
        trace.writes.delete(table, name, value)
    if shares:  # the call made the object, but not its attributes
        trace.outside.find(value, None, said_name(type(value)))


def _write(trace: Trace, name: str, value: Any, new: Any) -> None:
    found = trace.classes.read(type(value), name)
    if found is not _MISSING and _is_data(trace, found, stored=True):
        if issubclass(type(found), property):
            for each in (found.fset, found.fdel):
                trace.outside.find(each, found, "")
                trace.callables.run(each)
        elif not lookup.is_in_c(found):
            trace.callables.run(trace.classes.read(type(found), "__set__"))
            trace.callables.run(trace.classes.read(type(found), "__delete__"))
        elif trace.kinds[type(value)] != TENSOR:
            trace.writes.write(ATTRIBUTE, value, name, value, new)
        return
    if issubclass(type(value), type):
        trace.writes.write(ITEM, trace.classes.namespace(value), name, value, new)
        return
    table = lookup.attributes_of(value)
    if table is not None:
        if trace.kinds[type(value)] == TENSOR:
            trace.outside.find_tags(table, value)
        elif trace.outside.has(value):
            table_of(trace, value, table)  # a replay writes into this very dict
        trace.writes.write(ITEM, table, name, value, new)
