"""Recognizes the operations of an earlier call without describing them anew.

Calls compare operations by their descriptions, with a token for each tensor. To make a description takes as
long as to run a small operation. From the second call on there is one already, and to check an operation
against it takes half as long. So operations that read tensors on the device and return tensors, which is most
of a call, are checked first. One that does not fit is described and compared as in the first call. The
second traced call of 400 small operations on the host takes 66 ms with that, and 79 without.
"""

from __future__ import annotations

from typing import Any

import torch

from ..operators import Facts, tensors_of
from ..program import Operand, Operation, Token, Value, is_same_operand
from ..program import operations as ops
from .path import Cursor, Mode
from .placed import Placer

_FOLLOW = Mode.FOLLOW
_Tensor, _Parameter = torch.Tensor, torch.nn.Parameter


class Repeats:
    """Recognizes what an earlier call did at the same place."""

    def __init__(self, cursor: Cursor, placer: Placer) -> None:
        self._cursor = cursor
        self._placer = placer

    def find(self, facts: Facts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Operation | None:
        """The operation that another call had here, if this one has its operands; None says nothing.

        It must be an operation that runs where its tensors are.
        """
        cursor = self._cursor
        node, index = cursor.node, cursor.index
        if index >= len(node.operations) or cursor.mode is _FOLLOW:
            return None
        if cursor.difference is not None or cursor.blockers:
            return None
        was = node.operations[index]
        kind, operands, named = was.kind, was.operands, was.named
        if was.name != facts.name or (kind != ops.CAPTURED and kind != ops.VIEWED) or index in node.refused:
            return None
        if len(operands) != len(args) or len(named) != len(kwargs):
            return None
        if self._placer.index < 0 and not cursor.on_host:
            return None
        # In the order in which they are described: tensors made outside are numbered as they are met.
        if not self._are_again(args, operands) or (kwargs and not self._are_named_again(kwargs, named)):
            return None
        storages = cursor.storages
        if len(storages.external_sites) < len(storages.externals):
            storages.note_readers(was.name, was.site)
        return was

    def _are_again(self, values: Any, expected: Any) -> bool:
        cursor = self._cursor
        is_again, home, on_host = cursor.storages.is_again, self._placer.index, cursor.on_host
        for value, one in zip(values, expected, strict=True):
            kind = type(value)
            if kind is _Tensor or kind is _Parameter:
                if type(one) is not Token or one[1].on_host is not on_host or not is_again(value, one):
                    return False
                if not on_host and value.get_device() != home:
                    return False
            elif kind is list and value and isinstance(value[0], _Tensor):
                if type(one) is not tuple or len(one) != len(value) or not self._are_again(value, one):
                    return False
            elif not is_same_operand(value, one):
                return False
        return True

    def _are_named_again(self, kwargs: dict[str, Any], named: tuple[tuple[str, Operand], ...]) -> bool:
        if "device" in kwargs or list(kwargs) != [name for name, _ in named]:
            return False
        return self._are_again(kwargs.values(), [operand for _, operand in named])

    def is_made(self, was: Operation, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> bool:
        """Note the result of an operation found by :meth:`find`, if it is the other call's as well.

        If it is not, parts of it may have been noted, as they are in any case.
        """
        structure, results, viewed = was.structure, was.results, was.kind == ops.VIEWED
        if type(out) is _Tensor and structure == "one" and type(results[0]) is Token:  # most results
            if viewed and _is_among(out, args, kwargs):
                return False
            return self._cursor.storages.is_made_again(out, results[0], was.name, was.site)
        if isinstance(out, _Tensor) and structure == "one":
            parts: Any = (out,)
        elif (structure == "tuple" and isinstance(out, tuple)) or (
            structure == "list" and isinstance(out, list)
        ):
            parts = out
        else:
            return False
        if len(results) != len(parts):
            return False
        for part, one in zip(parts, results, strict=True):
            if type(one) is Token:
                if type(part) is not _Tensor or (viewed and _is_among(part, args, kwargs)):
                    return False
                if not self._cursor.storages.is_made_again(part, one, was.name, was.site):
                    return False
            elif type(one) is Value:
                if isinstance(part, _Tensor) or one != Value.of(part):
                    return False
            elif one is None:
                if part is not None:
                    return False
            elif tensors_of(args, kwargs)[one.operand] is not part or (
                one.token is not None and self._cursor.storages.token(part) != one.token
            ):
                return False
        return True


def _is_among(part: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a result is one of the operands."""
    for value in args:
        if value is part:
            return True
    return bool(kwargs) and any(value is part for value in kwargs.values())
