"""A callable that returns the values written by each of its operations, in place of its result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from ...base import Site, user_site
from ..capture import Tracer
from ..operators import composite_call, facts_of, tensors_of, written_operands
from ..program import mode_below, results_of
from ..pytorch import DispatchMode, resolve_lazily

_lift = torch.ops.aten.lift_fresh.default


class Witness(DispatchMode):
    """Keeps a copy of each tensor that an operation writes, and the operation's name and line.

    The copies are operations themselves, so a recording made below includes them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, Site]] = []
        self.values: list[torch.Tensor] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        resolve_lazily()
        if not isinstance(func, torch._ops.OpOverload) or func is _lift or _recorder_at_work():
            return func(*args, **kwargs)
        facts = facts_of(func)
        parts = composite_call(func) if torch.is_inference_mode_enabled() else None
        if parts is not None:
            with self:  # as in the tracer: they come back here, one by one
                return parts(*args, **kwargs)
        out = func(*args, **kwargs)
        operands = tensors_of(args, kwargs)
        for tensor in (*written_operands(facts, args, kwargs), *_made(out, operands)):
            if tensor.layout is torch.strided and not tensor.is_meta and tensor.numel():
                self.seen.append((facts.name, user_site()))
                self.values.append(tensor.clone())
        return out


def _recorder_at_work() -> bool:
    """Whether a tracer below works on host data; its operations are no part of the call."""
    below = mode_below()
    return isinstance(below, Tracer) and below.cursor.suspended


def _made(out: Any, operands: list[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Results in memory of their own."""
    known = {tensor.untyped_storage()._cdata for tensor in operands if tensor.layout is torch.strided}
    for part in results_of(out)[1]:
        strided = isinstance(part, torch.Tensor) and part.layout is torch.strided
        if strided and part.untyped_storage()._cdata not in known:
            yield part


class Witnessed:
    """A callable under a witness, and the operation's name and line for each tensor of its last result."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.seen: list[tuple[str, Site]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> list[torch.Tensor]:
        """Call it; returns copies of all that operations wrote, in order."""
        witness = Witness()
        with witness:
            self._function(*args, **kwargs)
        self.seen = witness.seen
        return witness.values
