"""Graphed methods: recordings belong to an instance without keeping it alive.

A guard holds the dicts of all that the method reaches. They lead back to the instance as soon as anything
that it reaches knows it (a hook that is a bound method, a trainer in its model). So a module itself keeps its
recordings alive, in its ``__dict__``, and the class only knows where they are: a cycle in which all is
garbage at once. Other instances show their ``__dict__`` to code that may not expect anything there. A table
of the class keeps their recordings, so an instance in such a cycle never dies.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from ..base import MisuseError

KEPT = "<graphed methods>"
"""Their key in a module's ``__dict__``; code cannot write such a name."""


class Kept:
    """Keeps the graphed methods of one module alive; a copy of the module, with the same entry, has none."""

    def __init__(self, module: torch.nn.Module | None = None) -> None:
        self.methods: list[Any] = []
        self._module = weakref.ref(module) if module is not None else None

    @classmethod
    def by(cls, instance: Any) -> Kept | None:
        """The entry of a module, made if there is none; None for other instances."""
        if not isinstance(instance, torch.nn.Module):
            return None
        known = vars(instance).get(KEPT)
        if known is None or known._module is None or known._module() is not instance:
            known = vars(instance)[KEPT] = cls(instance)
        return known

    def __reduce__(self) -> Any:
        return Kept, ()


class BoundWeakly:
    """A bound method that does not keep its instance alive, and with it the recordings that belong to it."""

    def __init__(self, function: Callable[..., Any], instance: weakref.ref[Any]) -> None:
        self.__func__ = function
        self._instance = instance
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self.__qualname__ = getattr(function, "__qualname__", self.__name__)
        self.__doc__ = function.__doc__

    @property
    def __self__(self) -> Any:
        """The instance; a MisuseError if it is gone."""
        instance = self._instance()
        if instance is None:
            raise MisuseError(f"the instance that {self.__qualname__} was bound to no longer exists")
        return instance

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the method of the instance."""
        return self.__func__(self.__self__, *args, **kwargs)


class GraphedMethod:
    """The value of ``instance.method``: the instance's graphed callable, with the instance kept alive."""

    def __init__(self, graphed: Callable[..., Any], instance: Any) -> None:
        self.graphed = graphed
        self.__self__ = instance

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the instance's graphed callable."""
        return self.graphed(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        graphed = self.__dict__.get("graphed")
        if graphed is None:
            raise AttributeError(name)
        return getattr(graphed, name)

    def __repr__(self) -> str:
        return repr(self.graphed)

    def __reduce__(self) -> Any:
        """By instance and name, as bound methods: a copy of the instance has its own."""
        return getattr, (self.__self__, self.graphed.__name__)
