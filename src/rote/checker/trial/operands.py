"""Operands of operations: the tensors among them, replaced or shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_map_only

from ...runtime.operators import Facts, tensors_of
from ...runtime.program import Operand, operand_of


class TrialCall(NamedTuple):
    """An operation with its operands."""

    facts: Facts
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The tensors among the operands."""
        return tensors_of(self.args, self.kwargs)

    def run(self) -> Any:
        """What the operation returns."""
        return self.facts.op(*self.args, **self.kwargs)

    def replaced(self, change: Callable[[torch.Tensor], Any]) -> TrialCall:
        """The operation with every tensor among its operands changed."""
        return self._replace(args=replaced(self.args, change), kwargs=replaced(self.kwargs, change))

    def on_host(self, change: Callable[[torch.Tensor], Any]) -> Any:
        """What the operation returns on the host for other tensors; None if it raises.

        Then it has no host kernel, or raises on fake tensors as well.
        """
        call = self.replaced(change)
        if "device" in self.kwargs:
            call = call._replace(kwargs={**call.kwargs, "device": torch.device("cpu")})
        try:
            return call.run()
        except Exception:
            return None


def like(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """An empty tensor on a device, with the layout of another."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)


def replaced(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """Operands with every tensor changed, in nested containers too."""
    return tree_map_only(torch.Tensor, change, value)


def shown(tensor: torch.Tensor) -> str:
    """A tensor in a few words: ``float32[2, 3]``."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


class ShapedTensor(NamedTuple):
    """A tensor operand in the trace of a check, which compares no memory."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> ShapedTensor:
        """The parts of a tensor that are compared."""
        return cls(tensor.dtype, tuple(tensor.shape))


class TracedOperation(NamedTuple):
    """An operation in the trace of a check: as in a program, without storages, results and lines."""

    name: str
    operands: tuple[Operand, ...] = ()
    named: tuple[tuple[str, Operand], ...] = ()

    @classmethod
    def of(cls, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TracedOperation:
        """An operation of a run."""
        named = [(key, operand_of(value, ShapedTensor.of)) for key, value in kwargs.items()]
        return cls(name, operand_of(args, ShapedTensor.of), tuple(named))

    @property
    def every_operand(self) -> tuple[Operand, ...]:
        """All operands, positional ones first."""
        return (*self.operands, *self.named)
