"""Numbers that change in a backward: which operations of a node of autograd's take the number of its forward.

A node keeps the numbers that its operation was given, and its formula hands them on. Nothing tells which
object went where, so that is known by rule, node by node: which operations of a formula take which number,
and which values of a number have the formula leave operations out. Where a node has no rule, its numbers are
conditions. Here are formulas as derivatives.yaml of PyTorch has them; a check call with other numbers
confirms each before it is recorded.

No number is followed into a backward that is differentiated again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ...autograd import SavedNumber
from ...numbers import Computed, Fixed, TrackedNumbers
from ...pytorch import node_at_work
from .handed import is_laid_out_plainly

Place = tuple[str, int]
"""An operation and the number of an operand."""


@dataclass(frozen=True)
class Formula:
    """What a node does with the numbers of its operation.

    Attributes:
        takes: Which number of the forward operation an operand is.
        apart: Numbers with a value for which the formula has other operations.
        below: Operands that are a number less one; both are floats.
        back: Operands that are a list of a number with the other sign.
    """

    takes: Mapping[Place, str] = field(default_factory=dict[Place, str])
    unused: frozenset[str] = frozenset()
    apart: Mapping[str, int] = field(default_factory=dict[str, int])
    below: frozenset[Place] = frozenset()
    back: frozenset[Place] = frozenset()

    def covers(self, name: str) -> bool:
        """Whether it says what becomes of a number."""
        return name in self.unused or name in self.takes.values()


_SUM = Formula({("mul.Scalar", 1): "alpha"}, frozenset({"other"}), {"alpha": 1})
FORMULAS: Mapping[str, Formula] = {
    "AddBackward0": _SUM,
    "SubBackward0": _SUM,
    "RsubBackward1": Formula(unused=frozenset({"other"})),
    "MulBackward0": Formula({("mul.Tensor", 1): "other"}),
    "DivBackward0": Formula({("div.Tensor", 1): "other"}),
    "PowBackward0": Formula(
        {("pow.Tensor_Scalar", 1): "exponent", ("mul.Scalar", 1): "exponent"},
        apart={"exponent": 0},
        below=frozenset({("pow.Tensor_Scalar", 1)}),
    ),
    "ClampBackward1": Formula({("ge.Scalar", 1): "min", ("le.Scalar", 1): "max"}),
    "ClampMinBackward0": Formula({("ge.Scalar", 1): "min"}),
    "ClampMaxBackward0": Formula({("le.Scalar", 1): "max"}),
    "LeakyReluBackward0": Formula({("leaky_relu_backward", 2): "negative_slope"}),
    "EluBackward0": Formula(
        {("elu_backward", 1): "alpha", ("elu_backward", 2): "scale", ("elu_backward", 3): "input_scale"}
    ),
    "AddcmulBackward0": Formula({("mul.Scalar", 1): "value"}),
    "AddcdivBackward0": Formula({("mul.Scalar", 1): "value", ("fill_.Scalar", 1): "value"}),
    "MaskedFillBackward0": Formula(unused=frozenset({"value"})),
    "WhereBackward0": Formula(unused=frozenset({"s"})),
    "SoftplusBackward0": Formula({("softplus_backward", 2): "beta", ("softplus_backward", 3): "threshold"}),
    "HuberLossBackward0": Formula({("huber_loss_backward", 4): "delta"}),
    "SmoothL1LossBackward0": Formula({("smooth_l1_loss_backward", 4): "beta"}),
    "HardtanhBackward0": Formula({("hardtanh_backward", 2): "min_val", ("hardtanh_backward", 3): "max_val"}),
    "ThresholdBackward0": Formula({("threshold_backward", 2): "threshold"}, frozenset({"value"})),
    "FmodBackward0": Formula(unused=frozenset({"other"})),
    "RemainderBackward0": Formula(unused=frozenset({"other"})),
    "NanToNumBackward0": Formula(unused=frozenset({"nan", "posinf", "neginf"})),
    "IndexFillBackward0": Formula(unused=frozenset({"value"})),
    "HardshrinkBackward0": Formula({("hardshrink_backward", 2): "lambd"}),
    "SoftshrinkBackward0": Formula({("softshrink_backward", 2): "lambd"}),
    "TrilBackward0": Formula({("tril", 1): "diagonal"}),
    "TriuBackward0": Formula({("triu", 1): "diagonal"}),
    "RollBackward0": Formula({("roll", 1): "shifts"}, back=frozenset({("roll", 1)})),
}
"""By the names of nodes."""
_OF_TENSORS = frozenset({"MulBackward0", "DivBackward0"})
"""Nodes that keep the number ``other`` as a tensor."""


class NumbersOfNodes:
    """The numbers that nodes of autograd's have been given in one call.

    A node is known by its name and its place in the order in which nodes were made; to hold it would keep the
    history alive.
    """

    def __init__(self, numbers: TrackedNumbers) -> None:
        self._numbers = numbers
        self._nodes: dict[tuple[str, int], dict[str, Any]] = {}
        self._tensors: dict[tuple[str, int], torch.Tensor] = {}  # that nodes have made of their numbers

    def follow(self, result: Any, given: Mapping[str, Any]) -> bool:
        """An operation has got numbers, by the names in its schema; whether its backward is understood."""
        parts = result if isinstance(result, (list, tuple)) else (result,)
        tracked = [each for each in parts if isinstance(each, torch.Tensor) and each.requires_grad]
        if not tracked or not torch.is_grad_enabled():
            return True
        if not isinstance(result, torch.Tensor) or result._is_view() or result.grad_fn is None:
            return False
        name = result.grad_fn.name()
        formula = FORMULAS.get(name)
        if formula is None or not all(map(formula.covers, given)):
            return False
        for each in formula.apart.keys() & given.keys():
            self._numbers.ask("==", given[each], formula.apart[each])
        node = name, result.grad_fn._sequence_nr()
        self._nodes[node] = dict(given)
        if name in _OF_TENSORS:
            self._tensors[node] = result.grad_fn._saved_other  # pyright: ignore[reportAttributeAccessIssue]
        return True

    def know(self, node: tuple[str, int], given: Mapping[str, Any]) -> None:
        """A node of a graph that was recorded before has these numbers."""
        self._nodes.setdefault(node, {}).update(given)

    def saved(self) -> list[SavedNumber]:
        """What the graph of a result keeps of numbers; those that it keeps in C++ alone are conditions."""
        found: list[SavedNumber] = []
        for node, given in self._nodes.items():
            tensor, formula = self._tensors.get(node), FORMULAS[node[0]]
            for name, number in given.items():
                computed = self._numbers.computed(number) if tensor is not None and name == "other" else None
                if tensor is not None and computed is not None:
                    found.append(SavedNumber(node, name, tensor.numpy(), computed))
                elif name not in formula.unused:
                    self._numbers.pin(number)
        return found

    def operands(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The operands of an operation that may be one of a backward, where a number of its forward is."""
        node = node_at_work() if self._nodes else None
        if node is None:
            return args, kwargs
        given = self._nodes.get((node.name(), node._sequence_nr()))
        if given is None:
            return args, kwargs
        if torch.is_grad_enabled():
            self._numbers.pin(*given.values())
            return args, kwargs
        formula, found = FORMULAS[node.name()], list(args)
        names = {func.__name__, func.__name__.removesuffix(".default")}
        for place, operand in enumerate(args):
            which = next(((name, place) for name in names if (name, place) in formula.takes), None)
            if which is None or formula.takes[which] not in given:
                continue
            number = given[formula.takes[which]]
            if which in formula.back:
                computed = self._turned(number, operand) if is_laid_out_plainly(args[0]) else None
            else:
                computed = self._computed(number, operand, less=which in formula.below)
            if computed is None:
                self._numbers.pin_inside(number)
            else:
                found[place] = computed
        return tuple(found), kwargs

    def _turned(self, number: Any, operand: Any) -> list[Any] | None:
        """A number of a forward as the one in a list that has the other sign."""
        turned = type(number) is int and type(operand) is list and operand == [-number]
        return [self._numbers.linear([(number, -1)], 0)] if turned else None

    def _computed(self, number: Any, operand: Any, *, less: bool) -> Computed | None:
        """A number of a forward as an operand, if it is that, or the float that C makes of it."""
        kind = type(operand)
        if kind is not type(number) and not (kind is float and type(number) is int):
            return None
        if less and kind is not float:
            return None
        value = kind(number) - 1 if less else kind(number)
        if Fixed.of(value) != Fixed.of(operand):
            return None
        return self._numbers.converted(number, kind, less=less)
