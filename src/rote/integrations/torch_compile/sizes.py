"""The sizes of a call of compiled code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...runtime.arguments import Call, CompiledInput
from .parts import has_symbols


def of_numbers(call: Call) -> tuple[int, ...] | None:
    """The sizes that change: compiled code takes them as numbers. None without such."""
    inputs: Sequence[Any] = call.given[0]
    return tuple([value for value in inputs if type(value) is int]) or None


@dataclass(frozen=True)
class SizesOfInputs:
    """Finds the sizes among the inputs of a graph.

    Attributes:
        first: The first input that is a tensor of the caller's, and no parameter or buffer; None without one.
        change: The graph is compiled for sizes that change, those that values decide among them.
    """

    first: int | None
    change: bool

    @classmethod
    def of(cls, graph: torch.fx.GraphModule, inputs: Sequence[CompiledInput]) -> SizesOfInputs:
        """Look at what Dynamo says of the inputs of a graph."""
        change = any([has_symbols(node.meta.get("example_value")) for node in graph.graph.nodes])
        given = [
            number
            for number, node in enumerate(graph.graph.find_nodes(op="placeholder"))
            if isinstance(node.meta.get("example_value"), torch.Tensor) and not inputs[number].stays
        ]
        return cls(given[0] if given else None, change)

    def __call__(self, call: Call) -> tuple[int, ...]:
        """The sizes that change; without such those of the first tensor."""
        sizes = of_numbers(call)
        if sizes is not None:
            return sizes
        return tuple(call.given[0][self.first].shape) if self.first is not None else ()
