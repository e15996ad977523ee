"""What the inputs of a graph are in the program that Dynamo traced: names, lines, and which are static."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...base import Site, is_internal
from ...runtime.arguments import Call, CompiledInput
from .parts import has_symbols
from .torch_private import input_nodes

_ROOT = re.compile(r"^[LG]\['(\w+)'\]")
_MEMBER = re.compile(r"\._(?:modules|parameters|buffers)\['([^']*)'\]")
_FRAME = re.compile(r'File "(.+)", line (\d+), in (.+)')


def inputs_of(graph: torch.fx.GraphModule) -> tuple[CompiledInput, ...]:
    """The inputs of a graph in their order; as far as Dynamo says where they come from.

    ``L['self']._modules['head']._parameters['weight']`` is ``self.head.weight``.
    """
    return tuple(
        CompiledInput(
            _name(node.source, node.of_wrapped) if node.source else f"args[{number}]",
            _line(node.stacks),
            node.stays,
        )
        for number, node in enumerate(input_nodes(graph))
    )


def _name(source: str, of_wrapped: bool) -> str:
    """A source as the user would write it."""
    root = _ROOT.match(source)
    if root is None:
        return source
    name = "self" if of_wrapped else root[1]
    return name + _MEMBER.sub(r".\1", source[root.end() :])


def line_of(stack: str | None) -> Site | None:
    """The innermost line of the user's in a stack as PyTorch's compiler writes it."""
    for file, line, function in reversed(_FRAME.findall(stack or "")):
        if not is_internal(file):
            return Site(file, int(line), function)
    return None


def _line(stacks: Iterable[str | None]) -> Site | None:
    return next((line for line in map(line_of, stacks) if line is not None), None)


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
