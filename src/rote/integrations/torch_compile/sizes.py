"""The sizes of a call of compiled code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...runtime.arguments import Call
from .parts import has_symbols
from .torch_private import is_static_input


@dataclass(frozen=True)
class SizesOfInputs:
    """Finds the sizes among the inputs of a graph.

    Attributes:
        numbers: Inputs that are sizes which change.
        change: The graph is compiled for sizes that change, those that values decide among them.
        first: The first input that is a tensor of the caller's, and no parameter or buffer; None without one.
    """

    numbers: tuple[int, ...]
    first: int | None
    change: bool

    @classmethod
    def of(cls, graph: torch.fx.GraphModule) -> SizesOfInputs:
        """Look at what Dynamo says of the inputs of a graph."""
        change = any([has_symbols(node.meta.get("example_value")) for node in graph.graph.nodes])
        values: list[Any] = []
        given: list[int] = []
        for number, node in enumerate(graph.graph.find_nodes(op="placeholder")):
            values.append(node.meta.get("example_value"))
            if isinstance(values[-1], torch.Tensor) and not is_static_input(node):
                given.append(number)
        numbers = [number for number, value in enumerate(values) if isinstance(value, torch.SymInt)]
        return cls(tuple(numbers), given[0] if given else None, change)

    def __call__(self, call: Call) -> tuple[int, ...]:
        """The sizes that change; without such those of the first tensor."""
        inputs: Sequence[Any] = call.given[0]
        if self.numbers:
            return tuple([inputs[number] for number in self.numbers])
        return tuple(inputs[self.first].shape) if self.first is not None else ()
