"""What the suite is run over: each backend, and a driver that feeds it as the recorder does."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.runtime.fusion import evaluated
from torch.utils._python_dispatch import TorchDispatchMode

from rote.runtime.backends.host.backend import HostBackend
from rote.runtime.backends.protocol.base import Backend, Segment, Session
from rote.runtime.backends.select import PROCESS

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False")


@pytest.fixture(params=["host", pytest.param("cuda", marks=[pytest.mark.cuda, CUDA])])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """A backend that holds nothing, and has to hold nothing afterwards."""
    found: Backend
    if request.param == "cuda":
        found = PROCESS.of(torch.device("cuda", torch.cuda.current_device()))
    else:
        found = HostBackend()
        found.pool.poison_after_replay = True
    with found.lock:
        found.enter_call()
        assert found.bytes_held() == 0
        yield found
        found.enter_call()
        assert found.bytes_held() == 0


@pytest.fixture
def compiles_afresh() -> Iterator[None]:
    """The test sees nothing that another one compiled, and leaves no recordings of compiled code."""
    logging.getLogger("torch").setLevel(logging.ERROR)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def _compiler(device: torch.device) -> None:
    """Kernels can be compiled."""
    if device.type == "cpu" and shutil.which("c++") is None and shutil.which("g++") is None:
        pytest.skip("there is no C++ compiler")
    if device.type == "cuda":
        pytest.importorskip("triton")


@pytest.fixture
def _evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of the host are evaluated, not compiled."""
    evaluated.install(monkeypatch)


class Driver(TorchDispatchMode):
    """Hands each dispatched operation to a session."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._session.run(func, args, kwargs or {})


class Bench:
    """A session with its segments, driven by hand."""

    def __init__(self, backend: Backend, *, exclusive: bool = False, generators: Any = ()) -> None:
        self.backend = backend
        self.session = backend.open(exclusive=exclusive, generators=generators)
        self.segments: list[Segment | None] = []

    def tensor(self, *shape: int, fill: float = 1.0) -> torch.Tensor:
        """A tensor made outside."""
        return torch.full(shape, fill, device=self.backend.device)

    def capture(self, fn: Callable[[], Any]) -> Any:
        """One segment; returns what ``fn`` returned."""
        with self.session.stream():
            self.session.begin()
            try:
                with Driver(self.session):
                    out = fn()
                self.segments.append(self.session.end())
            except BaseException:
                self.session.abort()
                raise
        return out

    def finish(self) -> None:
        """Freeze the recording."""
        self.session.finish()

    def replay(self) -> None:
        """Replay all segments in order."""
        self.backend.enter_call()
        for segment in self.segments:
            if segment is not None:
                segment.replay()
        self.backend.leave_call()
        self.backend.synchronize()


@pytest.fixture
def bench(backend: Backend) -> Iterator[Callable[..., Bench]]:
    """Makes benches on the backend, and releases them."""
    made: list[Bench] = []

    def make(**options: Any) -> Bench:
        made.append(Bench(backend, **options))
        return made[-1]

    yield make
    for found in made:
        found.session.release()
