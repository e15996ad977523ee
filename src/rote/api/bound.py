"""Graphed methods: recordings belong to an instance without keeping it alive.

A guard holds the dicts of all that the method reaches. They lead back to the instance as soon as anything
that it reaches knows it (a hook that is a bound method, a trainer in its model). So the recordings of a
module are kept alive by the module itself, in its ``__dict__``, and the class only knows where they are:
a cycle in which all is garbage at once. Other instances show their ``__dict__`` to more code, which may
not expect anything there; they have theirs in a table of the class, and what does not work is that one in
such a cycle dies.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from ..base import MisuseError

KEPT = "<graphed methods>"
"""Where a module's ``__dict__`` keeps them; no name that code could write."""


class Kept:
    """Keeps the graphed methods of one module alive; copies of the module begin with none.

    Args:
        module: The module; a shallow copy of it has the same entry, but is another one.
    """

    def __init__(self, module: torch.nn.Module | None = None) -> None:
        self.methods: list[Any] = []
        self._module = weakref.ref(module) if module is not None else None

    @classmethod
    def by(cls, instance: Any) -> Kept | None:
        """That of a module, made if there is none; None of any other instance."""
        if not isinstance(instance, torch.nn.Module):
            return None
        known = vars(instance).get(KEPT)
        if known is None or known._module is None or known._module() is not instance:
            known = vars(instance)[KEPT] = cls(instance)
        return known

    def __reduce__(self) -> Any:
        return Kept, ()


class BoundWeakly:
    """Calls a function with an instance, as a bound method would.

    A bound method would keep the instance alive, and with it the recordings that belong to it.

    Args:
        function: The plain function.
        instance: The instance, weakly.
    """

    def __init__(self, function: Callable[..., Any], instance: weakref.ref[Any]) -> None:
        self.__func__ = function
        self._instance = instance
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self.__qualname__ = getattr(function, "__qualname__", self.__name__)
        self.__doc__ = function.__doc__

    @property
    def __self__(self) -> Any:
        """The instance.

        Raises:
            MisuseError: It is gone.
        """
        instance = self._instance()
        if instance is None:
            raise MisuseError(f"the instance that {self.__qualname__} was bound to no longer exists")
        return instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the method of the instance."""
        return self.__func__(self.__self__, *args, **kwargs)


class GraphedMethod:
    """What ``instance.method`` gives: the instance's graphed callable, and the instance, kept alive by it.

    Args:
        graphed: The instance's graphed callable, which has all further attributes.
        instance: The instance.
    """

    __slots__ = ("__self__", "graphed")

    def __init__(self, graphed: Callable[..., Any], instance: Any) -> None:
        self.graphed = graphed
        self.__self__ = instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the instance's graphed callable."""
        return self.graphed(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.graphed, name)

    def __repr__(self) -> str:
        return repr(self.graphed)

    def __reduce__(self) -> Any:
        """As bound methods, by instance and name: a copy of the instance has one of its own."""
        return getattr, (self.__self__, self.graphed.__name__)
