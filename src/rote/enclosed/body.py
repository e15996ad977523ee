"""The operations of a plain callable, cut out of the graph in which Dynamo has traced them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

FAKE = "example_value"
"""Under this name a node of Dynamo's has what it stands for: a fake tensor or a symbolic number."""


def fake_of(node: Node) -> Any:
    """What a node stands for while Dynamo traces."""
    return node.meta.get(FAKE)


@dataclass(frozen=True)
class Traced:
    """Operations that Dynamo has traced.

    Attributes:
        inputs: What they use from before: tensors first, then numbers.
        tensors: How many of the inputs are tensors.
        results: Those of them that are tensors of the result, each once.
    """

    nodes: Sequence[Node]
    inputs: Sequence[Node]
    tensors: int
    results: Sequence[Node]

    @classmethod
    def of(cls, nodes: Sequence[Node], given: Sequence[Node], results: Sequence[Node]) -> Traced:
        """Find out what operations use from before them.

        Args:
            given: What the call is given; it is among the inputs even if no operation uses it.
            results: The tensors of the result, from wherever they are.
        """
        inside = set(nodes)
        used = [*given, *(each for node in nodes for each in node.all_input_nodes)]
        outside = [node for node in dict.fromkeys(used) if node not in inside]
        tensors = [node for node in outside if isinstance(fake_of(node), torch.Tensor)]
        numbers = [node for node in outside if not isinstance(fake_of(node), torch.Tensor)]
        made = [node for node in dict.fromkeys(results) if node in inside]
        return cls(nodes, [*tensors, *numbers], len(tensors), made)

    def body(self, attributes: Mapping[str, Any]) -> GraphModule:
        """The operations as a function of the inputs.

        Args:
            attributes: What nodes find by name.

        Raises:
            KeyError: An operation uses something that is not among the attributes.
        """
        graph, copies = Graph(), dict[Node, Node]()
        for node in self.inputs:
            copies[node] = graph.placeholder(node.name)
        for node in self.nodes:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output(tuple(copies[node] for node in self.results))
        names = {str(node.target) for node in graph.nodes if node.op in ("get_attr", "call_module")}
        return GraphModule({name: attributes[name] for name in names}, graph)

    def replace(self, call: Callable[..., Any]) -> None:
        """Put one call in the place of the operations; the nodes of results stay, and are its results."""
        graph = self.nodes[0].graph
        with graph.inserting_after(self.nodes[-1]):
            node = graph.call_function(call, tuple(self.inputs))
        node.meta[FAKE] = tuple(fake_of(each) for each in self.results)
        for name in ("stack_trace", "nn_module_stack"):
            if name in self.nodes[0].meta:
                node.meta[name] = self.nodes[0].meta[name]
        behind = node
        for number, result in enumerate(self.results):
            result.op, result.target = "call_function", operator.getitem
            result.args, result.kwargs = (node, number), {}
            behind.append(result)
            behind = result
        kept = set(self.results)
        for each in reversed(self.nodes):
            if each not in kept:
                graph.erase_node(each)
