"""The target of a command: ``policy.py:build`` or ``package.module:build``.

This function is called with the values of ``--arg name=value`` and returns a callable and its arguments, as
``fn``, ``(fn, args)`` or ``(fn, args, kwargs)``.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, cast

import torch
import typer
from torch import nn

from ...base import NOWHERE, MisuseError, RoteError, Site, in_one_line, is_internal, traceback_site
from ...hazards.scan import FROM_NOTEBOOK, NOTEBOOK

SHAPES = "a callable, (callable, args) or (callable, args, kwargs)"

Target = Annotated[str, typer.Argument(help="file.py:function or package.module:function")]
Arg = Annotated[
    list[str] | None, typer.Option("--arg", metavar="NAME=VALUE", help="An argument of the target.")
]


@dataclass(frozen=True)
class CommandTarget:
    """A callable and its arguments, the target's name as the user wrote it, and the line of their source."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    site: Site = NOWHERE


def load(name: str, arguments: Iterable[str] = ()) -> CommandTarget:
    """Import a target's builder and call it with ``arguments``: ``name=value`` each, Python literals or text.

    Raises:
        MisuseError: There is no such file or function, an argument is malformed, the builder raised, or it
            returned something else than a callable with its arguments.
    """
    build = builder(name)
    target = _target(name, _built(name, build, arguments))
    return replace(target, site=_site(target.function, build))


def built(name: str, arguments: Iterable[str] = ()) -> Any:
    """What a target's builder returns, whatever that is.

    Raises:
        MisuseError: There is no such file or function, an argument is malformed, or the builder raised.
    """
    return _built(name, builder(name), arguments)


def _built(name: str, build: Callable[..., Any], arguments: Iterable[str]) -> Any:
    given = dict(_argument(text) for text in arguments)
    _check_builder(name, build, given)
    try:
        return build(**given)
    except (Exception, SystemExit) as error:
        raise MisuseError(f"{name} raised {said(error)}") from error


def _site(function: Callable[..., Any], build: Callable[..., Any]) -> Site:
    """The line of a module's class if it is the user's own, else of the builder; NOWHERE without source."""
    candidates = [type(function)] if isinstance(function, nn.Module) else []
    for found in (*candidates, inspect.unwrap(build)):
        try:
            file, line = inspect.getsourcefile(found), inspect.getsourcelines(found)[1]
        except (OSError, TypeError):
            continue
        if file is not None and not is_internal(file):
            return Site(file, line, found.__name__)
    return NOWHERE


def said(error: BaseException) -> str:
    """The exception in a line, with the user's line, and with a hint where a GPU is missing."""
    text = in_one_line(error)
    site = traceback_site(error.__traceback__)
    if site.line and not isinstance(error, SyntaxError):  # it names its own line
        text += f" ({site})"
    words = ("not compiled with CUDA", "No CUDA GPUs", "NVIDIA driver")
    if not torch.cuda.is_available() and any(word in text for word in words):
        return f"{text}. It needs a GPU, and PyTorch sees none here."
    return text


@contextmanager
def calling(target: CommandTarget) -> Generator[None]:
    """Calls of a target's callable: what they raise becomes a MisuseError."""
    try:
        yield
    except RoteError:
        raise
    except (Exception, SystemExit) as error:
        raise MisuseError(f"the callable of {target.name} raised {said(error)}") from error


def check_arguments(target: CommandTarget) -> None:
    """Raise a MisuseError if a target's callable does not take the arguments that came with it."""
    problem = _misfit(_forward(target.function), target.args, target.kwargs)
    if problem:
        raise MisuseError(
            f"{target.name} returned {_kind(target.function)} that cannot be called with the arguments it "
            f"came with: {problem}. A target returns {SHAPES}."
        )


def builder(name: str) -> Callable[..., Any]:
    """The function that a target names; a MisuseError if there is none."""
    place, colon, attribute = name.rpartition(":")
    if not colon or not place or not attribute:
        raise MisuseError(
            f"the target {name!r} is not of the form file.py:function or package.module:function{_hint(name)}"
        )
    module = _file(place) if place.endswith(".py") else _module(place)
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        own = [key for key in known if getattr(vars(module)[key], "__module__", None) == module.__name__]
        known = difflib.get_close_matches(attribute, known) or own or known
        raise MisuseError(f"{place} has no function {attribute!r}. It has: {', '.join(known) or 'none'}.")
    return found


def _hint(name: str) -> str:
    """A hint for a path without a function."""
    path = Path(name)
    if path.is_dir():
        return f"; a folder can be read: rote check --static {name}"
    if not path.is_file():
        return ""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return ""
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"]
    listed = f" ({', '.join(names)})" if names else ""
    return f"; name one of its functions{listed}, or only read it: rote check --static {name}"


def _check_builder(name: str, build: Callable[..., Any], given: dict[str, Any]) -> None:
    problem = _misfit(_forward(build), (), given)
    if not problem:
        return
    if given:
        hint = f"it takes {inspect.signature(_forward(build))} and was given {', '.join(given)}"
    elif isinstance(build, nn.Module):
        hint = "--arg NAME=VALUE is for arguments by name"
    else:
        hint = "give it values with --arg NAME=VALUE, or write a function without arguments"
    raise MisuseError(
        f"{name} cannot be called: {problem}. A target is a function that returns {SHAPES}; {hint}."
    )


def _forward(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that takes the arguments."""
    return function.forward if isinstance(function, nn.Module) else function


def _misfit(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Why a function does not take arguments; empty if it does, or has no signature."""
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return ""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return str(error)
    return ""


def _file(place: str) -> ModuleType:
    path = Path(place).resolve()
    if not path.is_file():
        raise MisuseError(f"there is no file {place}")
    _add_to_path(path.parent)  # as `python file.py` does: the file may import its neighbours
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses and pickling look their module up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        hint = _package_hint(path) if "no known parent package" in str(error) else ""
        raise MisuseError(f"{place} cannot be imported: {said(error)}{hint}") from error
    return module


def _package_hint(path: Path) -> str:
    """How to name a module of a package: it imports its neighbours by dots."""
    root, names = path.parent, [path.stem]
    while (root / "__init__.py").is_file():
        root, names = root.parent, [root.name, *names]
    return f". Name it as {'.'.join(names)}:function, with {root} on PYTHONPATH."


def _module(place: str) -> ModuleType:
    if place.endswith(NOTEBOOK):
        raise MisuseError(f"{place}: {FROM_NOTEBOOK.format(place)}")
    _add_to_path(Path.cwd())  # as `python -m module` does
    try:
        return importlib.import_module(place)
    except (Exception, SystemExit) as error:
        raise MisuseError(f"{place} cannot be imported: {said(error)}") from error


def _add_to_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _argument(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise MisuseError(f"--arg {text!r} is not of the form name=value")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def _target(name: str, made: Any) -> CommandTarget:
    if callable(made):
        return CommandTarget(name, made, (), {})
    parts = list(cast("tuple[Any, ...]", made)) if isinstance(made, tuple) else []
    if not parts or not callable(parts[0]) or len(parts) > 3:
        raise MisuseError(f"{name} returned {_kind(made)}; a target returns {SHAPES}")
    _, args, kwargs = (*parts, *((), {})[len(parts) - 1 :])
    if not isinstance(args, (tuple, list)) or not isinstance(kwargs, dict):
        raise MisuseError(
            f"{name} returned {_kind(made)}; args is to be a tuple and kwargs a dict, as in (fn, (x,)): "
            f"a target returns {SHAPES}"
        )
    return CommandTarget(name, parts[0], tuple(cast("Any", args)), dict(cast("dict[str, Any]", kwargs)))


def _kind(made: Any) -> str:
    if isinstance(made, tuple):
        parts = cast("tuple[Any, ...]", made)
        return f"({', '.join(type(part).__name__ for part in parts)})"
    name = type(made).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
