"""What C callables do: the rows of ``calls.toml``."""

from __future__ import annotations

import sys
import tomllib
import types
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ....base import identity, is_own
from ...objects import module_of, said_module, said_name
from . import lookup
from .shipped import RowNames, load

UNKNOWN = "unknown"
"""What a callable does that is in no row."""

_FILE: dict[str, Any] = tomllib.loads(Path(__file__).with_name("calls.toml").read_text())
HANDLED: dict[str, list[str]] = _FILE.pop("handlers")
"""Names of callables with a handler of their own, by the word of the handler."""
_ROWS: dict[str, list[str]] = {row: content["names"] for row, content in _FILE.items()}
_NAMES = RowNames.of(_ROWS)

REFUSED: dict[str, str] = {row: content["does"] for row, content in _FILE.items() if "does" in content}
"""Rows whose callables make a call eager, with what they do."""

BY_SETTINGS = ("decimal.", "_decimal.", "numpy.")
"""Libraries whose results depend on settings besides the arguments."""
_OPERATORS = "_VariableFunctionsClass."
"""The class whose static methods the functions of ``torch`` in C are."""
_BOUND = (types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType)


@cache
def row_of(name: str) -> str:
    """The row of a callable by its full name, or :data:`UNKNOWN`."""
    return _NAMES.find(name) or UNKNOWN


def name_of(function: Any) -> str:
    """The full name of a C callable: its module, or its class, and its own name."""
    if isinstance(function, type):
        return _name_of_class(function)
    owner = getattr(function, "__objclass__", None)
    name = getattr(function, "__name__", "")
    bound = getattr(function, "__self__", None)
    if owner is None and bound is not None and not is_nobody(type(bound)):
        kind: Any = bound if isinstance(bound, type) else type(bound)
        having = [cls for cls in kind.__mro__ if name in vars(cls)]
        owner = next((cls for cls in having if type(vars(cls)[name]) is not types.FunctionType), kind)
        if isinstance(bound, type):  # a method of the class in C, behind those that are Python code
            owner = next(
                (cls for cls in having if isinstance(vars(cls)[name], types.ClassMethodDescriptorType)), owner
            )
            if not having:  # a method of the class of the class
                meta: type = type(bound)
                above = [cls for cls in meta.__mro__ if name in vars(cls)]
                owner = next((cls for cls in above if type(vars(cls)[name]) is not types.FunctionType), owner)
    if owner is not None:
        return f"{_name_of_class(owner)}.{name}"
    module = getattr(function, "__module__", None) or getattr(bound, "__name__", "")
    if not module and getattr(torch.Tensor, name, None) is function:  # static, and nobody's
        return f"{_name_of_class(torch.Tensor.__base__ or torch.Tensor)}.{name}"
    free = bound is not None and is_nobody(type(bound))  # pybind11 says whose record it is
    said = name if free else getattr(function, "__qualname__", name)
    return f"{_text(module)}.{said.removeprefix(_OPERATORS)}"


class Row(NamedTuple):
    """What is known of a C callable."""

    name: str
    row: str
    handler: Callable[..., None] | None  # what notes its reads, if it is not the row
    function: Any  # the callable, which is held so that its identity stays its own; None for a bound method


class Rows:
    """The rows of C callables, each looked up once.

    Handlers go by the full name of the callable; for calls of an instance by that of its class and ``()``.
    """

    def __init__(self, handlers: Mapping[str, Callable[..., None]], called: Callable[..., None]) -> None:
        self._handlers = handlers
        self._called = called
        self._pure: dict[int, Any] = {}
        self._declared_methods: list[Any] = []  # of C, which are made anew at each access
        self._codes: set[types.CodeType] = set()
        self._of: dict[Any, Row] = {}
        # what gives the same for the same numbers and tensors, and does nothing else: identities of
        # functions, and names of methods with their class
        self.plain: set[Any] = set()
        self.silent: set[Any] = set()  # what reads and writes nothing that is known of it, likewise
        self._shipped: RowNames | None = None

    def read_shipped(self) -> None:
        """Read the rows that libraries ship, once in a process, after a callable was in no row."""
        if self._shipped is None:
            self._shipped = load(tuple(_ROWS))
            self._of = {key: row for key, row in self._of.items() if row.row != UNKNOWN}

    def row_of(self, name: str) -> str:
        """The row of a callable by its full name; what libraries ship counts where rote knows nothing."""
        row = row_of(name)
        return (self._shipped.find(name) or UNKNOWN) if row == UNKNOWN and self._shipped else row

    def is_shipped(self, name: str) -> bool:
        """Whether a callable is known by what a library says alone."""
        if not self._shipped or row_of(name) != UNKNOWN:
            return False
        return self._shipped.find(name) is not None

    def declare(self, things: Iterable[Any]) -> None:
        """Functions, classes and modules give the same for the same arguments, and do nothing else."""
        for each in things:
            self._pure[identity(each)] = each
            if type(each) is types.BuiltinFunctionType:
                self._declared_methods.append(each)
            parts = vars(each).values() if isinstance(each, type) else (each,)
            for part in parts:
                target = getattr(part, "__func__", part)
                if type(target) is types.FunctionType:
                    self._codes.add(target.__code__)

    def is_in_pure(
        self, frame: types.FrameType | None, original: Callable[[types.CodeType], types.CodeType]
    ) -> bool:
        """Whether a frame of this call runs below something declared pure."""
        while frame is not None and self._pure and not is_own(frame.f_code.co_filename):
            module = sys.modules.get(_text(frame.f_globals.get("__name__")))
            if identity(module) in self._pure or original(frame.f_code) in self._codes:
                return True
            frame = frame.f_back
        return False

    def is_pure(self, function: Any) -> bool:
        """Whether a callable, or its owner, is declared pure."""
        if not self._pure:
            return False
        kind = type(function)
        target: Any = function.__func__ if kind is types.MethodType else function
        if identity(function) in self._pure or identity(target) in self._pure:
            return True
        if kind is types.BuiltinFunctionType and any(each == function for each in self._declared_methods):
            return True
        owner: Any = function.__self__ if kind in _BOUND else None
        whose: Any = owner if issubclass(type(owner), type) else type(owner)
        if (
            kind is types.BuiltinFunctionType
            and identity(lookup.find(whose, function.__name__).value) in self._pure
        ):
            return True
        module = sys.modules.get(_said_of(target))
        return any(identity(each) in self._pure for each in (*whose.__mro__, kind, module))

    def called(self, trace: Any) -> Callable[..., None]:
        """What notes, in a trace, that something is about to be called."""
        return partial(self._called, trace)

    def of(self, function: Any) -> Row:
        """The row of a C callable."""
        bound = getattr(function, "__self__", None)
        # A bound method is made anew at each access; a function of a module is one object.
        kept = bound is None or is_nobody(type(bound))
        free = kept or type(function) not in (types.BuiltinFunctionType, types.MethodWrapperType)
        whose: Any = bound if issubclass(type(bound), type) else type(bound)
        key = identity(function) if free else (whose, function.__name__)
        found = self._of.get(key)
        if found is None or (free and found.function is not function):
            if isinstance(function, type) and lookup.can_change(function):
                name = name_of(function)  # a class of the user's is not held
                return Row(name, self.row_of(name), self._handlers.get(name), None)
            name = name_of(function)
            row = self.row_of(name)
            if row == "fixed" and kept and type(function) is types.BuiltinFunctionType:
                row = UNKNOWN  # that is said of types and their methods
            found = self._of[key] = Row(name, row, self._handlers.get(name), function if free else None)
            by_settings = name.startswith(BY_SETTINGS)
            told = by_settings or self.is_shipped(name)
            if found.handler is None and row in ("pure", "none") and not told:
                self.plain.add(key)
                if row == "none":
                    self.silent.add(key)
        return found

    def of_instances(self, kind: type) -> Row:
        """The row of instances of a class that are called."""
        found = self._of.get(kind)
        if found is None:
            name = f"{name_of(kind)}()"
            found = Row(name, "", self._handlers.get(name), kind)
            if not lookup.can_change(kind):
                self._of[kind] = found
        return found


def _name_of_class(kind: type) -> str:
    """The name of a class with its module, as far as what it says of that is believed."""
    return f"{module_of(kind) or '?'}.{said_name(kind)}"


def is_nobody(kind: type) -> bool:
    """Whether C functions bound to instances of a type are free functions."""
    return (
        kind is types.ModuleType
        or kind.__name__ == "PyCapsule"
        or kind.__name__.startswith("pybind11_detail_")
    )


def _said_of(function: Any) -> str:
    """The module that a callable says it is from; no code of the user's is asked."""
    kind = type(function)
    if issubclass(kind, type):
        return said_module(function)
    found = lookup.find(kind, "__module__").value
    said = found.__get__(function) if lookup.is_in_c(found) else None
    return _text(said) or said_module(kind)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
