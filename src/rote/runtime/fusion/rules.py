"""How each operator is calculated: operands in which type, which function, rounded where.

A rule says what PyTorch's kernels do, for the host and for a GPU. It is a claim. :mod:`.proofs` holds it
against the operator itself before a kernel is used.

What PyTorch does with types: operands are brought into their common type, then into the one in which that is
calculated (32 bits for 16), and the result is rounded to its type. A number of Python's is taken at once in
the type of the calculation by arithmetic, and rounded to the common type by comparisons, bounds and fills.

Operators that multiply and add (``addcmul``, ``lerp``, ``add`` with ``alpha``) do so in one step, since the
compilers of PyTorch's kernels make one rounding of two.

A batch is normalized by statistics that are given as products and sums in one step each, in orders of which
each device has one: that was found by trying those there are. A GPU calculates with all numbers of a channel
for each element; the host makes a factor and a sum of them first.

**What has no rule.** Sums along a dimension, but for rows on a GPU (:mod:`.rows`), and products: their
order is the kernel's own. Conversions of real numbers to whole ones: they are undefined for some.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from ...base import float_bits
from ..program import Look, Number, Operand, Operation, Token
from . import functions as fn
from .elements import ELEMENTS, calculated_in
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


def _in_arithmetic(calculation: Calculation, operand: Operand, common: torch.dtype) -> int:
    """An operand of arithmetic: a tensor is rounded to the common type first, a number is not."""
    inner = calculated_in(common)
    if isinstance(operand, Number):
        return calculation.operand(operand, inner)
    return calculation.converted(calculation.operand(operand, common), inner)


def _rounded_first(calculation: Calculation, operand: Operand, common: torch.dtype) -> int:
    """An operand that is rounded to the common type, number or not."""
    return calculation.converted(calculation.operand(operand, common), calculated_in(common))


def _no_truth(dtype: torch.dtype) -> None:
    if dtype is torch.bool:
        raise NoKernelError("it calculates with truth values")


def _real(dtype: torch.dtype) -> None:
    if not dtype.is_floating_point:
        raise NoKernelError("it calculates with whole numbers")


# ---------------------------------------------------------------------- rules


def _arithmetic(function: Function, *, swapped: bool = False, alpha: bool = False) -> Rule:
    """A function of two operands; with ``alpha``, one that PyTorch calculates as a sum."""

    def write(calculation: Calculation) -> int:
        left, right = _operands(calculation, 2)
        _no_truth(calculation.result)
        if not calculation.result.is_floating_point and any([
            isinstance(each, Number) and each.kind is float for each in (left, right)
        ]):  # fmt: skip
            raise NoKernelError("a real number is taken as a whole one")
        rounds = alpha and calculation.on_host  # sums of the host round a number to the common type
        taken = _rounded_first if rounds else _in_arithmetic
        values = [taken(calculation, each, calculation.result) for each in (left, right)]
        if swapped:
            values.reverse()
        factor = _factor_of(calculation.operation, "alpha", 2) if alpha else _ONE
        if factor.value == 1:
            made = calculation.calculated(function, values, calculated_in(calculation.result))
        else:
            made = _sum_with_factor(calculation, values, factor, negated=function is fn.SUBTRACT)
        return calculation.converted(made, calculation.result)

    return write


def _factor_of(operation: Operation, name: str, place: int) -> Number:
    """A number by which an operand is multiplied; one, if there is none."""
    found = dict(operation.named).get(name, _ONE)
    found = operation.operands[place] if place < len(operation.operands) else found
    if not isinstance(found, Number):
        raise NoKernelError(f"its {name} is no number")
    return found


def _sum_with_factor(
    calculation: Calculation, values: Sequence[int], factor: Number, *, negated: bool
) -> int:
    """The first operand, and the second one times a factor."""
    _real(calculation.result)
    inner = calculated_in(calculation.result)
    times = calculation.operand(factor, inner)
    if negated:
        times = calculation.calculated(fn.NEGATE, (times,), inner)
    return calculation.calculated(fn.MULTIPLY_AND_ADD, (values[1], times, values[0]), inner)


def _sum_with(function: Function) -> Rule:
    """The first operand, and a product or quotient of the others times a factor."""

    def write(calculation: Calculation) -> int:
        operands = _operands(calculation, 3)
        _real(calculation.result)
        inner = calculated_in(calculation.result)
        factor = calculation.operand(_factor_of(calculation.operation, "value", 3), inner)
        base, left, right = [_in_arithmetic(calculation, each, calculation.result) for each in operands]

        def made(function: Function, *values: int) -> int:
            return calculation.calculated(function, values, inner)

        if not calculation.on_host:
            found = made(fn.MULTIPLY_AND_ADD, factor, made(function, left, right), base)
            if function is fn.MULTIPLY:  # times 1 is another kernel
                is_one = calculation.calculated(
                    fn.EQUAL, (factor, calculation.operand(_ONE, inner)), torch.bool
                )
                found = made(fn.WHERE, is_one, made(fn.MULTIPLY_AND_ADD, left, right, base), found)
        elif function is fn.MULTIPLY:
            found = made(fn.MULTIPLY_AND_ADD, made(fn.MULTIPLY, factor, left), right, base)
        else:
            found = made(fn.ADD, base, made(function, made(fn.MULTIPLY, factor, left), right))
        return calculation.converted(found, calculation.result)

    return write


def _between(calculation: Calculation) -> int:
    """A point between two: from the nearer one on."""
    operands = _operands(calculation, 3)
    _real(calculation.result)
    inner = calculated_in(calculation.result)
    start, end, weight = [_in_arithmetic(calculation, each, calculation.result) for each in operands]

    def made(function: Function, *values: int) -> int:
        return calculation.calculated(function, values, inner)

    half, one = [calculation.operand(each, inner) for each in (Number(float, float_bits(0.5)), _ONE)]
    near = calculation.calculated(fn.LESS, (made(fn.ABSOLUTE, weight), half), torch.bool)
    base, way = made(fn.WHERE, near, start, end), made(fn.SUBTRACT, end, start)
    if calculation.on_host:
        share = made(fn.WHERE, near, weight, made(fn.SUBTRACT, weight, one))
    else:  # the same but for the sign of zeros
        share = made(fn.WHERE, near, weight, made(fn.SUBTRACT, one, weight))
        way = made(fn.WHERE, near, way, made(fn.NEGATE, way))
    found = made(fn.MULTIPLY_AND_ADD, share, way, base)
    return calculation.converted(found, calculation.result)


def _quotient(calculation: Calculation) -> int:
    left, right = _operands(calculation, 2)
    _real(calculation.result)
    if len(calculation.operation.operands) > 2 or calculation.operation.named:
        raise NoKernelError("it rounds the quotient")
    inner = calculated_in(calculation.result)
    dividend, divisor = [_in_arithmetic(calculation, each, calculation.result) for each in (left, right)]
    if isinstance(right, Number) and not calculation.on_host:  # on a GPU the number is inverted once
        one = calculation.operand(_ONE, inner)
        inverse = calculation.calculated(fn.DIVIDE, (one, divisor), inner)
        made = calculation.calculated(fn.MULTIPLY, (dividend, inverse), inner)
    else:
        made = calculation.calculated(fn.DIVIDE, (dividend, divisor), inner)
    return calculation.converted(made, calculation.result)


_ONE = Number(int, 1)
_TWO_VALUES = (2, 2.0)


def _comparison(function: Function) -> Rule:
    def write(calculation: Calculation) -> int:
        left, right = _operands(calculation, 2)
        common = common_type((left, right))
        if common not in ELEMENTS:
            raise NoKernelError(f"it compares numbers of type {common}")
        values = [_rounded_first(calculation, each, common) for each in (left, right)]
        return calculation.calculated(function, values, torch.bool)

    return write


def _bitwise(function: Function) -> Rule:
    def write(calculation: Calculation) -> int:
        values = [calculation.operand(each, calculation.result) for each in _operands(calculation, 2)]
        return calculation.calculated(function, values, calculation.result)

    return write


def _logical(function: Function) -> Rule:
    def write(calculation: Calculation) -> int:
        values = [calculation.operand(each, torch.bool) for each in _operands(calculation, 2)]
        return calculation.calculated(function, values, torch.bool)

    return write


def _bitwise_not(calculation: Calculation) -> int:
    (operand,) = _operands(calculation, 1)
    function = fn.NOT if calculation.result is torch.bool else fn.BITS_NOT
    return calculation.calculated(
        function, [calculation.operand(operand, calculation.result)], calculation.result
    )


def _logical_not(calculation: Calculation) -> int:
    (operand,) = _operands(calculation, 1)
    value = calculation.operand(operand, torch.bool)
    return calculation.calculated(fn.NOT, [value], torch.bool)


def _of_one(function: Function, *, real: bool = True) -> Rule:
    def write(calculation: Calculation) -> int:
        (operand,) = _operands(calculation, 1)
        if len(calculation.operation.operands) > 1 or calculation.operation.named:
            raise NoKernelError("it takes options")
        if real:
            _real(calculation.result)
        return _applied(calculation, function, operand)

    return write


def _applied(calculation: Calculation, function: Function, operand: Operand) -> int:
    """A function of one operand."""
    _no_truth(calculation.result)
    value = _in_arithmetic(calculation, operand, calculation.result)
    made = calculation.calculated(function, [value], calculated_in(calculation.result))
    return calculation.converted(made, calculation.result)


def _reciprocal(calculation: Calculation) -> int:
    (operand,) = _operands(calculation, 1)
    _real(calculation.result)
    inner = calculated_in(calculation.result)
    values = [calculation.operand(_ONE, inner), _in_arithmetic(calculation, operand, calculation.result)]
    return calculation.converted(calculation.calculated(fn.DIVIDE, values, inner), calculation.result)


def _gelu(calculation: Calculation) -> int:
    (operand,) = _operands(calculation, 1)
    options = [*calculation.operation.operands[1:], *[each for _, each in calculation.operation.named]]
    function = {"none": fn.GELU, "tanh": fn.GELU_BY_TANH}.get(options[0] if options else "none")
    if function is None or len(options) > 1:
        raise NoKernelError("it takes options")
    _real(calculation.result)
    return _applied(calculation, function, operand)


def _power(calculation: Calculation) -> int:
    base, exponent = _operands(calculation, 2)
    if not isinstance(base, Token) or not isinstance(exponent, Number) or exponent.value not in _TWO_VALUES:
        raise NoKernelError("it raises to another power than 2")
    _real(calculation.result)
    value = _in_arithmetic(calculation, base, calculation.result)
    made = calculation.calculated(fn.MULTIPLY, (value, value), calculated_in(calculation.result))
    return calculation.converted(made, calculation.result)


def _bound(lower: int | None, upper: int | None, least: Function, most: Function) -> Rule:
    """Bounds by the places of the operands that are the bounds, and the functions that keep to them."""

    def write(calculation: Calculation) -> int:
        operands = calculation.operation.operands
        _no_truth(calculation.result)
        if calculation.operation.named or not isinstance(operands[0], Token):
            raise NoKernelError("it takes options")
        value = _rounded_first(calculation, operands[0], calculation.result)
        for place, function in ((lower, least), (upper, most)):
            bound = operands[place] if place is not None and place < len(operands) else None
            if bound is None:
                continue
            if not _is_clear(bound):
                raise NoKernelError("a bound is neither a tensor nor a real number")
            found = _rounded_first(calculation, bound, calculation.result)
            value = calculation.calculated(function, (value, found), calculated_in(calculation.result))
        return calculation.converted(value, calculation.result)

    return write


def _relu(calculation: Calculation) -> int:
    (operand,) = _operands(calculation, 1)
    _no_truth(calculation.result)
    inner = calculated_in(calculation.result)
    zero = calculation.operand(Number(int, 0), inner)
    value = _rounded_first(calculation, operand, calculation.result)
    made = calculation.calculated(fn.AT_LEAST, (value, zero), inner)
    return calculation.converted(made, calculation.result)


def _leaky_relu(calculation: Calculation) -> int:
    operand, slope = _operands(calculation, 2)
    if not isinstance(slope, Number):
        raise NoKernelError("it takes options")
    _real(calculation.result)
    inner = calculated_in(calculation.result)
    value = _in_arithmetic(calculation, operand, calculation.result)
    zero = calculation.operand(Number(int, 0), inner)
    small = calculation.calculated(fn.MULTIPLY, (value, calculation.operand(slope, inner)), inner)
    positive = calculation.calculated(fn.GREATER, (value, zero), torch.bool)
    made = calculation.calculated(fn.WHERE, (positive, value, small), inner)
    return calculation.converted(made, calculation.result)


def _hard(*, weighs: bool) -> Rule:
    """``min(max(x + 3, 0), 6) / 6``, and that times ``x``."""

    def write(calculation: Calculation) -> int:
        (operand,) = _operands(calculation, 1)
        _real(calculation.result)
        inner = calculated_in(calculation.result)
        zero, three, six = [calculation.operand(Number(int, each), inner) for each in (0, 3, 6)]
        value = _in_arithmetic(calculation, operand, calculation.result)
        made = calculation.calculated(fn.ADD, (value, three), inner)
        made = calculation.calculated(fn.AT_LEAST, (made, zero), inner)
        made = calculation.calculated(fn.AT_MOST, (made, six), inner)
        if weighs:
            made = calculation.calculated(fn.MULTIPLY, (value, made), inner)
        if calculation.on_host:
            made = calculation.calculated(fn.DIVIDE, (made, six), inner)
        else:
            sixth = calculation.calculated(fn.DIVIDE, (calculation.operand(_ONE, inner), six), inner)
            made = calculation.calculated(fn.MULTIPLY, (made, sixth), inner)
        return calculation.converted(made, calculation.result)

    return write


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
    inner = calculated_in(calculation.result)
    if inner is not torch.float32 or not isinstance(batch, Token):
        raise NoKernelError("it does not calculate with numbers of 32 bits")

    def channel(operand: Operand) -> int:
        return calculation.operand(_of_channel(operand, batch), inner)

    def made(function: Function, *values: int) -> int:
        return calculation.calculated(function, values, inner)

    value, factor, more, middle = [
        calculation.operand(batch, inner), channel(weight), channel(bias), channel(mean)
    ]  # fmt: skip
    spread = made(fn.ADD, channel(variance), calculation.operand(epsilon, inner))
    if calculation.on_host:
        inverse = made(fn.DIVIDE, calculation.operand(_ONE, inner), made(fn.ROOT, spread))
        scale = made(fn.MULTIPLY, inverse, factor)
        shift = made(fn.MULTIPLY_AND_ADD, made(fn.NEGATE, middle), scale, more)
        found = made(fn.MULTIPLY_AND_ADD, value, scale, shift)
    else:
        inverse, by_cudnn = made(fn.INVERSE_ROOT, spread), calculation.operation.name == _BY_CUDNN
        if by_cudnn and _has_channels_last(batch):
            moved = made(fn.NEGATE, made(fn.MULTIPLY, middle, factor))
            shift = made(fn.MULTIPLY_AND_ADD, moved, inverse, more)
            found = made(fn.MULTIPLY_AND_ADD, value, made(fn.MULTIPLY, inverse, factor), shift)
        else:
            weighed = made(fn.MULTIPLY, factor, made(fn.SUBTRACT, value, middle))
            found = made(fn.MULTIPLY_AND_ADD, weighed, inverse, more)
            if by_cudnn:  # it adds none of what was there, which leaves no -0
                found = made(fn.ADD, found, calculation.operand(Number(int, 0), inner))
    return calculation.converted(found, calculation.result)


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
    **_both("lerp", _between),
    **_both("mul", _arithmetic(fn.MULTIPLY)),
    **_both("div", _quotient),
    **_both("eq", _comparison(fn.EQUAL)),
    **_both("ne", _comparison(fn.UNEQUAL)),
    **_both("lt", _comparison(fn.LESS)),
    **_both("le", _comparison(fn.LESS_OR_EQUAL)),
    **_both("gt", _comparison(fn.GREATER)),
    **_both("ge", _comparison(fn.GREATER_OR_EQUAL)),
    **_both("bitwise_and", _bitwise(fn.BITS_AND)),
    **_both("bitwise_or", _bitwise(fn.BITS_OR)),
    **_both("bitwise_xor", _bitwise(fn.BITS_XOR)),
    "bitwise_not": _bitwise_not,
    "logical_and": _logical(fn.BITS_AND),
    "logical_or": _logical(fn.BITS_OR),
    "logical_xor": _logical(fn.BITS_XOR),
    "logical_not": _logical_not,
    "neg": _of_one(fn.NEGATE, real=False),
    "abs": _of_one(fn.ABSOLUTE, real=False),
    "sqrt": _of_one(fn.ROOT),
    "rsqrt": _of_one(fn.INVERSE_ROOT),
    "floor": _of_one(fn.FLOOR),
    "ceil": _of_one(fn.CEIL),
    "trunc": _of_one(fn.TRUNCATE),
    "round": _of_one(fn.ROUND),
    "reciprocal": _reciprocal,
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
    "gelu": _gelu,
    "pow.Tensor_Scalar": _power,
    "relu": _relu,
    "leaky_relu": _leaky_relu,
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
    "native_batch_norm": _normalization,
    "cudnn_batch_norm": _normalization,
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
