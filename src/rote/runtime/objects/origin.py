"""The module that a class or a function comes from, without trust in the name that it claims.

``functools.wraps`` copies a module's name from one function to another, and programs set ``__module__`` to
hide where a class lies, or set it to None. The choice of whose state is read must not depend on that.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

_said_module: Any = vars(type)["__module__"].__get__  # a metaclass cannot override it
said_name: Callable[[type], str] = vars(type)["__qualname__"].__get__
"""The name of a class inside its module, as the class claims it."""
_IMMUTABLE, _ON_HEAP = 1 << 8, 1 << 9


def module_of(kind: type) -> str:
    """The name of the module that a class comes from; empty if it cannot be told.

    The class's claim counts if the class lies in that module, if the claim cannot be changed, or if the
    methods of the class come from that package.
    """
    said = said_module(kind)
    return said if said and _is_believed(kind, said) else ""


def modules_of(function: types.FunctionType) -> tuple[str, ...]:
    """Names of the modules that a function may come from: that of its code, and the one it claims.

    A decorator's wrapper claims the module of the wrapped function, and runs that function.
    """
    decorates = ("",) if "__wrapped__" in vars(function) else ()
    return (_home(function), _text(function.__module__), *decorates)


def said_module(kind: type) -> str:
    """The module that a class claims; empty if it claims none, or no string."""
    try:
        return _text(_said_module(kind))
    except AttributeError:
        return ""


def full_name(kind: type) -> str:
    """The name that a class claims, with that of its module."""
    return f"{said_module(kind)}.{said_name(kind)}"


def is_found(name: str) -> bool:
    """Whether a full name leads to an object in an imported module or one of its classes."""
    module, _, rest = name.rpartition(".")
    while module and module not in sys.modules:
        module, _, part = module.rpartition(".")
        rest = f"{part}.{rest}"
    return bool(module) and _at(module, rest) is not None


def _home(function: types.FunctionType) -> str:
    return _text(function.__globals__.get("__name__"))


def _text(said: Any) -> str:
    return said if isinstance(said, str) else ""


def _is_believed(kind: type, module: str) -> bool:
    if not kind.__flags__ & _ON_HEAP or kind.__flags__ & _IMMUTABLE:
        return True
    return _lies_in(kind, module) or _is_of_package(kind, module.partition(".")[0])


def _lies_in(kind: type, module: str) -> bool:
    """Whether a module contains a class, under its own name or under another one, as in C extensions."""
    if _at(module, said_name(kind)) is kind:
        return True
    found = sys.modules.get(module)
    return isinstance(found, types.ModuleType) and any(each is kind for each in tuple(vars(found).values()))


def _at(module: str, path: str) -> Any:
    """The object at a path of names in a module; None if there is none."""
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        if not isinstance(found, (types.ModuleType, type)):
            return None
        found = vars(found).get(part)
    return found


def _is_of_package(kind: type, package: str) -> bool:
    homes = [_home(value) for value in vars(kind).values() if type(value) is types.FunctionType]
    return bool(homes) and all([home.partition(".")[0] == package for home in homes])
