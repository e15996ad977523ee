"""What a command works on: ``policy.py:build`` or ``package.module:build``.

The function named is called with the values of ``--arg name=value`` and returns what is to be run: a callable
and its arguments, as ``fn``, ``(fn, args)`` or ``(fn, args, kwargs)``.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import torch
from torch import nn

from ..base.errors import MisuseError
from ..base.location import NOWHERE, Site, is_internal

SHAPES = "a callable, (callable, args) or (callable, args, kwargs)"


@dataclass(frozen=True)
class Target:
    """Something to run.

    Attributes:
        name: As the user wrote it.
        function: The callable.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        site: Where the user wrote it: the class of a module, else the function that the target names.
    """

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    site: Site = NOWHERE


def load(name: str, arguments: Iterable[str] = ()) -> Target:
    """Import a target's builder and call it.

    Args:
        name: ``path/to/file.py:function`` or ``package.module:function``.
        arguments: ``name=value`` each; a value is a Python literal, or else text.

    Raises:
        MisuseError: There is no such file or function, an argument is malformed, the builder raised, or it
            returned something else than a callable with its arguments.
    """
    build = builder(name)
    given = dict(_argument(text) for text in arguments)
    try:
        made = build(**given)
    except Exception as error:
        raise MisuseError(f"{name} raised {said(error)}") from error
    target = _target(name, made)
    return replace(target, site=_site(target.function, build))


def _site(function: Callable[..., Any], build: Callable[..., Any]) -> Site:
    """The line of a module's class if that is the user's own, else of the builder; NOWHERE without source."""
    candidates = [type(function)] if isinstance(function, nn.Module) else []
    for found in (*candidates, inspect.unwrap(build)):
        try:
            file, line = inspect.getsourcefile(found), inspect.getsourcelines(found)[1]
        except (OSError, TypeError):
            continue
        if file is not None and not is_internal(file):
            return Site(file, line, found.__name__)
    return NOWHERE


def said(error: Exception) -> str:
    """The exception in a line; where a GPU is missing, that this is why."""
    text = f"{type(error).__name__}: {error}"
    words = ("not compiled with CUDA", "No CUDA GPUs", "NVIDIA driver")
    if not torch.cuda.is_available() and any(word in text for word in words):
        return f"{text.splitlines()[0]}. It needs a GPU, and PyTorch sees none here."
    return text


def builder(name: str) -> Callable[..., Any]:
    """The function that a target names.

    Raises:
        MisuseError: There is none.
    """
    place, colon, attribute = name.rpartition(":")
    if not colon or not place or not attribute:
        raise MisuseError(
            f"the target {name!r} is not of the form file.py:function or package.module:function"
        )
    module = _file(place) if place.endswith(".py") else _module(place)
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise MisuseError(f"{place} has no function {attribute!r}. It has: {', '.join(known) or 'none'}.")
    return found


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
    except Exception as error:
        raise MisuseError(f"{place} cannot be imported: {type(error).__name__}: {error}") from error
    return module


def _module(place: str) -> ModuleType:
    _add_to_path(Path.cwd())  # as `python -m module` does
    try:
        return importlib.import_module(place)
    except Exception as error:
        raise MisuseError(f"{place} cannot be imported: {type(error).__name__}: {error}") from error


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


def _target(name: str, made: Any) -> Target:
    if callable(made):
        return Target(name, made, (), {})
    parts = list(cast("tuple[Any, ...]", made)) if isinstance(made, tuple) else []
    if not parts or not callable(parts[0]) or len(parts) > 3:
        raise MisuseError(f"{name} returned {_kind(made)}; a target returns {SHAPES}")
    args, kwargs = [*parts[1:], (), {}][:2] if len(parts) == 1 else [*parts[1:], {}][:2]
    if not isinstance(args, (tuple, list)) or not isinstance(kwargs, dict):
        raise MisuseError(
            f"{name} returned {_kind(made)}; args is to be a tuple and kwargs a dict: it returns {SHAPES}"
        )
    return Target(name, parts[0], tuple(cast("Any", args)), dict(cast("dict[str, Any]", kwargs)))


def _kind(made: Any) -> str:
    if isinstance(made, tuple):
        parts = cast("tuple[Any, ...]", made)
        return f"({', '.join(type(part).__name__ for part in parts)})"
    return f"a {type(made).__name__}"
