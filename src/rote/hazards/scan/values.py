"""What an expression is, as far as the source shows: a tensor, a number, a module."""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from .syntax import names

Type = Enum("Type", (
    "UNKNOWN", "TENSOR", "MAYBE", "NUMBER", "SHAPE", "LIST", "CONTAINER", "ARRAY", "DEVICE", "DTYPE",
    "MODULE", "OPTIMIZER", "SCHEDULER", "SCALER", "STREAM", "EVENT", "GENERATOR", "DICE", "GRAPH", "MIXER",
    "AUGMENT", "NORMALIZER", "COUNTER", "CACHE", "ITERATOR",
))  # fmt: skip
"""The type of an expression.

MAYBE is the result of an unknown function of tensors: probably a tensor. NUMBER is any Python value. A DICE
draws random numbers in Python.
"""


class Inferred(NamedTuple):
    """What is known of an expression.

    Attributes:
        mask: A tensor of truth values.
        host: A tensor that was made on the default device, without ``device=``.
        drawn: A tensor of random numbers.
        constant: A tensor that ``torch.tensor`` made of Python values.
        argument: Name of the argument that it still is.
        counting: An optimizer that keeps its step count on the host.
        local: The function made it.
        number: A tensor that ``torch.tensor`` made of a single number, on the default device.
    """

    type: Type = Type.UNKNOWN
    mask: bool = False
    host: bool = False
    drawn: bool = False
    constant: bool = False
    argument: str = ""
    counting: bool = False
    local: bool = False
    number: bool = False

    @property
    def is_tensor(self) -> bool:
        """Whether it is known to be a tensor."""
        return self.type is Type.TENSOR

    @property
    def on_device(self) -> bool:
        """Whether it is a tensor that may lie on the device."""
        return self.type is Type.TENSOR and not self.host

    @property
    def may_be_tensor(self) -> bool:
        """Whether it is a tensor or probably one."""
        return self.type in (Type.TENSOR, Type.MAYBE)

    @property
    def is_mask(self) -> bool:
        """Whether it is known to be a mask."""
        return self.mask and self.is_tensor

    @property
    def derived(self) -> Inferred:
        """The same, but no argument any more."""
        return self._replace(argument="")


UNKNOWN = Inferred()
NUMBER = Inferred(Type.NUMBER)
TENSOR = Inferred(Type.TENSOR, local=True)
MASK = Inferred(Type.TENSOR, mask=True, local=True)
MAYBE = Inferred(Type.MAYBE)
SHAPE = Inferred(Type.SHAPE)

MASKS = names("masks")
FACTORIES = names("factories")
DRAWS = names("draws")
TENSOR_NAMES = names("tensor")
SHARED_NAMES = names("shared")


def is_mask_name(name: str) -> bool:
    """Whether a name says that the value is a mask."""
    return re.search(r"(^|_)masks?$", name) is not None


def made(kind: Type) -> Inferred:
    """What the function makes."""
    return Inferred(kind, local=True)


def item_of(items: Inferred) -> Inferred:
    """What an item of a value is."""
    if items.is_tensor:
        return items.derived
    if items.type in (Type.SHAPE, Type.NUMBER, Type.LIST):
        return NUMBER
    return MAYBE if items.type is Type.MAYBE else UNKNOWN


def join(one: Inferred, other: Inferred) -> Inferred:
    """What a name is after two branches."""
    if one == other:
        return one
    if one.type is other.type:
        return Inferred(
            one.type, mask=one.mask and other.mask, host=one.host and other.host,
            drawn=one.drawn or other.drawn, constant=one.constant and other.constant,
            argument=one.argument if one.argument == other.argument else "",
            counting=one.counting or other.counting, local=one.local and other.local,
        )  # fmt: skip
    for value, rest in ((one, other), (other, one)):
        if value.is_tensor and rest.type in (Type.UNKNOWN, Type.MAYBE):
            return value._replace(host=False, argument="")
    return UNKNOWN
