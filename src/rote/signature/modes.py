"""The dispatch mode that rote's own are made of: one that does not import the compiler.

PyTorch wraps the handler of every dispatch mode so that its compiler leaves the handler alone, and the
wrapper imports the compiler when it first runs: about a second, in the first call of a program that may
never compile anything. So the wrapper is put on only where the compiler is there already. It
takes as long as half of the bookkeeping for an operation, so it is gone through only while the compiler looks
at frames, which is inside of compiled functions.

A handler is called with all dispatch keys left out that come before the modes', which is right for
autograd. But the keys that resolve lazy conjugates and negatives are among them. A kernel that conjugates a
part of its result and goes on with it (``torch.linalg.pinv`` of complex numbers) would read it as it was: so
handlers that run kernels put these keys back (:func:`.compat.resolve_lazily`).

What that leaves open: a callable that imports the compiler itself, in its first call. Its own compiled parts
run below the mode of that one call, whose handler the compiler may look at; it finds plain Python there.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any, cast

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .compat import frame_watch

_disabled: Any = getattr(torch, "_disable_dynamo", None)
"""Seen in torch 2.11 and 2.13. Without it PyTorch wraps no handler either."""


class DispatchMode(TorchDispatchMode):
    """Base of rote's dispatch modes."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Asked by PyTorch when a class is made. Seen in torch 2.11 and 2.13; elsewhere nobody asks."""
        return False

    def __enter__(self) -> Any:
        """Enter the mode; its handler is hidden from the compiler if that is there."""
        if "torch._dynamo" in sys.modules and not hasattr(type(self), "__rote_hidden__"):
            self.__class__ = cast("Any", _hidden(type(self)))
        return super().__enter__()


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
