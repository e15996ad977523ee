"""``rote.graph``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack, overload

import torch

from ..base import MisuseError, OptionError
from .graphed import Graphed
from .module import GraphedModule
from .options import OptionKeywords, Options, shows_options


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
