"""Kernels that are launched at once, beside PyTorch's on Hopper."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

import torch

from rote.runtime.backends import PROCESS
from rote.runtime.compiling import COMPILERS, KernelSource
from rote.runtime.fusion import KernelRequest, kernels_of
from rote.runtime.optimize.running import AlternativeRunner, RunningSession

COMPILE_S = 120


def is_hopper() -> bool:
    return torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)


@contextmanager
def runner_for(sources: Sequence[KernelSource]) -> Generator[AlternativeRunner]:
    """Launches kernels at once; they are compiled and held."""
    backend = PROCESS.of(torch.device("cuda", torch.cuda.current_device()))
    with backend.lock:
        backend.enter_call()
        device = kernels_of(backend)
        request = KernelRequest(device, sources, ())
        assert COMPILERS.get().wait(COMPILE_S) and request.prove()
        yield AlternativeRunner(RunningSession(), device)
        torch.cuda.synchronize()
