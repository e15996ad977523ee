"""Host memory that a call has made and that none of its operations has written yet.

C++ code that makes a tensor of numbers it was given in a call, or ``ctypes``, fills such memory unseen, and a
replay would find something else there. Memory of a GPU differs: kernels launched past the dispatcher write
it, and CUDA captures those.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ....base import Site
from ....hazards import rules
from ....hazards.rules import Reason, reason
from ...backends.host import fills_memory
from ...operators import Facts, read_operands, written_operands
from ...pytorch import has_memory
from .table import NEW, Origin, StorageTable

REMEDY = (
    "Pass a tensor that was made outside (lengths as a tensor, not as numbers), or write the memory with an "
    "operation (copy_, fill_, out=)."
)


class Unwritten:
    """The storages of a call that no operation has written."""

    def __init__(self, storages: StorageTable) -> None:
        self._storages = storages
        self.makers: dict[Origin | None, str] = {}

    def made(self, operation: str, out: Any) -> None:
        """Note the result of an operation that makes memory without writing it."""
        if not (isinstance(out, torch.Tensor) and out.is_cpu):
            return
        origin = self._storages.origin(out)
        if origin is not None and origin[0] is NEW:
            self.makers[origin] = operation.partition(".")[0]

    def meet(self, facts: Facts, args: tuple[Any, ...], kwargs: dict[str, Any], site: Site) -> list[Reason]:
        """Note what an operation is about to write; gives the reason if it reads unwritten memory."""
        found = self.reasons(facts.name, read_operands(facts, args, kwargs), site)
        if facts.written and not facts.relocates:
            for tensor in written_operands(facts, args, kwargs):
                self.makers.pop(self._storages.origin(tensor), None)
        return found

    def reasons(self, reader: str, tensors: Iterable[torch.Tensor], site: Site) -> list[Reason]:
        """The reason if one of the tensors that ``reader`` reads lies in unwritten memory."""
        for tensor in tensors if self.makers else ():
            if not (has_memory(tensor) and tensor.is_cpu and tensor.numel()):
                continue
            maker = self.makers.get(self._storages.origin(tensor))
            if maker is not None and not (fills_memory() and _is_as_made(tensor)):
                text = f"{reader} reads memory that {maker} made and that no operation has written"
                return [reason(rules.HOST_DATA, text, site, REMEDY)]
        return []


def _is_as_made(tensor: torch.Tensor) -> bool:
    """Whether memory holds what PyTorch fills new memory with, as it may in deterministic mode."""
    plain = tensor.detach()
    fresh = torch.empty(plain.numel(), dtype=plain.dtype)
    return torch.equal(plain.reshape(-1).view(torch.uint8), fresh.view(torch.uint8))
