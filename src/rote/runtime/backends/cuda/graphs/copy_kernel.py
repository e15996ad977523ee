"""One kernel that copies many tensors, as a node of a graph whose addresses can be set.

A node for each copy costs the host as many calls of the driver and the device as many steps as there are
copies; ``torch._foreach_copy_`` is one kernel, but has to be dispatched. A kernel node takes its parameters
by value, and one call sets all of them: so the parameter is a table of addresses here, and the kernel copies
what the table says (``docs/design.md`` has the figures, and why the kernel is a text in PTX).

A block looks up which copy it belongs to, and the blocks of a copy share its bytes in runs of 16 if both
addresses allow it, otherwise of 4 or 1. What the last runs leave over is copied byte by byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import byref, c_uint, c_void_p, create_string_buffer
from itertools import accumulate
from operator import itemgetter
from struct import Struct, pack_into
from typing import Any

import torch

from .cuda_driver import Driver, KernelShape, Node

CAPACITIES = (16, 128)
"""Copies that one node may have, with either kernel. The smaller table costs 0.4 kB of parameters and the
larger one 3.6 of the 4 kB that they may have on every device, which takes the host 1.3 us more to set."""

CAPACITY = CAPACITIES[-1]

THREADS = 256
"""Of a block."""

RUN = 16 * THREADS
"""Bytes that a block copies at a time."""

MOST_BLOCKS = 264
"""Blocks of one copy; what is longer they copy in turns. With four times as many, three copies of 4 MB took
12.9 instead of 9.0 us."""

NAME = "rote_copy"


class KernelLayout:
    """Where the columns of a table begin.

    Addresses and sizes (in bytes) have 64 bits. ``begins`` has, in 32 bits each, the first block of each copy
    and, behind the last one, how many blocks there are.
    """

    def __init__(self, capacity: int) -> None:
        self.sources, self.targets, self.sizes, self.begins = [8 * capacity * n for n in range(4)]
        self.nbytes = self.begins + 4 * capacity + 8


def _loop(width: int, kind: str, values: str) -> str:
    """PTX that copies what is left in runs, and moves on by that."""
    return f"""
    div.u64 %runs, %size, {width};
    mov.u64 %run, %first;
LOOP{width}:
    setp.ge.u64 %done, %run, %runs;
    @%done bra DONE{width};
    mul.lo.u64 %offset, %run, {width};
    add.u64 %from, %source, %offset;
    add.u64 %to, %target, %offset;
    ld.global.{kind} {values}, [%from];
    st.global.{kind} [%to], {values};
    add.u64 %run, %run, %step;
    bra LOOP{width};
DONE{width}:
    mul.lo.u64 %offset, %runs, {width};
    add.u64 %source, %source, %offset;
    add.u64 %target, %target, %offset;
    sub.u64 %size, %size, %offset;
"""


def program(capacity: int) -> str:
    """The kernel, in PTX, for tables of a capacity."""
    table = KernelLayout(capacity)
    return f"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry {NAME}(.param .align 8 .b8 table[{table.nbytes}], .param .u32 copies)
{{
    .reg .pred %done, %before, %narrow;
    .reg .b32 %low, %high, %middle, %block, %begin, %end, %thread, %threads, %a, %b, %c, %d;
    .reg .b64 %table, %place, %source, %target, %size, %first, %step, %bits;
    .reg .b64 %runs, %run, %offset, %from, %to;

    // The copy that this block belongs to: the last one that begins at or before it.
    mov.u64 %table, table;
    mov.u32 %block, %ctaid.x;
    mov.u32 %low, 0;
    ld.param.u32 %high, [copies];
SEARCH:
    add.u32 %middle, %low, %high;
    shr.u32 %middle, %middle, 1;
    setp.eq.u32 %done, %middle, %low;
    @%done bra FOUND;
    mul.wide.u32 %place, %middle, 4;
    add.u64 %place, %table, %place;
    ld.param.u32 %begin, [%place+{table.begins}];
    setp.le.u32 %before, %begin, %block;
    selp.u32 %low, %middle, %low, %before;
    selp.u32 %high, %high, %middle, %before;
    bra SEARCH;
FOUND:
    mul.wide.u32 %place, %low, 4;
    add.u64 %place, %table, %place;
    ld.param.u32 %begin, [%place+{table.begins}];
    ld.param.u32 %end, [%place+{table.begins + 4}];
    mul.wide.u32 %place, %low, 8;
    add.u64 %place, %table, %place;
    ld.param.u64 %source, [%place];
    ld.param.u64 %target, [%place+{table.targets}];
    ld.param.u64 %size, [%place+{table.sizes}];
    cvta.to.global.u64 %source, %source;
    cvta.to.global.u64 %target, %target;

    // Its threads, over all of its blocks: the number of this one, and how many there are.
    mov.u32 %threads, %ntid.x;
    sub.u32 %end, %end, %begin;
    mul.wide.u32 %step, %end, %threads;
    sub.u32 %block, %block, %begin;
    mul.wide.u32 %first, %block, %threads;
    mov.u32 %thread, %tid.x;
    cvt.u64.u32 %offset, %thread;
    add.u64 %first, %first, %offset;

    or.b64 %bits, %source, %target;
    and.b64 %offset, %bits, 15;
    setp.ne.u64 %narrow, %offset, 0;
    @%narrow bra NARROW;
{_loop(16, "v4.u32", "{%a, %b, %c, %d}")}
    bra REST;
NARROW:
    and.b64 %offset, %bits, 3;
    setp.ne.u64 %narrow, %offset, 0;
    @%narrow bra REST;
{_loop(4, "u32", "%a")}
REST:
{_loop(1, "u8", "%a")}
    ret;
}}
"""


class CopyTable:
    """Copies between memory of the recording and memory of the caller, which one node makes.

    Args:
        kernel: Handle of the kernel for a capacity.
        numbers: Their addresses among those of all copies.
        tensors: The recording's memory: two to CAPACITY tensors, none of them empty.
        outward: The copies go to the caller.
    """

    __slots__ = ("_mine", "_node", "_pack", "_pick", "_shape", "_table", "_theirs")

    def __init__(
        self,
        kernel: Callable[[int], c_void_p],
        numbers: Sequence[int],
        tensors: Sequence[torch.Tensor],
        *,
        outward: bool,
    ) -> None:
        sizes = [tensor.numel() * tensor.itemsize for tensor in tensors]
        places = [tensor.data_ptr() for tensor in tensors]
        begins = [0, *accumulate([min(MOST_BLOCKS, -(-size // RUN)) for size in sizes])]
        capacity = next(capacity for capacity in CAPACITIES if capacity >= len(sizes))
        at = KernelLayout(capacity)
        self._table = create_string_buffer(at.nbytes)
        self._pack = Struct(f"{len(sizes)}Q").pack_into
        for column, values in ((at.sources, places), (at.targets, places), (at.sizes, sizes)):
            self._pack(self._table, column, *values)  # never launched like this
        pack_into(f"{len(begins)}I", self._table, at.begins, *begins)
        self._theirs = at.targets if outward else at.sources
        self._mine = frozenset(places)
        self._pick: Callable[[Sequence[int]], tuple[int, ...]] = itemgetter(*numbers)
        parameters = self._table, c_uint(len(sizes))
        self._shape = KernelShape.of(kernel(capacity), begins[-1], THREADS, parameters)
        self._node: tuple[Any, ...] = ()

    def add(self, api: Driver, graph: c_void_p, after: list[Node]) -> Node:
        """Put the copies into a graph that is to be instantiated."""
        node = api.add_kernel(graph, after, self._shape)
        self._node = c_void_p(node), byref(self._shape)
        return node

    def meets(self, addresses: Sequence[int]) -> bool:
        """Whether a tensor of the caller would be one of the recording's.

        No other tensor overlaps with those: nobody is given the memory of arguments, and results are new.
        """
        return not self._mine.isdisjoint(self._pick(addresses))

    def move(self, api: Driver, instance: c_void_p, was: Sequence[int], now: Sequence[int]) -> bool:
        """Set where the caller's memory is, for later launches of an instance; whether that was refused."""
        theirs = self._pick(now)
        if theirs == self._pick(was):
            return False
        self._pack(self._table, self._theirs, *theirs)
        return api.set_kernel(instance, *self._node) != 0
