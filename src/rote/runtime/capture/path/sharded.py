"""Operations on tensors of which each process has a part (``DTensor``), as in tensor parallelism.

PyTorch makes such an operation of others: on the part that this process has, and collectives between. Those
are what a call consists of, those of a backward as well. Which they are follows from how the operands are
spread over processes, and that is a condition where Python has found an operand outside of the call
(:meth:`...reads.trace.outside.Outside.read`). So are PyTorch's settings, which may refuse an operation, or
take other tensors together with such ones.

What does not work: results with a history; a backward through a graph from outside, and gradients from
before the call, which only C finds; to spread one anew that lies outside; random numbers, for which PyTorch
sets generators.

To write such a tensor is to write its part. Autograd counts that at the tensor, not at the part.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

from ....base import Site, user_site
from ....hazards import rules
from ....hazards.rules import Reason, reason
from ...operators import facts_of, tensors_of, written_operands
from ...program import EXTERNAL
from ...pytorch import LOCAL, SPREAD_AS, is_sharded, part_of
from .cursor import Cursor

_REMEDY = "Call it under torch.no_grad(), and work on the parts: tensor.to_local()."
_CLEARED = "Clear the gradients (zero_grad()) in the call, and take all of a step in one call."
_DETACHED = (
    "Take the gradients inside of the call, and return loss.detach(); or call it under torch.no_grad()."
)


class _SeenSharded(NamedTuple):
    """An operand over memory from outside, weakly, and what it was when the call came to it."""

    tensor: weakref.ref[torch.Tensor]
    part: weakref.ref[torch.Tensor]
    spread: Any
    version: int
    site: Site
    known: bool


class ShardedTensors:
    """What one call does with tensors of which each process has a part.

    Args:
        knows: Whether it is a condition how a tensor from outside is spread.
        ask: Makes a condition of PyTorch's settings for operations on such tensors.

    Attributes:
        history: The line that has made a history of one.
    """

    def __init__(
        self, cursor: Cursor, knows: Callable[[torch.Tensor], bool], ask: Callable[[], None]
    ) -> None:
        self.history: Site | None = None
        self._any: Site | None = None  # the line of the first operation on one
        self._cursor = cursor
        self._knows = knows
        self._ask = ask
        self._met: dict[int, _SeenSharded] = {}
        # an operation that writes, and the storages of the parts that it is about to write
        self._writing: tuple[str, set[int]] = "", set()

    def meet(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An operation is about to be made of others."""
        cursor = self._cursor
        if cursor.blockers:
            return
        if self._any is None:
            self._any = user_site()
            self._ask()
        for tensor in tensors_of(args, kwargs):
            self._note(tensor)
        written = written_operands(facts_of(func), args, kwargs) if func._schema.is_mutable else []
        parts = [part_of(each) for each in written if is_sharded(type(each))]
        self._writing = func.name(), {each.untyped_storage()._cdata for each in parts}
        if torch.Tag.nondeterministic_seeded in func.tags:
            text = f"{func.name()} draws random numbers for a DTensor"
            cursor.block(reason(rules.UNSUPPORTED_TENSOR, text, user_site(), _REMEDY))

    def _note(self, tensor: torch.Tensor) -> None:
        if not is_sharded(type(tensor)):  # a setting of PyTorch's allows it or not
            return
        part = part_of(tensor)
        if self.history is None and tensor.requires_grad and torch.is_grad_enabled():
            self.history = user_site()
        origin = self._cursor.storages.origin(part)
        met = self._met.get(id(tensor))
        if (met is not None and met.tensor() is tensor) or (origin is not None and origin[0] != EXTERNAL):
            return
        version = 0 if tensor.is_inference() else tensor._version
        spread, own = getattr(tensor, SPREAD_AS), weakref.ref(getattr(tensor, LOCAL))
        known = self._knows(tensor)  # else the call has made it, of memory from outside; or C has found it
        self._met[id(tensor)] = _SeenSharded(weakref.ref(tensor), own, spread, version, user_site(), known)

    def divide(self, name: str, written: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Of what an operation writes, what it writes as a part of sharded tensors, and the rest."""
        handles = self._writing[1] if self._writing[0] == name else ()
        if not handles:
            return [], written
        pairs = [(each, each.untyped_storage()._cdata in handles) for each in written]
        return [each for each, is_part in pairs if is_part], [each for each, is_part in pairs if not is_part]

    def written(self) -> dict[int, weakref.ref[torch.Tensor]]:
        """Those from outside of which the call has changed the version, by identity."""
        alive = [
            (key, each, tensor) for key, each in self._met.items() if (tensor := each.tensor()) is not None
        ]
        return {
            key: each.tensor
            for key, each, tensor in alive
            if each.known and not tensor.is_inference() and tensor._version != each.version
        }

    def reasons(self, gradients: Iterable[torch.Tensor], *, tracked: bool, walked: bool) -> list[Reason]:
        """The call is over: why it cannot be recorded.

        Args:
            gradients: Those from before the call.
            tracked: A result of the call has a history.
            walked: A backward ran through a graph from before the call.
        """
        found: list[Reason] = []
        if walked and self._any is not None:
            text = "the call works on DTensors, and a backward runs through a graph that was made outside"
            found.append(reason(rules.UNSUPPORTED_TENSOR, text, self._any, _REMEDY))
        for each in gradients:
            met = self._met.get(id(each))
            if met is not None and met.tensor() is each:
                text = "the call reads a gradient from before it that is a DTensor"
                found.append(reason(rules.UNSUPPORTED_TENSOR, text, met.site, _CLEARED))
        if tracked and self.history is not None:
            text = "a result has a history, and the call works on a DTensor that requires grad"
            found.append(reason(rules.UNSUPPORTED_TENSOR, text, self.history, _DETACHED))
        for each in self._met.values():
            tensor = each.tensor()
            if tensor is None or not each.known:
                continue
            if getattr(tensor, LOCAL) is not each.part() or getattr(tensor, SPREAD_AS) is not each.spread:
                text = "a DTensor that was made outside the call is spread anew, or gets another part"
                found.append(reason(rules.UNSUPPORTED_TENSOR, text, each.site, _REMEDY))
        return found[:1]
