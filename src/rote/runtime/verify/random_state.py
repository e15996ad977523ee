"""All random state of a call, read and set as one value."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy
import torch


@dataclass(frozen=True)
class RandomState:
    """The random generators at one moment.

    Attributes:
        tensors: State of each PyTorch generator, by its name in messages.
        generators: The generators of the callable besides the default ones.
        device: The device whose default generator is among ``tensors``.
    """

    tensors: dict[str, torch.Tensor]
    generators: tuple[torch.Generator, ...]
    device: torch.device
    python: Any
    array: Any

    @classmethod
    def read(cls, device: torch.device, generators: Iterable[torch.Generator]) -> RandomState:
        """Read the generators now."""
        tensors = {"PyTorch's random state": torch.get_rng_state()}
        if device.type == "cuda":
            tensors[f"PyTorch's random state on {device}"] = torch.cuda.get_rng_state(device)
        given = tuple(generators)
        for number, generator in enumerate(given):
            tensors[f"the state of generator {number} on {generator.device}"] = generator.get_state()
        array: Any = numpy.random.get_state(legacy=True)
        return cls(tensors, given, device, random.getstate(), array)

    def restore(self, *, on_host: bool = False) -> None:
        """Set PyTorch's generators to this state, with ``on_host`` also Python's and numpy's."""
        host, *rest = self.tensors.values()
        torch.set_rng_state(host)
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(rest.pop(0), self.device)
        for generator, state in zip(self.generators, rest, strict=True):
            generator.set_state(state)
        if on_host:
            random.setstate(self.python)
            numpy.random.set_state(self.array)

    def differing(self, other: RandomState) -> list[str]:
        """Names of PyTorch's generators whose state differs."""
        return [name for name, state in self.tensors.items() if not torch.equal(state, other.tensors[name])]

    def differing_on_host(self, other: RandomState) -> list[str]:
        """Names of Python's and numpy's generators whose state differs; none while other threads may draw."""
        if threading.active_count() > 1:
            return []
        mine, theirs = self.array, other.array
        same = mine[1].tobytes() == theirs[1].tobytes() and mine[2:] == theirs[2:]
        found = ["the state of Python's random module"] if self.python != other.python else []
        return found if same else [*found, "the state of numpy.random"]
