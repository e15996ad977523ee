"""Whether a kernel calculates an operation as PyTorch does, to the bit (``docs/design.md``).

The operator and a kernel of this one operation are given the same elements, on the device, in this process,
so under its versions and settings. A result is equal if its bits are, or if both are no number. *Proved*
means one of four things:

- all of its functions are defined to the bit (:mod:`.functions`), and its roundings stay where they are. Then
  elements that would show another instruction or another rule are tried (:mod:`.hostile`);
- it normalizes a batch by statistics that are given (:data:`.rules.NORMALIZATIONS`). One of its functions on
  a GPU is not defined to the bit, but is one instruction: an inverse root. It is tried where it stands, at
  each shape, with as many variances as show another instruction or another order of the others;
- it adds up rows, in the order that is known (:mod:`.rows`). That does not depend on values: rows of random
  elements, some of very different sizes, are added up, hundreds or thousands for each shape. Other orders
  give other bits for them;
- it has one operand, all values of which were tried: 65,536 of 16 bits anywhere, and all 2**32 of 32 bits on
  a GPU.

*Probed* is what was equal on eight million such elements, and has to be equal on the recording's own as well,
in each place (:meth:`OperationProof.pieces`).

PyTorch calculates most elements of a tensor as vectors, and what is left behind them one by one; on the host
by other functions. So 65,536 elements are tried twice, side by side, and apart from one another, for which
there are no vectors.

**What this does not see.** An operator whose result depends on where an element lies in some other way.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..program import NEW, Look, Number, Operand, Operation, Token
from .body import Calculated, Converted, bits_of, is_short
from .hostile import FEW, HOSTILE, hard, hard_rows, hostile_like
from .positions import Digit, digits_of
from .rows import RowOrder
from .rules import NoKernelError, common_type, is_number, normalizes
from .writing import Fusible, Written

MANY = 1 << 22
"""Elements of one of the trials of all values of 32 bits."""
_ALL = 1 << 32
_ROWS, _MOST_TRIALS = 1 << 12, 1 << 8
"""Rows that are added up before an order is known, and in how many trials at most."""
_VARIANCES, _FEWEST_TRIALS = 1 << 13, 16
"""Variances with which a batch is normalized, and in how many trials at least."""
PROBES = 1 << 7
"""Trials of what is not proved by them."""
UNPROVED = "its function is not defined to the bit, and not all operands can be tried"


@dataclass(frozen=True)
class Signature:
    """What a proof is about: an operator, the types of its operands and result, its numbers and options.

    Attributes:
        operands: Its operands; the type for a tensor.
        named: The same by name.
        probed: It is tried only.
    """

    name: str
    operands: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...]
    result: torch.dtype
    probed: bool

    @classmethod
    def of(cls, each: Fusible, *, probed: bool = False) -> Signature:
        """What has to be proved of an operation."""
        operation = each.operation
        operands = tuple([_kind(operand) for operand in operation.operands])
        if normalizes(operation):
            lie = [(token.shape, token.stride) for token in (each.result, operation.tokens[0])]
            operands = (*lie, *operands)
        if each.order is not None:
            operands = (each.order,)
        named = tuple([(name, _kind(operand)) for name, operand in operation.named if name not in _LAYOUT])
        return cls(operation.name, operands, named, each.result.dtype, probed)


_LAYOUT = frozenset({"memory_format", "layout", "device", "pin_memory", "non_blocking"})
"""Options that say where elements lie, not what they are."""


def _kind(operand: Operand) -> Any:
    if isinstance(operand, Token):
        return (operand.dtype, not operand.shape)
    return tuple([_kind(each) for each in operand]) if type(operand) is tuple else operand


@dataclass(frozen=True)
class OperationProof:
    """A kernel of one operation, and the operation.

    Attributes:
        signature: What it is to prove.
        operation: The operation, on tensors of one dimension.
        types: The types of the tensors that both are given.
        trials: How many times they are given others, or the same in another layout.
        looks: How the tensors lie, where they are not all of one dimension.
    """

    signature: Signature
    operation: Operation
    written: Written
    types: tuple[torch.dtype, ...]
    count: int
    trials: int
    looks: tuple[Look, ...] = ()

    def elements(self, trial: int, device: torch.device) -> tuple[torch.Tensor, ...]:
        """The tensors of one trial."""
        if self.written.body.rows is not None:
            return (hard_rows(self.written.body.rows, trial).to(device),)
        if self.looks:
            return tuple(_batch(self.looks, trial, device))
        if self.count == MANY:
            start = trial * self.count - (_ALL >> 1)
            bits = torch.arange(start, start + self.count, dtype=torch.int64, device=device)
            return (bits.to(torch.int32).view(self.types[0]),)
        if len(self.types) == 1 and is_short(self.types[0]):
            bits = torch.arange(-FEW // 2, FEW // 2, dtype=torch.int32).to(torch.int16)
            return (bits.view(self.types[0]).to(device),)
        return tuple([each.to(device) for each in hard(self.types, trial // 2)])

    def pieces(
        self, operands: Sequence[torch.Tensor], result: torch.Tensor
    ) -> Iterator[tuple[tuple[torch.Tensor, ...], torch.Tensor]]:
        """The elements of a call of the operation, as many at a time as the kernel takes.

        Yields:
            Tensors for the kernel, and what it has to give for the first of their elements.
        """
        flat = [each.expand(result.shape).reshape(-1) for each in operands]
        expected = result.reshape(-1)
        for start in range(0, len(expected), self.count):
            here = [each[start : start + self.count] for each in flat]
            padded = [torch.cat((each, each.new_zeros(self.count - len(each)))) for each in here]
            yield tuple(padded), expected[start : start + self.count]

    def given(self, tensors: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
        """The tensors in the order in which the kernel takes them."""
        return [tensors[origin[1]] for origin, _ in self.written.reads]

    def called(self, tensors: tuple[torch.Tensor, ...], trial: int) -> torch.Tensor:
        """What the operator gives; in every other trial of few elements they lie apart."""
        spread = self.count == FEW and trial % 2 == 1 and not self.looks
        rest = iter([torch.stack((each, each), 1)[:, 0] for each in tensors] if spread else tensors)

        def leaf(operand: Operand) -> Any:
            if isinstance(operand, Token):
                return next(rest)
            return operand.value if isinstance(operand, Number) else operand

        args, kwargs = self.operation.arguments(leaf)
        found = self.operation.overload(*args, **kwargs)
        if self.looks:
            return found[0].as_strided((self.count,), (1,))
        rows = self.written.body.rows
        if rows is not None:
            return found.reshape(rows.rows, 1).expand(rows.rows, rows.columns).reshape(-1)
        return found


def proof_of(each: Fusible) -> OperationProof | None:
    """What proves that a kernel may calculate an operation; None if there is nothing to prove.

    Raises:
        NoKernelError: It cannot be proved.
    """
    if each.order is not None:
        return _proof_of_rows(each, each.order)
    if normalizes(each.operation):
        return _proof_of_normalization(each)
    types = tuple([token.dtype for token in each.operation.tokens])
    few = _proof(each, FEW, types)
    steps = [value for value in few.written.body.values if isinstance(value, (Calculated, Converted))]
    if not steps or not few.written.body.reads:
        return None
    if _common(each.operation) is not _common(few.operation):
        raise NoKernelError("a tensor without dimensions has another type")
    if all([value.function.exact for value in steps if isinstance(value, Calculated)]):
        return few
    if len(types) == 1 and is_short(types[0]):
        return few
    if types == (torch.float32,) and not each.result.look.on_host:
        return _proof(each, MANY, types)
    return replace(few, signature=replace(few.signature, probed=True), trials=PROBES)


def is_equal(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Whether two tensors have the same bits, or both no number, as a tensor of one truth value."""
    if one.dtype is not other.dtype or one.shape != other.shape:
        return torch.zeros((), dtype=torch.bool, device=one.device)
    if not one.dtype.is_floating_point:
        return (one == other).all()
    whole = bits_of(one.dtype)
    same = one.view(whole) == other.view(whole)
    return (same | (one.isnan() & other.isnan())).all()


def _proof(each: Fusible, count: int, types: tuple[torch.dtype, ...]) -> OperationProof:
    """An operation alone, on tensors of one dimension."""
    on_host = each.result.look.on_host
    numbers = iter(range(len(types)))

    def flat(operand: Operand) -> Operand:
        if isinstance(operand, Token):
            return _token(next(numbers), operand.dtype, count, on_host)
        return tuple([flat(one) for one in operand]) if type(operand) is tuple else operand

    operation = each.operation
    result = _token(-1, each.result.dtype, count, on_host)
    alone = operation._replace(
        operands=tuple([flat(operand) for operand in operation.operands]),
        named=tuple([(name, flat(operand)) for name, operand in operation.named if name not in _LAYOUT]),
        results=(result,),
    )
    written = Fusible(each.index, alone, result, (Digit(1, count, 0),), count).alone()
    trials = _ALL // count if count == MANY else 2
    return OperationProof(Signature.of(each), alone, written, types, count, trials)


def _proof_of_rows(each: Fusible, order: RowOrder) -> OperationProof:
    """Sums of rows, on a matrix."""
    operation, on_host = each.operation, each.result.look.on_host
    shape, stride = (order.rows, order.columns), (order.columns, 1)
    matrix = Token((NEW, 0), Look(torch.float32, shape, stride, on_host), 0)
    result = Token((NEW, -1), Look(torch.float32, shape[:1], stride[1:], on_host), 0)
    alone = operation._replace(operands=(matrix, (Number(int, -1),)), named=(), results=(result,))
    written = Fusible(each.index, alone, result, (Digit(1, order.rows, 0),), order.rows, order).alone()
    trials = min(max(-(-_ROWS // order.rows), 4), _MOST_TRIALS)
    count = order.rows * order.columns
    return OperationProof(Signature.of(each), alone, written, (torch.float32,), count, trials)


def _proof_of_normalization(each: Fusible) -> OperationProof:
    """A batch that is normalized, at its own shape."""
    operation, tokens = each.operation, each.operation.tokens
    if any([digits_of(token.shape, token.stride) is None for token in tokens]):
        raise NoKernelError("its operands have gaps")
    numbers = iter(range(len(tokens)))

    def elsewhere(operand: Operand) -> Operand:
        return (
            operand._replace(origin=(NEW, next(numbers)), offset=0) if isinstance(operand, Token) else operand
        )

    result = each.result._replace(origin=(NEW, -1))
    alone = operation._replace(operands=tuple(map(elsewhere, operation.operands)), results=(result,))
    written = Fusible(each.index, alone, result, each.digits, each.count).alone()
    types, looks = tuple([token.dtype for token in tokens]), tuple([token.look for token in tokens])
    channels = max(1, each.result.shape[1])
    trials = min(max(_VARIANCES // channels, _FEWEST_TRIALS), _MOST_TRIALS)
    return OperationProof(Signature.of(each), alone, written, types, each.count, trials, looks)


def _batch(looks: Sequence[Look], trial: int, device: torch.device) -> Iterator[torch.Tensor]:
    """A batch, and what it is normalized by; most variances are none below zero, which give no numbers."""
    choose = random.Random(trial)
    for number, look in enumerate(looks):
        like = torch.empty_strided(look.shape, look.stride, dtype=look.dtype, device=device)
        drawn = hostile_like(like, choose.choice(HOSTILE), trial * len(looks) + number)
        yield drawn.abs() if number == len(looks) - 1 and trial % 4 else drawn


def _common(operation: Operation) -> torch.dtype | None:
    """The common type of all tensors and numbers. A tensor without dimensions counts less in it."""
    operands = [*operation.tokens, *[number for number in operation.numbers if is_number(number)]]
    return common_type(operands) if operands else None


def _token(number: int, dtype: torch.dtype, count: int, on_host: bool) -> Token:
    return Token((NEW, number), Look(dtype, (count,), (1,), on_host), 0)
