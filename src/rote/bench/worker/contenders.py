"""The ways of running a callable that are measured side by side.

rote's own is above this room: :mod:`...cli.bench_worker` adds it. Each is set up as its documentation says
and as an expert would.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .graphs import HandWritten, MadeGraphed

Call = Callable[..., Any]


@dataclass(frozen=True)
class Contender:
    """One way.

    Attributes:
        name: Its name on the command line and in results.
        title: Its name in a picture.
        make: Turns the target's callable into one that is called in its place. Its time counts towards the
            first fast call, as that of the first calls does.
        notes: Remarks on the callable after its calls, in one line each.
        is_settled: Whether its calls will not become faster any more. It may wait, for the seconds given.
        needs_gpu: It means nothing on a CPU.
        by_default: It is measured without being asked for.
    """

    name: str
    title: str
    make: Callable[[Call], Call]
    notes: Callable[[Call], list[str]] = lambda call: []
    is_settled: Callable[[Call, float], bool] = lambda call, timeout_s: True
    needs_gpu: bool = False
    by_default: bool = True


def _compiled_with_graphs(function: Call) -> Call:
    """``torch.compile`` with its own CUDA graphs.

    Every call marks a new step, so its results lie in the memory of the graphs until the next call. They are
    not cloned.
    """
    call = torch.compile(function, mode="reduce-overhead")
    begin = torch.compiler.cudagraph_mark_step_begin

    def step(*args: Any, **kwargs: Any) -> Any:
        begin()
        return call(*args, **kwargs)

    return step


EAGER = Contender("eager", "eager", lambda function: function)

PEERS = (
    Contender("by-hand", "torch.cuda.graph by hand", HandWritten, needs_gpu=True),
    Contender("make_graphed_callables", "make_graphed_callables", MadeGraphed, needs_gpu=True),
    Contender("compile", "torch.compile", torch.compile),
    Contender("reduce-overhead", "torch.compile reduce-overhead", _compiled_with_graphs, needs_gpu=True),
)
"""Everything but eager and rote, in the order of the table."""
