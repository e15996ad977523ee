"""Graphed methods: recordings belong to an instance without keeping it alive."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from ..base.errors import MisuseError


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
        graphed: The instance's graphed callable.
        instance: The instance.
    """

    __slots__ = ("__self__", "_graphed")

    def __init__(self, graphed: Callable[..., Any], instance: Any) -> None:
        self._graphed = graphed
        self.__self__ = instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the instance's graphed callable."""
        return self._graphed(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._graphed, name)

    def __repr__(self) -> str:
        return repr(self._graphed)
