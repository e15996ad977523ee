"""What a replay is about to change, noted so that the exact tier can be run from there once more.

What a call writes outside of its recording is in another state afterwards: an index counts on, a cache is
full. To run from *that* state might do what no call does, such as write behind the end of a cache. So the
copies are made before the replay behind which a recording is optimised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from ..arguments import Call
from ..pytorch import plain_functions
from ..recording import Recording

MOST_BYTES = 1 << 28
"""Memory from outside that is copied at most."""


@dataclass(frozen=True)
class Before:
    """The state before a replay, which its first stretch finds.

    Attributes:
        memory: Copies of the bytes of storages that it writes, by address.
        state: Of the generator that it may draw from.
    """

    memory: Mapping[int, torch.Tensor]
    state: torch.Tensor

    @classmethod
    def of(cls, recording: Recording, call: Call) -> Before | None:
        """Look at what a replay may change; None if that is too much, or fails: the call goes on without.

        The inputs have been placed.
        """
        try:
            with plain_functions():
                return cls._of(recording, call)
        except Exception:
            return None

    @classmethod
    def _of(cls, recording: Recording, call: Call) -> Before | None:
        memory, accesses = recording.memory, recording.accesses
        if memory is None:
            return None
        leaves = memory.inputs.substitute(call.leaves)
        tensors = [leaves[index] for index in accesses.written]
        tensors += [tensor for ref in accesses.writes.values() if (tensor := ref()) is not None]
        storages = {each.data_ptr(): each for each in [tensor.untyped_storage() for tensor in tensors]}
        if sum([each.nbytes() for each in storages.values()]) > MOST_BYTES:
            return None
        copies = {at: as_bytes(each, each.nbytes()).clone() for at, each in storages.items()}
        return cls(copies, memory.holding.backend.generator().get_state())


def as_bytes(storage: torch.UntypedStorage, nbytes: int) -> torch.Tensor:
    """The bytes of a storage as a tensor."""
    with torch.inference_mode(False):
        return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage, 0, (nbytes,), (1,))
