"""One copy as a node of a graph, between memory of the recording and memory of the caller."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_void_p
from typing import Any

import torch

from .cuda_driver import CopyShape, Driver, Node


class CopyNode:
    """One copy, of the recording's memory; ``number`` is that of its address among those of all copies."""

    __slots__ = ("_field", "_first", "_last", "_node", "_number", "_shape")

    def __init__(self, number: int, tensor: torch.Tensor, *, outward: bool) -> None:
        self._number = number
        mine, nbytes = tensor.data_ptr(), tensor.numel() * tensor.itemsize
        self._first, self._last = mine - nbytes, mine + nbytes
        self._shape = CopyShape.of(mine, mine, nbytes)  # never launched like this
        self._field = "target" if outward else "source"
        self._node: tuple[Any, ...] = ()

    def add(self, api: Driver, graph: c_void_p, after: list[Node]) -> Node:
        """Put the copy into a graph that is to be instantiated."""
        context = api.context()
        node = api.add_copy(graph, after, self._shape, context)
        self._node = c_void_p(node), byref(self._shape), context
        return node

    def meets(self, addresses: Sequence[int]) -> bool:
        """Whether the caller's memory would be that of the recording which is copied from or to anyway."""
        return self._first < addresses[self._number] < self._last

    def move(self, api: Driver, instance: c_void_p, was: Sequence[int], now: Sequence[int]) -> bool:
        """Set where the caller's memory is, for later launches of an instance; whether that was refused."""
        at = now[self._number]
        if at == was[self._number]:
            return False
        setattr(self._shape, self._field, at)
        return api.move_copy(instance, *self._node) != 0
