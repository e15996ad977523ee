"""The Python state that a callable can reach: module attributes, closure cells, globals, containers.

The checker compares the state before and after a call, and replaces tensors before anything has run. So it
goes by reach; a recording goes by what its calls read (:mod:`..runtime.reads`). A walk starts from the
callable, from opaque arguments and from the globals that executed code names, and notes each slot (container,
key) with its content.

It descends into dicts, lists, tuples, sets, deques, closures, defaults and attributes of functions, partials,
modules, optimizers, instances of user classes (``__dict__`` and ``__slots__``), plain attributes of their
classes, context variables, the user's Python modules by the names that the code mentions, and the environment
if the code mentions it. It notes the position of an iterator and the length of a queue in C. It compares
everything else by identity.

It does not see state inside C extensions, files, properties that compute from a clock, settings of PyTorch
and of the standard library, or more than a sample of a large numpy array (:mod:`..runtime.objects.marks`).
"""

from __future__ import annotations

import functools
import threading
import types
import weakref
from _queue import SimpleQueue
from collections import OrderedDict, defaultdict, deque
from collections.abc import Container, Mapping
from contextvars import ContextVar
from typing import Any

import numpy
import torch

from ..base import COLLECTOR, ENVIRONMENT, READERS
from ..runtime.objects import (
    BY_IDENTITY,
    PROXIES,
    UNSET,
    Class,
    Content,
    Position,
    class_of,
    counted,
    is_bound_method,
    is_graphed,
    is_users,
    mark,
    members,
    own,
    said_name,
    scripted,
)
from ..runtime.pytorch import plain_functions, scripted_names
from ..runtime.state import (
    ATTRIBUTE,
    BULK,
    CELL,
    DEFINED,
    ITEM,
    LENGTH,
    MEMBERS,
    ORDER,
    SCRIPTED,
    VARIABLE,
    Address,
    Entry,
    Snapshot,
)
from .watched import WatchedCode

ANSWER = "answer"
"""Kind of a slot for the length of a queue."""

_DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType, types.WrapperDescriptorType)

_WRAPPERS = (staticmethod, classmethod, property, functools.cached_property, type(functools.lru_cache(print)))
_VIEWS = (type({}.keys()), type({}.values()), type({}.items()))
_PARTS = ("__wrapped__", "__func__", "fget", "fset", "func")
_tuple = tuple.__new__  # half the time of a named tuple's own constructor
BULK_LENGTH = 4096

_PLAIN = (int, float, bool, str, bytes, complex, type(None), torch.dtype, torch.device, torch.Size)
_PLAIN_TYPES = frozenset(_PLAIN)
_CONTAINERS = frozenset({dict, OrderedDict, list, tuple, set, frozenset})
"""Types whose instances have no attributes."""
_TABLES = frozenset({"_parameters", "_buffers", "_modules"})
"""Attributes of a module whose members are named as attributes are."""
_KEPT_TYPES = _PLAIN_TYPES | BY_IDENTITY | {Content}
"""Types whose instances are noted themselves, without a mark."""


class StateWalk:
    """Walks from roots to every slot, breadth first."""

    def __init__(self, executed: WatchedCode) -> None:
        self._executed = executed
        self._names = executed.mentioned()
        self._seen: dict[int, Any] = {}
        self._classes: dict[type, Class] = {}
        self._queue: deque[tuple[Any, int]] = deque()
        self.snapshot = Snapshot()

    def take(self, roots: list[tuple[str, Any]]) -> Snapshot:
        """Snapshot everything reachable from the roots and the executed code's globals."""
        # A walk makes tens of thousands of tuples, no garbage: collecting would double its time. A look at a
        # tensor of the user's class calls no function of that class.
        with COLLECTOR.rests(), plain_functions():
            self._take(roots)
        return self.snapshot

    def _take(self, roots: list[tuple[str, Any]]) -> None:
        for name, root in roots:
            # A root that is compared by content gets a slot, the same one at every walk.
            if isinstance(root, numpy.ndarray) or isinstance(mark(root), (Content, Position)):
                holder = self._executed.holders.setdefault(id(root), [root])
                self._note(ITEM, holder, 0, root, -1, name)
            else:
                self._descend(root, self.snapshot.node(-1, name))
        for namespace, name in self._executed.reads():
            label = f"{namespace.get('__name__', '')}.{name}"
            if name in namespace:
                self._note(ITEM, namespace, name, namespace[name], -1, label)
            else:
                self._note(DEFINED, namespace, name, Content(False), -1, f"{label} (whether it is defined)")
        for module in self._executed.modules():
            self._descend(module, -1)
        if not READERS.isdisjoint(self._names):
            self._note(BULK, ENVIRONMENT, None, Content(tuple(ENVIRONMENT.items())), -1, "os.environ")
        self._expand_queue()
        for name, value in list(self._executed.beside(self._seen)):
            self._descend(value, self.snapshot.node(-1, name))
        self._expand_queue()

    def _expand_queue(self) -> None:
        while self._queue:
            value, node = self._queue.popleft()
            self._expand(value, node)

    def _note(self, kind: str, container: Any, key: Any, value: Any, parent: int, label: str) -> None:
        self._note_at((kind, id(container), key), container, value, parent, label)

    def _note_at(self, address: Address, container: Any, value: Any, parent: int, label: str) -> None:
        kind, _, key = address
        snapshot = self.snapshot
        entries = snapshot.entries
        if address in entries:
            return
        node = len(snapshot.labels)
        snapshot.parents.append(parent)
        snapshot.labels.append(label)
        kind_of_value = type(value)
        if kind_of_value in _KEPT_TYPES:  # most slots
            entries[address] = _tuple(Entry, (kind, container, key, value, node))
            if kind_of_value in BY_IDENTITY:
                self._descend(value, node)
            return
        entry = Entry(kind, container, key, mark(value), node)
        if isinstance(entry.value, Position):
            entry = entry._replace(value=self._of_use(entry.value, container, node))
        entries[address] = entry
        if kind_of_value in PROXIES:
            return
        if isinstance(value, torch.Tensor):
            self.snapshot.note_tensor(entry, value)
            if vars(value):
                self._expand_attributes(vars(value), node)
        elif isinstance(value, numpy.ndarray):
            for item in value.flat if isinstance(entry.value, Content) and value.dtype.hasobject else ():
                self._descend(item, node)
            snapshot.note_array(value)
        elif not isinstance(entry.value, Content) or isinstance(value, (set, frozenset)):
            self._descend(value, node)

    def _of_use(self, position: Position, container: Any, node: int) -> Position:
        """A position as the code that ran sees it: an iterator that it does not name counts as not moved."""
        is_argument = self._executed.holders.get(id(position.value)) is container
        named = is_argument or self._executed.names(self.snapshot.path(node), self._names)
        known = (position.known or not named) and position.codes.isdisjoint(self._executed.resumed)
        return position._replace(known=known)

    def _descend(self, value: Any, node: int) -> None:
        if type(value) in _PLAIN_TYPES or type(value) in PROXIES or isinstance(value, torch.Tensor):
            return
        identity = id(value)
        if identity not in self._seen:
            self._seen[identity] = value
            self._queue.append((value, node))

    def _expand(self, value: Any, node: int) -> None:
        kind = type(value)
        if isinstance(value, dict):
            self._expand_dict(value, node)
        elif isinstance(value, (list, tuple, deque)):
            self._expand_sequence(value, node)
        elif isinstance(value, (set, frozenset)):
            for item in members.keys(value) if members.length(value) <= BULK_LENGTH else ():
                self._descend(item, node)
        elif isinstance(value, types.FunctionType):
            self._expand_function(value, node)
            return
        elif (held := _stands_for(value)) is not None:
            for each in held:
                self._descend(each, node)
            return
        elif isinstance(value, functools.partial):
            for label in ("func", "args", "keywords"):
                self._descend(getattr(value, label), self.snapshot.node(node, f".{label}"))
            return
        elif isinstance(value, _WRAPPERS):
            for part in [getattr(value, name, None) for name in _PARTS]:
                if isinstance(part, types.FunctionType) and part.__code__ in self._executed.globals:
                    self._descend(part, node)
            return
        elif isinstance(value, threading.local):
            self._expand_attributes(value.__dict__, node)
            return
        elif isinstance(value, ContextVar):
            self._note(VARIABLE, value, None, value.get(UNSET), node, ".get()")
            return
        elif isinstance(value, types.ModuleType):
            self._expand_module(value)
            return
        elif isinstance(value, type):
            if is_users(value):
                self._expand_class(value, node)
                self._descend(type(value), node)
            return
        if kind in _CONTAINERS:
            return
        of_class = self._classes.get(kind) or self._classes.setdefault(kind, class_of(kind))
        if of_class.is_open:
            self._expand_instance(value, of_class, node)
        elif isinstance(value, types.BuiltinFunctionType):
            if not isinstance(value.__self__, (types.ModuleType, type)):
                self._note(ATTRIBUTE, value, "__self__", value.__self__, node, ".__self__")
        elif isinstance(value, SimpleQueue):
            self._note(ANSWER, value, None, Content(value.qsize()), node, ".qsize()")

    def _expand_dict(self, value: Mapping[Any, Any], node: int) -> None:
        found = members.items(value)
        self._note(LENGTH, value, None, counted(len(found)), node, " (length)")
        if not found and type(value) is not defaultdict:
            return
        if len(found) > BULK_LENGTH and all(type(item) in _PLAIN_TYPES for _, item in found):
            self._note(BULK, value, None, Content(found), node, "")
            return
        self._note_order(value, node)
        if isinstance(value, defaultdict):
            self._note(ATTRIBUTE, value, "default_factory", value.default_factory, node, ".default_factory")
        identity = id(value)
        for key, item in found:
            label = f"[{key!r}]" if type(key) in _PLAIN_TYPES else f"[<{type(key).__name__}>]"
            self._note_at((ITEM, identity, key), value, item, node, label)
            if not isinstance(key, _PLAIN):
                self._descend(key, node)

    def _note_order(self, value: Mapping[Any, Any], node: int) -> None:
        if not 0 < members.length(value) <= BULK_LENGTH:
            return
        keys = members.keys(value)
        kinds = set(map(type, keys))
        # A single key matters too if it is no string: 1 and True are equal, and not the same.
        if (len(keys) > 1 or kinds != {str}) and kinds <= _PLAIN_TYPES:
            self._note(ORDER, value, None, Content(keys), node, " (order)")

    def _expand_sequence(self, value: Any, node: int) -> None:
        found = members.keys(value)
        if not isinstance(value, tuple):
            self._note(LENGTH, value, None, counted(len(found)), node, " (length)")
        if len(found) > BULK_LENGTH and all(type(item) in _PLAIN_TYPES for item in found):
            self._note(BULK, value, None, Content(found), node, "")
            return
        identity = id(value)
        for index, item in enumerate(found):
            self._note_at((ITEM, identity, index), value, item, node, f"[{index}]")

    def _expand_function(self, value: types.FunctionType, node: int) -> None:
        if not is_users(value):
            return
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            try:
                content = cell.cell_contents
            except ValueError:  # the cell is still empty
                continue
            suffix = name if self.snapshot.is_root(node) else f".{name}"
            self._note(CELL, cell, None, content, node, suffix)
        for label in ("__defaults__", "__kwdefaults__"):
            if getattr(value, label):
                self._note(ATTRIBUTE, value, label, getattr(value, label), node, f".{label}")
        if value.__dict__:
            self._expand_attributes(value.__dict__, node)

    def _expand_module(self, value: types.ModuleType) -> None:
        if not is_users(value):
            return
        table = vars(value)
        for name in self._names & table.keys():
            self._note(ITEM, table, name, table[name], -1, f"{table.get('__name__')}.{name}")

    def _expand_instance(self, value: Any, of_class: Class, node: int) -> None:
        attributes = own(value, "__dict__")
        if attributes is not UNSET:
            self.snapshot.training.meet(value)
            self._expand_attributes(attributes, node)
        if isinstance(value, torch.jit.ScriptModule):
            self._expand_scripted(value, node)
        for name in of_class.slots:
            found = own(value, name)  # one that is not set may be set later
            self._note(ATTRIBUTE, value, name, found, node, f".{name}")
        for cls in of_class.users:
            if id(cls) not in self._seen:
                self._descend(cls, self.snapshot.node(-1, said_name(cls)))

    def _expand_scripted(self, value: torch.jit.ScriptModule, node: int) -> None:
        for name in scripted_names(value):
            self._note(SCRIPTED, value, name, scripted(value, name), node, f".{name}")
        for name, module in value.named_children():
            self._descend(module, self.snapshot.node(node, f".{name}"))

    def _expand_attributes(self, attributes: dict[str, Any], node: int) -> None:
        self._note(LENGTH, attributes, None, counted(len(attributes)), node, " (number of attributes)")
        identity = id(attributes)
        for name in list(attributes):
            value = attributes[name]
            if name in _TABLES and isinstance(value, dict):
                self._note(LENGTH, value, None, counted(members.length(value)), node, f".{name} (length)")
                self._note_order(value, node)
                for key, item in members.items(value):
                    self._note(ITEM, value, key, item, node, f".{key}")
            else:
                self._note_at((ITEM, identity, name), attributes, value, node, f".{name}")

    def _expand_class(self, cls: type, node: int) -> None:
        namespace = members.behind(vars(cls))
        # Not LENGTH, which means that all members are noted: of methods, only those that ran are.
        self._note(MEMBERS, namespace, None, Content(len(namespace)), node, " (number of attributes)")
        for name, value in _members_of(cls, self._executed.globals):
            self._note(ITEM, namespace, name, value, node, f".{name}")


def _members_of(cls: type, ran: Container[types.CodeType]) -> list[tuple[str, Any]]:
    """The attributes of a class that are state: values, methods that ran, and classes defined inside."""
    found: list[tuple[str, Any]] = []
    for name, value in list(vars(cls).items()):
        if isinstance(value, types.FunctionType):
            noted = value.__code__ in ran
        elif isinstance(value, type):
            noted = said_name(value) == f"{said_name(cls)}.{name}"
        else:
            noted = not name.startswith(("__", "_abc_")) and not isinstance(value, _DESCRIPTORS)
        if noted:
            found.append((name, value))
    return found


def _stands_for(value: Any) -> tuple[Any, ...] | None:
    """What a bound method, graphed callable, weak reference or view of a dict stands for; else None."""
    if is_bound_method(value):
        return value.__self__, value.__func__
    if is_graphed(value):
        return (value.__wrapped__,)
    if isinstance(value, weakref.ref):
        return (value(),)
    return (value.mapping,) if isinstance(value, _VIEWS) else None
