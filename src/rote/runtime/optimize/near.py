"""Which operations of a stretch are calculated in another way, by how near that comes to the exact result.

The stretch runs once as it is, on the operands of the call that was just replayed. At each operation that
has an alternative, both results are held against the exact one, which is calculated in 64 bits. The
alternative passes if the root of its mean square error is not larger than the operator's own by more than a
fiftieth (both end with the same rounding, which makes most of the error), if it is infinite or no number at
the same places, and if it lies as the operator's result does.

**What this does not see.** Operands of other calls. An alternative should be at least as precise as its
operator by how it calculates; the gate finds what is not so for the sizes at hand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..backends.protocol import LoadedKernel, Segment, raw_call
from ..fusion import Written
from ..operators import short
from ..program import Operation, Token, results_of
from ..recording import FusedOperations, NearOperation, NearOperations, Node
from .alternatives import Alternative, Alternatives, Run
from .attention import ATTENTION
from .regions import Schedule
from .shortening import ShortStretch

ALTERNATIVES = Alternatives(*ATTENTION)
"""The one place where alternatives are offered: those of rote, and those of libraries."""

_SLACK = 1.02


def register_alternative(alternative: Alternative) -> None:
    """Offer another way to calculate an operator, for ``rote.graph(..., numerics="near")``.

    Each place where it would stand for the operator is gated: on the operands of a call, its error against
    the result in 64 bits may not be larger than the operator's own. An example::

        rote.register_alternative(rote.Alternative(
            operator="mylib::scores",
            name="scores by tables",
            fits=lambda x, table: x.shape[-1] <= 256,
            calculate=lambda run, x, table: run(torch.ops.mylib.fast_scores.default, (x, table), {}),
            exact=lambda x, table: x @ table,
        ))

    Args:
        alternative: What is offered, to all recordings that are made later in the process.

    Raises:
        MisuseError: The operator has an alternative of that name.
    """
    ALTERNATIVES.register(alternative)


@dataclass(frozen=True)
class Nearing:
    """A stretch whose operations may be calculated in other ways, once its exact tier is decided.

    Attributes:
        node: The stretch.
        short: What is left of it.
        schedule: What runs of that.
        kernels: The kernels in it.
        fused: What they calculate.
    """

    node: Node
    short: ShortStretch
    schedule: Schedule
    kernels: Mapping[Written, LoadedKernel]
    fused: FusedOperations | None
    idle: bool = False

    @property
    def offered(self) -> bool:
        """Whether there are alternatives for any of its operations."""
        operations = self.short.effects.operations
        return any(
            [ALTERNATIVES.of(operations[index].name) for run in self.short.runs for index in run.operations]
        )


@dataclass
class Gate:
    """Holds alternatives against the operators that they stand for.

    Attributes:
        passed: The alternative of each operation that has one.
        errors: What was compared.
        refused: How many operations keep their operator, by reason.
    """

    passed: dict[int, Alternative] = field(default_factory=dict[int, Alternative])
    errors: list[NearOperation] = field(default_factory=list[NearOperation])
    refused: Counter[str] = field(default_factory=Counter[str])

    def look(
        self, index: int, operation: Operation, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any
    ) -> None:
        """Compare the alternatives of an operation that has just run."""
        for each in ALTERNATIVES.of(operation.name):
            try:
                if not each.fits(*args, **kwargs):
                    continue
                why = self._compare(each, operation, args, kwargs, results_of(result)[1][0])
            except Exception as error:
                why = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            if why is None:
                self.passed[index] = each
                return
            self.refused[f"{each.name}: {why}"] += 1

    def _compare(
        self,
        each: Alternative,
        operation: Operation,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        result: torch.Tensor,
    ) -> str | None:
        other = each.calculate(run_now, *args, **kwargs)
        if (other.dtype, other.shape) != (result.dtype, result.shape):
            return "its result has another type or shape"
        wide, wide_named = pytree.tree_map(_in_64_bits, (tuple(args), dict(kwargs)))
        ask = each.exact or operation.overload
        exact = results_of(ask(*wide, **wide_named))[1][0]
        if not torch.equal(other.isfinite(), result.isfinite()):
            return "it is infinite or no number at other places"
        mine, own = _error(other, exact), _error(result, exact)
        if not mine <= own * _SLACK:
            return "its error is larger"
        self.errors.append(NearOperation(short(operation.name), each.name, mine, own))
        return None

    @property
    def found(self) -> NearOperations:
        """What came out."""
        return NearOperations(tuple(self.errors), dict(self.refused))


def _in_64_bits(each: Any) -> Any:
    return each.double() if isinstance(each, torch.Tensor) and each.is_floating_point() else each


def _error(result: torch.Tensor, exact: torch.Tensor) -> float:
    """The root of the mean square error, where both are finite."""
    difference = result.double() - exact
    return float(torch.where(difference.isfinite(), difference, 0).square().mean().sqrt())


def run_now(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation into memory of its own."""
    return raw_call(func)(*args, **kwargs)


class RunningSession:
    """Takes the place of a session: what it is given runs at once, into memory of its own."""

    def begin(self, expected: int | None = None) -> None:
        """Nothing is opened."""

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operation."""
        return run_now(func, args, kwargs)

    def end(self) -> Segment | None:
        """Nothing was captured."""
        return None

    def abort(self) -> None:
        """Nothing was opened."""

    def join(self) -> None:
        """Nothing runs at the same time."""

    def stream(self) -> AbstractContextManager[None]:
        """The current stream."""
        return nullcontext()

    def fork(self) -> AbstractContextManager[None]:
        """The current stream."""
        return nullcontext()

    def launch(
        self,
        kernel: LoadedKernel,
        given: Sequence[torch.Tensor],
        made: Sequence[torch.Tensor],
        reals: Sequence[float] = (),
        integers: Sequence[int] = (),
    ) -> None:
        """Launch a kernel."""
        kernel([*given, *made], reals, integers)


def calculated(
    alternative: Alternative, operation: Operation, run: Run, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[Any]:
    """What an alternative gives in the place of an operation, laid out as that lays out its result."""
    found = alternative.calculate(run, *args, **kwargs)
    token = operation.results[0]
    if isinstance(token, Token) and (found.stride(), found.storage_offset()) != (token.stride, token.offset):
        options = {"dtype": token.dtype, "device": found.device}
        target = run(torch.ops.aten.empty_strided.default, (token.shape, token.stride), options)
        run(torch.ops.aten.copy_.default, (target, found), {})
        found = target
    return [found, *[None for _ in operation.results[1:]]]


Look = Callable[[int, Operation, Sequence[Any], Mapping[str, Any], Any], None]
"""Told of each operation that has run: its index, itself, its operands, and its result."""
