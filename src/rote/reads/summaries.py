"""Functions of which one note tells all that they read: those of PyTorch's that every module goes through.

A call of a model goes through them thousands of times. What they read is known, so one note at their
beginning tells it, by the notes that their instructions would take, and their own code follows. Where that is
not all (where a hook is set, for instance) the note says so, and code follows that tells what it reads.

It is told once of each module: what its containers hold decides what is read, until one of them is written.
"""

from __future__ import annotations

import dis
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import CodeType, FunctionType, GetSetDescriptorType, MethodType, ModuleType
from typing import Any

import torch

from ..base.identity import identity
from ..base.location import is_own
from ..signature.compat import tracing_state
from . import lookup
from .attributes import attribute, plain_attribute
from .calls import called
from .containers import member, truth
from .importing import before_import_module
from .instrument import TABLE
from .names import of_globals
from .trace import Trace

_PARTS = ("_parameters", "_buffers", "_modules")
_HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
_GLOBAL_HOOKS = (
    "_global_backward_pre_hooks",
    "_global_backward_hooks",
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
)
_GETATTRIBUTE = object.__dict__["__getattribute__"]
_END = "end"
_TABLES = frozenset({dict, OrderedDict})
_BEGINNING = frozenset({"MAKE_CELL", "COPY_FREE_VARS", "RESUME"})


Told = list[Any] | None


@dataclass(frozen=True)
class Summary:
    """What tells all that a function reads.

    Attributes:
        code: The function's.
        given: What the note is told: names of the function's parameters, or :data:`.instrument.TABLE`.
        note: Tells it to a trace; returns the containers into which the function looks, None if that is not
            all.
        asks: What the function asks C. It has no note of its own; if it says something true, that is not all.
    """

    code: CodeType
    given: tuple[str, ...]
    note: Callable[..., Told]
    asks: Callable[[], object] = bool


@cache
def summaries() -> Mapping[int, Summary]:
    """By the identity of the code; of code that is not as it is written here there is none."""
    kind: Any = torch.nn.Module
    written = (
        (_GETATTR, Summary(_code_of(kind.__getattr__), ("self", "name"), _of_getattr)),
        (_WRAPPED_CALL, Summary(_code_of(kind._wrapped_call_impl), ("self",), _of_wrapped_call)),
        (_CALL, Summary(_code_of(kind._call_impl), ("self", TABLE), _of_call, tracing_state)),
        (_IMPORT, Summary(_code_of(import_module), ("name", "package"), _of_import)),
    )
    return {identity(each.code): each for text, each in written if begins_as(each.code, text)}


def _code_of(function: Any) -> CodeType:
    """The code of a function; of what somebody has put into its place, any."""
    return function.__code__ if type(function) is FunctionType else _code_of.__code__


# ---------------------------------------------------------------------- what the functions do

_GETATTR = """
def __getattr__(self, name):
    if "_parameters" in self.__dict__:
        _parameters = self.__dict__["_parameters"]
        if name in _parameters:
            return _parameters[name]
    if "_buffers" in self.__dict__:
        _buffers = self.__dict__["_buffers"]
        if name in _buffers:
            return _buffers[name]
    if "_modules" in self.__dict__:
        modules = self.__dict__["_modules"]
        if name in modules:
            return modules[name]
    end
"""

_WRAPPED_CALL = """
def _wrapped_call_impl(self, *args, **kwargs):
    if self._compiled_call_impl is not None:
        return self._compiled_call_impl(*args, **kwargs)
    else:
        return self._call_impl(*args, **kwargs)
"""

_CALL = """
def _call_impl(self, *args, **kwargs):
    forward_call = (self._slow_forward if torch._C._get_tracing_state() else self.forward)
    if not (self._backward_hooks or self._backward_pre_hooks or self._forward_hooks or self._forward_pre_hooks
            or _global_backward_pre_hooks or _global_backward_hooks
            or _global_forward_hooks or _global_forward_pre_hooks):
        return forward_call(*args, **kwargs)
    end
    lambda: (self, args, kwargs, forward_call)
"""


_IMPORT = """
def import_module(name, package=None):
    end
"""


def begins_as(code: CodeType, text: str) -> bool:
    """Whether code does what is written down, up to where ``end`` stands."""
    names: dict[str, Any] = {}
    exec(compile(text, "<text>", "exec"), names)
    if code.co_name not in names:
        return False
    written = list(_instructions(names[code.co_name].__code__))
    ends = [at for at, (_, argument) in enumerate(written) if argument == _END]
    found = list(_instructions(code))
    return found[: ends[0]] == written[: ends[0]] if ends else found == written


def _instructions(code: CodeType) -> Iterator[tuple[str, Any]]:
    """Instructions with their arguments; where a jump goes is said in instructions from the beginning."""
    found = [each for each in dis.get_instructions(code) if each.opname not in _BEGINNING]
    at = {each.offset: number for number, each in enumerate(found)}
    for each in found:
        jumps = each.opcode in dis.hasjrel or each.opcode in dis.hasjabs
        yield each.opname, at[each.argval] if jumps else each.argval


# ---------------------------------------------------------------------- what they read


def _of_getattr(trace: Trace, value: Any, name: Any) -> Told:
    if type(name) is not str or not _is_module(trace, value):
        return None
    attribute(trace, "__dict__", value)
    table = lookup.attributes_of(value) or {}
    looked = [table]
    for part in _PARTS:
        if trace.has(table):
            member(trace, table, part)
        if part not in table:
            continue
        inner = table[part]
        if type(inner) is not dict:
            return None
        looked.append(inner)
        if trace.has(inner):
            member(trace, inner, name)
        if name in inner:
            return looked
    return None


def _of_wrapped_call(trace: Trace, value: Any) -> Told:
    if not _is_module(trace, value):
        return None
    attribute(trace, "_compiled_call_impl", value)
    compiled = _own(value, "_compiled_call_impl")
    if compiled is lookup.MISSING:
        compiled = trace.in_class(type(value), "_compiled_call_impl")
    if compiled is not None or not _calls(trace, value, "_call_impl"):
        return None
    return [lookup.attributes_of(value)]


def _of_call(trace: Trace, value: Any, table: dict[str, Any]) -> Told:
    looked: list[Any] = [table, lookup.attributes_of(value)]
    if not (_is_module(trace, value) and _is_not_tracing(trace, table, looked)):
        return None
    if not _calls(trace, value, "forward"):
        return None
    for name in _HOOKS:
        plain_attribute(trace, name, value)
        if not _is_empty(trace, _own(value, name), looked):
            return None
    return looked if _have_no_hooks(trace, table, looked) else None


def _have_no_hooks(trace: Trace, table: dict[str, Any], looked: list[Any]) -> bool:
    """Hooks of all modules are asked for in a frame with these globals; whether there are none."""
    told = ("hooks", identity(table))
    if told in trace.told:
        return True
    mine: list[Any] = [table]
    empty = all([_is_empty(trace, of_globals(trace, name, table), mine) for name in _GLOBAL_HOOKS])
    looked += mine
    if empty and all([trace.has(each) for each in mine]):
        trace.tell(told, mine)
    return empty


def _is_module(trace: Trace, value: Any) -> bool:
    """Whether a value is a module whose attributes are asked for as those of any object are."""
    kind = type(value)
    if not issubclass(kind, torch.nn.Module):
        return False
    asks = trace.in_class(kind, "__getattribute__")
    return asks is _GETATTRIBUTE and type(trace.in_class(kind, "__dict__")) is GetSetDescriptorType


def _of_import(trace: Trace, name: Any, package: Any) -> Told:
    before_import_module(trace, name, package)
    return None


def _own(value: Any, name: str) -> Any:
    """What an object itself has under a name, or MISSING."""
    return (lookup.attributes_of(value) or {}).get(name, lookup.MISSING)


def _calls(trace: Trace, value: Any, name: str) -> bool:
    """A method of a module is about to be called; whether its class has it, and it can be followed."""
    function = trace.in_class(type(value), name)
    if type(function) is not FunctionType or _own(value, name) is not lookup.MISSING:
        return False
    if is_own(function.__code__.co_filename) or trace.rows.is_pure(MethodType(function, value)):
        return False
    attribute(trace, name, value)
    trace.runs(function)
    return True


def _is_not_tracing(trace: Trace, table: dict[str, Any], looked: list[Any]) -> bool:
    """PyTorch's own tracer is asked for in a frame with these globals; whether it is off."""
    told, mine = ("tracing", identity(table)), [table]
    if told in trace.told:
        return not tracing_state()
    value = of_globals(trace, "torch", table)
    for name in ("_C", "_get_tracing_state"):
        if type(value) is not ModuleType:
            return False
        attribute(trace, name, value)
        trace.find(vars(value), value, ".__dict__")
        mine.append(vars(value))
        value = _own(value, name)
    if value is not tracing_state:
        return False
    called(trace, (), value)
    looked += mine
    if all([trace.has(each) for each in mine]):
        trace.tell(told, mine)
    return not tracing_state()


def _is_empty(trace: Trace, hooks: Any, looked: list[Any]) -> bool:
    if type(hooks) not in _TABLES:
        return False
    looked.append(hooks)
    truth(trace, hooks)
    return not hooks
