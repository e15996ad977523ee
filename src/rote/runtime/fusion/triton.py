"""Kernels in Triton, for GPUs.

One block of elements a program. Roundings stay where they are written: sums and products are not put together
(the compiler is asked not to), quotients and roots are rounded correctly, and other functions are those of
NVIDIA's library, which PyTorch's kernels call as well.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..compiling import KernelSource, Language, Programs
from .body import Body, Calculated, Converted, Loaded, Picked, RealNumber, Value, WholeNumber
from .cpp import digit_text, index_text
from .elements import ELEMENTS, is_short
from .positions import Term

NAME = "fused"

_HEAD = """\
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
"""
_FEWEST, _MOST = 128, 1024
"""Elements of a block."""
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
        body: The body.
        aligned: Which tensors begin at a multiple of 16 bytes: those that it reads, and those that it
            writes.
        capability: Compute capability of the GPU, such as 90.
    """
    block = block_of(body.count)
    types = [ELEMENTS[dtype] for dtype in (*body.reads, *body.writes)]
    names = [f"p{number}" for number in range(len(types))]
    names += [f"r{number}" for number in range(body.reals)]
    names += [f"i{number}" for number in range(body.integers)]
    lines = [f"{_HEAD}def {NAME}({', '.join(names)}):"]
    lines.append(f"    t = tl.program_id(0) * {block} + tl.arange(0, {block})")
    lines.append(f"    inside = t < {body.count}")
    for at, value in enumerate(body.values):
        lines.append(f"    v{at} = {_written(value, body.count, block)}")
    for number, place in enumerate(body.stores, len(body.reads)):
        lines.append(f"    tl.store(p{number} + t, v{place}, inside)")
    return KernelSource(
        language=Language.TRITON,
        name=NAME,
        text="\n".join([*lines, ""]),
        tensors=tuple([element.pointer for element in types]),
        aligned=tuple(aligned),
        reals=body.reals,
        integers=body.integers,
        grid=Programs(count=-(-body.count // block), warps=max(1, min(4, block // 128))),
        capability=capability,
        in_place=body.in_place,
    )


def _type(dtype: torch.dtype) -> str:
    return ELEMENTS[dtype].triton


def _written(value: Value, count: int, block: int) -> str:
    if isinstance(value, Loaded):
        mask = " & ".join(["inside", *_within(value.within, count)])
        index = index_text(value.position, count, "//")
        block_of_it = index if value.position.terms else f"t * 0 + {index}"  # a mask needs a block
        return f"tl.load(p{value.tensor} + ({block_of_it}), {mask})"
    if isinstance(value, (RealNumber, WholeNumber)):
        name = f"r{value.index}" if isinstance(value, RealNumber) else f"i{value.index}"
        return f"tl.full(({block},), {name}, {_through(value)}){_narrowed(value)}"
    if isinstance(value, Calculated):
        function = value.function
        wide = function.of_64_bits if value.dtype is torch.float64 else ""
        text = (wide or function.triton).format(*[f"v{each}" for each in value.operands])
        return f"({text}).to({_type(value.dtype)})"
    if isinstance(value, Converted):
        operand = f"v{value.operand}"
        return f"({operand} != 0)" if value.dtype is torch.bool else f"{operand}.to({_type(value.dtype)})"
    return _picked(value, count)


def _through(value: RealNumber | WholeNumber) -> str:
    """The type in which a number is taken: 16 bits are reached by way of 32, as in PyTorch."""
    return "tl.float32" if is_short(value.dtype) else _type(value.dtype)


def _narrowed(value: RealNumber | WholeNumber) -> str:
    return f".to({_type(value.dtype)})" if is_short(value.dtype) else ""


def _picked(value: Picked, count: int) -> str:
    digit, text = digit_text(value.digit, count, "//"), f"v{value.operands[-1]}"
    for high, place in reversed(list(zip(value.highs, value.operands[:-1], strict=True))):
        text = f"tl.where({digit} < {high}, v{place}, {text})"
    return text


def _within(terms: Sequence[Term], count: int) -> list[str]:
    texts: list[str] = []
    for term in terms:
        digit = digit_text(term, count, "//")
        texts += [f"({digit} >= {term.low})"] if term.low else []
        texts += [f"({digit} < {term.high})"] if term.high < term.size else []
    return texts
