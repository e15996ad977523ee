"""Numbers on their way from a function of PyTorch's into the operation that it dispatches.

A function whose numbers change is called as it is, with plain numbers. If all that it dispatches is the
operation of its own name, and that has the number where the function was given it, the number is an operand
that each replay computes. Nothing else can have looked at it: the function's own code parses arguments, and
dispatches.

So no number is followed through an operator that PyTorch takes apart. What becomes of it in a backward is in
:mod:`.derivatives`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from operator import mul
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType
from typing import Any, cast

import torch

from ...numbers import OF_NUMPY, Fixed, TrackedNumbers
from ...pytorch import is_wrapped

_NAMED: Mapping[str, tuple[str, Mapping[int, int]]] = {
    "__rsub__": ("rsub", {1: 1}), "__rdiv__": ("mul", {1: 1}), "__rtruediv__": ("mul", {1: 1}),
    "__rpow__": ("pow", {1: 0}), "__floordiv__": ("floor_divide", {1: 1}), "__eq__": ("eq", {}),
    "__ne__": ("ne", {}), "where": ("scalar_tensor", {1: 0, 2: 0}),
}  # fmt: skip
"""The operation and the places of operands of functions with another name than theirs."""
_BESIDE = {"__rdiv__": (2,), "__rtruediv__": (2,), "where": (2, 3)}
"""How many operations those dispatch that have several; the others have no number."""
_OF_SIZES = "range"
"""An operation whose numbers decide how large a result is."""
_RANGE = "arange"
"""The one of these that gives as many numbers as its ends are apart, where they are whole."""
_TAKEN = frozenset({
    "number", "float", "Optional[number]", "Optional[float]", "Tensor", "List[number]", "List[float]",
})  # fmt: skip
"""Types of operands, as schemas write them, that may be a number which changes, or have some."""
_WHOLE = {
    "randint": ("low", "high"), "randint_like": ("low", "high"), "random_": ("from", "to"),
    "triu": ("diagonal",), "triu_": ("diagonal",), "tril": ("diagonal",), "tril_": ("diagonal",),
    "roll": ("shifts",), "kthvalue": ("k",),
}  # fmt: skip
"""Whole numbers that are no sizes, though schemas write them so: a result looks the same with each."""
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})
_IN_C = (BuiltinFunctionType, MethodDescriptorType)
"""Types of PyTorch's own functions in C."""
_FACTORS = ("alpha", "beta", "value")
"""Names of operands that are numbers, and never tensors."""
_WITH_VALUE = frozenset({"addcmul", "addcmul_", "addcdiv", "addcdiv_"})
"""The functions of which that is true of ``value``."""


class HandedNumbers:
    """The numbers that change which one function was given.

    Attributes:
        operations: How many operations it has dispatched.
        taken: Those numbers that have become operands, with their names in the schema.
    """

    def __init__(self, numbers: TrackedNumbers, function: str, given: Mapping[int | str, Any]) -> None:
        self.operations = 0
        self.taken: dict[str, Any] = {}
        self._numbers = numbers
        self._name, self._places = _NAMED.get(function, (function, {}))
        self._counts = _BESIDE.get(function, (1,))
        self._given = given

    @property
    def is_handed(self) -> bool:
        """Whether the function did nothing else than to dispatch its operation with the numbers."""
        return self.operations in self._counts

    def operands(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The operands of an operation, where a number that changes is one that replays compute."""
        schema = func._schema
        own = schema.name.partition("::")[2] == self._name and self._name != _OF_SIZES
        if not own or func.is_view or (self._name == _RANGE and not self._keeps_size(args)):
            return args, kwargs
        found, named = list(args), dict(kwargs)
        for key, number in self._given.items():
            names = [each.name for each in schema.arguments]
            place = (
                self._places.get(key, key) if type(key) is int else names.index(key) if key in names else -1
            )
            if not 0 <= place < len(names):
                continue
            whole = names[place] in _WHOLE.get(self._name, ()) and is_laid_out_plainly(args[0])
            if not whole and str(schema.arguments[place].type) not in _TAKEN:
                continue
            at: Any = found if place < len(found) else named
            where: Any = place if place < len(found) else names[place]
            computed = self._computed(number, at[where]) if place < len(found) or where in named else None
            if computed is not None:
                at[where] = computed
                self.taken[names[place]] = number
        return tuple(found), named

    def _keeps_size(self, ends: tuple[Any, ...]) -> bool:
        """Whether a range has as many numbers in each call, which is a condition then."""
        whole = len(ends) >= 2 and all([type(each) is int for each in ends])
        if not whole or not self._given.keys() <= {0, 1}:
            return False
        start, end = (self._given.get(place, ends[place]) for place in (0, 1))
        self._numbers.ask("SUBTRACT", end, start)
        return True

    def _computed(self, number: Any, operand: Any) -> Any:
        """A number as an operand, if the operand is that number, or the float that C makes of it.

        Of a list, all numbers that change have to be such.
        """
        if isinstance(number, (list, tuple)):
            return self._all_computed(cast("list[Any]", number), operand)
        if type(operand) is list and len(operand) == 1:  # C makes a list of one number
            return self._all_computed([number], operand)
        kind = type(operand)
        converted = type(number) in OF_NUMPY or (kind is float and type(number) is int)
        if kind not in (int, float) or (kind is not type(number) and not converted):
            return None
        if Fixed.of(kind(number)) != Fixed.of(operand):
            return None
        return self._numbers.converted(number, kind)

    def _all_computed(self, given: list[Any], operand: Any) -> list[Any] | None:
        if type(operand) is not list or len(operand) != len(given):
            return None
        found: list[Any] = []
        for number, each in zip(given, operand, strict=True):
            follows = self._numbers.expression(number) is not None
            found.append(self._computed(number, each) if follows else each)
        return None if any([each is None for each in found]) else found


def is_laid_out_plainly(operand: Any) -> bool:
    """Whether what is put together of any parts of an operand has the strides of a new tensor."""
    if not isinstance(operand, torch.Tensor):
        return True
    sizes = [*operand.shape[:0:-1]]
    strides = (*accumulate((1, *sizes), mul),)[::-1]
    return operand.dim() == 0 or (operand.is_contiguous() and operand.stride() == strides)


def given_numbers(
    numbers: TrackedNumbers, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[int | str, Any]:
    """The numbers that change among the arguments of a function, and lists with such, by position or name."""
    return {
        key: each
        for key, each in (*enumerate(args), *kwargs.items())
        if any([numbers.expression(part) is not None for part in in_list(each)])
    }


def factors_in(func: Any, kwargs: Mapping[str, Any]) -> list[str]:
    """The operands that are numbers and are given as tensors: PyTorch's functions in C read them there.

    An operator of a library may take a tensor by such a name.
    """
    if type(func) not in _IN_C:
        return []
    found = [(name, kwargs[name]) for name in _FACTORS if type(kwargs.get(name)) in _PLAIN]
    return [
        name for name, each in found if _is_read(each) and (name != "value" or func.__name__ in _WITH_VALUE)
    ]


def _is_read(tensor: torch.Tensor) -> bool:
    """Whether C takes a tensor for a number."""
    plain = not tensor.is_meta and not is_wrapped(tensor)
    return plain and not tensor.dim() and not tensor.requires_grad


def in_list(value: Any) -> list[Any]:
    """The members of a list or tuple; of anything else that itself."""
    return list(cast("list[Any]", value)) if type(value) in (list, tuple) else [value]


def may_be_handed(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether no operation but the function's own may take its numbers, and no code of Python's."""
    if type(function) is FunctionType and function.__name__ not in (*_NAMED, "pow"):
        return False
    tensors: list[Any] = []
    for each in (*args, *kwargs.values()):
        tensors.extend(each if isinstance(each, (list, tuple)) else (each,))
    tensors = [each for each in tensors if isinstance(each, torch.Tensor)]
    return _PLAIN.issuperset(map(type, tensors)) and not any(map(is_wrapped, tensors))
