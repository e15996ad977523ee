"""The host as a device: sessions on CPU tensors, one pool, one lock."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import torch

from ...compiling import Binary
from ..protocol import OWNING, SHARED, Aliases, Backend, Capabilities, Sharing
from .kernels import HostKernel
from .operations import Catalog
from .pool import HostPool
from .session import HostSession


class HostBackend(Backend):
    """Captures and replays operations on CPU tensors with the semantics of CUDA graphs."""

    name = "host"
    capabilities = Capabilities(asynchronous=False, executes_while_capturing=True)

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.pool = HostPool()
        self._catalog = Catalog()

    def open(
        self,
        *,
        exclusive: bool,
        generators: tuple[torch.Generator, ...] = (),
        sharing: Sharing = SHARED,
        aliases: Aliases = OWNING,
    ) -> HostSession:
        """Start a recording."""
        del generators  # a replay draws from every generator as the plain operations do
        # No slab is needed: chunks are freed singly.
        return HostSession(self.pool, self._catalog, aliases, exclusive=exclusive, tenant=sharing.tenant)

    def load(self, binary: Binary) -> HostKernel:
        """Load a shared object."""
        return HostKernel(binary)

    def leave_call(self) -> None:
        """Poison shared memory if the pool was asked to."""
        self.pool.poison()

    def regions(self) -> Mapping[Hashable, int]:
        """Bytes of each chunk, and of the storages that each recording keeps beside them."""
        return self.pool.regions()
