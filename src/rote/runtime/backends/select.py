"""Chooses the backend of a call, and keeps one per device for the process."""

from __future__ import annotations

import threading
from time import perf_counter, thread_time

import torch

from ...base import EnvironmentError_
from .cuda import CudaBackend
from .host import HostBackend
from .protocol import Backend, Lock

PATIENCE_S = 5.0
"""Seconds after which a thread no longer waits for another one's traced call."""


class Backends:
    """The backends of a process, made when first asked for.

    All recordings of a device share a pool and a lock, so there is one backend for each device.
    """

    def __init__(self) -> None:
        self._made: dict[str, Backend] = {}
        self._lock = threading.Lock()

    def of(self, device: torch.device) -> Backend:
        """The backend of a device."""
        with self._lock:
            found = self._made.get(str(device))
            if found is None:
                found = self._made[str(device)] = (
                    CudaBackend(device) if device.type == "cuda" else HostBackend()
                )
            return found

    def made(self) -> list[Backend]:
        """Every backend that was used so far."""
        return list(self._made.values())

    def time(self) -> float:
        """Seconds that this thread has worked; the time where it may wait for a device or for other ranks."""
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        waits = distributed or any(each.device.type != "cpu" for each in self.made())
        return perf_counter() if waits else thread_time()

    def take(self, lock: Lock) -> bool:
        """Take a lock, waiting for another thread's replay; False if that thread traces a callable.

        A traced callable may itself wait for this thread, so waiting for it could be waiting for ever.
        """
        while not lock.acquire(timeout=PATIENCE_S):
            if any(backend.tracing for backend in self.made()):
                return False
        return True

    def choose(self, wanted: str, seen: torch.device) -> Backend:
        """The backend for a call that uses ``seen``.

        Args:
            wanted: ``"auto"``, ``"cuda"`` or ``"host"``.
            seen: The device in use: CUDA if any argument or reachable tensor is there.

        Raises:
            EnvironmentError_: CUDA was asked for and there is none.
        """
        if wanted == "host" or (wanted == "auto" and seen.type != "cuda"):
            return self.of(torch.device("cpu"))
        if not torch.cuda.is_available():
            raise EnvironmentError_(
                'backend="cuda" was asked for, but torch.cuda.is_available() is False. '
                'Use backend="auto" or backend="host", or install a CUDA build of PyTorch.'
            )
        index: int | None = seen.index if seen.type == "cuda" else None
        return self.of(torch.device("cuda", torch.cuda.current_device() if index is None else index))


PROCESS = Backends()
"""The one place where backends are kept: pools are per device and process, whoever records."""
