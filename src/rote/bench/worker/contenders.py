"""The ways of running a callable that are measured side by side.

The one that this is about, rote's own, is above this room: whoever starts a worker adds it (see
:mod:`...cli.bench_worker`). Each is set up as its documentation says and as somebody who knows it would: it
may rely on what the target needs, but does nothing by hand that the way is there to do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .graphs import HandWritten, MadeGraphed

Call = Callable[..., Any]


def _no_notes(call: Call) -> list[str]:
    return []


@dataclass(frozen=True)
class Contender:
    """One way.

    Attributes:
        name: How the command line and results call it.
        title: How a picture calls it.
        make: Turns the target's callable into one that is called in its place. What takes long may be left to
            its first call: both count as time to the first fast call.
        notes: What is to be said of it after the calls, in one line each.
        needs_gpu: It means nothing on a CPU.
    """

    name: str
    title: str
    make: Callable[[Call], Call]
    notes: Callable[[Call], list[str]] = _no_notes
    needs_gpu: bool = False


def plainly(function: Call) -> Call:
    """Eager: the callable itself."""
    return function


def compiled(function: Call) -> Call:
    """``torch.compile`` as it is."""
    return torch.compile(function)


def compiled_with_graphs(function: Call) -> Call:
    """``torch.compile`` with its own CUDA graphs.

    Its results lie in the memory of the graphs until the next step begins, which every call marks. They are
    not cloned: who needs them longer pays for a copy on top.
    """
    call = torch.compile(function, mode="reduce-overhead")
    begin = torch.compiler.cudagraph_mark_step_begin

    def step(*args: Any, **kwargs: Any) -> Any:
        begin()
        return call(*args, **kwargs)

    return step


EAGER = Contender("eager", "eager", plainly)

PEERS = (
    Contender("by-hand", "torch.cuda.graph by hand", HandWritten, needs_gpu=True),
    Contender("make_graphed_callables", "make_graphed_callables", MadeGraphed, needs_gpu=True),
    Contender("compile", "torch.compile", compiled),
    Contender("reduce-overhead", "torch.compile reduce-overhead", compiled_with_graphs, needs_gpu=True),
)
"""Everything but eager and rote, in the order of the table."""
