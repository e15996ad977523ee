"""The kernel that copies many tensors, without a device: its PTX is read line by line.

The interpreter knows the instructions that this text has, and no others.
"""

from __future__ import annotations

import ctypes
import operator
import random
import re
import struct
from types import SimpleNamespace

import pytest
import torch

from rote.runtime.backends.cuda.graphs import copy_kernel, nodes
from rote.runtime.backends.cuda.graphs.copy_kernel import (
    CAPACITIES,
    CAPACITY,
    CopyTable,
    KernelLayout,
    program,
)
from rote.runtime.backends.cuda.graphs.cuda_driver import DriverError

THREADS = 8
BINARY = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.floordiv,
    "shr": operator.rshift, "or": operator.or_, "and": operator.and_,
}  # fmt: skip
COMPARED = {"ge": operator.ge, "eq": operator.eq, "le": operator.le, "ne": operator.ne}


class Program:
    """PTX, taken apart.

    Attributes:
        lines: The instructions: condition, name, operands.
        labels: The instruction behind each label.
    """

    def __init__(self, text: str) -> None:
        self.lines: list[tuple[str, list[str], list[str]]] = []
        self.labels: dict[str, int] = {}
        for raw in text.split("{", 1)[1].splitlines():
            line = raw.split("//")[0].strip()
            if line.endswith(":"):
                self.labels[line[:-1]] = len(self.lines)
            elif line.endswith(";") and not line.startswith("."):
                condition, body = re.fullmatch(r"(?:@(\S+) )?(.*);", line).groups()
                name, _, operands = body.partition(" ")
                found = re.findall(r"\{[^}]*\}|\[[^]]*\]|[^,\s]+", operands)
                self.lines.append((condition or "", name.split("."), found))


def run(program, table, copies, block, thread, memory):
    """One thread. Parameters lie at 0, and global addresses are places in ``memory``."""
    registers = {"%ctaid.x": block, "%ntid.x": THREADS, "%tid.x": thread, "table": 0}

    def value(operand):
        return registers[operand] if operand in registers else int(operand)

    def bytes_at(operand, size):
        register, _, offset = operand[1:-1].partition("+")
        start = registers[register] + int(offset or 0)
        assert start % size == 0
        return slice(start, start + size)

    at = 0
    while True:
        condition, name, operands = program.lines[at]
        at += 1
        if condition and not registers[condition]:
            continue
        kind, last = name[0], name[-1]
        if kind == "ret":
            return
        if kind == "bra":
            at = program.labels[operands[0]]
        elif kind in ("ld", "st") and name[1] == "global":
            values, place = operands if kind == "ld" else reversed(operands)
            each = values.strip("{}").split(", ")
            width = int(last[1:]) // 8
            where = bytes_at(place, width * len(each))
            for number, register in enumerate(each):
                part = slice(where.start + number * width, where.start + (number + 1) * width)
                if kind == "ld":
                    registers[register] = int.from_bytes(memory[part], "little")
                else:
                    memory[part] = registers[register].to_bytes(width, "little")
        elif kind == "ld":
            is_count = operands[1] == "[copies]"
            raw = copies if is_count else table[bytes_at(operands[1], int(last[1:]) // 8)]
            registers[operands[0]] = int.from_bytes(raw, "little")
        elif kind in ("mov", "cvt", "cvta"):
            registers[operands[0]] = value(operands[1])
        elif kind == "setp":
            registers[operands[0]] = COMPARED[name[1]](value(operands[1]), value(operands[2]))
        elif kind == "selp":
            registers[operands[0]] = value(operands[1] if registers[operands[3]] else operands[2])
        else:
            result = BINARY[kind](value(operands[1]), value(operands[2]))
            assert 0 <= result < 1 << 64
            registers[operands[0]] = result


class Tensor(SimpleNamespace):
    """A run of bytes at an address."""

    itemsize, dtype = 1, torch.uint8

    def data_ptr(self):
        return self.at

    def numel(self):
        return self.size

    @property
    def shape(self):
        return (self.size,)

    def stride(self):
        return (1,)


def tensors(*places, size=64):
    return [Tensor(at=at, size=size) for at in places]


class FakeDriver:
    """Notes what it is told."""

    def __init__(self):
        self.shapes, self.edges, self.made, self.refuses = [], [], 0, False
        self.set, self.used = [], True

    def roots(self, _):
        return ["root"]

    def ends(self, _):
        return ["end"]

    def add_kernel(self, _, after, shape):
        self.shapes.append(shape)
        self.edges.extend((before, len(self.shapes)) for before in after)
        return len(self.shapes)

    def add_edges(self, _, before, after):
        self.edges.extend((before, each) for each in after)

    def count(self, _):
        return 2 + len(self.shapes)

    def context(self):
        return None

    def has_context(self):
        return self.used

    def add_copy(self, _, after, shape, __):
        return self.add_kernel(_, after, shape)

    def move_copy(self, instance, node, *_):
        return self.set_kernel(instance, node, None)

    def instantiate(self, _):
        self.made += 1
        return self.made

    def set_kernel(self, instance, node, _):
        self.set.append((instance, node.value))
        return self.refuses

    def launch(self, *_):
        return 0


def parameters(shape):
    """Both parameters of a launch, as bytes."""
    table, copies = shape.parameters[0], ctypes.string_at(shape.parameters[1], 4)
    return ctypes.string_at(table, KernelLayout(shape.function).nbytes), copies


def laid_out(draw, count):
    """Two places for each of some sizes, aligned or not, and where they end."""
    end, found = 1024, []
    for _ in range(count):
        size, places = draw.choice([1, 3, 16, 28, 127, 400, 2000]), []
        for _ in range(2):
            places.append(-(-end // 16) * 16 + draw.choice([0, 1, 4]))
            end = places[-1] + size + 3
        found.append((places[0], places[1], size))
    return found, end


@pytest.mark.parametrize("outward", [False, True])
@pytest.mark.parametrize("count", [2, *CAPACITIES, CAPACITIES[0] + 1])
def test_the_kernel_copies_what_its_table_says(monkeypatch, count, outward):
    monkeypatch.setattr(copy_kernel, "THREADS", THREADS)
    monkeypatch.setattr(copy_kernel, "RUN", 16 * THREADS)
    monkeypatch.setattr(copy_kernel, "MOST_BLOCKS", 3)
    draw, api = random.Random(count), FakeDriver()
    places, end = laid_out(draw, count)
    mine = [Tensor(at=at, size=size) for at, _, size in places]
    table = CopyTable(ctypes.c_void_p, range(count), mine, outward=outward)
    table.add(api, None, [])
    assert not table.move(api, None, [-1] * count, [theirs for _, theirs, _ in places])
    memory = bytearray(draw.randbytes(end))
    right = bytearray(memory)
    for at, theirs, size in places:
        source, target = (at, theirs) if outward else (theirs, at)
        right[target : target + size] = memory[source : source + size]
    (shape,) = api.shapes
    code, given = Program(program(shape.function)), parameters(shape)
    for block in range(shape.blocks):
        for thread in range(shape.threads):
            run(code, *given, block, thread, memory)
    assert memory == right


def test_memory_of_the_recording_is_told_from_the_callers():
    table = CopyTable(ctypes.c_void_p, range(3), tensors(1000, 2000, 2200), outward=False)
    assert not table.meets([1500, 1500, 3000])
    assert table.meets([2200, 1500, 3000]) and table.meets([1500, 1500, 2200])


def copying(api, inputs, outputs):
    return nodes.CopyingGraph(api, 5, inputs, outputs, ctypes.c_void_p, None)


def test_only_what_has_moved_is_set():
    api = FakeDriver()
    graph = copying(api, tensors(1000, 2000), tensors(3000))
    assert api.edges == [(1, "root"), ("end", 2)]
    first = graph.aim((10000, 20000, 30000))
    assert api.set == [(1, 1), (1, 2)] and graph.known == {(10000, 20000, 30000): first}
    for n in range(1, nodes.MOST_INSTANCES):
        graph.aim((10000, 20000, 30000 + 64 * n))
    api.set.clear()
    graph.aim((10000, 20000, 40000))
    assert api.set == [(1, 2)] and (10000, 20000, 30000) not in graph.known
    assert graph.aim((10000, 1000, 40000)) is None and len(api.set) == 1


def test_what_the_driver_refuses_is_not_known_any_more():
    api = FakeDriver()
    graph = copying(api, tensors(1000), tensors(3000))
    graph._most = 1
    assert graph.aim((10000, 30000))
    api.refuses = True
    assert graph.aim((20000, 30000)) is None and not graph.known
    api.refuses = False
    api.set.clear()
    assert graph.aim((10000, 30000)) and api.set == [(1, 1), (1, 2)]


def test_nothing_is_set_in_a_thread_that_has_not_used_the_device():
    """The driver does not say no to that, the process ends."""
    api = FakeDriver()
    graph = copying(api, tensors(1000, 2000), tensors(3000))
    known = graph.aim((10000, 20000, 30000))
    api.set.clear()
    api.used = False
    assert graph.aim((11000, 20000, 30000)) is None and not api.set
    assert graph.known == {(10000, 20000, 30000): known}
    api.used = True
    assert graph.aim((11000, 20000, 30000))


def test_large_ones_have_nodes_of_their_own():
    api = FakeDriver()
    mine = [Tensor(at=1 << 20 + n, size=size) for n, size in enumerate((64, 1 << 23, 64, 1 << 23))]
    graph = copying(api, mine, mine[:2])
    assert api.edges == [(1, 2), (2, 3), (3, "root"), ("end", 4), (4, 5)]
    assert [isinstance(node, CopyTable) for node in graph._nodes] == [True, False, False, False, False]
    theirs = tuple([(1 << 40) + (n << 25) for n in range(6)])
    assert graph.aim(theirs)
    assert struct.unpack_from("2Q", parameters(api.shapes[0])[0]) == (theirs[0], theirs[2])
    assert [shape.source for shape in api.shapes[1:3]] == [theirs[1], theirs[3]]
    assert [shape.target for shape in api.shapes[3:]] == [theirs[4], theirs[5]]


def test_a_kernel_that_cannot_be_loaded_is_not_asked_for_one_copy():
    def no_kernel(_):
        raise DriverError("218")

    assert nodes.CopyingGraph(FakeDriver(), 5, tensors(1000), tensors(3000), no_kernel, None)._nodes
    with pytest.raises(DriverError):
        nodes.CopyingGraph(FakeDriver(), 5, tensors(1000, 2000), [], no_kernel, None)


def test_more_copies_than_one_node_takes():
    api, count = FakeDriver(), 2 * CAPACITY + 1
    mine = tensors(*[1000 + 64 * n for n in range(count)])
    graph = copying(api, mine, mine)
    assert api.edges == [(1, 2), (2, 3), (3, "root"), ("end", 4), (4, 5), (5, 6)]
    theirs = tuple([1_000_000 + 64 * n for n in range(2 * count)])
    assert graph.aim(theirs)
    found = []
    for number, shape in enumerate(api.shapes):
        table, copies = parameters(shape)
        start, length = 0 if number < 3 else 8 * CAPACITY, int.from_bytes(copies, "little")
        found += struct.unpack_from(f"{length}Q", table, start)
    assert sorted(found) == list(theirs)
