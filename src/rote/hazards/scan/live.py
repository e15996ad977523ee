"""The functions that a live callable leads to, by file, so that only they are read.

Followed are the modules and functions that a function's globals and closure name, the bases of bound methods,
and every module inside of a module. What is called by a name that is only made while it runs is not followed.
"""

from __future__ import annotations

import dis
import functools
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ...base.location import is_internal
from .program import Entries

_LOADS = ("LOAD_GLOBAL", "LOAD_NAME")
MOST = 4096
"""So many functions are followed at most."""


def reached(target: Callable[..., Any]) -> dict[str, Entries]:
    """Qualified names and lines of the functions that a call of the target may run, by source file."""
    found: dict[str, set[tuple[str, int]]] = {}
    todo: list[Any] = [target]
    seen: set[int] = set()
    while todo and len(seen) < MOST:
        each = todo.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        function = _function(each)
        if function is None:
            todo.extend(_parts(each))
            continue
        code = function.__code__
        if is_internal(code.co_filename):
            continue
        name = function.__qualname__.replace("<locals>.", "")
        found.setdefault(code.co_filename, set()).add((name, _first_line(function)))
        todo.extend(_parts(each))
        todo.extend(_named(function))
    return {file: frozenset(entries) for file, entries in found.items()}


def _function(value: Any) -> types.FunctionType | None:
    value = inspect.unwrap(value) if callable(value) else value
    if isinstance(value, types.MethodType):
        value = value.__func__
    return value if isinstance(value, types.FunctionType) else None


def _parts(value: Any) -> Iterator[Any]:
    """What a value that is no function itself leads to."""
    if isinstance(value, functools.partial):
        yield value.func
        yield from value.args
    elif isinstance(value, types.MethodType):
        if isinstance(value.__self__, torch.nn.Module):
            yield from _forwards(value.__self__)
    elif isinstance(value, torch.nn.Module):
        yield from _forwards(value)
    elif callable(value) and not isinstance(value, type):
        yield type(value).__call__


def _forwards(module: torch.nn.Module) -> Iterator[Any]:
    kinds = {type(each) for each in module.modules()}
    yield from (inspect.getattr_static(kind, "forward") for kind in kinds)  # as it is: a scripted one raises


def _named(function: types.FunctionType) -> Iterator[Any]:
    """Functions and modules among the globals and closure variables that a function names."""
    names = {each.argval for each in dis.get_instructions(function.__code__) if each.opname in _LOADS}
    values = [function.__globals__.get(name) for name in sorted(names)]
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:  # not bound yet
            continue
    for value in values:
        if isinstance(value, (torch.nn.Module, types.FunctionType, types.MethodType, functools.partial)):
            yield value


def _first_line(function: types.FunctionType) -> int:
    """The line of ``def``; a code object begins at the first decorator."""
    first = function.__code__.co_firstlineno
    try:
        lines, start = inspect.getsourcelines(function)
    except (OSError, TypeError):
        return first
    for number, line in enumerate(lines):
        if line.lstrip().startswith(("def ", "async def ", "class ")) or function.__name__ == "<lambda>":
            return start + number
    return first
