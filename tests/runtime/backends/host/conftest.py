"""A driver that feeds every operation of a callable to a host session, as the recorder will."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from rote.runtime.backends.host.backend import HostBackend
from rote.runtime.backends.host.segment import HostSegment
from rote.runtime.backends.host.session import HostSession


class Driver(TorchDispatchMode):
    """Hands each dispatched operation to a session."""

    def __init__(self, session: HostSession) -> None:
        super().__init__()
        self.session = session

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.session.run(func, args, kwargs or {})


@dataclass
class Recording:
    """One finished session of one segment, and what the callable returned while it was captured."""

    session: HostSession
    segment: HostSegment
    output: Any

    def replay(self) -> Any:
        self.segment.replay()
        return self.output


Record = Callable[..., Recording]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def backend() -> HostBackend:
    return HostBackend()


@pytest.fixture
def session(backend: HostBackend) -> HostSession:
    return backend.open(exclusive=False)


@pytest.fixture
def drive() -> type[Driver]:
    return Driver


@pytest.fixture
def record(backend: HostBackend) -> Record:
    def of(fn: Callable[..., Any], *args: Any, exclusive: bool = False) -> Recording:
        session = backend.open(exclusive=exclusive)
        session.begin()
        with Driver(session):
            output = fn(*args)
        segment = session.end()
        assert segment is not None
        session.finish()
        return Recording(session, segment, output)

    return of


@pytest.fixture
def held(backend: HostBackend) -> Callable[[str], list[int]]:
    """Bytes of each chunk, or of what each recording keeps beside them."""

    def of(kind: str) -> list[int]:
        return [nbytes for region, nbytes in backend.regions().items() if region[0] == kind]  # type: ignore[index]

    return of
