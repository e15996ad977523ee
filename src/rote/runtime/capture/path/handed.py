"""Numbers on their way from a function of PyTorch's into the operation that it dispatches.

A function whose numbers change is called as it is, with plain numbers. If all that it dispatches is the
operation of its own name, and that has the number where the function was given it, the number is an operand
that each replay computes. Nothing else can have looked at it: the function's own code parses arguments, and
dispatches.

So no number is followed through an operator that PyTorch takes apart, nor where an operand requires grad,
since the backward is another operation with the same number.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType
from typing import Any

import torch

from ...numbers import Computed, Fixed, TrackedNumbers
from ...pytorch import is_wrapped

_NAMED: Mapping[str, tuple[str, Mapping[int, int]]] = {
    "__rsub__": ("rsub", {1: 1}), "__rdiv__": ("mul", {1: 1}), "__rtruediv__": ("mul", {1: 1}),
    "__rpow__": ("pow", {1: 0}), "__floordiv__": ("floor_divide", {1: 1}), "__eq__": ("eq", {}),
    "__ne__": ("ne", {}),
}  # fmt: skip
"""The operation and the places of operands of functions with another name than theirs."""
_BESIDE = {"__rdiv__": 2, "__rtruediv__": 2}
"""Operations of those that dispatch several; the others have no number."""
_OF_SIZES = frozenset({"arange", "range", "linspace", "logspace"})
"""Operations whose numbers decide how large a result is."""
_TAKEN = frozenset({"number", "float", "Optional[number]", "Optional[float]", "Tensor"})
"""Types of operands, as schemas write them, that may be a number which changes."""
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})


class HandedNumbers:
    """The numbers that change which one function was given.

    Attributes:
        operations: How many operations it has dispatched.
        taken: Those numbers that have become operands.
    """

    def __init__(self, numbers: TrackedNumbers, function: str, given: Mapping[int | str, Any]) -> None:
        self.operations = 0
        self.taken: list[Any] = []
        self._numbers = numbers
        self._name, self._places = _NAMED.get(function, (function, {}))
        self._most = _BESIDE.get(function, 1)
        self._given = given

    @property
    def is_handed(self) -> bool:
        """Whether the function did nothing else than to dispatch its operation with the numbers."""
        return self.operations == self._most

    def operands(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The operands of an operation, where a number that changes is one that replays compute."""
        schema = func._schema
        own = schema.name.partition("::")[2] == self._name and self._name not in _OF_SIZES
        if not own or func.is_view:
            return args, kwargs
        found, named = list(args), dict(kwargs)
        for key, number in self._given.items():
            names = [each.name for each in schema.arguments]
            place = (
                self._places.get(key, key) if type(key) is int else names.index(key) if key in names else -1
            )
            if not 0 <= place < len(names) or str(schema.arguments[place].type) not in _TAKEN:
                continue
            at: Any = found if place < len(found) else named
            where: Any = place if place < len(found) else names[place]
            computed = self._computed(number, at[where]) if place < len(found) or where in named else None
            if computed is not None:
                at[where] = computed
                self.taken.append(number)
        return tuple(found), named

    def _computed(self, number: Any, operand: Any) -> Computed | None:
        """A number as an operand, if the operand is that number, or the float that C makes of it."""
        kind = type(operand)
        if kind is not type(number) and not (kind is float and type(number) is int):
            return None
        if Fixed.of(kind(number)) != Fixed.of(operand):
            return None
        return self._numbers.converted(number, kind)


def given_numbers(
    numbers: TrackedNumbers, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[int | str, Any]:
    """The numbers that change among the arguments of a function, by position or name."""
    return {
        key: each for key, each in (*enumerate(args), *kwargs.items()) if numbers.expression(each) is not None
    }


def may_be_handed(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether no operation but the function's own may take its numbers, and no code of Python's."""
    if type(function) is FunctionType and function.__name__ not in (*_NAMED, "pow"):
        return False
    tensors: list[Any] = []
    for each in (*args, *kwargs.values()):
        tensors.extend(each if isinstance(each, (list, tuple)) else (each,))
    tensors = [each for each in tensors if isinstance(each, torch.Tensor)]
    if not _PLAIN.issuperset(map(type, tensors)) or any(map(is_wrapped, tensors)):
        return False
    return not (torch.is_grad_enabled() and any([each.requires_grad for each in tensors]))
