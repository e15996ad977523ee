"""How each operator is calculated: operands in which type, which function, rounded where.

A rule says what PyTorch's kernels do, for the host and for a GPU. It is a claim; :mod:`.proofs` holds it
against the operator.

What PyTorch does with types: operands are brought into their common type, then into the one in which that is
calculated (32 bits for 16), and the result is rounded to its type. A number of Python's is taken at once in
the type of the calculation by arithmetic, and rounded to the common type by comparisons, bounds and fills.
Operators that multiply and add (``addcmul``, ``lerp``, ``add`` with ``alpha``) do so in one step, since the
compilers of PyTorch's kernels make one rounding of two. A batch is normalized in orders of which each device
has one: that was found by trying those there are.

**What has no rule.** Sums along a dimension, but for rows on a GPU (:mod:`.rows`), and products: their order
is the kernel's own. Conversions of real numbers to whole ones: they are undefined for some.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from ...base import float_bits
from ..program import Look, Number, Operand, Operation, Token
from . import functions as fn
from .body import ELEMENTS
from .functions import Function

if TYPE_CHECKING:
    from .writing import Calculation


class NoKernelError(Exception):
    """An operation is not written into a kernel; the message says why."""


Rule = Callable[["Calculation"], int]
"""Writes an operation; returns the place of its result, in its type."""


def is_number(operand: Operand) -> bool:
    """Whether an operand is a number of Python's that is not complex."""
    return isinstance(operand, Number) and operand.kind is not complex


def common_type(operands: Sequence[Operand]) -> torch.dtype:
    """The type into which operands are brought."""
    values = [_stand_in(each) for each in operands]
    dtype = torch.result_type(values[0], values[-1])
    for each in values[1:-1]:
        dtype = torch.promote_types(dtype, torch.result_type(values[0], each))
    return dtype


def _stand_in(operand: Operand) -> torch.Tensor | float:
    if isinstance(operand, Token):
        return torch.empty((1,) * len(operand.shape), dtype=operand.dtype, device="meta")
    if isinstance(operand, Number) and operand.kind is not complex:
        return operand.kind(operand.value)
    raise NoKernelError("an operand is neither a tensor nor a real number")


# ---------------------------------------------------------------------- what rules are made of


def _operands(calculation: Calculation, count: int) -> tuple[Operand, ...]:
    operands = calculation.operation.operands
    if len(operands) < count or any([not _is_clear(each) for each in operands[:count]]):
        raise NoKernelError("an operand is missing, or is neither a tensor nor a real number")
    return operands[:count]


def _is_clear(operand: Operand) -> bool:
    return isinstance(operand, Token) or is_number(operand)


def _no_truth(dtype: torch.dtype) -> None:
    if dtype is torch.bool:
        raise NoKernelError("it calculates with truth values")


def _real(dtype: torch.dtype) -> None:
    if not dtype.is_floating_point:
        raise NoKernelError("it calculates with whole numbers")


def _in_arithmetic(rule: Rule, *, real: bool = True) -> Rule:
    """A rule that gives its result in the type of arithmetic; it is rounded to its own type at the end.

    Args:
        real: It is one for real numbers alone.
    """

    def write(calculation: Calculation) -> int:
        (_real if real else _no_truth)(calculation.result)
        return calculation.converted(rule(calculation), calculation.result)

    return write


def _takes_options(calculation: Calculation, known: int = 1) -> bool:
    return len(calculation.operation.operands) > known or bool(calculation.operation.named)


# ---------------------------------------------------------------------- rules


def _arithmetic(function: Function, *, swapped: bool = False, alpha: bool = False) -> Rule:
    """A function of two operands; with ``alpha``, one that PyTorch calculates as a sum."""

    def write(calculation: Calculation) -> int:
        left, right = _operands(calculation, 2)
        if not calculation.result.is_floating_point and any([
            isinstance(each, Number) and each.kind is float for each in (left, right)
        ]):  # fmt: skip
            raise NoKernelError("a real number is taken as a whole one")
        rounds = alpha and calculation.on_host  # sums of the host round a number to the common type
        values = [(calculation.rounded if rounds else calculation.given)(each) for each in (left, right)]
        if swapped:
            values.reverse()
        factor = _factor_of(calculation.operation, "alpha", 2) if alpha else _ONE
        if factor.value == 1:
            return calculation.made(function, *values)
        _real(calculation.result)
        times = calculation.given(factor)
        if function is fn.SUBTRACT:
            times = calculation.made(fn.NEGATE, times)
        return calculation.made(fn.MULTIPLY_AND_ADD, values[1], times, values[0])

    return _in_arithmetic(write, real=False)


def _factor_of(operation: Operation, name: str, place: int) -> Number:
    """A number by which an operand is multiplied; one, if there is none."""
    found = dict(operation.named).get(name, _ONE)
    found = operation.operands[place] if place < len(operation.operands) else found
    if not isinstance(found, Number):
        raise NoKernelError(f"its {name} is no number")
    return found


def _sum_with(function: Function) -> Rule:
    """The first operand, and a product or quotient of the others times a factor."""

    def write(calculation: Calculation) -> int:
        made, operands = calculation.made, _operands(calculation, 3)
        factor = calculation.given(_factor_of(calculation.operation, "value", 3))
        base, left, right = map(calculation.given, operands)
        if not calculation.on_host:
            found = made(fn.MULTIPLY_AND_ADD, factor, made(function, left, right), base)
            if function is not fn.MULTIPLY:
                return found
            is_one = calculation.truth(fn.EQUAL, factor, calculation.given(_ONE))  # that is another kernel
            return made(fn.WHERE, is_one, made(fn.MULTIPLY_AND_ADD, left, right, base), found)
        if function is fn.MULTIPLY:
            return made(fn.MULTIPLY_AND_ADD, made(fn.MULTIPLY, factor, left), right, base)
        return made(fn.ADD, base, made(function, made(fn.MULTIPLY, factor, left), right))

    return _in_arithmetic(write)


def _between(calculation: Calculation) -> int:
    """A point between two: from the nearer one on."""
    made = calculation.made
    start, end, weight = map(calculation.given, _operands(calculation, 3))
    half, one = calculation.given(Number(float, float_bits(0.5))), calculation.given(_ONE)
    near = calculation.truth(fn.LESS, made(fn.ABSOLUTE, weight), half)
    base, way = made(fn.WHERE, near, start, end), made(fn.SUBTRACT, end, start)
    if calculation.on_host:
        share = made(fn.WHERE, near, weight, made(fn.SUBTRACT, weight, one))
    else:  # the same but for the sign of zeros
        share = made(fn.WHERE, near, weight, made(fn.SUBTRACT, one, weight))
        way = made(fn.WHERE, near, way, made(fn.NEGATE, way))
    return made(fn.MULTIPLY_AND_ADD, share, way, base)


def _quotient(calculation: Calculation) -> int:
    left, right = _operands(calculation, 2)
    if _takes_options(calculation, 2):
        raise NoKernelError("it rounds the quotient")
    dividend, divisor = calculation.given(left), calculation.given(right)
    if isinstance(right, Number) and not calculation.on_host:  # on a GPU the number is inverted once
        return calculation.made(fn.MULTIPLY, dividend, calculation.inverse(divisor))
    return calculation.made(fn.DIVIDE, dividend, divisor)


_ZERO, _ONE = Number(int, 0), Number(int, 1)
_TWO_VALUES = (2, 2.0)


def _comparison(function: Function) -> Rule:
    def write(calculation: Calculation) -> int:
        left, right = _operands(calculation, 2)
        common = common_type((left, right))
        if common not in ELEMENTS:
            raise NoKernelError(f"it compares numbers of type {common}")
        return calculation.truth(function, *[calculation.rounded(each, common) for each in (left, right)])

    return write


def _in_type(function: Function, count: int, dtype: torch.dtype | None = None) -> Rule:
    """A function of operands in a type, that of the result if there is no other."""

    def write(calculation: Calculation) -> int:
        wanted = dtype or calculation.result
        values = [calculation.operand(each, wanted) for each in _operands(calculation, count)]
        return calculation.calculated(function, values, wanted)

    return write


def _bitwise_not(calculation: Calculation) -> int:
    return _in_type(fn.NOT if calculation.result is torch.bool else fn.BITS_NOT, 1)(calculation)


def _of_one(function: Function, *, real: bool = True) -> Rule:
    def write(calculation: Calculation) -> int:
        (operand,) = _operands(calculation, 1)
        if _takes_options(calculation):
            raise NoKernelError("it takes options")
        return calculation.made(function, calculation.given(operand))

    return _in_arithmetic(write, real=real)


def _reciprocal(calculation: Calculation) -> int:
    (operand,) = _operands(calculation, 1)
    return calculation.inverse(calculation.given(operand))


def _gelu(calculation: Calculation) -> int:
    (operand,) = _operands(calculation, 1)
    options = [*calculation.operation.operands[1:], *[each for _, each in calculation.operation.named]]
    function = {"none": fn.GELU, "tanh": fn.GELU_BY_TANH}.get(options[0] if options else "none")
    if function is None or len(options) > 1:
        raise NoKernelError("it takes options")
    return calculation.made(function, calculation.given(operand))


def _power(calculation: Calculation) -> int:
    base, exponent = _operands(calculation, 2)
    if not isinstance(base, Token) or not isinstance(exponent, Number) or exponent.value not in _TWO_VALUES:
        raise NoKernelError("it raises to another power than 2")
    value = calculation.given(base)
    return calculation.made(fn.MULTIPLY, value, value)


def _bound(lower: int | None, upper: int | None, least: Function, most: Function) -> Rule:
    """Bounds by the places of the operands that are the bounds, and the functions that keep to them."""

    def write(calculation: Calculation) -> int:
        operands = calculation.operation.operands
        if calculation.operation.named or not isinstance(operands[0], Token):
            raise NoKernelError("it takes options")
        value = calculation.rounded(operands[0])
        for place, function in ((lower, least), (upper, most)):
            bound = operands[place] if place is not None and place < len(operands) else None
            if bound is None:
                continue
            if not _is_clear(bound):
                raise NoKernelError("a bound is neither a tensor nor a real number")
            value = calculation.made(function, value, calculation.rounded(bound))
        return value

    return _in_arithmetic(write, real=False)


def _relu(calculation: Calculation) -> int:
    (operand,) = _operands(calculation, 1)
    zero = calculation.given(_ZERO)
    return calculation.made(fn.AT_LEAST, calculation.rounded(operand), zero)


def _leaky_relu(calculation: Calculation) -> int:
    operand, slope = _operands(calculation, 2)
    if not isinstance(slope, Number):
        raise NoKernelError("it takes options")
    value, zero = calculation.given(operand), calculation.given(_ZERO)
    small = calculation.made(fn.MULTIPLY, value, calculation.given(slope))
    return calculation.made(fn.WHERE, calculation.truth(fn.GREATER, value, zero), value, small)


def _hard(*, weighs: bool) -> Rule:
    """``min(max(x + 3, 0), 6) / 6``, and that times ``x``."""

    def write(calculation: Calculation) -> int:
        made, (operand,) = calculation.made, _operands(calculation, 1)
        zero, three, six = [calculation.given(Number(int, each)) for each in (0, 3, 6)]
        value = calculation.given(operand)
        found = made(fn.AT_MOST, made(fn.AT_LEAST, made(fn.ADD, value, three), zero), six)
        if weighs:
            found = made(fn.MULTIPLY, value, found)
        if calculation.on_host:
            return made(fn.DIVIDE, found, six)
        return made(fn.MULTIPLY, found, calculation.inverse(six))

    return _in_arithmetic(write)


def _where(calculation: Calculation) -> int:
    return _chosen(calculation, *_operands(calculation, 3))


def _masked_fill(calculation: Calculation) -> int:
    value, mask, number = _operands(calculation, 3)
    return _chosen(calculation, mask, number, value)


def _chosen(calculation: Calculation, condition: Operand, left: Operand, right: Operand) -> int:
    if not isinstance(condition, Token) or condition.dtype is not torch.bool:
        raise NoKernelError("its condition is no truth value")
    values = [calculation.operand(condition, torch.bool)]
    values += [calculation.operand(each, calculation.result) for each in (left, right)]
    return calculation.calculated(fn.WHERE, values, calculation.result)


def _copy(calculation: Calculation) -> int:
    (operand,) = _operands(calculation, 1)
    return calculation.operand(operand, calculation.result)


def _fill(place: int | None, number: int = 0) -> Rule:
    """A tensor of one number: that at a place among the operands, or a fixed one."""

    def write(calculation: Calculation) -> int:
        operand = Number(int, number) if place is None else calculation.operation.operands[place]
        if not is_number(operand):
            raise NoKernelError("what it fills in is no real number")
        return calculation.operand(operand, calculation.result)

    return write


def _concatenation(calculation: Calculation) -> int:
    operands = calculation.operation.operands
    pieces = operands[0]
    named = dict(calculation.operation.named)
    place = operands[1] if len(operands) > 1 else named.get("dim", Number(int, 0))
    if not isinstance(pieces, tuple) or not isinstance(place, Number):
        raise NoKernelError("its pieces are not known")
    tokens = [each for each in pieces if isinstance(each, Token)]
    known = len(tokens) == len(pieces)
    tokens = [each for each in tokens if each.shape != (0,)]  # of any rank, they add nothing
    same = all([each.dtype is calculation.result for each in tokens])
    if not known or not tokens or not same:
        raise NoKernelError("its pieces differ in type")
    return calculation.picked(tokens, int(place.value.real) % len(tokens[0].shape))


def _normalization(calculation: Calculation) -> int:
    """The elements of a batch, normalized by the mean and variance of their channel."""
    batch, weight, bias, mean, variance, trains, _, epsilon = calculation.operation.operands
    if trains != Number(bool, False) or not isinstance(epsilon, Number):
        raise NoKernelError("it calculates mean and variance")
    if calculation.inner is not torch.float32 or not isinstance(batch, Token):
        raise NoKernelError("it does not calculate with numbers of 32 bits")

    def channel(operand: Operand) -> int:
        return calculation.operand(_of_channel(operand, batch), calculation.inner)

    made = calculation.made
    value = calculation.operand(batch, calculation.inner)
    factor, more, middle = channel(weight), channel(bias), channel(mean)
    spread = made(fn.ADD, channel(variance), calculation.given(epsilon))
    if calculation.on_host:
        scale = made(fn.MULTIPLY, calculation.inverse(made(fn.ROOT, spread)), factor)
        shift = made(fn.MULTIPLY_AND_ADD, made(fn.NEGATE, middle), scale, more)
        return made(fn.MULTIPLY_AND_ADD, value, scale, shift)
    inverse, by_cudnn = made(fn.INVERSE_ROOT, spread), calculation.operation.name == _BY_CUDNN
    if by_cudnn and _has_channels_last(batch):
        moved = made(fn.NEGATE, made(fn.MULTIPLY, middle, factor))
        shift = made(fn.MULTIPLY_AND_ADD, moved, inverse, more)
        return made(fn.MULTIPLY_AND_ADD, value, made(fn.MULTIPLY, inverse, factor), shift)
    weighed = made(fn.MULTIPLY, factor, made(fn.SUBTRACT, value, middle))
    found = made(fn.MULTIPLY_AND_ADD, weighed, inverse, more)
    return made(fn.ADD, found, calculation.given(_ZERO)) if by_cudnn else found  # which leaves no -0


_BY_CUDNN = "aten::cudnn_batch_norm"


def _has_channels_last(batch: Token) -> bool:
    return len(batch.shape) > 1 and batch.stride[1] == 1 and batch.shape[1] > 1


def _of_channel(operand: Operand, batch: Token) -> Token:
    """A vector with an element for each channel of a batch, as it lies along that dimension."""
    if not isinstance(operand, Token) or operand.shape != batch.shape[1:2]:
        raise NoKernelError("its channels have no factors, sums, means or variances")
    rest = len(batch.shape) - 2
    look = Look(operand.dtype, (*operand.shape, *[1] * rest), (*operand.stride, *[0] * rest), operand.on_host)
    return Token(operand.origin, look, operand.offset)


def _sum_of_row(*, mean: bool) -> Rule:
    """A sum or mean of rows of 32 bits."""

    def write(calculation: Calculation) -> int:
        found = calculation.summed(calculation.operation.operands[0])
        if not mean:
            return found
        share = calculation.operand(calculation.share(), calculation.result)
        return calculation.calculated(fn.MULTIPLY, (found, share), calculation.result)

    return write


def _both(name: str, rule: Rule) -> dict[str, Rule]:
    return {f"{name}.Tensor": rule, f"{name}.Scalar": rule}


RULES: Mapping[str, Rule] = {
    **_both("add", _arithmetic(fn.ADD, alpha=True)),
    **_both("sub", _arithmetic(fn.SUBTRACT, alpha=True)),
    **_both("rsub", _arithmetic(fn.SUBTRACT, swapped=True, alpha=True)),
    "addcmul": _sum_with(fn.MULTIPLY),
    "addcdiv": _sum_with(fn.DIVIDE),
    **_both("lerp", _in_arithmetic(_between)),
    **_both("mul", _arithmetic(fn.MULTIPLY)),
    **_both("div", _in_arithmetic(_quotient)),
    **_both("eq", _comparison(fn.EQUAL)),
    **_both("ne", _comparison(fn.UNEQUAL)),
    **_both("lt", _comparison(fn.LESS)),
    **_both("le", _comparison(fn.LESS_OR_EQUAL)),
    **_both("gt", _comparison(fn.GREATER)),
    **_both("ge", _comparison(fn.GREATER_OR_EQUAL)),
    **_both("bitwise_and", _in_type(fn.BITS_AND, 2)),
    **_both("bitwise_or", _in_type(fn.BITS_OR, 2)),
    **_both("bitwise_xor", _in_type(fn.BITS_XOR, 2)),
    "bitwise_not": _bitwise_not,
    "logical_and": _in_type(fn.BITS_AND, 2, torch.bool),
    "logical_or": _in_type(fn.BITS_OR, 2, torch.bool),
    "logical_xor": _in_type(fn.BITS_XOR, 2, torch.bool),
    "logical_not": _in_type(fn.NOT, 1, torch.bool),
    "neg": _of_one(fn.NEGATE, real=False),
    "abs": _of_one(fn.ABSOLUTE, real=False),
    "sqrt": _of_one(fn.ROOT),
    "rsqrt": _of_one(fn.INVERSE_ROOT),
    "floor": _of_one(fn.FLOOR),
    "ceil": _of_one(fn.CEIL),
    "trunc": _of_one(fn.TRUNCATE),
    "round": _of_one(fn.ROUND),
    "reciprocal": _in_arithmetic(_reciprocal),
    "exp2": _of_one(fn.EXP2),
    "expm1": _of_one(fn.EXPM1),
    "log2": _of_one(fn.LOG2),
    "log1p": _of_one(fn.LOG1P),
    "exp": _of_one(fn.EXP),
    "log": _of_one(fn.LOG),
    "sin": _of_one(fn.SIN),
    "cos": _of_one(fn.COS),
    "tanh": _of_one(fn.TANH),
    "erf": _of_one(fn.ERF),
    "sigmoid": _of_one(fn.SIGMOID),
    "silu": _of_one(fn.SILU),
    "gelu": _in_arithmetic(_gelu),
    "pow.Tensor_Scalar": _in_arithmetic(_power),
    "relu": _in_arithmetic(_relu, real=False),
    "leaky_relu": _in_arithmetic(_leaky_relu),
    "hardtanh": _bound(1, 2, fn.AT_LEAST, fn.AT_MOST),
    "hardswish": _hard(weighs=True),
    "hardsigmoid": _hard(weighs=False),
    "clamp": _bound(1, 2, fn.AT_LEAST, fn.AT_MOST),
    "clamp_min": _bound(1, None, fn.AT_LEAST, fn.AT_MOST),
    "clamp_max": _bound(None, 1, fn.AT_LEAST, fn.AT_MOST),
    "maximum": _bound(1, None, fn.MAXIMUM, fn.MINIMUM),
    "minimum": _bound(None, 1, fn.MAXIMUM, fn.MINIMUM),
    "where.self": _where,
    "masked_fill.Scalar": _masked_fill,
    "masked_fill.Tensor": _masked_fill,
    "clone": _copy,
    "_to_copy": _copy,
    "zeros_like": _fill(None, 0),
    "ones_like": _fill(None, 1),
    "new_zeros": _fill(None, 0),
    "new_ones": _fill(None, 1),
    "full_like": _fill(1),
    "new_full": _fill(2),
    "cat": _concatenation,
}
"""By overload."""

SUMS_OF_ROWS: Mapping[str, Rule] = {
    "mean.dim": _sum_of_row(mean=True),
    "sum.dim_IntList": _sum_of_row(mean=False),
}
"""The same for what adds up rows."""

NORMALIZATIONS: Mapping[str, Rule] = {
    "native_batch_norm": _in_arithmetic(_normalization),
    "cudnn_batch_norm": _in_arithmetic(_normalization),
}
"""The same for what normalizes a batch."""


def rule_for(operation: Operation) -> Rule | None:
    """How an operation is calculated, if that is known."""
    if not operation.name.startswith("aten::"):
        return None
    name = operation.name.removeprefix("aten::")
    return RULES.get(name) or SUMS_OF_ROWS.get(name) or NORMALIZATIONS.get(name)


def adds_rows(operation: Operation) -> bool:
    """Whether an operation adds up rows."""
    return operation.name.removeprefix("aten::") in SUMS_OF_ROWS


def normalizes(operation: Operation) -> bool:
    """Whether an operation normalizes a batch."""
    return operation.name.removeprefix("aten::") in NORMALIZATIONS
