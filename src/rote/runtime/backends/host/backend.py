"""The host as a device: sessions on CPU tensors, one pool, one lock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping

import torch

from ..protocol import OWNING, SHARED, Aliases, Capabilities, HostTiming, Sharing
from .operations import Catalog
from .pool import HostPool
from .session import HostSession


class HostBackend:
    """Captures and replays operations on CPU tensors with the semantics of CUDA graphs.

    Attributes:
        pool: The memory that recordings share.
    """

    name = "host"
    capabilities = Capabilities(asynchronous=False, executes_while_capturing=True)

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self.lock = threading.RLock()
        self.pool = HostPool()
        self._catalog = Catalog()
        self.tracing = False
        self.entered: int | None = 0
        self.current_stream: Callable[[], int] | None = None

    def open(
        self,
        *,
        exclusive: bool,
        generators: tuple[torch.Generator, ...] = (),
        sharing: Sharing = SHARED,
        aliases: Aliases = OWNING,
    ) -> HostSession:
        """Start a recording.

        Args:
            exclusive: Give the recording's intermediates memory that no other recording writes.
            generators: Not needed here: replay draws from every generator as the plain operations do.
            sharing: Whose chunks the intermediates may lie in. A slab is not needed: chunks are freed singly.
            aliases: How the tape holds tensors that the session did not make.
        """
        del generators
        return HostSession(self.pool, self._catalog, aliases, exclusive=exclusive, tenant=sharing.tenant)

    def synchronize(self) -> None:
        """Nothing is ever queued."""

    def start_timing(self, spent: float = 0.0) -> HostTiming:
        """Time a call that begins now."""
        return HostTiming(spent)

    def is_capturing(self) -> bool:
        """There is no stream."""
        return False

    def free_memory(self) -> int | None:
        """Not asked: the system makes room."""
        return None

    def check_process(self) -> None:
        """Host memory survives a fork."""

    def enter_call(self) -> int:
        """Nothing to order: the lock already keeps calls apart."""
        return 0

    def leave_call(self) -> None:
        """Poison shared memory if the pool was asked to."""
        self.pool.poison()

    def regions(self) -> Mapping[Hashable, int]:
        """Bytes of each chunk, and of the storages that each recording keeps beside them."""
        return self.pool.regions()

    def trim(self) -> None:
        """Nothing to do: freed chunks are back already."""

    def bytes_held(self) -> int:
        """Bytes of pool memory held by live recordings (shared memory counted once)."""
        return self.pool.bytes_held()
