"""Functions of numbers, and how each device writes them down so that PyTorch's bits come out.

There are two kinds. An *exact* one is defined to the bit, by IEEE 754 or by what bits are: it gives PyTorch's
result if each device uses the right instruction and rounds where PyTorch rounds, and no compiler may put two
of them together. Any other one is whatever a library calculates, so it is equal only as far as it was tried:
:mod:`.proofs` tries all operands there are.

``{0}`` and so on stand for operands. In Triton all of them are blocks of one type, that of the calculation.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Function:
    """A function.

    Attributes:
        cpp: How it is written in C++; empty if the host has no way.
        triton: How it is written in Triton; empty if a GPU has no way.
        exact: It is defined to the bit.
        of_64_bits: How it is written in Triton for real numbers of 64 bits; empty if in no other way.
    """

    name: str
    cpp: str
    triton: str
    exact: bool = True
    of_64_bits: str = ""


def _exact(name: str, cpp: str, triton: str = "", of_64_bits: str = "") -> Function:
    return Function(name, cpp, triton or cpp, of_64_bits=of_64_bits)


def _tried(name: str, cpp: str, triton: str) -> Function:
    return Function(name, cpp, triton, exact=False)


ADD = _exact("add", "({0} + {1})")
SUBTRACT = _exact("subtract", "({0} - {1})")
MULTIPLY = _exact("multiply", "({0} * {1})")
DIVIDE = _exact("divide", "({0} / {1})", "tl.div_rn({0}, {1})", "({0} / {1})")
MULTIPLY_AND_ADD = _exact("multiply and add", "std::fma({0}, {1}, {2})", "tl.fma({0}, {1}, {2})")
NEGATE = _exact("negate", "(-{0})", "({0} * -1)")  # -x is 0 - x in Triton, which has no -0
ABSOLUTE = _exact("absolute", "absolute({0})", "tl.abs({0})")
ROOT = _exact("root", "std::sqrt({0})", "tl.sqrt_rn({0})", "libdevice.sqrt({0})")
FLOOR = _exact("floor", "std::floor({0})", "tl.floor({0})")
CEIL = _exact("ceil", "std::ceil({0})", "tl.ceil({0})")
TRUNCATE = _exact("truncate", "std::trunc({0})", "libdevice.trunc({0})")
ROUND = _exact("round", "std::nearbyint({0})", "libdevice.nearbyint({0})")
MAXIMUM = _exact("maximum", "maximum({0}, {1})",
                 "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)")  # fmt: skip
MINIMUM = _exact("minimum", "minimum({0}, {1})",
                 "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)")  # fmt: skip
AT_LEAST = _exact("at least", "({0} < {1} ? {1} : {0})",
                  "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)")  # fmt: skip
AT_MOST = _exact("at most", "({1} < {0} ? {1} : {0})",
                 "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)")  # fmt: skip
WHERE = _exact("where", "({0} ? {1} : {2})", "tl.where({0}, {1}, {2})")
EQUAL = _exact("equal", "({0} == {1})")
UNEQUAL = _exact("unequal", "({0} != {1})")
LESS = _exact("less", "({0} < {1})")
LESS_OR_EQUAL = _exact("less or equal", "({0} <= {1})")
GREATER = _exact("greater", "({0} > {1})")
GREATER_OR_EQUAL = _exact("greater or equal", "({0} >= {1})")
BITS_AND = _exact("bits and", "({0} & {1})")
BITS_OR = _exact("bits or", "({0} | {1})")
BITS_XOR = _exact("bits xor", "({0} ^ {1})")
BITS_NOT = _exact("bits not", "(~{0})")
NOT = _exact("not", "(!{0})", "({0} == 0)")

EXP = _tried("exp", "std::exp({0})", "libdevice.exp({0})")
LOG = _tried("log", "std::log({0})", "libdevice.log({0})")
SIN = _tried("sin", "std::sin({0})", "libdevice.sin({0})")
COS = _tried("cos", "std::cos({0})", "libdevice.cos({0})")
EXP2 = _tried("exp2", "std::exp2({0})", "libdevice.exp2({0})")
EXPM1 = _tried("expm1", "std::expm1({0})", "libdevice.expm1({0})")
LOG2 = _tried("log2", "std::log2({0})", "libdevice.log2({0})")
LOG1P = _tried("log1p", "std::log1p({0})", "libdevice.log1p({0})")
TANH = _tried("tanh", "std::tanh({0})", "libdevice.tanh({0})")
ERF = _tried("erf", "std::erf({0})", "erf({0})")
INVERSE_ROOT = _tried("inverse root", "(1 / std::sqrt({0}))", "libdevice.rsqrt({0})")
SIGMOID = _tried("sigmoid", "(1 / (1 + std::exp(-{0})))", "tl.div_rn(1.0, 1.0 + libdevice.exp(-{0}))")
SILU = _tried("silu", "({0} / (1 + std::exp(-{0})))", "tl.div_rn({0}, 1.0 + libdevice.exp(-{0}))")
GELU = _tried("gelu", "({0} * 0.5f * (1 + std::erf({0} * 0.70710678118654752440f)))",
              "({0} * 0.5 * (1.0 + erf({0} * 0.70710678118654752440)))")  # fmt: skip
GELU_BY_TANH = _tried(
    "gelu by tanh",
    "(0.5f * {0} * (1 + std::tanh(0.79788456080286535588f * ({0} + 0.044715f * ({0} * {0} * {0})))))",
    "(0.5 * {0} * (1.0 + libdevice.tanh(0.79788456080286535588"
    " * tl.fma({0} * {0} * {0}, tl.full({0}.shape, 0.044715, tl.float32), {0}))))",
)
