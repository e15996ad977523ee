"""What the user keeps out of graphs: calls, by options and by :func:`no_graphs`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ContextDecorator, contextmanager
from types import FrameType
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling

from ..base import user_site
from ..hazards import rules
from ..hazards.rules import Reason, reason
from ..runtime.arguments import TENSOR, Call, tracing
from ..runtime.pytorch import keeping_out
from .options import Options

SizesOf = Callable[[Call], tuple[int, ...] | None]
"""The sizes of a call that ``capture_sizes`` speaks of; None where it says nothing of the call."""


class NoGraphs(threading.local, ContextDecorator):
    """A region without graphs, as a context manager and as a decorator; see :func:`no_graphs`.

    One object may be entered again while it is open, and on several threads.
    """

    def __init__(self) -> None:
        self._open: list[AbstractContextManager[None]] = []

    def __enter__(self) -> None:
        """Begin the region."""
        opened = _kept_out()
        opened.__enter__()
        self._open.append(opened)

    def __exit__(self, *exception: Any) -> None:
        """End it."""
        self._open.pop().__exit__(*exception)

    def _recreate_cm(self) -> NoGraphs:
        """The region of one call of a decorated function, which may be compiled."""
        return no_graphs()


@contextmanager
def _kept_out() -> Generator[None]:
    token = None if tracing.get() else tracing.set(True)  # wrappers stand aside in a traced call anyway
    try:
        with keeping_out():
            yield
    finally:
        if token is not None:
            tracing.reset(token)


def no_graphs() -> NoGraphs:
    """Keep a part of the program out of graphs: ``with rote.no_graphs():``, or ``@rote.no_graphs()``.

    - Around calls of graphed callables: they run plainly, nothing is observed or recorded, and results of
      earlier calls are walked back plainly. Recordings stay, and answer again afterwards. The report counts
      such calls (RT319), and strict mode allows them.
    - Inside a graphed callable: no segment holds the operations in it. A replay launches them one by one,
      between two segments. It runs no Python code, there as elsewhere. Attention with dropout stays in its
      segment, since its seed does.
    - Inside a function under ``torch.compile``: the compiled graph that it is in is not recorded, as with
      ``torch._dynamo.override_cudagraphs(fwd=False)``, which it is there (from torch 2.13 on; before, the
      compiler leaves the function alone). That is so with rote's backend and with Inductor's graphs;
      :func:`..graph` around code that was compiled already does not see it.

    It holds for the thread that enters it, with the backward passes that this thread starts, and it nests.

    Returns:
        A context manager, which decorates functions as well.
    """
    if is_dynamo_compiling():
        dynamo: Any = torch._dynamo
        if hasattr(dynamo, "override_cudagraphs"):
            return dynamo.override_cudagraphs(fwd=False, bwd=False)
    return NoGraphs()


class Exclusion:
    """Which calls of one wrapper are kept out of graphs by its options.

    Args:
        sizes_of: The sizes of a call that ``capture_sizes`` speaks of.
        keeps_all: Why all calls are kept out, if the options do not say so.
    """

    def __init__(self, options: Options, sizes_of: SizesOf, keeps_all: str | None) -> None:
        self._all = keeps_all if options.forward else "forward=False keeps calls out of graphs"
        self._sizes_of = sizes_of
        sizes = options.capture_sizes
        self._given = sizes
        self._wanted = (
            None if sizes is None else {each if isinstance(each, tuple) else (each,) for each in sizes}
        )

    @property
    def keeps_all(self) -> bool:
        """Whether all calls are kept out."""
        return self._all is not None

    def why(self, call: Call, caller: FrameType) -> Reason | None:
        """Why a call of these sizes is kept out; None if it is not."""
        if self._wanted is None:
            return None
        sizes = self._sizes_of(call)
        if sizes is None or any([sizes[: len(each)] == each for each in self._wanted]):
            return None
        text = f"the sizes of the call are {sizes}, and capture_sizes={self._given!r} has none that fit"
        return reason(rules.KEPT_OUT, text, user_site(caller))

    def why_all(self, caller: FrameType) -> Reason | None:
        """Why all calls are kept out, whatever they are given; None if they are not."""
        if self._all is None:
            return None
        return reason(rules.KEPT_OUT, self._all, user_site(caller))


def of_first_tensor(call: Call) -> tuple[int, ...]:
    """The shape of the first tensor among the arguments that is no parameter; empty where there is none."""
    return tuple(call.leaves[call.kinds.index(TENSOR)].shape) if TENSOR in call.kinds else ()
