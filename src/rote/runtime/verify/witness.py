"""A callable that returns what each of its operations wrote, in place of its result."""

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
    """Keeps a copy of everything that operations write.

    The copies are operations themselves, so they are part of a recording made below.

    Attributes:
        seen: Name and line of the operation for each copy.
        values: The copies.
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
            with self:  # as the tracer does: they come back here, one by one
                return parts(*args, **kwargs)
        out = func(*args, **kwargs)
        operands = tensors_of(args, kwargs)
        for tensor in (*written_operands(facts, args, kwargs), *_made(out, operands)):
            if tensor.layout is torch.strided and not tensor.is_meta and tensor.numel():
                self.seen.append((facts.name, user_site()))
                self.values.append(tensor.clone())
        return out


def _recorder_at_work() -> bool:
    """A tracer below works on host data; what it does for that is no part of the call."""
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
    """A callable under a witness.

    Attributes:
        seen: Name and line of the operation for each tensor that the last call returned.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.seen: list[tuple[str, Site]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> list[torch.Tensor]:
        """Call it; returns a copy of what each operation wrote, in order."""
        witness = Witness()
        with witness:
            self._function(*args, **kwargs)
        self.seen = witness.seen
        return witness.values
