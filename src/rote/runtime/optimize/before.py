"""What a replay is about to change, noted so that the exact tier can be run from there once more.

What a call writes outside of its recording is in another state afterwards: an index counts on, a cache is
full. To run from *that* state might do what no call does, such as write behind the end of a cache. So the
copies are made before the replay behind which a recording is optimised.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import torch

from ...base import in_one_line
from ..arguments import Call
from ..memory import format_size
from ..pytorch import plain_functions
from ..recording import Recording

MOST_BYTES = 1 << 30
"""Memory from outside that is copied at most."""


@dataclass(frozen=True)
class Before:
    """The state before a replay, which its first stretch finds.

    Attributes:
        changed: The bytes of storages that it writes, each with a copy; no two share memory.
        state: Of the generator that it may draw from.
    """

    changed: tuple[tuple[torch.Tensor, torch.Tensor], ...] = ()
    state: torch.Tensor | None = None
    missing: str | None = None

    @classmethod
    def of(cls, recording: Recording, call: Call) -> Before:
        """Look at what a replay may change. If that is too much, or fails, the call goes on without.

        The inputs have been placed.
        """
        try:
            with plain_functions():
                return cls._of(recording, call)
        except Exception as error:
            return cls(missing=f"what it writes could not be copied ({in_one_line(error)})")

    @classmethod
    def _of(cls, recording: Recording, call: Call) -> Before:
        memory, accesses = recording.memory, recording.accesses
        if memory is None:
            return cls(missing="it has no memory")
        leaves = memory.inputs.substitute(call.leaves)
        tensors = [leaves[index] for index in accesses.written]
        tensors += [tensor for ref in accesses.writes.values() if (tensor := ref()) is not None]
        storages = {each.data_ptr(): each for each in [tensor.untyped_storage() for tensor in tensors]}
        nbytes = sum([each.nbytes() for each in storages.values()])
        if nbytes > MOST_BYTES:
            most = f"no more than {format_size(MOST_BYTES)} are copied"
            return cls(missing=f"it writes {format_size(nbytes)} of memory from outside, and {most}")
        written = [as_bytes(each, each.nbytes()) for each in storages.values()]
        if _share_memory(written):
            return cls(missing="it writes memory that has two names")
        copies = [each.clone() for each in written]
        return cls(tuple(zip(written, copies, strict=True)), memory.holding.backend.generator().get_state())


def _share_memory(tensors: Iterable[torch.Tensor]) -> bool:
    """Whether any two of some tensors without gaps lie in the same bytes."""
    ranges = sorted([(each.data_ptr(), each.data_ptr() + each.nbytes) for each in tensors if each.numel()])
    return any([end > begin for (_, end), (begin, _) in pairwise(ranges)])


def as_bytes(storage: torch.UntypedStorage, nbytes: int) -> torch.Tensor:
    """The bytes of a storage as a tensor."""
    with torch.inference_mode(False):
        return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage, 0, (nbytes,), (1,))
