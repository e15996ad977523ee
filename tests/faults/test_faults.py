"""A fault at every point of a recording: the caller sees that fault or the right result, and all goes on.

The points are the calls that the runtime makes of its backend (each operation among them) and of the few
functions that allocate, compile or take over. After a fault that reaches the caller, everything the call
wrote has to be what a plain call would have written before some operation of its own.
"""

from __future__ import annotations

import functools
import gc
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from tests.seeds import seed

import rote
from rote.base.errors import CaptureError
from rote.runtime.arguments import tracing
from rote.runtime.backends.cuda.session import CudaSession
from rote.runtime.backends.host.pool import Chunk, HostPool
from rote.runtime.backends.host.segment import HostSegment
from rote.runtime.backends.host.session import HostSession
from rote.runtime.backends.host.torch_private import mode_counters
from rote.runtime.backends.select import PROCESS
from rote.runtime.memory.holding import Holding
from rote.runtime.recording.inputs import StaticInputs
from rote.testing import assert_pool_empty, assert_same

from .injection import Injector
from .programs import PROGRAMS, Prefixes, adopt, make, state

LATER = 6
"""Calls after those during which a fault may happen."""


OTHER_THREAD = ThreadPoolExecutor(1)


class OwnError(Exception):
    """The fault."""


def _shared(device: str) -> list[tuple[type, str]]:
    session: type = CudaSession if device == "cuda" else HostSession
    found = [(session, "begin"), (session, "end"), (session, "finish"), (StaticInputs, "like")]
    found += [(StaticInputs, "place"), (Holding, "keep")]
    own = [(HostPool, "lease"), (Chunk, "__init__"), (HostSegment, "freeze"), (HostSegment, "replay")]
    return found if device == "cuda" else found + own


def _operations(device: str) -> list[tuple[type, str]]:
    session = CudaSession if device == "cuda" else HostSession
    return [(session, "run"), (session, "launch")]


def _allocations(device: str) -> list[tuple[type, str]]:
    found = [*_operations(device), (StaticInputs, "like")]
    return found if device == "cuda" else [*found, (Chunk, "__init__")]


def _out_of_memory() -> BaseException:
    return torch.OutOfMemoryError("out of memory, as asked for")


def _refused() -> BaseException:
    return CaptureError("refused, as asked for")


def _completed(device: str) -> list[tuple[type, str]]:
    """Without those that nothing but a signal can follow, and which it would find half done.

    Between a lease and its assignment nobody could give the lease back; between two segments of a training
    step the gradients are not in their slots yet.
    """
    return [target for target in _shared(device) if target[1] not in ("lease", "replay")]


FAULTS = {
    "exception": (OwnError, _operations, False),
    "interrupt": (KeyboardInterrupt, _operations, False),
    "interrupt after": (KeyboardInterrupt, _operations, True),
    "allocation": (_out_of_memory, _allocations, False),
    "capture": (_refused, _operations, False),
    "internal exception": (OwnError, _shared, False),
    "internal exception after": (OwnError, _completed, True),
    "internal interrupt": (KeyboardInterrupt, _shared, False),
    "internal interrupt after": (KeyboardInterrupt, _completed, True),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", PROGRAMS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_points_in_turn(device, kind, fault, monkeypatch):
    """Every sixth point. Nine faults begin at different ones, so each point of a program has one at least."""
    make_error, targets, after = FAULTS[fault]
    injector = Injector(monkeypatch, targets(device.type))
    _try_points(kind, device, injector, make_error, after, first=list(FAULTS).index(fault) % 6, step=6)


@pytest.mark.long
@pytest.mark.parametrize("kind", PROGRAMS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_every_point(device, kind, fault, monkeypatch):
    make_error, targets, after = FAULTS[fault]
    _try_points(kind, device, Injector(monkeypatch, targets(device.type)), make_error, after)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False")
@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_capture_that_cuda_invalidates_at_every_operation(kind, monkeypatch):
    """The fault is a synchronisation inside the operation: CUDA refuses it and throws the capture away."""
    plain = CudaSession.run

    def run(session: Any, func: Any, args: Any, kwargs: Any) -> Any:
        return plain(session, _Synchronising(func) if injector.trips() else func, args, kwargs)

    monkeypatch.setattr(CudaSession, "run", run)
    injector = Injector(monkeypatch, [])
    _try_points(kind, torch.device("cuda"), injector, OwnError, False)


class _Synchronising:
    """An operation that waits for the device first."""

    def __init__(self, func: Any) -> None:
        self._func = func

    def __getattr__(self, name: str) -> Any:
        return getattr(self._func, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        torch.cuda.synchronize()
        return self._func(*args, **kwargs)


def _try_points(
    kind: Any,
    device: torch.device,
    injector: Injector,
    error: Any,
    after: bool,
    *,
    first: int = 0,
    step: int = 1,
) -> None:
    injector.arm(None, error)
    reference = _Reference(kind, device)
    _run(kind, device, injector, reference)
    points = list(injector.points)
    assert points
    for number, point in list(enumerate(points))[first::step]:
        injector.arm(number, error, after=after)
        try:
            _run(kind, device, injector, reference)
        except BaseException as found:
            raise AssertionError(f"point {number} of {len(points)}, {point}: {found}") from found


class _Reference:
    """What the plain program does, call by call: the same in every run up to a fault that reached the caller.

    Each call is a result, the states it goes through, and the state after it.
    """

    def __init__(self, kind: Any, device: torch.device) -> None:
        self._known = _known(kind, device)
        self._kind, self._device = kind, device
        self._program: Any = None

    def start(self) -> None:
        """A new run."""
        self._program = None

    def adopt(self, ours: Any) -> None:
        """Go on from the state that a failed call left."""
        self._program = make(self._kind, self._device) if self._program is None else self._program
        adopt(self._program, ours)

    def call(self, number: int) -> tuple[Any, list[Any], Any]:
        """The next call."""
        if self._program is None:
            return self._known[number]
        return _plain(self._program, self._device, number)


@functools.cache
def _known(kind: Any, device: torch.device) -> list[tuple[Any, list[Any], Any]]:
    program = make(kind, device)
    return [_plain(program, device, call) for call in range(kind.calls + LATER)]


def _run(kind: Any, device: torch.device, injector: Injector, reference: _Reference) -> None:
    """Some calls with the fault armed, then some more; each compared with the plain program's."""
    reference.start()
    ours = make(kind, device)
    parts = [rote.graph(part) for part in ours.parts()]
    before = _surroundings(device)
    for call in range(kind.calls + LATER):
        if call == kind.calls:
            injector.stop()
        with injector.paused():
            should, prefixes, written = reference.call(call)
        x = _input(device, call)
        seed(call)
        try:
            out = ours.drive(parts, x)
        except BaseException as error:
            if error is not injector.error or isinstance(error, CaptureError):
                raise AssertionError(f"call {call} raised {type(error).__name__}: {error}") from error
            assert error.__cause__ is None
            error.__traceback__ = injector.error = None  # its frames would keep the callables alive
            with injector.paused():
                _assert_prefix(_look(ours, x), prefixes)
                reference.adopt(ours)
        else:
            injector.error = None
            with injector.paused():
                assert_same(out, should, f"call {call}: result")
                assert_same(_look(ours, x), written, f"call {call}: state")
        assert _surroundings(device) == before
    for part in parts:
        report = part.report()
        assert report.replayed or report.reasons, part.explain()
    del parts, part, out, report
    assert_pool_empty()
    assert _surroundings(device) == before


def _plain(program: Any, device: torch.device, call: int) -> tuple[Any, list[Any], Any]:
    """A plain call: its result, the states it goes through, the state after it."""
    x = _input(device, call)
    seed(call)
    mode = Prefixes(lambda: _look(program, x))
    start = _look(program, x)
    with mode:
        out = program.drive(program.parts(), x)
    return out, [start, *mode.states, _look(program, x)], _look(program, x)


def _input(device: torch.device, call: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(call % 2)
    return torch.randn(3, 4, generator=generator).to(device)


def _look(program: Any, x: torch.Tensor) -> dict[str, Any]:
    with torch.utils._python_dispatch._disable_current_modes():
        random = [torch.get_rng_state()]
        if x.is_cuda:
            random.append(torch.cuda.get_rng_state())
        return {**state(program), "x": x.detach().clone(), "random": random}


def _assert_prefix(found: dict[str, Any], prefixes: list[Any]) -> None:
    """What a failed call left behind is what a plain call leaves behind somewhere on its way."""
    problems: list[str] = []
    for prefix in prefixes:
        try:
            assert_same(found, prefix, "state")
        except AssertionError as error:
            problems.append(str(error))
        else:
            return
    raise AssertionError("a failed call left what no plain call leaves:\n" + "\n".join(sorted(set(problems))))


def _surroundings(device: torch.device) -> dict[str, Any]:
    """What a call must leave as it was."""
    functions, dispatches = mode_counters
    backend = PROCESS.of(
        torch.device("cuda", torch.cuda.current_device()) if device.type == "cuda" else device
    )

    def take() -> bool:
        free = backend.lock.acquire(timeout=1)
        if free:
            backend.lock.release()
        return free

    return {
        "modes": (functions(), dispatches()),
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast cache": torch.is_autocast_cache_enabled(),
        "collecting": gc.isenabled(),
        "profile": sys.getprofile(),
        "tracing": (tracing.get(), backend.tracing),
        "lock is free": OTHER_THREAD.submit(take).result(),
        "stream": torch.cuda.current_stream() if device.type == "cuda" else None,
        "capturing": torch.cuda.is_current_stream_capturing() if device.type == "cuda" else False,
    }
