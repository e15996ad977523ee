"""The base of rote's dispatch modes, which does not import the compiler.

PyTorch wraps the handler of every dispatch mode so that its compiler leaves the handler alone. The wrapper
imports the compiler when it first runs: about a second, in a program that may never compile anything. So the
wrapper is put on only where the compiler is imported already. It takes as long as half of the bookkeeping for
an operation, so it runs only while the compiler looks at frames, which is inside compiled functions.

PyTorch calls a handler without the dispatch keys that come before the modes', which is right for autograd.
But the keys that resolve lazy conjugates and negatives are among them. A kernel that conjugates a part of its
result and goes on with it (``torch.linalg.pinv`` of complex numbers) would read it as it was. So handlers
that run kernels put these keys back (:func:`.torch_private.resolve_lazily`).

PyTorch's compiler leaves code that runs in a dispatch mode uncompiled for good, unless the mode says that it
does not mind. Its guards look at the function modes in force. So a traced call enters no compiled code: it
chooses itself what runs (:mod:`..reads.handlers.frames`), or leaves its modes (:func:`.frames.untraced`).
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any, cast

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .torch_private import frame_watch

_disabled: Any = torch._disable_dynamo  # pyright: ignore[reportPrivateImportUsage]
"""Seen in torch 2.11 and 2.13."""


class DispatchMode(TorchDispatchMode):
    """The base of rote's dispatch modes.

    Attributes:
        meets_compiled: Regions of compiled code are handed to :meth:`meet_compiled`, launches of kernels to
            :meth:`meet_launch`, and functions of TorchScript to :meth:`meet_script`.
    """

    meets_compiled = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Asked by PyTorch when a class is made. Seen in torch 2.11 and 2.13; elsewhere nobody asks."""
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Whether code that runs in the mode may be compiled, as PyTorch asks in 2.11 and 2.13."""
        return True

    def meet_compiled(self, graph: Any, inputs: list[Any]) -> Any:
        """Run a region of compiled code, with no mode in force."""
        raise NotImplementedError

    def meet_launch(self, call: Any) -> Any:
        """Launch a kernel, with no mode in force."""
        raise NotImplementedError

    def meet_script(self, call: Any) -> Any:
        """Run a function of TorchScript, whose operations come to the mode."""
        raise NotImplementedError

    def __enter__(self) -> Any:
        """Enter the mode; its handler is hidden from the compiler if that is imported."""
        if "torch._dynamo" in sys.modules and not hasattr(type(self), "__rote_hidden__"):
            self.__class__ = cast("Any", _hidden(type(self)))
        return super().__enter__()


@cache
def _hidden(mode: type[DispatchMode]) -> type[DispatchMode]:
    """The same mode with a handler that the compiler leaves alone."""
    plain: Any = mode.__torch_dispatch__
    handler = wrapped = _disabled(plain, recursive=True)
    watch = frame_watch()
    if watch is not None:
        looking, hide = watch

        def handler(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return (plain if looking() is None else wrapped)(self, func, types, args, kwargs)

        hide(handler)
    return type(mode.__name__, (mode,), {"__torch_dispatch__": handler, "__rote_hidden__": True})
