"""A graph read back as a program of one way.

The nodes tell operators and operands. What stands beside them (:mod:`.graph`) tells the storage of a result,
where an operation ran, and the user's line. So a pass may move, drop or change nodes, and has to say what a
new node gives.
"""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

from torch.fx import GraphModule, Node

from .graph import (
    GENERATOR,
    META,
    NUMBER,
    TENSOR,
    EndNode,
    GivenNode,
    PartNode,
    RanNode,
    as_list,
    expect,
    expect_sizes,
)
from .operations import SHAPED, Operand, Operation, Reference, operand_of
from .program import Edge, Ending, Program, ResultLeaf, Stretch, Way
from .storages import Token

_CHECKS = frozenset({expect, expect_sizes})


def of_fx(graph_module: GraphModule) -> Program:
    """Read a graph that :func:`.to_fx` wrote, or that was made of one.

    Raises:
        ValueError: A node does not say what it gives.
    """
    return _GraphReader().read(graph_module)


class _GraphReader:
    """Reads one graph."""

    def __init__(self) -> None:
        self._operands: dict[Node, Operand] = {}
        self._stretches: list[tuple[tuple[Token, ...], list[Operation]]] = [((), [])]
        self._edges: list[Edge] = []

    def read(self, module: GraphModule) -> Program:
        """The program."""
        ending: Ending | None = None
        for node in module.graph.nodes:
            beside = node.meta.get(META)
            if isinstance(beside, GivenNode):
                self._given(node, beside)
            elif isinstance(beside, RanNode):
                self._ran(node, beside)
            elif isinstance(beside, PartNode):
                self._operands[node] = beside.token
            elif isinstance(beside, EndNode):
                self._stretches[-1][1].extend(beside.before)
                ending = self._ending(node, beside.ending)
            elif node.op != "get_attr" and node.target not in _CHECKS and node.target is not operator.getitem:
                raise ValueError(f"nothing says what {node.format_node()} gives")
        return self._joined(ending)

    def _given(self, node: Node, given: GivenNode) -> None:
        if given.sort in (TENSOR, GENERATOR):
            self._operands[node] = given.what
        elif given.sort == NUMBER:
            self._operands[node] = given.what.number

    def _ran(self, node: Node, ran: RanNode) -> None:
        was = ran.operation
        if was.is_of_aten:
            target: Any = node.target
            operands = tuple([self._operand(each) for each in node.args])
            named = tuple([(name, self._operand(each)) for name, each in node.kwargs.items()])
            operation = Operation.called(was.kind, target.name(), operands, named, was.site)
        else:
            operands = (self._operand(node.args[0]),) if node.target is as_list else was.operands
            operation = Operation.called(was.kind, was.name, operands, was.named, was.site)
        operation = operation.ended(was.structure, was.results)
        self._stretches[-1][1].extend((*ran.before, operation))
        if len(was.results) == 1 and was.structure == "one":
            result = was.results[0]
            if isinstance(result, Reference):
                result = result.token or operation.tokens[result.operand]
            self._operands[node] = result
        elif was.kind == SHAPED and len(ran.arrived) == 1:
            self._operands[node] = ran.arrived[0]
        if ran.edge:
            self._edges.append(ran.edge[0])
            self._stretches.append((ran.arrived, []))

    def _operand(self, value: Any) -> Operand:
        if isinstance(value, Node):
            return self._operands[value]
        if isinstance(value, (list, tuple)):
            return tuple([self._operand(each) for each in value])
        return operand_of(value, _no_tensor)

    def _ending(self, node: Node, was: Ending | None) -> Ending | None:
        if was is None:
            return None
        outputs: Any = node.args[0]
        tensors = zip(was.leaves, outputs[0], strict=True)
        slots = zip(was.gradients, outputs[1], strict=True)
        return replace(
            was,
            leaves=tuple([self._leaf(leaf, value) for leaf, value in tensors]),
            gradients=tuple([(name, self._operands.get(value, token)) for (name, token), value in slots]),
        )

    def _leaf(self, leaf: ResultLeaf, value: Any) -> ResultLeaf:
        return replace(leaf, token=self._operands[value]) if isinstance(leaf.token, Token) else leaf

    def _joined(self, ending: Ending | None) -> Program:
        arrived, operations = self._stretches[-1]
        last = Stretch(tuple(operations), arrived, ending=ending)
        for (arrived, operations), edge in zip(
            reversed(self._stretches[:-1]), reversed(self._edges), strict=True
        ):
            last = Stretch(tuple(operations), arrived, (Way(edge, last),))
        return Program(last)


def _no_tensor(tensor: Any) -> Token:
    raise ValueError(f"a {type(tensor).__name__} stands in a graph as a constant")
