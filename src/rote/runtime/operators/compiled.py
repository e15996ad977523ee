"""Regions compiled by Inductor, as operators.

Compiled code launches kernels past the dispatcher, so a dispatch mode does not see what it does. It need not:
a region is a function of its inputs, and says which of them it writes. So each region gets an overload of its
own, whose schema says of each input whether it is written, and a traced call has one operation where the
compiled code runs. Everything that reads schemas (placement, writes, random draws, the host's tape) treats it
like any other operator.

A region is known by the object that PyTorch calls, not by configuration: code that was compiled before rote
was imported, or that came out of a cache, is the same object.

What does not work: calling the overload through the dispatcher. A region may return ``None`` and numbers
among its tensors, which no schema allows. The tracer calls it directly.
"""

from __future__ import annotations

import itertools
import re
import weakref
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch

from ..pytorch import (
    CompiledGraph,
    compiled_writes,
    draws_numbers,
    has_collectives,
    is_uncapturable,
    run_compiled,
)
from .facts import LAUNCHED, names_of
from .launches import TritonLaunch

_NAMESPACE = "rote_compiled"
_NAMESPACES = (_NAMESPACE, LAUNCHED)
_UNSAFE, _DRAWS = torch.Tag.cudagraph_unsafe, torch.Tag.nondeterministic_seeded
_SCHEMA = "(Tensor[] read, Tensor(a!)[] written, Scalar[] numbers) -> Tensor[]"
"""Inputs come in lists: a model has hundreds of them, and a schema 64 arguments at most."""
_NUMBERS = (int, float, bool)


class RegionOperands(NamedTuple):
    """The inputs of a region as operands of its operator.

    Attributes:
        read: Tensors that it only reads.
        written: Tensors that it writes.
        numbers: Sizes, mostly.
    """

    read: list[torch.Tensor]
    written: list[torch.Tensor]
    numbers: list[float]

    @classmethod
    def sorted_out(cls, inputs: Sequence[Any], written: frozenset[int]) -> RegionOperands | None:
        """Sort inputs; None if one is neither a tensor nor a number.

        Args:
            written: The numbers of those that it writes.
        """
        made = cls([], [], [])
        for number, value in enumerate(inputs):
            if isinstance(value, torch.Tensor):
                (made.written if number in written else made.read).append(value)
            elif type(value) in _NUMBERS:
                made.numbers.append(value)
            else:
                return None
        return made


@dataclass(frozen=True)
class Region:
    """A compiled region.

    Attributes:
        graph: What PyTorch calls; held weakly, since compiled code may hold constants as large as a model.
        overload: The operator that stands for it.
        written: The numbers of the inputs that it writes.
        numbers: Those of the inputs that are numbers.
        collective: Collectives are in it, which nobody sees from outside.
        library: Keeps the operator defined.
    """

    graph: weakref.ref[CompiledGraph]
    overload: Any
    written: frozenset[int]
    numbers: frozenset[int]
    collective: bool
    library: torch.library.Library

    def run(self, graph: CompiledGraph, read: Any, written: Any, numbers: Any) -> Any:
        """Run the compiled code on operands, which are put back into the order of its inputs."""
        reads, writes, rest = iter(read), iter(written), iter(numbers)
        inputs = [
            next(rest if number in self.numbers else writes if number in self.written else reads)
            for number in range(len(read) + len(written) + len(numbers))
        ]
        return run_compiled(graph, inputs)


class Regions:
    """The regions met so far, by the identity of what PyTorch calls and by the name of their operator."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._by_graph: dict[int, Region] = {}
        self._by_name: dict[str, Region] = {}
        self._operators: dict[int, frozenset[str]] = {}

    def of(self, graph: CompiledGraph, inputs: Sequence[Any]) -> Region:
        """The region that PyTorch runs by a call of ``graph``."""
        return self._by_graph.get(id(graph)) or self._define(graph, inputs)

    def note_operators(self, graph: CompiledGraph, operators: Collection[Any]) -> None:
        """Of which overloads compiled code was made."""
        self._operators[id(graph)] = frozenset(name for op in operators for name in names_of(op))
        weakref.finalize(graph, self._operators.pop, id(graph), None)

    def has_one_of(self, name: str, operators: Collection[str]) -> bool:
        """Whether the region of an operator has one of these operators in it, as far as that is known.

        Where nobody has noted its operators, the source is asked, which has their names in comments, calls
        and names of kernels. Too many are found there rather than too few.
        """
        region = self._by_name.get(name)
        graph = region.graph() if region is not None and operators else None
        if graph is None:
            return False
        known = self._operators.get(id(graph))
        if known is not None:
            return not known.isdisjoint(operators)
        source = getattr(graph, "source_code", "")
        packets = "|".join(re.escape(each.partition("::")[2].partition(".")[0]) for each in operators)
        return not source or re.search(rf"(?<![a-zA-Z])(?:{packets})(?![a-zA-Z])", source) is not None

    def call_of(self, name: str) -> Callable[..., Any] | None:
        """What runs the region of an operator and keeps it alive; None if there is none."""
        region = self._by_name.get(name)
        graph = region.graph() if region is not None else None
        return None if region is None or graph is None else partial(region.run, graph)

    def _define(self, graph: CompiledGraph, inputs: Sequence[Any]) -> Region:
        namespace = LAUNCHED if isinstance(graph, TritonLaunch) else _NAMESPACE
        name = f"{graph.name if isinstance(graph, TritonLaunch) else 'region'}_{next(self._numbers)}"
        library = torch.library.Library(namespace, "FRAGMENT")
        tags = [*([_DRAWS] if draws_numbers(graph) else []), *([_UNSAFE] if is_uncapturable(graph) else [])]
        library.define(name + _SCHEMA, tags=tags)
        overload = getattr(getattr(torch.ops, namespace), name).default
        numbers = frozenset(n for n, value in enumerate(inputs) if type(value) in _NUMBERS)
        region = Region(
            weakref.ref(graph), overload, compiled_writes(graph), numbers, has_collectives(graph), library
        )
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
    return op.namespace in _NAMESPACES


def is_region_named(name: str) -> bool:
    """Whether the operator of a name stands for a compiled region."""
    return name.partition("::")[0] in _NAMESPACES


def call_of_region(op: Any) -> Callable[..., Any] | None:
    """What runs the region that an overload stands for; None once its compiled code is gone."""
    return REGIONS.call_of(op.name())
