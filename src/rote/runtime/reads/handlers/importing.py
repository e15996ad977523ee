"""Imports in a traced call: a missing module is loaded before the instruction that imports it.

Loading runs the code of the module and of all its imports: thousands of functions that run once in a process.
Following them takes a hundred times as long as running them, and says nothing of the next call, which finds
the module loaded. So a note loads it, where no code is followed and no operation is seen, and the
instruction then finds it. If loading raises, the instruction raises the same again.
"""

from __future__ import annotations

import builtins
import contextlib
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import resolve_name
from typing import Any

from ....base import identity
from ...pytorch import undispatched, unseen_functions
from ...state import ITEM
from ..trace import Trace

_BUILTINS = vars(builtins)


def imported(trace: Trace, name: str, level: int, names: Any) -> None:
    """Note an import of a module, or of names from it."""
    frame = trace.running.frame()
    scope: Mapping[str, Any] = frame.f_globals if frame is not None else {}
    whole = _absolute(name, level, scope)
    if whole is not None and _is_missing(whole, names):
        _load(name, scope, names, level)
    trace.outside.find(sys.modules, None, "sys.modules")
    trace.outside.find(_BUILTINS, None, "")
    trace.outside.read(ITEM, _BUILTINS, "__import__", _BUILTINS["__import__"], "__import__")
    while name:
        if name in sys.modules:
            trace.outside.read(ITEM, sys.modules, name, sys.modules[name], f"[{name!r}]")
        name = name.rpartition(".")[0]


def before_import_module(trace: Trace, name: Any, package: Any = None) -> None:
    """Load the module that ``importlib.import_module`` is called for."""
    trace.callables.called.discard(identity(import_module))  # the next call may name another module
    if type(name) is not str or not (package is None or type(package) is str):
        return
    with contextlib.suppress(ImportError, ValueError):
        whole = resolve_name(name, package)
        if whole not in sys.modules:
            _load(whole, {}, (), 0)


def _absolute(name: str, level: int, scope: Mapping[str, Any]) -> str | None:
    """The full name of a module; None if only running code can tell it."""
    package = scope.get("__package__")
    if not level:
        return name
    if type(package) is not str or not package:
        return None
    return resolve_name("." * level + name, package)


def _is_missing(name: str, names: Any) -> bool:
    """Whether a module is not loaded, or perhaps one of the submodules named."""
    module = sys.modules.get(name)
    if module is None:
        return True
    there = vars(module) if type(module) is type(sys) else {}
    if "__path__" not in there or "__getattr__" in there:
        return False
    return any([type(each) is str and each != "*" and each not in there for each in names or ()])


def _load(name: str, scope: Mapping[str, Any], names: Any, level: int) -> None:
    with contextlib.suppress(Exception), unseen_functions(), undispatched():
        builtins.__import__(name, dict(scope), None, names or (), level)
