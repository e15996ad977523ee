"""Calls of graphed callables in a graph, taken back: their operations stand in the graph again."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from .call import EnclosedCall
from .operators import MARK


def unfold(graph: GraphModule) -> None:
    """Put the operations of the plain callables into a graph, where it calls graphed ones.

    Args:
        graph: What Dynamo made of a frame; it is changed.
    """
    calls = [(node, getattr(node.target, MARK, None)) for node in graph.graph.nodes]
    found = [(node, call) for node, call in calls if isinstance(call, EnclosedCall)]
    for number, (node, call) in enumerate(found):
        _unfold_one(graph, node, call, f"enclosed_{number}_")
    if found:
        graph.recompile()


def _unfold_one(graph: GraphModule, node: Node, call: EnclosedCall, prefix: str) -> None:
    body = call.body
    inputs = [each for each in body.graph.nodes if each.op == "placeholder"]
    copies: dict[Node, Node] = dict(zip(inputs, node.args, strict=True))  # pyright: ignore
    with graph.graph.inserting_before(node):
        for each in body.graph.nodes:
            if each.op in ("placeholder", "output"):
                continue
            copies[each] = graph.graph.node_copy(each, copies.__getitem__)
            if each.op in ("get_attr", "call_module"):
                name = prefix + str(each.target).replace(".", "_")
                setattr(graph, name, _attribute(body, str(each.target)))
                copies[each].target = name
    (results,) = body.graph.output_node().args
    for user in [*node.users]:
        assert user.target is operator.getitem
        user.replace_all_uses_with(copies[results[user.args[1]]])  # pyright: ignore
        graph.graph.erase_node(user)
    graph.graph.erase_node(node)


def _attribute(module: torch.nn.Module, path: str) -> Any:
    found: Any = module
    for name in path.split("."):
        found = getattr(found, name)
    return found
