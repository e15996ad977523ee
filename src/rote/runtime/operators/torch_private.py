"""What operators have under private names only."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection
from functools import cache
from typing import Any, Protocol

import torch

_has_kernel: Any = getattr(torch._C, "_dispatch_has_kernel_for_dispatch_key", None)
"""Seen in torch 2.11 and 2.13."""


def schema_of(op: Any) -> Any:
    """The overload's ``FunctionSchema``. Seen in torch 2.11 and 2.13; there is no public way to it."""
    return op._schema


@cache
def composite_call(op: Any) -> Callable[..., Any] | None:
    """The C++ kernel that takes a composite operation apart, or None if it has a kernel of its own.

    ``op.decompose`` prefers decompositions in Python, whose numbers and aliases may be others. Without the
    probe a composite operation is recorded whole. Seen in torch 2.11 and 2.13.
    """
    with_key = getattr(op, "_op_dk", None)
    if _has_kernel is None or with_key is None or not _has_kernel(op.name(), "CompositeImplicitAutograd"):
        return None
    if any(_has_kernel(op.name(), key) for key in ("CPU", "CUDA", "CompositeExplicitAutograd")):
        return None
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return lambda *args, **kwargs: with_key(key, *args, **kwargs)


_RANDOM = re.compile(
    r"(?<!\w)(?:inductor_seed|inductor_rand|rand(?!om\b|_strided)|bernoulli|multinomial|normal_|native_dropout)"
)
"""What the source of a compiled region has if it draws random numbers; its benchmark has ``rand_strided``."""


class CompiledGraph(Protocol):
    """What PyTorch calls where it runs a region that Inductor has compiled: a ``CompiledFxGraph``.

    Seen in torch 2.11 and 2.13.

    Attributes:
        device_types: The kinds of devices that it uses.
        mutated_input_idxs: The numbers of the inputs that it writes.
        source_code: The Python code around its kernels.
    """

    device_types: Collection[str]
    mutated_input_idxs: Collection[int]
    source_code: str


def compiled_graph_class() -> Any:
    """The class of :class:`CompiledGraph`; None where nothing was compiled by Inductor in this process."""
    return getattr(sys.modules.get("torch._inductor.output_code"), "CompiledFxGraph", None)


def run_compiled(graph: CompiledGraph, inputs: list[Any]) -> Any:
    """Run a compiled region, which empties the list of its inputs."""
    return compiled_graph_class().__call__(graph, inputs)


def compiled_writes(graph: CompiledGraph) -> frozenset[int]:
    """The numbers of the inputs that a compiled region writes."""
    return frozenset(graph.mutated_input_idxs)


def draws_numbers(graph: CompiledGraph) -> bool:
    """Whether a compiled region draws random numbers; true as well where its source is not to be had."""
    source = getattr(graph, "source_code", "")
    return not source or _RANDOM.search(source) is not None
