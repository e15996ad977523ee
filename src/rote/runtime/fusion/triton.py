"""Kernels in Triton, for GPUs.

One block of elements a program, or one row where rows are added up (:class:`_RowText`). Roundings stay
where they are written: sums and products are not put together (the compiler is asked not to), quotients and
roots are rounded correctly, and other functions are those of NVIDIA's library, which PyTorch's kernels call
as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from ..backends.protocol import NAMES_OF_TYPES
from ..compiling import KernelSource, Language, Programs
from .body import (
    ELEMENTS,
    Body,
    Calculated,
    Converted,
    Loaded,
    Picked,
    RealNumber,
    Summed,
    Value,
    WholeNumber,
    is_short,
    operands_of,
)
from .cpp import index_text, picked_text, within_texts
from .rows import LANES_OF_WARP, SUMS, RowOrder
from .rules import NoKernelError

NAME = "fused"

_HEAD = """\
import triton
import triton.language as tl
from triton.language.extra import libdevice

"""
_ERF_OF_CUDA_13 = """
@triton.jit
def erf(a):
    if a.dtype == tl.float64:
        return libdevice.erf(a)
    size = tl.abs(a)
    far = size >= 1.002959966659546
    t = tl.where(far, size, a * a)
    f = tl.where(far, 0.00011219871521461755, 8.483494457323104e-05)
    f = tl.fma(f, t, tl.where(far, -0.0013275252422317863, -0.0008213091641664505))
    f = tl.fma(f, t, tl.where(far, 0.00839653518050909, 0.005213488824665546))
    f = tl.fma(f, t, tl.where(far, -0.04024658352136612, -0.026868773624300957))
    f = tl.fma(f, t, tl.where(far, 0.15950430929660797, 0.11284004896879196))
    f = tl.fma(f, t, tl.where(far, 0.9129176735877991, -0.37612664699554443))
    f = tl.fma(f, t, tl.where(far, 0.6290600299835205, 0.12837915122509003))
    s = tl.where(far, size * -1, a)
    f = tl.fma(f, s, s)
    power = tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [f], tl.float32, True, 1)
    return tl.where(far, libdevice.copysign(1.0 - power, a), f)

"""
"""That of CUDA's library from 13.0 on, in 32 bits; Triton comes with an earlier one, which has other bits."""
_ERF = """
@triton.jit
def erf(a):
    return libdevice.erf(a)

"""
_CUDA = int((torch.version.cuda or "0").partition(".")[0])
_FEWEST, _MOST = 128, 1024
"""Elements of a block."""
_MOST_WARPS = 4
_MOST_OF_LANE = 64
"""Elements of a row that a thread keeps, if the row may have more threads."""
_BLOCKS = 264
"""Blocks from which on they become larger: two for each multiprocessor of a large GPU."""


def block_of(count: int) -> int:
    """Elements of a block: as many blocks as the GPU has room for, of a power of two."""
    block = _FEWEST
    while block < _MOST and block * _BLOCKS < count:
        block *= 2
    return block


def triton_source(body: Body, aligned: Sequence[bool], capability: int) -> KernelSource:
    """The kernel with a body, in Triton.

    Args:
        aligned: Which tensors begin at a multiple of 16 bytes: those that it reads, and those that it
            writes.
        capability: Compute capability of the GPU, such as 90.
    """
    order = body.rows
    types = (*body.reads, *body.writes)
    names = [f"p{number}" for number in range(len(types))]
    names += [f"r{number}" for number in range(body.reals)]
    names += [f"i{number}" for number in range(body.integers)]
    lines = _RowText(body, order).lines() if order is not None else _lines(body, block_of(body.count))
    head = [_HEAD, *_functions_in(lines), "\n@triton.jit", f"def {NAME}({', '.join(names)}):"]
    return KernelSource(
        language=Language.TRITON,
        name=NAME,
        text="\n".join([*head, *lines, ""]),
        tensors=tuple([NAMES_OF_TYPES[dtype] for dtype in types]),
        aligned=tuple(aligned),
        reals=body.reals,
        integers=body.integers,
        grid=_grid(body.count, order),
        capability=capability,
        in_place=body.in_place,
    )


def _functions_in(lines: Sequence[str]) -> list[str]:
    """What has to stand before a kernel with these lines."""
    if not any(["erf(" in line for line in lines]):
        return []
    return [_ERF_OF_CUDA_13 if _CUDA >= 13 else _ERF]


def _grid(count: int, order: RowOrder | None) -> Programs:
    if order is not None:
        return Programs(count=order.rows, warps=max(1, _lanes_at_once(order) // LANES_OF_WARP))
    block = block_of(count)
    return Programs(count=-(-count // block), warps=max(1, min(_MOST_WARPS, block // 128)))


def _lanes_at_once(order: RowOrder) -> int:
    """Lanes of a row that are threads of its program.

    To hand one another what they have added up takes threads of several warps most of a short row's time.
    """
    if not order.vectors:
        return order.lanes
    lanes, most = LANES_OF_WARP, min(order.lanes, LANES_OF_WARP * _MOST_WARPS)
    while lanes < most and lanes * _MOST_OF_LANE < order.columns:
        lanes *= 2
    return lanes


def _lines(body: Body, block: int) -> list[str]:
    """A kernel that has each element by itself."""
    lines = [f"    t = tl.program_id(0) * {block} + tl.arange(0, {block})", f"    inside = t < {body.count}"]
    for at, value in enumerate(body.values):
        lines.append(f"    v{at} = {_written(value, body.count, block, _name)}")
    return lines + [
        f"    tl.store(p{number} + t, v{place}, inside)"
        for number, place in enumerate(body.stores, len(body.reads))
    ]


def _name(place: int) -> str:
    return f"v{place}"


class _RowText:
    """A kernel whose programs have a row each.

    A row is taken in pieces, and what is known of each piece is kept in variables of its own. A value that
    follows from a sum of the row belongs to a later stage than that sum; all pieces of one stage come before
    the next one. What is the same for all elements of the row is calculated once.

    The order of additions is written out, down to the last two lanes: ``tl.sum`` would choose one by the
    layout. PyTorch's lanes may be more than the threads of a program: each piece belongs to as many of them
    as there are threads, and pieces that belong to other lanes are added up in sums of their own, so that the
    upper lanes are added to the lower ones without an exchange between threads.
    """

    def __init__(self, body: Body, order: RowOrder) -> None:
        self._body = body
        self._order = order
        self._lanes = _lanes_at_once(order)
        self._piece = SUMS * self._lanes
        self._sums = order.lanes // self._lanes
        self._stages: list[int] = []
        self._alike: list[bool] = []
        for value in body.values:
            operands = operands_of(value)
            stage = max([self._stages[each] for each in operands], default=0)
            self._stages.append(stage + isinstance(value, Summed))
            alike = isinstance(value, (Summed, RealNumber, WholeNumber))
            computed = isinstance(value, (Calculated, Converted))
            self._alike.append(alike or (computed and all([self._alike[each] for each in operands])))

    def lines(self) -> list[str]:
        lines = ["    row = tl.program_id(0)", f"    lane = tl.arange(0, {self._piece})"]
        for stage in range(max(self._stages) + 1):
            lines += self._stage(stage)
        return lines

    def _stage(self, stage: int) -> Iterator[str]:
        values = [(at, value) for at, value in enumerate(self._body.values) if self._stages[at] == stage]
        for at, value in values:
            if self._alike[at] and not isinstance(value, Summed):
                yield f"    v{at} = {_written(value, self._body.count, 1, _name)}"
        sums = [
            (at, value.operand)
            for at, value in enumerate(self._body.values)
            if isinstance(value, Summed) and self._stages[value.operand] == stage
        ]
        piece, last = self._piece, stage == max(self._stages)
        for at, _ in sums:
            for number in range(self._sums):
                yield f"    s{at}_{number} = tl.full(({piece},), 0, tl.float32)"
        for number in range(-(-self._order.columns // piece)):
            name = self._namer(number)
            yield f"    c = lane + {number * piece}"
            yield f"    inside = c < {self._order.columns}"
            yield f"    t = row * {self._order.columns} + c"
            for at, value in values:
                if not self._alike[at]:
                    yield f"    {name(at)} = {_written(value, self._body.count, piece, name)}"
            for at, operand in sums:
                into = f"s{at}_{number % self._sums}"
                yield f"    {into} = tl.where(inside, {into} + {name(operand)}, {into})"
            for tensor, place in enumerate(self._body.stores, len(self._body.reads)) if last else ():
                yield f"    tl.store(p{tensor} + t, {self._stored(name, place)}, inside)"
        for at, _ in sums:
            yield from self._added_up(at)

    def _namer(self, number: int) -> Callable[[int], str]:
        return lambda place: _name(place) if self._alike[place] else f"v{place}_{number}"

    def _stored(self, name: Callable[[int], str], place: int) -> str:
        if not self._alike[place]:
            return name(place)
        return f"tl.broadcast_to({name(place)}, ({self._piece},))"

    def _added_up(self, at: int) -> Iterator[str]:
        """What the lanes have is added up."""
        lanes, sums = self._lanes, self._sums
        for number in range(sums):
            one = f"s{at}_{number}"
            apart = one if self._order.vectors else f"tl.trans(tl.reshape({one}, ({SUMS}, {lanes})))"
            yield f"    a, b = tl.split(tl.reshape({apart}, ({lanes}, 2, 2)))"
            yield "    a, c = tl.split(a)"
            yield "    b, d = tl.split(b)"
            yield f"    {one} = ((a + b) + c) + d"
        while sums > 1:
            sums //= 2
            for number in range(sums):
                yield f"    s{at}_{number} = s{at}_{number} + s{at}_{number + sums}"
        yield f"    s = s{at}_0"
        while lanes > 1:
            lanes //= 2
            yield f"    a, b = tl.split(tl.trans(tl.reshape(s, (2, {lanes}))))"
            yield "    s = a + b"
        yield f"    v{at} = s"


def _type(dtype: torch.dtype) -> str:
    return ELEMENTS[dtype].triton


def _written(value: Value, count: int, block: int, name: Callable[[int], str]) -> str:
    if isinstance(value, Loaded):
        mask = " & ".join(["inside", *within_texts(value.within, count, "//")])
        index = index_text(value.position, count, "//")
        block_of_it = index if value.position.terms else f"t * 0 + {index}"  # a mask needs a block
        return f"tl.load(p{value.tensor} + ({block_of_it}), {mask})"
    if isinstance(value, (RealNumber, WholeNumber)):
        number = f"r{value.index}" if isinstance(value, RealNumber) else f"i{value.index}"
        return f"tl.full(({block},), {number}, {_through(value)}){_narrowed(value)}"
    if isinstance(value, Calculated):
        function = value.function
        wide = function.of_64_bits if value.dtype is torch.float64 else ""
        text = (wide or function.triton).format(*map(name, value.operands))
        return f"({text}).to({_type(value.dtype)})"
    if isinstance(value, Converted):
        operand = name(value.operand)
        return f"({operand} != 0)" if value.dtype is torch.bool else f"{operand}.to({_type(value.dtype)})"
    if isinstance(value, Picked):
        return picked_text(value, count, "//", "tl.where({}, {}, {})", name)
    raise NoKernelError("sums of rows are written by themselves")


def _through(value: RealNumber | WholeNumber) -> str:
    """The type in which a number is taken: 16 bits are reached by way of 32, as in PyTorch."""
    return "tl.float32" if is_short(value.dtype) else _type(value.dtype)


def _narrowed(value: RealNumber | WholeNumber) -> str:
    return f".to({_type(value.dtype)})" if is_short(value.dtype) else ""
