"""Compiled code in a traced call: its regions are handed to the tracer, one operation each.

A region is called by PyTorch as an object of one class, from the forward and, on a device's own thread, from
the backward. So the call of that class is replaced while calls are traced, for all threads at once; a thread
whose stack of modes has no tracer runs the region as it is.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from torch.utils._python_dispatch import (
    _disable_current_modes as without_modes,  # pyright: ignore[reportPrivateUsage]
)
from torch.utils._python_dispatch import (
    _get_current_dispatch_mode_stack as dispatch_modes,  # pyright: ignore[reportPrivateUsage]
)

from ..operators import compiled_graph_class
from .tracer import Tracer


class CompiledCalls:
    """Regions go through tracers, from the first :meth:`begin` to the last :meth:`end`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._original: Any = None

    def begin(self) -> bool:
        """Begin; False where nothing was compiled by Inductor in this process."""
        graphs = compiled_graph_class()
        if graphs is None:
            return False
        with self._lock:
            if not self._users:
                self._original = graphs.__call__
                graphs.__call__ = _through_tracer(graphs.__call__)
            self._users += 1
        return True

    def end(self) -> None:
        """Take one :meth:`begin` back."""
        with self._lock:
            self._users -= 1
            if not self._users:
                compiled_graph_class().__call__ = self._original
                self._original = None


_CALLS = CompiledCalls()
"""The class is the process's, and so is who has replaced its call."""


def _through_tracer(original: Any) -> Any:
    @functools.wraps(original)
    def call(graph: Any, inputs: list[Any]) -> Any:
        tracer = next((mode for mode in dispatch_modes() if isinstance(mode, Tracer)), None)
        if tracer is None:
            return original(graph, inputs)
        with without_modes():  # PyTorch's own among them, in the first call of a region
            return tracer.compiled(graph, inputs)

    return call


@contextmanager
def seeing_compiled() -> Generator[None]:
    """A context in which compiled regions are operations of the call that is traced."""
    begun = _CALLS.begin()
    try:
        yield
    finally:
        if begun:
            _CALLS.end()
