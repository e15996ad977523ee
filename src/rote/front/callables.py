"""What a callable is called, and how its parameters are given."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from typing import Any

import torch

from ..base.errors import OptionError
from .bound import BoundWeakly

NEVER = 1 << 30
"""Position of a parameter that is only given by keyword."""


def name_of(function: Any) -> str:
    """The name for messages: of a module its class, of a method class and method."""
    if isinstance(function, torch.nn.Module):
        return type(function).__name__
    owner = getattr(function, "__self__", None)
    if isinstance(function, functools.partial):  # with an owner, if it is a partialmethod
        return f"partial of {name_of(function.func)}"
    name = getattr(function, "__qualname__", None) or type(function).__name__
    return f"{type(owner).__name__}.{function.__name__}" if owner is not None else str(name)


def dress(wrapper: Any, function: Any) -> None:
    """Give a wrapper the names and the text of what it wraps, as far as that has any."""
    for name in functools.WRAPPER_ASSIGNMENTS:
        with contextlib.suppress(Exception):  # a descriptor may raise anything
            setattr(wrapper, name, getattr(function, name))
    wrapper.__wrapped__ = function


def place_of(function: Any) -> tuple[str, Any]:
    """The name by which a callable was defined in its module, and what stands there now."""
    name, module = (getattr(function, part, "") for part in ("__qualname__", "__module__"))
    if not isinstance(name, str) or not isinstance(module, str):
        return "", None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return name, found


def takes_any_keyword(function: Any) -> bool:
    """Whether the callable has a ``**kwargs`` parameter, so that it could see the order of keywords."""
    target = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)


def positions(function: Any, names: list[str]) -> dict[str, int]:
    """Where each named parameter is given positionally; ``NEVER`` if it is not.

    Raises:
        OptionError: A name is no parameter.
    """
    bound = isinstance(function, BoundWeakly)
    target: Any = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        parameters = list(inspect.signature(target.__func__ if bound else target).parameters.values())[bound:]
    except (TypeError, ValueError):
        parameters = []
    ordered = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    positional = [each.name for each in parameters if each.kind in ordered]
    known = {each.name for each in parameters if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)}
    anything = any(each.kind is each.VAR_KEYWORD for each in parameters)
    for name in names:
        if name not in known and not anything:
            raise OptionError(f"buckets names {name!r}, which is no parameter; those are {sorted(known)}")
    return {name: positional.index(name) if name in positional else NEVER for name in names}
