"""What objects lead to, as the garbage collector sees it: more than a call uses, without names and order.

This is asked where too much does no harm: whether a tensor of the state may share memory with an argument
that is about to be copied, on which device a callable may work, who else holds an object. A recording depends
on what its calls read (:mod:`..reads`), and never on this.

What does not work: an object is not found that C alone leads to without telling the collector, nor one that
only a global of an installed package leads to, if no code that names it has run.
"""

from __future__ import annotations

import gc
import logging
import threading
import types
import typing
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch

from ...base import identity, is_instance
from ..arguments import CLASS_SLOT, table_of
from ..objects import class_of, is_users, members, own
from ..pytorch import has_memory, plain_functions
from ..state import ATTRIBUTE, CELL, ITEM, VARIABLE, mentions_of, show

_LEAVES = frozenset({
    *(int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.Size),
    *(types.CodeType, types.FrameType, types.GenericAlias, types.UnionType, logging.Manager),
})  # fmt: skip
"""Types of objects that lead nowhere, or everywhere."""

_INSTALLED = ("/site-packages/", "/dist-packages/")
"""Parts of the path of installed code."""

_SEARCHING = frozenset({
    *("globals", "locals", "vars", "eval", "exec", "getattr", "__dict__", "__globals__", "f_globals"),
    *("modules", "import_module", "__import__", "attrgetter"),
})  # fmt: skip
"""Names in code that reaches objects it does not name."""

_RUNTIME = f"{__name__.rpartition('.conditions.')[0]}."
"""Where the classes of the runtime's own objects are: what they know of other calls is not the callable's."""

_TYPES = typing.__name__
"""Where the classes of annotations are. One leads to the caches of all; no call comes to a tensor by them."""

_Way = Callable[[Any], Iterable[Any]]

_IMPORTED = frozenset({"__loader__", "__spec__"})
"""What an import leaves in a module. It may lead to the whole process: pytest's loader leads to all tests."""


def reached(roots: Iterable[Any], ends: frozenset[type] = frozenset()) -> Iterator[Any]:
    """Everything that some objects lead to, each once, except plain values and instances of ``ends``.

    The user's functions and modules lead to all that they name, whether they have ever run or not. Functions
    and modules of installed packages lead to what they hold: all packages together are the whole process.

    A module of transformers leads to some 20,000 objects, and a traced call asks twice. So the collector is
    asked for all that lie equally far away at once, and a class is looked at once in a search.
    """
    leaves = _LEAVES | ends
    left, seen, ways = [*roots], dict[int, Any](), dict[type, _Way | None]()
    while left:
        values = {identity(value): value for value in left if type(value) not in leaves}
        found = [value for which, value in values.items() if which not in seen]
        seen.update(values)  # an identity is one as long as the object lives
        yield from found
        kinds = {type(value) for value in found}
        ways.update({kind: _way_behind(kind) for kind in kinds if kind not in ways})
        special = [(way, value) for value in found if (way := ways[type(value)]) is not None]
        left = [each for way, value in special for each in way(value)]
        left += gc.get_referents(*[value for value in found if ways[type(value)] is None])


def named_in(code: types.CodeType, namespace: dict[str, Any]) -> list[Any]:
    """The globals that code may get at, whether it names them or looks them up by a text."""
    names = mentions_of(code)
    if not _SEARCHING.isdisjoint(names):
        return _contents(namespace)
    return [namespace[name] for name in names & namespace.keys()]


def tensors_by_memory(values: Iterable[Any]) -> dict[int, torch.Tensor]:
    """The tensors with memory among some objects, by the handle of their storage."""
    with plain_functions():  # to look at a tensor is not to use it
        tensors = [each for each in values if issubclass(type(each), torch.Tensor) and has_memory(each)]
        return {each.untyped_storage()._cdata: each for each in tensors}


class Slot(NamedTuple):
    """A place in an object in which something lies.

    Attributes:
        kind: How it is written.
        container: The object, or the dict with its attributes.
        suffix: What one writes behind the name of the object.
    """

    kind: str
    container: Any
    key: Any
    value: Any
    suffix: str


def slots_in(holder: Any) -> list[Slot]:
    """The places in a container, in the attributes of an object, in a cell of a closure."""
    kind = type(holder)
    if is_instance(holder, dict):
        held = members.items(holder)
        return [Slot(ITEM, holder, key, value, f"[{show(key)}]") for key, value in held]
    if is_instance(holder, (list, deque)):
        held = enumerate(members.values(holder))
        return [Slot(ITEM, holder, number, value, f"[{number}]") for number, value in held]
    if kind is types.CellType:
        return [Slot(CELL, holder, None, value, "") for value in gc.get_referents(holder)]
    if kind is ContextVar:
        return [Slot(VARIABLE, holder, None, holder.get(None), ".get()")]
    if is_instance(holder, type):
        held = vars(holder).items() if is_users(holder) else ()
        return [Slot(CLASS_SLOT, holder, name, value, f".{name}") for name, value in held]
    table, slots = table_of(holder), [(name, own(holder, name)) for name in class_of(kind).slots]
    attributes = [Slot(ITEM, table, name, value, f".{name}") for name, value in (table or {}).items()]
    return attributes + [Slot(ATTRIBUTE, holder, name, value, f".{name}") for name, value in slots]


def _way_behind(kind: type) -> _Way | None:
    """How to come to what objects of a class lead to; None for what the collector says."""
    if kind is types.FunctionType:
        return _behind_function
    if issubclass(kind, type):
        return _behind_class
    if issubclass(kind, types.ModuleType):
        return _behind_module
    if issubclass(kind, weakref.ref):
        return lambda value: (value(),)
    if kind is ContextVar:
        return lambda value: (value.get(None),)
    module = str(vars(kind).get("__module__"))
    if module.startswith(_RUNTIME) or module == _TYPES:
        return lambda value: ()
    if issubclass(kind, threading.local):
        return lambda value: [*gc.get_referents(value), *value.__dict__.values()]
    return None


def _behind_function(function: types.FunctionType) -> list[Any]:
    code = function.__code__
    own = is_users(function) and not _is_installed(code.co_filename)
    named = named_in(code, function.__globals__) if own else ()
    return [function.__closure__, function.__defaults__, function.__kwdefaults__, function.__dict__, *named]


def _behind_class(value: type) -> Iterable[Any]:
    return [type(value), *value.__mro__, *vars(value).values()] if is_users(value) else ()


def _behind_module(module: types.ModuleType) -> Iterable[Any]:
    own = is_users(module) and not _is_installed(str(vars(module).get("__file__")))
    return _contents(vars(module)) if own else ()


def _contents(namespace: dict[str, Any]) -> list[Any]:
    """What a module has in its namespace."""
    return [value for name, value in list(namespace.items()) if name not in _IMPORTED]


def _is_installed(file: str) -> bool:
    return any([marker in file for marker in _INSTALLED])
