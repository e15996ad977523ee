"""Regions compiled by Inductor, as operators.

Compiled code launches kernels past the dispatcher, so a dispatch mode does not see what it does. It need not:
a region is a function of its inputs, and says which of them it writes. So each region gets an overload of its
own, with a schema made from its inputs, and a traced call has one operation where the compiled code runs.
Everything that reads schemas (placement, writes, random draws, the host's tape) treats it like any other
operator.

A region is known by the object that PyTorch calls, not by configuration: code that was compiled before rote
was imported, or that came out of a cache, is the same object.

What does not work: calling the overload through the dispatcher. A region may return ``None`` and numbers
among its tensors, which no schema allows. The tracer calls it directly.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from .torch_private import CompiledGraph, compiled_writes, draws_numbers, run_compiled

_NAMESPACE = "rote_compiled"
_UNSAFE, _DRAWS = torch.Tag.cudagraph_unsafe, torch.Tag.nondeterministic_seeded
_TYPES = {int: "SymInt", bool: "bool", float: "float", type(None): "Tensor?"}


@dataclass(frozen=True)
class Region:
    """A compiled region.

    Attributes:
        graph: What PyTorch calls; held weakly, since compiled code may hold constants as large as a model.
        overload: The operator that stands for it.
        library: Keeps the operator defined.
    """

    graph: weakref.ref[CompiledGraph]
    overload: Any
    library: torch.library.Library


class Regions:
    """The regions met so far, by the identity of what PyTorch calls and by the name of their operator."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._by_graph: dict[int, Region] = {}
        self._by_name: dict[str, Region] = {}

    def overload_of(self, graph: CompiledGraph, inputs: Sequence[Any]) -> Any | None:
        """The operator that stands for a region; None if an input is of a kind that no schema has."""
        found = self._by_graph.get(id(graph))
        if found is None:
            schema = _inputs_of(graph, inputs)
            if schema is None:
                return None
            found = self._define(graph, schema)
        return found.overload

    def call_of(self, name: str) -> Callable[..., Any] | None:
        """What runs the region of an operator and keeps it alive; None if there is none."""
        region = self._by_name.get(name)
        graph = region.graph() if region is not None else None
        return None if graph is None else partial(_run, graph)

    def _define(self, graph: CompiledGraph, inputs: str) -> Region:
        name = f"region_{next(self._numbers)}"
        library = torch.library.Library(_NAMESPACE, "FRAGMENT")
        tags = [_DRAWS] if draws_numbers(graph) else []
        library.define(f"{name}({inputs}) -> Tensor[]", tags=[*tags, _UNSAFE] if is_mixed(graph) else tags)
        overload = getattr(getattr(torch.ops, _NAMESPACE), name).default
        region = Region(weakref.ref(graph), overload, library)
        self._by_graph[id(graph)] = self._by_name[overload.name()] = region
        weakref.finalize(graph, self._forget, id(graph), overload.name())
        return region

    def _forget(self, graph: int, name: str) -> None:
        self._by_graph.pop(graph, None)
        self._by_name.pop(name, None)


REGIONS = Regions()
"""Operators are defined for the process, so these are its regions."""


def is_region(op: Any) -> bool:
    """Whether an overload stands for a compiled region."""
    return op.namespace == _NAMESPACE


def call_of_region(op: Any) -> Callable[..., Any] | None:
    """What runs the region that an overload stands for; None once its compiled code is gone."""
    return REGIONS.call_of(op.name())


def is_mixed(graph: CompiledGraph) -> bool:
    """Whether a region runs on more than one kind of device, which no CUDA graph holds."""
    return len(graph.device_types) > 1


def _run(graph: CompiledGraph, *inputs: Any) -> Any:
    return run_compiled(graph, list(inputs))


def _inputs_of(graph: CompiledGraph, inputs: Sequence[Any]) -> str | None:
    written, parts = compiled_writes(graph), list[str]()
    for number, value in enumerate(inputs):
        kind = "Tensor" if isinstance(value, torch.Tensor) else _TYPES.get(type(value))
        if kind is None:
            return None
        parts.append(f"Tensor(a{number}!) x{number}" if number in written else f"{kind} x{number}")
    return ", ".join(parts)
