"""Which operations of a stretch are calculated in another way, by how near that comes to the exact result.

The stretch runs once as it is, on the operands of the call that was just replayed. At each operation that
has an alternative, both results are held against the exact one, which is calculated in 64 bits. The
alternative passes if the root of its mean square error is not larger than the operator's own by more than a
fiftieth (both end with the same rounding, which makes most of the error), if it is infinite or no number at
the same places, and if it lies as the operator's result does. The kernels of an alternative are compiled
first; where some are not there the stretch runs again once they are.

**What this does not see.** Operands of other calls, but for edges that an alternative names itself. An
alternative should be at least as precise as its operator by how it calculates; the gate finds what is not so
for the sizes at hand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..backends.protocol import LoadedKernel, raw_call
from ..fusion import DeviceKernels, KernelRequest, Written
from ..operators import short
from ..program import Operation, results_of
from ..recording import FusedOperations, NearOperation, NearOperations, Node
from .alternatives import ATTENTION, Alternative, Alternatives
from .regions import Schedule
from .running import AlternativeRunner, RunningSession
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
        requests: Kernels of alternatives that are being compiled.
    """

    node: Node
    short: ShortStretch
    schedule: Schedule
    kernels: Mapping[Written, LoadedKernel]
    fused: FusedOperations | None
    requests: tuple[KernelRequest, ...] = ()

    @property
    def idle(self) -> bool:
        """Whether nothing can be done for it but wait."""
        return not all([each.compiled for each in self.requests])

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
        device: The kernels of the device.
        passed: The alternative of each operation that has one.
        errors: What was compared.
        refused: How many operations keep their operator, by reason.
        compiling: Kernels without which it cannot be said of each alternative whether it passes.
        loaded: Kernels of alternatives, held for the capture.
    """

    device: DeviceKernels
    passed: dict[int, Alternative] = field(default_factory=dict[int, Alternative])
    errors: list[NearOperation] = field(default_factory=list[NearOperation])
    refused: Counter[str] = field(default_factory=Counter[str])
    compiling: list[KernelRequest] = field(default_factory=list[KernelRequest])
    loaded: list[KernelRequest] = field(default_factory=list[KernelRequest])

    def look(
        self, index: int, operation: Operation, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any
    ) -> None:
        """Compare the alternatives of an operation that has just run."""
        for each in ALTERNATIVES.of(operation.name):
            try:
                if not each.fits(*args, **kwargs):
                    continue
                if not self._has_kernels(each, args, kwargs):
                    return
                why = self._tried(each, operation, args, kwargs, results_of(result)[1][0])
            except Exception as error:
                why = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            if why is None:
                self.passed[index] = each
                return
            self.refused[f"{each.name}: {why}"] += 1

    def _has_kernels(self, each: Alternative, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether the kernels of an alternative are there; has them compiled if not.

        Raises:
            NoKernelError: There will be none.
        """
        sources = each.kernels(*args, **kwargs) if each.kernels is not None else ()
        if not sources:
            return True
        request = KernelRequest(self.device, sources, ())
        if not request.compiled:
            self.compiling.append(request)
            return False
        self.loaded.append(request)
        return request.prove()

    def _tried(
        self,
        each: Alternative,
        operation: Operation,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        result: torch.Tensor,
    ) -> str | None:
        """Why an alternative does not pass."""
        errors = self._compare(each, operation, args, kwargs, result)
        if isinstance(errors, str):
            return errors
        for operands, named in each.edges(*args, **kwargs) if each.edges is not None else ():
            expected = results_of(raw_call(operation.overload)(*operands, **named))[1][0]
            edge = self._compare(each, operation, operands, named, expected)
            if isinstance(edge, str):
                return f"{edge}, for operands that calls rarely have"
        self.errors.append(NearOperation(short(operation.name), each.name, *errors))
        return None

    def _compare(
        self,
        each: Alternative,
        operation: Operation,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        result: torch.Tensor,
    ) -> tuple[float, float] | str:
        """The errors of the alternative and of the operator, or why the alternative is none."""
        other = each.calculate(AlternativeRunner(RunningSession(), self.device), *args, **kwargs)
        if (other.dtype, other.shape) != (result.dtype, result.shape):
            return "its result has another type or shape"
        wide, wide_named = pytree.tree_map(_in_64_bits, (tuple(args), dict(kwargs)))
        ask = each.exact or operation.overload
        exact = results_of(ask(*wide, **wide_named))[1][0]
        if not torch.equal(other.isfinite(), result.isfinite()):
            return "it is infinite or no number at other places"
        mine, own = _error(other, exact), _error(result, exact)
        return (mine, own) if mine <= own * _SLACK else "its error is larger"

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


Look = Callable[[int, Operation, Sequence[Any], Mapping[str, Any], Any], None]
"""Told of each operation that has run: its index, itself, its operands, and its result."""
