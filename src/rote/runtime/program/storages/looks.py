"""How operands and results look; tensors that look alike share one object in all calls of a tree.

Calls compare operations by their operands and results, so most comparisons are by identity.
"""

from __future__ import annotations

from typing import Any

import torch

from ...fingerprint import Alike

MAX_LOOKS = 4096
"""Looks that are remembered; then all are forgotten, and compare by value with later ones."""
_SEEDS = frozenset({torch.int64, torch.uint64})


class Look(Alike):
    """Metadata of a tensor without its offset.

    Attributes:
        integer: Its type is one of seeds of random numbers.
        guesses: How results looked whose first operand looked like this, by the name of the operation and the
            position of the result. The next one may look otherwise.
    """

    __slots__ = ("dtype", "guesses", "integer", "on_host", "shape", "stride")

    def __init__(
        self, dtype: torch.dtype, shape: tuple[int, ...], stride: tuple[int, ...], on_host: bool
    ) -> None:
        super().__init__()
        self.dtype = dtype
        self.shape = shape
        self.stride = stride
        self.on_host = on_host
        self.integer = dtype in _SEEDS
        self.guesses: dict[tuple[str, int], Look] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Look) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def _values(self) -> tuple[Any, ...]:
        return self.dtype, self.shape, self.stride, self.on_host


class Looks:
    """The looks of a tree's tensors.

    Attributes:
        complex: Any of the tensors was complex.
        away: Any of them was not on the host.
    """

    def __init__(self) -> None:
        self.complex = self.away = False
        self._known: dict[tuple[Any, ...], Look] = {}

    def of(self, tensor: torch.Tensor) -> Look:
        """What a tensor looks like.

        Raises:
            RuntimeError: It has memory, but no shape.
        """
        look = self.made(tensor.dtype, tensor.shape, tensor.stride(), tensor.is_cpu)
        look.add(tensor)
        return look

    def made(
        self, dtype: torch.dtype, shape: tuple[int, ...], stride: tuple[int, ...], on_host: bool
    ) -> Look:
        """The look with these values."""
        key = (dtype, shape, stride, on_host)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MAX_LOOKS:
                self._known.clear()
            found = self._known[key] = Look(*key)
            self.complex = self.complex or dtype.is_complex
            self.away = self.away or not on_host
        return found
