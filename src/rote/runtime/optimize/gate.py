"""Whether an alternative may stand for an operation: by its bits, or by how near the exact result it comes.

The stretch runs once as it is, on the operands of the call that was just replayed; ``docs/design.md`` says
what is held against what. *Near* allows the root of the mean square error a fiftieth more than the operator's
own (both end with the same rounding, which makes most of the error); infinities and NaN have to be at the
same places. *Probed* wants every bit, with hostile elements in all operands at once, and in each alone. Whole
numbers and truth values stay what they are: an index elsewhere would be an error. *Exact* wants the bits of
all that, and of the operands that are the alternative's proof: there another order of sums, or another
rounding, would show.

The kernels of an alternative are compiled first; where some are not there the stretch runs again once they
are.

**What this does not see.** Operands of other calls, but for edges that an alternative names itself and the
hostile ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from ...base import in_one_line
from ..backends.protocol import raw_call
from ..fusion import HOSTILE, DeviceKernels, KernelRequest, hostile_like, is_equal
from ..operators import short
from ..program import Operand, Operation, Token, results_of
from ..recording import AlternativeUse, Numerics
from .alternatives import Alternative, Operands
from .running import AlternativeRunner, RanOperation, RunningSession

_SLACK = 1.02
_SEEDS = 2
"""How often each kind of hostile elements is tried in all operands."""

Wanted = Callable[[int, Operation], Sequence[Alternative]]
"""The alternatives that an operation is held against, by its index; the first one that passes is used."""


class _Errors(NamedTuple):
    """The root of the mean square error of an alternative, and that of its operator; None: bits are equal."""

    mine: float | None = None
    own: float | None = None


@dataclass
class Gate:
    """Holds alternatives against the operators that they stand for.

    Attributes:
        numerics: What the alternatives may do to bits.
        wanted: What is tried.
        passed: The alternative of each operation that has one.
        uses: What was compared, by operation.
        fitting: The alternatives of such an operation that fit.
        refused: Why alternatives of an operation are not used, by their name.
        described: What is known of operations whose alternative may calculate others at once.
        compiling: Kernels without which it cannot be said of each alternative whether it passes.
        loaded: Kernels of alternatives, held for the capture.
    """

    device: DeviceKernels
    numerics: Numerics
    wanted: Wanted
    passed: dict[int, Alternative] = field(default_factory=dict[int, Alternative])
    uses: dict[int, AlternativeUse] = field(default_factory=dict[int, AlternativeUse])
    fitting: dict[int, list[Alternative]] = field(default_factory=dict[int, list[Alternative]])
    refused: dict[int, dict[str, str]] = field(default_factory=dict[int, dict[str, str]])
    described: dict[int, Any] = field(default_factory=dict[int, Any])
    compiling: list[KernelRequest] = field(default_factory=list[KernelRequest])
    loaded: list[KernelRequest] = field(default_factory=list[KernelRequest])
    _probed: dict[Hashable, str | None] = field(default_factory=dict[Hashable, "str | None"])

    def look(self, ran: RanOperation) -> None:
        """Compare the alternatives of an operation that has just run."""
        index = ran.number
        fitting = [each for each in self.wanted(index, ran.operation) if self._fits(each, ran)]
        for each in fitting:
            try:
                if not self._has_kernels(each, ran):
                    return
                found = self._judge(each, ran)
            except Exception as error:
                found = in_one_line(error)
            if not isinstance(found, str):
                self.passed[index], self.uses[index], self.fitting[index] = each, found, fitting
                if each.together is not None:
                    self.described[index] = each.together.described(*ran.args, **ran.kwargs)
                return
            self._refuse(index, each, found)

    def _fits(self, each: Alternative, ran: RanOperation) -> bool:
        try:
            return each.fits(*ran.args, **ran.kwargs)
        except Exception as error:
            self._refuse(ran.number, each, in_one_line(error))
            return False

    def _refuse(self, index: int, each: Alternative, why: str) -> None:
        self.refused.setdefault(index, {})[each.name] = why

    @property
    def reasons(self) -> Counter[str]:
        """Why alternatives are not used, and of how many operations."""
        return Counter([f"{name}: {why}" for found in self.refused.values() for name, why in found.items()])

    def _has_kernels(self, each: Alternative, ran: RanOperation) -> bool:
        """Whether the kernels of an alternative are there; has them compiled if not.

        Raises:
            NoKernelError: There will be none.
        """
        sources = each.kernels(*ran.args, **ran.kwargs) if each.kernels is not None else ()
        if not sources:
            return True
        request = KernelRequest(self.device, sources, ())
        if not request.compiled:
            self.compiling.append(request)
            return False
        self.loaded.append(request)
        return request.prove()

    def _judge(self, each: Alternative, ran: RanOperation) -> AlternativeUse | str:
        """How near an alternative comes, or why it does not pass."""
        operation = ran.operation
        if operation.written and self.numerics is not Numerics.NEAR:
            return "the operator writes what it is given"
        errors = self._held(each, ran)
        if isinstance(errors, str):
            return errors
        edges = each.edges(*ran.args, **ran.kwargs) if each.edges is not None else ()
        why = self._held_for(each, ran, edges)
        if why is None and self.numerics is not Numerics.NEAR:
            key = (each.name, kind_of(operation))
            if key not in self._probed:
                self._probed[key] = self._held_for(each, ran, self._rare_operands(each, ran))
            why = self._probed[key]
        return AlternativeUse(short(operation.name), each.name, *errors) if why is None else why

    def _rare_operands(self, each: Alternative, ran: RanOperation) -> Iterator[Operands]:
        """Operands on which every bit is compared, once for all operations whose operands lie alike."""
        yield from _hostile_operands(ran.args, ran.kwargs)
        if self.numerics is Numerics.EXACT and each.proof is not None:
            yield from each.proof(*ran.args, **ran.kwargs)

    def _held_for(self, each: Alternative, ran: RanOperation, rare: Iterable[Operands]) -> str | None:
        """Why an alternative is refused for operands that are not those of the call."""
        for args, kwargs in rare:
            result = raw_call(ran.operation.overload)(*args, **kwargs)
            found = self._held(each, ran._replace(args=args, kwargs=kwargs, result=result))
            if isinstance(found, str):
                return f"{found}, for operands that calls rarely have"
        return None

    def _held(self, each: Alternative, ran: RanOperation) -> _Errors | str:
        """The errors of the alternative and of the operator, or why it does not pass."""
        result = results_of(ran.result)[1][0]
        other = each.calculate(AlternativeRunner(RunningSession(), self.device), *ran.args, **ran.kwargs)
        if self.numerics is not Numerics.NEAR:
            return _Errors() if bool(is_equal(other, result)) else "it gives other bits"
        if (other.dtype, other.shape) != (result.dtype, result.shape):
            return "its result has another type or shape"
        wide, wide_named = pytree.tree_map(_in_64_bits, (tuple(ran.args), dict(ran.kwargs)))
        ask = each.exact or ran.operation.overload
        exact = results_of(ask(*wide, **wide_named))[1][0]
        if not torch.equal(other.isfinite(), result.isfinite()):
            return "it is infinite or no number at other places"
        mine, own = _error(other, exact), _error(result, exact)
        return _Errors(mine, own) if mine <= own * _SLACK else "its error is larger"


def _hostile_operands(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Operands]:
    """Operands that lie as those of a call: hostile elements in all of them, and in each alone."""
    given, structure = pytree.tree_flatten((list(args), dict(kwargs)))
    real = {id(each): each for each in given if _is_real(each)}
    for seed in range(_SEEDS):
        for kind in HOSTILE:
            yield _with(given, structure, real, kind, seed)
    for key, each in real.items() if len(real) > 1 else ():
        for kind in HOSTILE:
            yield _with(given, structure, {key: each}, kind, _SEEDS)


def _with(
    given: Sequence[Any], structure: pytree.TreeSpec, real: Mapping[int, torch.Tensor], kind: str, seed: int
) -> Operands:
    other = {
        key: hostile_like(each, kind, seed * len(given) + number)
        for number, (key, each) in enumerate(real.items())
    }
    return pytree.tree_unflatten([other.get(id(each), each) for each in given], structure)


def kind_of(operation: Operation) -> Hashable:
    """What operations have in common that calculate the same, on operands that lie alike."""
    named = tuple([(name, _kind(each)) for name, each in operation.named])
    return (operation.name, tuple([_kind(each) for each in operation.operands]), named)


def _kind(operand: Operand) -> Hashable:
    if isinstance(operand, Token):
        return (operand.look, operand.offset)
    return tuple([_kind(each) for each in operand]) if type(operand) is tuple else repr(operand)


def _is_real(each: Any) -> bool:
    return isinstance(each, torch.Tensor) and each.is_floating_point()


def _in_64_bits(each: Any) -> Any:
    return each.double() if _is_real(each) else each


def _error(result: torch.Tensor, exact: torch.Tensor) -> float:
    """The root of the mean square error, where both are finite."""
    difference = result.double() - exact
    return float(torch.where(difference.isfinite(), difference, 0).square().mean().sqrt())


Look = Callable[[RanOperation], None]
"""Told of each operation that has run."""
