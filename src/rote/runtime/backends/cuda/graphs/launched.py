"""The kernels that an operation launches, as a capture has them: which, how, and with which parameters."""

from __future__ import annotations

from collections.abc import Callable, Collection
from ctypes import string_at
from dataclasses import dataclass
from typing import Any

from .cuda_driver import Driver, DriverError, KernelShape, Node


@dataclass(frozen=True)
class LaunchedKernel:
    """A launch of a kernel in a graph.

    Attributes:
        node: Where it is in the graph.
        shape: The kernel, and how it is started. Its parameters are those of the node.
        parameters: The bytes of each parameter.
    """

    node: Node
    shape: KernelShape
    parameters: tuple[bytes, ...]

    def is_started_as(self, other: LaunchedKernel) -> bool:
        """Whether another launch differs in parameters alone."""
        same = [len(each) for each in self.parameters] == [len(each) for each in other.parameters]
        return same and self.shape.launch == other.shape.launch

    @classmethod
    def of(cls, api: Driver, node: Node) -> LaunchedKernel:
        """Read a node.

        Raises:
            DriverError: It is no launch of a kernel, or its parameters are not known.
        """
        shape = api.kernel_of(node)
        sizes = api.parameter_sizes(shape)
        if sizes and not shape.parameters:
            raise DriverError("a kernel has parameters that are not told one by one")
        parameters = [string_at(shape.parameters[number], size) for number, size in enumerate(sizes)]
        return cls(node, shape, tuple(parameters))


def launched_between(api: Driver, before: Collection[Node], last: Collection[Node]) -> list[LaunchedKernel]:
    """The kernels launched one after the other behind some nodes, up to others.

    Raises:
        DriverError: They are no chain of kernels.
    """
    found: list[LaunchedKernel] = []
    while set(last) != set(before):
        if len(last) != 1:
            raise DriverError("kernels are launched beside each other")
        (node,) = last
        found.append(LaunchedKernel.of(api, node))
        last = api.waits_for(node)
    return found[::-1]


def launched_by(api: Driver, stream: int, call: Callable[[], Any]) -> list[LaunchedKernel]:
    """What a call would launch on a stream, which is current and not captured; nothing runs.

    Raises:
        DriverError: It does not launch kernels alone, one after the other.
    """
    api.begin_capture(stream)
    try:
        call()
        last = api.last_captured(stream)
    except BaseException:
        api.drop_capture(stream)
        raise
    graph = api.end_capture(stream)
    try:
        return launched_between(api, (), last)
    finally:
        api.drop_graph(graph)
