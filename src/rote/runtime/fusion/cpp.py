"""Kernels in C++, for the host.

One loop over the elements. Nothing in it depends on another element, so that a compiler may take several at
once; it may not put two roundings into one (``-ffp-contract=off``), and a sum stays in the order in which it
is written. 16-bit types are calculated in 32 bits and rounded to the nearest, ties to even, as PyTorch does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ..backends.protocol import NAMES_OF_TYPES
from ..compiling import KernelSource, Language
from .body import ELEMENTS, Body, Calculated, Converted, Loaded, Picked, RealNumber, Value, WholeNumber
from .positions import ElementPosition, Term

NAME = "fused"

_HEAD = """\
#include <cmath>
#include <cstdint>
#include <cstring>

struct bfloat16 { uint16_t bits; };
typedef _Float16 float16;

static inline float widened(bfloat16 x) {
  uint32_t bits = uint32_t(x.bits) << 16;
  float wide;
  std::memcpy(&wide, &bits, 4);
  return wide;
}

static inline bfloat16 rounded(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  uint32_t up = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return bfloat16{uint16_t(x != x ? 0x7fc0u : up)};
}

template <typename T> static inline T absolute(T x) { return x < T(0) ? T(-x) : x; } template <> inline float
absolute(float x) { return std::fabs(x); } template <> inline double absolute(double x) { return std::fabs(x);
} template <typename T> static inline T maximum(T a, T b) { return a != a ? a : (b != b ? b : (a > b ? a :
b)); } template <typename T> static inline T minimum(T a, T b) { return a != a ? a : (b != b ? b : (a < b ? a
: b)); }
"""


def cpp_source(body: Body, aligned: Sequence[bool]) -> KernelSource:
    """The kernel with a body, as C++.

    Args:
        aligned: Which tensors begin at a multiple of 16 bytes: those that it reads, and those that it
            writes.
    """
    types = (*body.reads, *body.writes)
    lines = [_HEAD, f'extern "C" void {NAME}(']
    lines.append("    void* const* tensors, const double* reals, const int64_t* integers) {")
    for number, dtype in enumerate(types):
        const = "const " if number < len(body.reads) else ""
        apart = "" if body.in_place else "__restrict "
        declared = f"{const}{_type(dtype)}* {apart}p{number}"
        lines.append(f"  {declared} = static_cast<{const}{_type(dtype)}*>(tensors[{number}]);")
    for at, value in enumerate(body.values):
        if isinstance(value, (RealNumber, WholeNumber)):
            lines.append(f"  const {_type(value.dtype)} v{at} = {_number(value)};")
    lines.append(f"  for (int32_t t = 0; t < {body.count}; ++t) {{")
    for at, value in enumerate(body.values):
        if not isinstance(value, (RealNumber, WholeNumber)):
            lines.append(f"    const {_type(value.dtype)} v{at} = {_written(body, value)};")
    for number, place in enumerate(body.stores, len(body.reads)):
        lines.append(f"    p{number}[t] = v{place};")
    text = "\n".join([*lines, "  }", "}", ""])
    return KernelSource(
        language=Language.CPP,
        name=NAME,
        text=text,
        tensors=tuple([NAMES_OF_TYPES[dtype] for dtype in types]),
        aligned=tuple(aligned),
        reals=body.reals,
        integers=body.integers,
        in_place=body.in_place,
    )


def _type(dtype: torch.dtype) -> str:
    return ELEMENTS[dtype].cpp


def _number(value: RealNumber | WholeNumber) -> str:
    source = f"reals[{value.index}]" if isinstance(value, RealNumber) else f"integers[{value.index}]"
    if value.dtype is torch.bfloat16:
        return f"rounded(static_cast<float>({source}))"
    if value.dtype is torch.float16:
        return f"static_cast<float16>(static_cast<float>({source}))"
    return f"static_cast<{_type(value.dtype)}>({source})"


def _written(body: Body, value: Value) -> str:
    if isinstance(value, Loaded):
        load = f"p{value.tensor}[{index_text(value.position, body.count, '/')}]"
        if not value.within:
            return load
        known = " && ".join(within_texts(value.within, body.count, "/")) or "true"
        return f"({known}) ? {load} : {_type(value.dtype)}{{}}"
    if isinstance(value, Calculated):
        text = value.function.cpp.format(*[f"v{each}" for each in value.operands])
        return f"static_cast<{_type(value.dtype)}>({text})"
    if isinstance(value, Converted):
        return _converted(body.values[value.operand].dtype, value)
    if isinstance(value, Picked):
        return picked_text(value, body.count, "/", "({} ? {} : {})", lambda place: f"v{place}")
    raise TypeError(f"{type(value).__name__} is no value of an element")


def _converted(was: torch.dtype, value: Converted) -> str:
    operand = f"v{value.operand}"
    if was is torch.bfloat16:
        return f"widened({operand})"
    if value.dtype is torch.bfloat16:
        return f"rounded({operand})"
    if value.dtype is torch.bool:
        return f"({operand} != 0)"
    return f"static_cast<{_type(value.dtype)}>({operand})"


def picked_text(value: Picked, count: int, divided: str, choice: str, name: Callable[[int], str]) -> str:
    """One of several values; ``choice`` has places for a condition, what it chooses, and what else."""
    digit, text = digit_text(value.digit, count, divided), name(value.operands[-1])
    for high, place in reversed(list(zip(value.highs, value.operands[:-1], strict=True))):
        text = choice.format(f"{digit} < {high}", name(place), text)
    return text


def within_texts(terms: Sequence[Term], count: int, divided: str) -> list[str]:
    """The conditions under which an element is there."""
    texts: list[str] = []
    for term in terms:
        digit = digit_text(term, count, divided)
        texts += [f"({digit} >= {term.low})"] if term.low else []
        texts += [f"({digit} < {term.high})"] if term.high < term.size else []
    return texts


def digit_text(term: Term, count: int, divided: str) -> str:
    """A digit of ``t``, which is below ``count``, with the sign by which whole numbers are divided."""
    text = "t" if term.span == 1 else f"(t {divided} {term.span})"
    return text if term.span * term.size >= count else f"({text} % {term.size})"


def index_text(position: ElementPosition, count: int, divided: str) -> str:
    """Where an element lies, with the sign by which whole numbers are divided."""
    start, texts = position.start, list[str]()
    for term in position.terms:
        digit = digit_text(term, count, divided)
        start -= term.low * term.step
        texts.append(digit if term.step == 1 else f"{digit} * {term.step}")
    if start or not texts:
        texts.append(str(start))
    return " + ".join(texts)
