"""The name of a callable, and the place of its definition."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from typing import Any

import torch


def name_of(function: Any) -> str:
    """The name for messages: a module's class, a method's class and name."""
    if isinstance(function, torch.nn.Module):
        return type(function).__name__
    owner = getattr(function, "__self__", None)
    if isinstance(owner, torch.nn.Module) and getattr(function, "__func__", None) is torch.nn.Module.__call__:
        return type(owner).__name__
    if isinstance(function, functools.partial):  # with an owner, if it is a partialmethod
        return f"partial of {name_of(function.func)}"
    name = getattr(function, "__qualname__", None) or type(function).__name__
    return f"{type(owner).__name__}.{function.__name__}" if owner is not None else str(name)


def lasting_name(function: Any) -> str:
    """A name that is the same in all processes, and another one for other functions of one module."""
    target: Any = inspect.unwrap(getattr(function, "__func__", function))
    kind: Any = target if isinstance(getattr(target, "__qualname__", None), str) else type(target)
    code = getattr(target, "__code__", None)
    line = f":{code.co_firstlineno}" if code is not None and "<" in kind.__qualname__ else ""
    return f"{name_of(function)} {kind.__module__}.{kind.__qualname__}{line}"


def dress(wrapper: Any, function: Any) -> None:
    """Give a wrapper the names and the docstring of the callable, as far as there are any."""
    for name in functools.WRAPPER_ASSIGNMENTS:
        with contextlib.suppress(Exception):  # a descriptor may raise anything
            setattr(wrapper, name, getattr(function, name))
    wrapper.__wrapped__ = function


def place_of(function: Any) -> tuple[str, Any]:
    """The name by which a callable was defined in its module, and the object of that name now."""
    name, module = (getattr(function, part, "") for part in ("__qualname__", "__module__"))
    if not isinstance(name, str) or not isinstance(module, str):
        return "", None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return name, found


def takes_any_keyword(function: Any) -> bool:
    """Whether the callable has a ``**kwargs`` parameter: only then it can see the order of keywords."""
    target = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
