"""Source files: those of a path, and the functions that a live callable leads to, by file.

Followed are the modules and functions that a function's globals and closure name, the bases of bound methods,
and every module inside of a module. What is called by a name that is only made while it runs is not followed.
"""

from __future__ import annotations

import dis
import functools
import inspect
import tokenize
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ...base import MisuseError, is_internal
from ..rules import Finding
from .module import scan_text
from .program import Entries

_LOADS = ("LOAD_GLOBAL", "LOAD_NAME")
MOST = 4096
"""So many functions are followed at most."""
SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})

NOTEBOOK = ".ipynb"
FROM_NOTEBOOK = "this is a notebook; make a Python file of it first: jupyter nbconvert --to script {}"

BLIND_SPOTS = (
    "functions of other files: what they return is not known, and what they do is found in their own file",
    "the type of arguments without annotation that are only used in arithmetic",
    "shapes, devices and values: a copy between two tensors of one device looks like any other",
    "what libraries do inside, apart from the idioms of the rules 7xx; the trial run sees that",
    "code that is made while it runs: exec, getattr with computed names, monkey patching",
)
"""What the scan does not see."""


class Scanned(NamedTuple):
    """A file that was read.

    Attributes:
        file: Its name.
        text: Its text.
        findings: What was found in it.
    """

    file: str
    text: str
    findings: list[Finding]


def scan(paths: Iterable[Path]) -> list[Finding]:
    """Read source files and say what a capture of their functions would meet.

    Read are ``forward`` of modules, functions handed to ``rote.graph`` or captured by hand, what they call in
    the same file, and other functions that take tensors.

    Args:
        paths: Python files, and folders that are searched for them.

    Returns:
        The findings, by file, line and column.

    Raises:
        MisuseError: There is no such path, or a file is not Python.
    """
    return [found for each in scanned(paths) for found in each.findings]


def scanned(paths: Iterable[Path], unread: Callable[[MisuseError], None] | None = None) -> Iterator[Scanned]:
    """Read source files one by one, as :func:`scan` does.

    Args:
        paths: Python files, and folders that are searched for them.
        unread: Told of each file that is not Python, instead of ending there.

    Raises:
        MisuseError: There is no such path, or a file is not Python and ``unread`` is not given.
    """
    for file in python_files(paths):
        try:
            text = _text(file)
            found = scan_text(text, str(file))
        except MisuseError as error:
            if unread is None:
                raise
            unread(error)
        else:
            yield Scanned(str(file), text, found)


def scan_callable(target: Callable[..., Any]) -> list[Finding]:
    """Read the source of a callable and of the functions and modules that it leads to, and nothing else.

    Args:
        target: A function, method, module or partial of one. It is not called.

    Returns:
        The findings, by file, line and column; files of PyTorch are left out.
    """
    found: list[Finding] = []
    for file, entries in sorted(_reached(target).items()):
        if Path(file).is_file():
            found.extend(scan_text(_text(Path(file)), file, entries))
    return found


def _text(file: Path) -> str:
    """The text of a file, in the encoding that it declares."""
    if file.suffix == NOTEBOOK:
        raise MisuseError(f"{file}: {FROM_NOTEBOOK.format(file)}")
    try:
        with tokenize.open(file) as opened:
            return opened.read()
    except UnicodeDecodeError as error:
        raise MisuseError(f"{file}: this is not Python in UTF-8: {error}") from error
    except SyntaxError as error:  # the first lines, or the encoding that they declare
        raise MisuseError(f"{file}: this is not Python in UTF-8: {error.msg}") from error


def python_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield files as they are given, and the Python files below folders, in order of their names.

    Folders that begin with a dot and those of :data:`SKIPPED` are left out.

    Raises:
        MisuseError: There is no such path.
    """
    for path in paths:
        if path.is_dir():
            for file in sorted(path.rglob("*.py")):
                parts = file.relative_to(path).parts
                if not any(part in SKIPPED or part.startswith(".") for part in parts):
                    yield file
        elif path.exists():
            yield path
        else:
            raise MisuseError(f"{path}: there is no such file or folder")


def _reached(target: Callable[..., Any]) -> dict[str, Entries]:
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
