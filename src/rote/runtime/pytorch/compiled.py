"""Code that Inductor has compiled: what is asked of it, and how a mode comes to see it.

Compiled code launches kernels past the dispatcher. PyTorch calls it as an object of one class, from the
forward and, on a device's own thread, from the backward. So the call of that class is replaced while a mode
wants to see it, for all threads at once. A thread whose stack has no such mode runs compiled code as it is.

Every name here was seen in torch 2.11 and 2.13. Where the class is missing nothing was compiled by Inductor,
and nothing is replaced.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.utils._python_dispatch import (
    _disable_current_modes,  # pyright: ignore[reportPrivateUsage]
)
from torch.utils._python_dispatch import (
    _get_current_dispatch_mode_stack as dispatch_modes,  # pyright: ignore[reportPrivateUsage]
)

from ...base import identity
from .modes import DispatchMode
from .replaced import REPLACEMENTS
from .torch_private import unseen_functions

_COLLECTIVES = re.compile(r"\b_?(?:c10d|c10d_functional|symm_mem)\b")
"""Namespaces of collectives, as the calls in the source have them."""
_RANDOM = re.compile(
    r"(?<!\w)(?:inductor_(?:lookup_)?seeds?|inductor_rand|rand(?!om\b|_strided)|bernoulli|binomial|cauchy|dropout|"
    r"exponential|geometric|log_normal|multinomial|native_dropout|normal(?:_|\b)|poisson|rrelu|uniform|"
    r"_standard_gamma|_sample_dirichlet)"
)
"""What the source of a compiled region has if it draws random numbers; its benchmark has ``rand_strided``.

Too much does little harm: a call that draws is replayed all the same.
"""


_ENCLOSED = "rote_enclosed"
"""The operators by which compiled code calls graphed callables, as its source writes them."""


class CompiledGraph(Protocol):
    """What PyTorch calls where it runs a region that Inductor has compiled: a ``CompiledFxGraph``.

    Attributes:
        device_types: The kinds of devices that it uses.
        mutated_input_idxs: The numbers of the inputs that it writes.
        source_code: The Python code around its kernels.
    """

    device_types: Collection[str]
    mutated_input_idxs: Collection[int]
    source_code: str

    def __call__(self, inputs: list[Any]) -> Any:
        """Run it, which empties the list of its inputs."""
        ...


def compiled_graph_class() -> Any:
    """The class of :class:`CompiledGraph`; None where nothing was compiled by Inductor in this process."""
    return getattr(sys.modules.get("torch._inductor.output_code"), "CompiledFxGraph", None)


def run_compiled(graph: CompiledGraph, inputs: list[Any]) -> Any:
    """Run a compiled region, which empties the list of its inputs."""
    return graph(inputs)


def run_kernel(run: Callable[..., Any], kernel: Any, args: Iterable[Any], named: Mapping[str, Any]) -> Any:
    """Launch a kernel of Triton, by Triton's own code, which asks tensors where they are."""
    with unseen_functions():
        return run(kernel, *args, **named)


LAUNCHING = frozenset({identity(run_compiled.__code__), identity(run_kernel.__code__)})
"""The code below which nobody follows a call: it launches kernels, and reads no object of the user's.

By identity: code that Dynamo makes may have constants without a hash.
"""


def compiled_writes(graph: CompiledGraph) -> frozenset[int]:
    """The numbers of the inputs that a compiled region writes."""
    return frozenset(graph.mutated_input_idxs)


def draws_numbers(graph: CompiledGraph) -> bool:
    """Whether a compiled region draws random numbers; true as well where its source is not to be had."""
    source = getattr(graph, "source_code", "")
    return not source or _RANDOM.search(source) is not None


def has_collectives(graph: CompiledGraph) -> bool:
    """Whether a compiled region acts on other processes; true as well where that is not to be had."""
    source = getattr(graph, "source_code", "")
    if not source:
        return torch.distributed.is_available() and torch.distributed.is_initialized()
    return _COLLECTIVES.search(source) is not None


def is_uncapturable(graph: CompiledGraph) -> bool:
    """Whether no graph may hold a compiled region: it runs on two kinds of devices, or has graphs of its own.

    A region compiled for PyTorch's own CUDA graphs replays or records them when it is called. What is not
    known counts as that. Nothing is computed on ``meta``, so it counts for nothing.
    """
    return len({*graph.device_types} - {"meta"}) > 1 or getattr(graph, "cudagraph_info", True) is not None


def takes_tickets(graph: CompiledGraph) -> bool:
    """Whether a compiled region calls a graphed callable and keeps the way back through it, or walks it."""
    source = getattr(graph, "source_code", "")
    return any(f"{_ENCLOSED}.{each}" in source for each in ("keep", "walk"))


def donates(node: Any) -> bool:
    """Whether a node's backward was compiled to write to what was saved for it, so that it runs only once."""
    config = getattr(sys.modules.get("torch._functorch"), "config", None)
    metadata = getattr(getattr(node, "_forward_cls", None), "metadata", None)
    donated = getattr(metadata, "bw_donated_idxs", [])
    return bool(getattr(config, "donated_buffer", False)) and donated != []


def _through_modes(original: Any) -> Any:
    @functools.wraps(original)
    def call(graph: Any, inputs: list[Any]) -> Any:
        for mode in dispatch_modes():
            if isinstance(mode, DispatchMode) and mode.meets_compiled:
                with WithoutModes():  # PyTorch's own among them, in the first call of a region
                    return mode.meet_compiled(graph, inputs)
        return original(graph, inputs)

    return call


class WithoutModes:
    """A context in which no dispatch mode is in force.

    PyTorch's own is entered by code of the standard library, which is followed where the call enters another
    context, and what rote does about modes would count as what the call does.
    """

    def __init__(self) -> None:
        self._leaving: Generator[Any] = inspect.unwrap(_disable_current_modes)()

    def __enter__(self) -> None:
        next(self._leaving)

    def __exit__(self, *error: object) -> None:
        self._leaving.close()


@dataclass(frozen=True, eq=False)
class HandedRegion:
    """Compiled code that PyTorch hands over to be graphed: a region, or a part of one. It is a region, too.

    Attributes:
        function: The code. It takes a list of its inputs, and empties it.
        device_types: The kinds of devices that it uses.
        mutated_input_idxs: The numbers of the inputs that it writes.
        source_code: The Python code around its kernels.
        constants: Tensors that it uses and that are no inputs.
        cudagraph_info: What PyTorch's own graphs know of it; None where it has none.
    """

    function: Callable[[list[Any]], Any]
    device_types: Collection[str]
    mutated_input_idxs: Collection[int]
    source_code: str
    constants: tuple[Any, ...] = ()
    cudagraph_info: Any = None

    @_through_modes
    def __call__(self, inputs: list[Any]) -> Any:
        """Run it, in sight of a mode that meets compiled code."""
        return self.function(inputs)


@contextmanager
def seeing_compiled() -> Generator[None]:
    """A context in which compiled regions are handed to a mode of this thread that meets them."""
    graphs = compiled_graph_class()
    if graphs is None:  # nothing was compiled by Inductor
        yield
        return
    with REPLACEMENTS.replaced(graphs, "__call__", _through_modes(graphs.__call__)):
        yield
