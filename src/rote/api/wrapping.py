"""``rote.graph``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack, overload

import torch

from ..base import MisuseError, OptionError
from .graphed import Graphed
from .options import OptionKeywords, Options, shows_options

_BASES = frozenset(torch.nn.Module.__mro__)
_OWN = frozenset({
    "__abstractmethods__", "__annotate__", "__annotations__", "__call__", "__class__", "__class_getitem__",
    "__copy__", "__deepcopy__", "__del__", "__delattr__", "__dict__", "__dir__", "__doc__",
    "__firstlineno__", "__get__", "__getattr__", "__getattribute__", "__getnewargs__",
    "__getnewargs_ex__", "__getstate__", "__init__", "__init_subclass__", "__module__", "__new__",
    "__orig_bases__", "__parameters__", "__prepare__", "__qualname__", "__reduce__", "__reduce_ex__",
    "__repr__", "__set_name__", "__setattr__", "__setstate__", "__slots__", "__static_attributes__",
    "__subclasshook__", "__weakref__",
})  # fmt: skip
"""Methods that a wrapper has itself, or that Python asks of a class and not of an instance."""


class GraphedModule(Graphed):
    """A graphed ``nn.Module``; attribute writes go to the module.

    Python looks special methods up on the class. So each wrapper has a class of its own with the special
    methods of the module's class, such as ``graphed[0] = layer`` and ``len(graphed)``.
    """

    _function: Any

    def __new__(cls, function: Any, *args: Any, **kwargs: Any) -> Any:
        """A wrapper with the special methods of the module."""
        kind: Any = type(cls.__name__, (cls,), _special_methods(type(function)))
        return super().__new__(kind)

    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The module's class, for ``isinstance``: a graphed module can be a child of another one."""
        return type(self.__dict__.get("_function", self))

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        if "_built" not in own or name in own or name.startswith("__"):
            object.__setattr__(self, name, value)
        else:
            setattr(self._function, name, value)

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__:
            object.__delattr__(self, name)
        else:
            delattr(self._function, name)

    def __reduce__(self) -> Any:
        """As of other wrappers, by the class that wrappers of modules have in common."""
        found = super().__reduce__()
        return found if isinstance(found, str) else (GraphedModule, *found[1:])


def _special_methods(kind: type) -> dict[str, Any]:
    """The special methods of a module's class, for the class of its wrapper."""
    found: dict[str, Any] = {}
    for cls in reversed(kind.__mro__):
        if cls in _BASES:
            continue
        for name, value in vars(cls).items():
            if name.startswith("__") and name.endswith("__") and name not in _OWN:
                given = callable(value) and not isinstance(value, (type, staticmethod, classmethod))
                found[name] = _passed_on(name) if given else value
    return found


def _passed_on(name: str) -> Callable[..., Any]:
    """A special method that calls the module's; where that returns the module, it returns the wrapper."""

    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        module = self._function
        value = getattr(type(module), name)(module, *args, **kwargs)  # a class may get another one
        return self if value is module else value

    method.__name__ = name
    return method


@overload
def graph(function: Callable[..., Any], /, **options: Unpack[OptionKeywords]) -> Graphed: ...
@overload
def graph(**options: Unpack[OptionKeywords]) -> Callable[[Callable[..., Any]], Graphed]: ...
@shows_options
def graph(function: Callable[..., Any] | None = None, /, **options: Unpack[OptionKeywords]) -> Any:
    """Record a callable once and replay it.

    The first calls run as they are, under observation. When two in a row agree, the next one is recorded, and
    later calls with the same signature replay it: from CUDA graphs if the tensors are on a GPU, from a tape
    of ATen operations on a CPU. A call returns what the plain callable would have returned.

    It works on functions, modules, bound methods and closures, and as a decorator with or without options.

    Args:
        function: The callable to graph.
        **options: See :class:`..Options`.

    Returns:
        A callable with the same arguments. ``report()`` and ``explain()`` say what it did, ``reset()`` frees
        its recordings.

    Raises:
        OptionError: An option is unknown or has an impossible value.
        MisuseError: ``function`` is not callable, or graphed already.
    """
    wanted = Options.make(**options)
    if not wanted.forward:
        raise OptionError(
            "forward=False is for torch.compile(backend='rote'), where a backward is code of its own; one of "
            "rote.graph is walked over the memory of a recorded call"
        )
    if function is None:
        return lambda wrapped: graph(wrapped, **options)
    if isinstance(function, Graphed):
        raise MisuseError("this callable is graphed already; pass the plain one to rote.graph")
    if not callable(function):
        raise MisuseError(f"rote.graph needs a callable, not a {type(function).__name__}")
    kind = GraphedModule if isinstance(function, torch.nn.Module) else Graphed
    return kind(function, wanted)
