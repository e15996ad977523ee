"""The state that a recording is valid in: Python state, tensors made outside, and gradient slots."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from ..conditions import Guard
from ..program import GradientWatch, within
from ..pytorch import plain_functions
from ..state import Snapshot
from .accesses import Accesses, Handles
from .gradients import Present

Parameters = Mapping[int, tuple[str, torch.Tensor]]
"""Parameters among the arguments, by storage handle, with their names."""


@dataclass(frozen=True)
class StateGuard:
    """What must be as it was.

    Attributes:
        present: Gradient slots that the recording depends on.
        passed: Tensors whose hooks it depends on, and no more of their slots.
        leaves: The parameters that may get a gradient, with their names.
        objects: Tensors that the callable has read, by identity.
        shared: Tensors that the callable can reach besides its tensor arguments, by storage handle.
        array_ranges: Where the numpy arrays lie whose memory becomes tensors, from first to last byte, and
            other memory in which no array among the arguments may lie.
    """

    python: Guard
    present: Present
    passed: Present
    leaves: list[tuple[str, weakref.ref[torch.Tensor]]]
    objects: Handles
    shared: Handles
    array_ranges: list[tuple[int, int]]

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        accesses: Accesses,
        parameters: Parameters,
        watch: GradientWatch,
        *,
        concerned: bool,
    ) -> StateGuard:
        """Guard the state as it is now; ``concerned`` calls read or replace some of the gradient slots."""
        reach = reachable(snapshot.by_memory(), parameters, watch)
        read = [tensor for entries in snapshot.tensors.values() for _, tensor in entries]
        objects = {id(tensor): weakref.ref(tensor) for tensor in read}
        externals, asked = accesses.alive(), accesses.asked
        arguments = {handle: parameters[handle] for handle in externals if handle in parameters}
        gradients = watch.gradients() if concerned else []
        python = Guard(
            snapshot, externals, arguments, gradients, accesses.readers, accesses.arrays, asked.looked(),
            flags=asked.flags,
        )  # fmt: skip
        return cls(
            python,
            list({**asked.slots, **watch.presence()}.values()) if concerned else [],
            list(asked.passed.values()),
            watch.leaves(),
            objects,
            {handle: weakref.ref(tensor) for handle, tensor in reach.items()},
            within(snapshot.arrays, accesses.arrays) + accesses.apart_from_arrays(),
        )

    def moved(self) -> StateGuard | None:
        """The guard over objects that lie in the place of others now, if all holds for them."""
        python = self.python.moved()
        return replace(self, python=python) if python is not None else None

    def watch(self) -> GradientWatch:
        """Watch the gradient slots that were known when the guard was made."""
        return GradientWatch([(name, tensor) for name, ref in self.leaves if (tensor := ref()) is not None])

    def reaches(self, handle: int, externals: Handles) -> bool:
        """Whether a tensor that the callable can reach is on this storage, still."""
        for table in (self.shared, externals):
            reference = table.get(handle)
            tensor = reference() if reference is not None else None
            if tensor is not None:  # a gradient that died may have left its handle to somebody else
                with plain_functions():
                    if tensor.untyped_storage()._cdata == handle:
                        return True
        return False

    def has_read(self, tensor: torch.Tensor) -> bool:
        """Whether an object is one of the tensors that the callable has read."""
        reference = self.objects.get(id(tensor))
        return reference is not None and reference() is tensor


def reachable(
    tensors: Mapping[int, torch.Tensor], parameters: Parameters, watch: GradientWatch
) -> dict[int, torch.Tensor]:
    """The tensors that a callable can reach besides its tensor arguments, by storage handle."""
    found = {gradient.untyped_storage()._cdata: gradient for _, _, gradient in watch.gradients()}
    found.update({handle: tensor for handle, (_, tensor) in parameters.items()})
    found.update(tensors)
    return found
