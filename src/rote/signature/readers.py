"""Code in C that reads attributes of objects, by names that stand in no Python code.

Of C code nothing is seen, so it is told by where it comes from. What belongs to Python's library, PyTorch or
numpy asks an object of a user's class for methods only, but for those named here. Anybody else's is taken to
read everything that it is given (``orjson`` goes through dataclasses, compiled modules run methods).

What does not work: to tell who holds an object by the count of its references. The walks themselves hold
what they have noted.
"""

from __future__ import annotations

import builtins
import functools
import gc
import itertools
import logging
import operator
import sys
import types
from collections import deque
from collections.abc import Container
from typing import Any, Generic, Protocol

import torch

from ..base.location import TORCH_NEEDS
from .origin import said_module

BUILTINS = frozenset(
    {builtins.getattr, builtins.hasattr, builtins.setattr, builtins.delattr, builtins.vars, builtins.dir}
)
"""Functions that read attributes of what they are given."""

_KINDS = (
    *(operator.attrgetter, operator.methodcaller),
    *(types.MemberDescriptorType, types.GetSetDescriptorType),
    *(types.WrapperDescriptorType, types.MethodWrapperType),
)
"""Types of objects that read attributes when they are called."""

_READING_MODULES = frozenset({
    "pickle", "_pickle", "marshal", "csv", "_csv", "ctypes", "_ctypes", "_asyncio", "sqlite3", "_sqlite3",
    "_elementtree", "pyexpat",
})  # fmt: skip
_WORKERS = frozenset({"_queue", "multiprocessing", "_multiprocessing"})
"""Modules whose objects hand work to another thread or process."""

_TRUSTED = (sys.stdlib_module_names - _READING_MODULES - _WORKERS) | {
    *(each.partition(".")[0] for each in TORCH_NEEDS),
    *("torch", "rote", "pybind11_builtins", "torchvision"),
}
_TYPES = frozenset({operator.attrgetter, operator.methodcaller})
_FUNCTIONS = BUILTINS | {gc.get_referents, gc.get_referrers, gc.get_objects}
_FORMATS = frozenset({"format", "format_map", "__reduce__", "__reduce_ex__", "__getstate__", "__dir__"})
_HOLDERS = (
    *(map, filter, zip, functools.partial, functools.partialmethod, functools.cached_property, property),
    *(staticmethod, classmethod, types.GeneratorType, types.CoroutineType, types.MethodType, types.CellType),
    *(itertools.starmap, itertools.chain, itertools.groupby, itertools.takewhile, itertools.dropwhile),
    *(itertools.filterfalse, itertools.accumulate, itertools.tee([])[0].__class__, itertools.cycle),
    *(itertools.islice, itertools.repeat, itertools.zip_longest, itertools.product),
    *(type(iter([])), type(iter(())), type(functools.lru_cache(print)), tuple, list, dict, set, frozenset),
    *(deque, types.MappingProxyType, type(iter({}.values())), type(iter({})), type(iter({}.items()))),
)
_ELSEWHERE = (type, types.ModuleType, types.CodeType, types.FrameType, logging.Logger, torch.Tensor)
"""What is not looked into: it holds no state of the user's, or what it does with it is seen when it runs."""
_FIXED = (tuple, frozenset, types.FunctionType, types.BuiltinFunctionType, *_KINDS)
"""What does not change, but for what it holds."""
_PLAIN = frozenset({int, float, bool, str, bytes, complex, type(None)})
_MOST_HIDDEN = 2_000
_MOST_LEFT_OUT = 50_000
_DEPTH = 4
_MOST = 256

_PARTS_OF_C = (
    *(types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType),
    types.GetSetDescriptorType,
)
_ON_HEAP = 1 << 9
_BASES = frozenset({object, Generic, Protocol})
_OWN_ATTRIBUTES = frozenset({"__dict__", "__weakref__"})


def reads_attributes(value: Any) -> bool:
    """Whether an object is code in C that may read attributes of what it is given."""
    kind = type(value)
    if kind in _KINDS:
        return True
    if kind is types.FunctionType or kind is types.ModuleType:
        return False
    if kind is types.BuiltinFunctionType:
        home = value.__module__ or _home_of(value.__self__)
        return value in _FUNCTIONS or value.__name__ in _FORMATS or _package(home) not in _TRUSTED
    if kind is types.MethodDescriptorType:
        return value.__name__ in _FORMATS or _is_foreign(value.__objclass__)
    if isinstance(value, type):
        return value in _TYPES or _is_foreign(value)
    if said_module(kind).startswith("_cython"):
        return _package(getattr(value, "__module__", "")) not in _TRUSTED
    return _is_foreign(kind)


def hides_reader(value: Any) -> bool:
    """Whether an object that only holds others (an iterator, a cache, a property) holds such code."""
    if type(value) not in _HOLDERS:
        return False
    seen: set[int] = {id(value)}
    level: list[Any] = [value]
    for _ in range(_DEPTH):
        parts: list[Any] = []
        for part in gc.get_referents(*level):
            if id(part) in seen or (isinstance(part, (type, types.ModuleType)) and part not in _TYPES):
                continue
            seen.add(id(part))
            if reads_attributes(part):
                return True
            if type(part) in _HOLDERS:
                parts.append(part)
        if len(seen) > _MOST:
            return True
        level = parts
    return bool(level)


def hidden_by(holders: list[Any], seen: Container[int]) -> dict[int, Any] | None:
    """What is held by objects that no walk looks into, as far as it can change; None if that is too much.

    Args:
        holders: The objects.
        seen: Identities of what a walk has met elsewhere.
    """
    found = _reachable(holders, seen, _MOST_HIDDEN)
    if found is None:
        return None
    return {key: value for key, value in found.items() if not isinstance(value, _FIXED)}


def holds_any(values: list[Any], wanted: dict[int, Any], seen: Container[int]) -> bool:
    """Whether some of the wanted objects are found in values, at whatever depth."""
    values = [value for value in values if id(value) not in seen]
    if any(id(value) in wanted for value in values):
        return True
    found = _reachable(values, seen, _MOST_LEFT_OUT)
    return found is None or not found.keys().isdisjoint(wanted)


def _reachable(roots: list[Any], seen: Container[int], most: int) -> dict[int, Any] | None:
    found: dict[int, Any] = {}
    level = roots
    while level:
        parts: list[Any] = []
        for value in level:
            for part in _parts_of(value):
                if type(part) in _PLAIN or isinstance(part, _ELSEWHERE):
                    continue
                if id(part) in found or id(part) in seen:
                    continue
                found[id(part)] = part
                parts.append(part)
        if len(found) > most:
            return None
        level = parts
    return found


def _parts_of(value: Any) -> list[Any]:
    if isinstance(value, types.FunctionType):  # its globals are slots of their own
        return [*(value.__closure__ or ()), value.__defaults__, value.__kwdefaults__]
    return gc.get_referents(value)


def is_reading_module(module: types.ModuleType) -> bool:
    """Whether a module of Python's library has functions that read attributes."""
    return _package(module.__name__) in _READING_MODULES | _WORKERS


def is_python(kind: type) -> bool:
    """Whether a class and its bases were made by class statements.

    Of a class made in C, methods and attributes are code that is not seen.
    """
    return not any(_is_made_in_c(cls) for cls in kind.__mro__ if cls not in _BASES)


def _is_foreign(kind: type) -> bool:
    """Whether a class, or one that it derives from, is made in C by somebody who is not known."""
    return any(not _is_trusted(cls) and _is_made_in_c(cls) for cls in kind.__mro__)


def _is_trusted(cls: type) -> bool:
    package = _package(said_module(cls))
    if package == "builtins":  # as classes made in Rust say that were given no module
        return not cls.__flags__ & _ON_HEAP or getattr(builtins, cls.__name__, None) is cls
    return package in _TRUSTED


def _is_made_in_c(cls: type) -> bool:
    if _package(said_module(cls)) in _TRUSTED:
        return _known_to_be_made_in_c(cls)
    return _has_parts_in_c(cls)


@functools.lru_cache(maxsize=4096)
def _known_to_be_made_in_c(cls: type) -> bool:
    """The same for a class of a library, which stays as it is."""
    return _has_parts_in_c(cls)


def _has_parts_in_c(cls: type) -> bool:
    for name, value in list(vars(cls).items()):
        if isinstance(value, types.BuiltinFunctionType):
            if value.__self__ is cls:  # its __new__
                return True
        elif isinstance(value, _PARTS_OF_C) and name not in _OWN_ATTRIBUTES and value.__objclass__ is cls:
            return True
    return False


def _home_of(owner: Any) -> str:
    """The module of a bound method in C: that of the object, or of its class."""
    if isinstance(owner, types.ModuleType):
        return owner.__name__
    return said_module(owner if isinstance(owner, type) else type(owner))


def _package(module: Any) -> str:
    return module.partition(".")[0] if isinstance(module, str) else ""
