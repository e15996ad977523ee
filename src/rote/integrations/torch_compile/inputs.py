"""What the inputs of a graph are in the program that Dynamo traced: names, lines, and which are static."""

from __future__ import annotations

import re
from collections.abc import Iterable

import torch

from ...base import Site, is_internal
from ...runtime.arguments import CompiledInput
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
