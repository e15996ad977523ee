"""The caller's tensors as a recording holds them: aliases that do not keep the memory alive.

A recording may read and write an argument where it lies. It is only replayed while a live tensor lies there
(:class:`...program.placement.Spot`), so it needs the address and nothing else; an ordinary alias would
keep a cache alive that the caller has dropped. Tensors of all other storages (parameters, constants, results
of islands) are held by ordinary aliases, since nobody else promises that they are there at the next replay.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch

from .torch_private import storage_over


class Aliases:
    """Makes the aliases of one recording."""

    def __init__(self, lent: Iterable[torch.UntypedStorage] = ()) -> None:
        self._lent = {storage._cdata: storage_over(storage) for storage in lent}

    def keep(self, tensor: torch.Tensor) -> torch.Tensor:
        """An alias with metadata of its own, so that later changes of the tensor's do no harm."""
        storage = self._lent.get(tensor.untyped_storage()._cdata) if self._lent else None
        if storage is None or tensor.is_conj() or tensor.is_neg():  # the latter two are rare and small
            return tensor.detach()
        if storage.data_ptr() != tensor.untyped_storage().data_ptr():
            return tensor.detach()  # an operation has given it more memory, as ``out=`` does
        with torch.inference_mode(False):  # a plain tensor may be written in any mode
            alias = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
            return alias.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())

    def keep_all(self, value: Any) -> Any:
        """An operand with every tensor in it replaced by its alias."""
        if isinstance(value, torch.Tensor):
            return self.keep(value)
        if isinstance(value, (list, tuple)):
            return type(value)([self.keep_all(item) for item in cast("list[Any]", value)])
        return value


class ResultSizeError(RuntimeError):
    """An operator gave a result of another size than when it was recorded, which its schema does not tell.

    Attributes:
        operator: Its name, ``namespace::name.overload``.
    """

    def __init__(self, operator: str, was: tuple[int, ...], now: tuple[int, ...]) -> None:
        super().__init__(
            f"{operator} gave a result of shape {[*now]} where its call was recorded with {[*was]}"
        )
        self.operator = operator

    @classmethod
    def check(cls, operator: str, recorded: tuple[int, ...], fresh: torch.Tensor) -> None:
        """A copy to where a result of the recorded shape lies would be refused, or filled up."""
        if fresh.shape != recorded:
            raise cls(operator, recorded, fresh.shape)


def refill(recorded: torch.Tensor, fresh: torch.Tensor) -> None:
    """Copy what a replay has made anew to where a recording has it, in any mode.

    What a call made in inference mode may not be written outside of it, where a replay may be. Of elements
    that lie in one place, as in what was expanded, one is copied.
    """
    for dim, stride in enumerate(recorded.stride()):
        if stride == 0 and recorded.shape[dim] > 1:
            recorded, fresh = recorded.narrow(dim, 0, 1), fresh.narrow(dim, 0, 1)
    if recorded.is_inference() and not torch.is_inference_mode_enabled():
        with torch.inference_mode():
            recorded.copy_(fresh)
    else:
        recorded.copy_(fresh)


OWNING = Aliases()
"""For recordings that use nothing of the caller's in place."""
