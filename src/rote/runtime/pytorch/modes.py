"""The base of rote's dispatch modes, which does not import the compiler.

PyTorch wraps the handler of every dispatch mode so that its compiler leaves the handler alone. The wrapper
imports the compiler when it first runs: about a second, in a program that may never compile anything. So the
wrapper is put on only where the compiler is imported already. It takes as long as half of the bookkeeping for
an operation, so it runs only while the compiler looks at frames, which is inside compiled functions.

PyTorch calls a handler without the dispatch keys that come before the modes', which is right for autograd.
But the keys that resolve lazy conjugates and negatives are among them. A kernel that conjugates a part of its
result and goes on with it (``torch.linalg.pinv`` of complex numbers) would read it as it was. So handlers
that run kernels put these keys back (:func:`.torch_private.resolve_lazily`).

A function under ``torch.compile`` that is called in a mode runs as written, and PyTorch then leaves its code
uncompiled for good: one observed call would make every later plain call slow. So in a mode of rote's,
compiled functions are told to run as written (the stance ``force_eager``), which is forgotten afterwards. The
stance is the process's: compiled functions that other threads call meanwhile run as written, too.

A callable may import the compiler in its first call, as ``torch.cond`` does. So ``torch.compile`` is watched
in a mode while there is no compiler.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .torch_private import frame_callback, frame_watch

_disabled: Any = getattr(torch, "_disable_dynamo", None)
"""Seen in torch 2.11 and 2.13. Without it PyTorch wraps no handler either."""


class AsWritten:
    """Compiled functions run as written, from the first :meth:`begin` to the last :meth:`end`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._stance: Any = None

    def begin(self) -> bool:
        """Begin; False without the compiler, or in compiled code, which goes on as it is."""
        looking = frame_callback() if "torch._dynamo" in sys.modules else None
        if looking is None or looking() not in (None, False):
            return False
        with self._lock:
            if not self._users:
                self._stance = torch.compiler.set_stance("force_eager")
            self._users += 1
        return True

    def end(self) -> None:
        """Take one :meth:`begin` back."""
        with self._lock:
            self._users -= 1
            if not self._users:
                self._stance.__exit__(None, None, None)
                self._stance = None


_AS_WRITTEN = AsWritten()
"""One for the process, as the stance is."""


class DispatchMode(TorchDispatchMode):
    """The base of rote's dispatch modes.

    Attributes:
        meets_compiled: Regions of compiled code are handed to :meth:`meet_compiled`.
    """

    meets_compiled = False

    def __init__(self) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self._as_written: list[bool] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Asked by PyTorch when a class is made. Seen in torch 2.11 and 2.13; elsewhere nobody asks."""
        return False

    def meet_compiled(self, graph: Any, inputs: list[Any]) -> Any:
        """Run a region of compiled code, with no mode in force."""
        raise NotImplementedError

    def __enter__(self) -> Any:
        """Enter the mode; its handler is hidden from the compiler if that is imported."""
        if "torch._dynamo" in sys.modules and not hasattr(type(self), "__rote_hidden__"):
            self.__class__ = cast("Any", _hidden(type(self)))
        self._as_written.append(_AS_WRITTEN.begin())
        return super().__enter__()

    def _meet_compiler(self) -> None:
        """The compiler may have been imported while the mode is active."""
        if "torch._dynamo" in sys.modules and self._as_written and not self._as_written[-1]:
            self.__class__ = cast("Any", _hidden(type(self)))
            self._as_written[-1] = _AS_WRITTEN.begin()

    @contextmanager
    def watching_for_compiler(self) -> Generator[None]:
        """A context that notices when the compiler is brought in."""
        if "torch._dynamo" in sys.modules:
            yield
            return
        original: Any = torch.compile

        def watched(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            self._meet_compiler()
            return made

        torch.compile = cast("Any", watched)
        try:
            yield
        finally:
            torch.compile = original

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)  # pyright: ignore[reportUnknownMemberType]
        if self._as_written.pop():
            _AS_WRITTEN.end()


@cache
def _hidden(mode: type[DispatchMode]) -> type[DispatchMode]:
    """The same mode with a handler that the compiler leaves alone."""
    if _disabled is None:
        return mode
    plain: Any = mode.__torch_dispatch__
    handler = wrapped = _disabled(plain, recursive=True)
    watch = frame_watch()
    if watch is not None:
        looking, hide = watch

        def handler(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return (plain if looking() is None else wrapped)(self, func, types, args, kwargs)

        hide(handler)
    return type(mode.__name__, (mode,), {"__torch_dispatch__": handler, "__rote_hidden__": True})
