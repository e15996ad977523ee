"""Other ways to calculate operators, most of which do not keep the bits.

An alternative is used where ``numerics="near"`` asks for it and a gate lets it pass: on the operands of the
very call that is looked at, it may not be further from the exact result than the operator itself
(:mod:`...gate`). One that has a proof keeps the bits, and serves ``numerics="exact"``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from .....base import MisuseError
from ....compiling import KernelSource
from ....recording import Numerics

Operands = tuple[Sequence[Any], dict[str, Any]]
"""All operands of an operator, and those by name."""


class AlternativeRun(Protocol):
    """Runs what an alternative consists of."""

    def __call__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one operation: an overload, its operands, those by name."""
        ...

    def launch(
        self, source: KernelSource, given: Sequence[torch.Tensor], made: Sequence[torch.Tensor]
    ) -> None:
        """Launch one of the alternative's kernels, with what it reads and what it writes."""
        ...


@dataclass(frozen=True)
class JointAlternative:
    """How an alternative calculates several operations at once that have an operand in common.

    Attributes:
        shared: The place of that operand.
        described: What there is to know of one of them, from all of its operands: no tensors.
        fits: Whether it can be done, for what is known of each; each fits by itself.
        kernels: The kernels that are launched for them; of one, those that are launched for it alone.
        calculate: Gives the results of all, as :attr:`Alternative.calculate` gives that of one.
    """

    shared: int
    described: Callable[..., Any]
    fits: Callable[[Sequence[Any]], bool]
    kernels: Callable[[Sequence[Any]], Sequence[KernelSource]]
    calculate: Callable[[AlternativeRun, Sequence[Operands]], Sequence[torch.Tensor]]


@dataclass(frozen=True)
class Alternative:
    """Another way to calculate an operator.

    Attributes:
        operator: The operator, with overload: ``"aten::bmm"``, ``"mylib::op.overload"``.
        name: What reports call it.
        fits: Whether it can be used for some operands, given as the operator takes them. It looks at shapes,
            types, devices and numbers; what lies in the tensors is not there yet.
        calculate: Gives the operator's result, or the first of several. It is given ``run``, then the
            operands. It is PyTorch code that reads nothing back to the host, and each operation that it calls
            is captured; ``run(overload, args, kwargs)`` calls one, and ``run.launch`` starts a kernel.
        exact: Gives the exact result in 64 bits, from operands in 64 bits. None asks the operator itself.
        kernels: The kernels that it launches for some operands that fit. They are compiled beside the program
            before the alternative is tried.
        edges: Operands beside those at hand on which it has to come as near to the operator, each as all
            operands and those by name: of the same layouts, with numbers that calls rarely have.
        together: How operations that stand beside one another are calculated at once; None for one by one.
        proof: Operands, given as ``edges`` are, on which other bits show if any of its steps is not the
            operator's own, or comes in another order. With it the alternative serves ``numerics="exact"``,
            and not ``"near"``: it does not depend on values which steps those are. None if nothing proves it.
        also_near: With a proof, it serves ``"near"`` as well, where the proof need not hold.
        reassociates: It adds up in an order of its own, so that ``numerics="probed"`` need not try it.
        on_host: It may be used on the host as well.
    """

    operator: str
    name: str
    fits: Callable[..., bool]
    calculate: Callable[..., torch.Tensor]
    exact: Callable[..., torch.Tensor] | None = None
    kernels: Callable[..., Sequence[KernelSource]] | None = None
    edges: Callable[..., Iterable[Operands]] | None = None
    together: JointAlternative | None = None
    proof: Callable[..., Iterable[Operands]] | None = None
    also_near: bool = False
    reassociates: bool = False
    on_host: bool = True


class Alternatives:
    """What is offered in this process, by operator."""

    def __init__(self, *offered: Alternative) -> None:
        self._offered: dict[str, list[Alternative]] = {}
        for each in offered:
            self.register(each)

    def register(self, alternative: Alternative) -> None:
        """Offer an alternative. Recordings that are made later may use it; the first one that passes is used.

        Raises:
            MisuseError: The operator has one of that name.
        """
        known = self._offered.setdefault(alternative.operator, [])
        if any([each.name == alternative.name for each in known]):
            raise MisuseError(
                f"{alternative.operator} has an alternative named {alternative.name!r}; give another name"
            )
        known.append(alternative)

    def withdraw(self, alternative: Alternative) -> None:
        """Offer it no longer. Recordings that use it go on to."""
        self._offered[alternative.operator].remove(alternative)

    def of(
        self, operator: str, *, numerics: Numerics = Numerics.NEAR, on_host: bool = False
    ) -> list[Alternative]:
        """The alternatives of an operator, in the order in which they were offered.

        Args:
            operator: With overload.
            numerics: What they may do to bits.
            on_host: The operator runs on the host, which leaves out those for GPUs alone.
        """
        known = self._offered.get(operator, ())
        return [each for each in known if _serves(each, numerics) and (each.on_host or not on_host)]


def _serves(each: Alternative, numerics: Numerics) -> bool:
    if numerics is Numerics.PROBED:
        return not each.reassociates
    if numerics is Numerics.EXACT:
        return each.proof is not None
    return each.proof is None or each.also_near
