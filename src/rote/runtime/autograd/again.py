"""A recorded call made again by plain autograd, for a gradient that is differentiated itself.

A recorded graph can be walked, but the walk has no history. With ``create_graph=True`` the callable runs once
more on the caller's own arguments, which gives a graph that autograd can differentiate as often as it likes.
That is the same call only if nothing has changed what it reads since, and if running it again changes
nothing. So calls that draw random numbers or write tensors are refused, and so are those that give other
results by now (a bias, which no graph saves, was updated before the backward). Slots outside that the call
binds, and containers to which it adds, hold afterwards what they held before.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from ..arguments import PARAMETER, TENSOR, Bound, Call, SlotsBefore, Spec, Tag, leaves_by, read_ambient
from .graph import Tracked, ending_at
from .walker import Owner


class Repeatable(NamedTuple):
    """A call that may be made again.

    Attributes:
        owner: Knows the callable. Weak, since a result that the callable's own state keeps would be a cycle
            through autograd, where no garbage collector looks.
    """

    owner: weakref.ref[Owner]
    call: Call
    versions: list[int]

    @classmethod
    def of(cls, owner: Owner, call: Call) -> Repeatable:
        """Note the state of a call's arguments."""
        return cls(weakref.ref(owner), call, _versions(call))

    def function(self) -> Callable[..., Any] | None:
        """The callable, if the arguments and the modes are those of the call (gradients are on now)."""
        owner = self.owner()
        unchanged = _versions(self.call) == self.versions and read_ambient() == self.call.key.ambient
        unchanged = unchanged and not self.call.carried  # other tensors lie in these slots by now
        return owner.function if owner is not None and unchanged else None

    def gradients(
        self,
        function: Callable[..., Any],
        before: SlotsBefore,
        outline: Spec,
        tracked: list[Tracked],
        gradients: tuple[Any, ...],
        sources: list[torch.Tensor],
        recorded: list[torch.Tensor],
        ends: Sequence[int] = (),
    ) -> tuple[torch.Tensor | None, ...] | None:
        """Gradients with a history; None if the call gives something else by now.

        Args:
            before: What is put back when the call has been made.
            outline: The structure of what it returns, and of what it leaves in the slots that it binds.
            recorded: The results, as the recording has them.
            ends: Numbers of results where the gradients end; theirs come first.
        """
        args, kwargs = self.call.arguments
        try:
            leaves = _leaves(function(*args, **kwargs), outline)
        finally:
            before.put_back()
        made = [each.of(leaves) for each in tracked]
        if not all(map(_is_close, made, recorded)):
            return None
        pairs = [pair for pair in zip(made, gradients, strict=True) if pair[1] is not None]
        others = [made[end] for end in ends]
        with ending_at(others):
            return torch.autograd.grad(
                [result for result, _ in pairs],
                [*others, *sources],
                [gradient for _, gradient in pairs],
                create_graph=True,
                allow_unused=True,
            )


def _leaves(value: Any, outline: Spec) -> list[Any]:
    """The leaves of what a call has returned, and of what it has left in the slots that it binds."""
    if outline is None or outline.cls is not Bound:
        return leaves_by(outline, value)
    own = leaves_by(outline.children[0], value)
    parts = [each.look(own) if isinstance(each, Tag) else each.read() for each in outline.names]
    return leaves_by(outline, Bound(value, outline.names, tuple(parts)))


def _is_close(made: Any, recorded: torch.Tensor) -> bool:
    """Whether two results are the same, but for kernels that do not repeat their own."""
    if not isinstance(made, torch.Tensor):
        return False
    alike = made.shape == recorded.shape and made.dtype == recorded.dtype
    return alike and torch.allclose(made.detach(), recorded.detach(), equal_nan=True)


def _versions(call: Call) -> list[int]:
    tensors = [
        leaf for leaf, kind in zip(call.leaves, call.kinds, strict=True) if kind in (TENSOR, PARAMETER)
    ]
    return [-1 if tensor.is_inference() else tensor._version for tensor in tensors]
