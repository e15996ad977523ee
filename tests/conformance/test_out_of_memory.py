"""No memory while recording: room is made, it is tried once more, and then the key runs eagerly."""

from __future__ import annotations

import gc

import pytest
import torch

import rote
from rote.base.errors import MemoryShortageError
from rote.runtime.backends.host.pool import Chunk
from rote.runtime.backends.protocol.base import is_shortage
from rote.runtime.backends.select import PROCESS
from rote.runtime.recording.inputs import StaticInputs
from rote.testing import assert_pool_empty, compare, count_recordings

WARM = rote.Options().warmup + 1
TEXT = (
    "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9"
)


class Shortage:
    """Makes a method of the runtime fail as it does where there is no memory.

    Args:
        monkeypatch: Puts the method back.
        owner: Its class.
        name: Its name.
        at: Calls of it that succeed before.
        times: Calls that fail then.
        error: Makes the error.
    """

    def __init__(self, monkeypatch, owner, name, *, at=0, times=10**9, error=lambda: RuntimeError(TEXT)):
        self.calls, self.failed = 0, 0
        method = vars(owner)[name]
        plain = getattr(method, "__func__", method)

        @rote.pure  # it runs in traced calls, and is no part of them
        def failing(*args, **kwargs):
            self.calls += 1
            if at < self.calls <= at + times:
                self.failed += 1
                raise error()
            return plain(*args, **kwargs)

        monkeypatch.setattr(owner, name, classmethod(failing) if isinstance(method, classmethod) else failing)


def in_an_operation():
    error = MemoryShortageError("no memory for aten::relu")
    error.__cause__ = RuntimeError(TEXT)
    return error


@pytest.fixture
def session(device):
    """The class of the device's sessions."""
    index = None if device.type == "cpu" else torch.cuda.current_device()
    backend = PROCESS.of(torch.device(device.type, index))
    with backend.lock:
        opened = backend.open(exclusive=False)
        opened.release()
    return type(opened)


class Program:
    """Reads its argument, changes a tensor made outside, draws a random number."""

    def __init__(self, device):
        self.total = torch.zeros(4, device=device)

    def __call__(self, x):
        y = (x * 2).relu()
        z = y + 1
        self.total.add_(z)
        return (z - 3).exp() + torch.rand_like(z)


def agree(g, plain, program, reference, device, calls):
    for n in range(calls):
        x = torch.full((4,), n / 8, device=device)
        torch.manual_seed(n)
        out = g(x)
        torch.manual_seed(n)
        assert torch.equal(out, plain(x)) and torch.equal(program.total, reference.total)


FUNCTIONAL = (0, 1, 2, 4, 5)
"""Operations of the program (the fourth writes a tensor made outside; the seventh draws random numbers)."""


@pytest.mark.parametrize("at", FUNCTIONAL)
def test_one_failure_in_an_operation_is_made_up_for(device, session, monkeypatch, at):
    program, reference = Program(device), Program(device)
    g = rote.graph(program)
    short = Shortage(monkeypatch, session, "run", at=at, times=1, error=in_an_operation)
    agree(g, reference, program, reference, device, WARM + 3)
    assert short.failed == 1 and g.report().recorded == 1 and g.report().replayed == 3
    assert g.report().reasons == ()


@pytest.mark.parametrize("at", FUNCTIONAL)
def test_two_failures_make_the_key_eager(device, session, monkeypatch, reason, at):
    program, reference = Program(device), Program(device)
    g = rote.graph(program)
    short = Shortage(monkeypatch, session, "run", at=at, error=in_an_operation)
    agree(g, reference, program, reference, device, WARM + 3)
    assert short.failed == 2 and g.report().recorded == 0 and count_recordings(g) == 0
    why = reason(g, "RT313")
    assert "no memory for aten::relu" in why.message and why.count == 4
    monkeypatch.undo()
    assert_pool_empty()
    compare(lambda x: x * 2 + torch.rand_like(x), [(torch.ones(3, device=device),) for _ in range(5)])


@pytest.mark.parametrize("times", [1, 9])
def test_a_failure_to_place_the_arguments(device, monkeypatch, times):
    program, reference = Program(device), Program(device)
    g = rote.graph(program)
    short = Shortage(monkeypatch, StaticInputs, "like", times=times)
    agree(g, reference, program, reference, device, WARM + 3)
    assert short.failed == min(times, 2)
    assert [why.code for why in g.report().reasons] == ([] if times == 1 else ["RT313"])
    assert g.report().replayed == (3 if times == 1 else 0)


@pytest.mark.parametrize("times", [1, 9])
def test_a_failure_to_open_a_recording(device, session, monkeypatch, times):
    owner = type(PROCESS.of(torch.ones(1, device=device).device))
    program, reference = Program(device), Program(device)
    g = rote.graph(program)
    short = Shortage(monkeypatch, owner, "open", times=times)
    agree(g, reference, program, reference, device, WARM + 3)
    assert short.failed == min(times, 2) and g.report().replayed == (3 if times == 1 else 0)


@pytest.mark.parametrize("times", [1, 9])
def test_a_failure_to_finish_a_recording(device, session, monkeypatch, times):
    program, reference = Program(device), Program(device)
    g = rote.graph(program)
    short = Shortage(monkeypatch, session, "finish", times=times)
    agree(g, reference, program, reference, device, WARM + 3)
    assert short.failed == min(times, 2) and g.report().replayed == (3 if times == 1 else 0)
    assert [why.code for why in g.report().reasons] == ([] if times == 1 else ["RT313"])


@pytest.mark.parametrize("times", [1, 9])
def test_a_chunk_that_cannot_be_had(monkeypatch, times):
    """What the host's pool allocates for itself; on CUDA the allocator does that in the operations."""
    cpu = torch.device("cpu")
    program, reference = Program(cpu), Program(cpu)
    g = rote.graph(program)
    short = Shortage(monkeypatch, Chunk, "__init__", times=times)
    agree(g, reference, program, reference, cpu, WARM + 3)
    assert short.failed == min(times, 2) and g.report().replayed == (3 if times == 1 else 0)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False")
@pytest.mark.parametrize("times", [1, 9])
def test_a_graph_that_cannot_be_instantiated(monkeypatch, times):
    from rote.runtime.backends.cuda.session import CudaSession

    device = torch.device("cuda")
    program, reference = Program(device), Program(device)
    g = rote.graph(program)
    plain, failed = CudaSession.end, []

    @rote.pure
    def end(self):
        if len(failed) < times:
            failed.append(self)
            self.abort()
            raise MemoryShortageError("the segment was refused: CUDA error: out of memory")
        return plain(self)

    monkeypatch.setattr(CudaSession, "end", end)
    agree(g, reference, program, reference, device, WARM + 3)
    assert len(failed) == min(times, 2) and g.report().replayed == (3 if times == 1 else 0)


def test_room_is_made_by_evicting_what_is_worth_least(device, session, monkeypatch):
    others = [rote.graph(lambda x, n=n: x * n + 1) for n in range(3)]
    for n, other in enumerate(others):
        for _ in range(WARM + 1 + 4 * n):
            other(torch.ones(1 << 16, device=device))
    g, x = rote.graph(lambda x: (x * 3).exp()), torch.zeros(64, device=device)
    for _ in range(WARM - 1):
        g(x)
    Shortage(monkeypatch, session, "run", times=1, error=in_an_operation)
    assert torch.equal(g(x), torch.ones_like(x)) and g.report().recorded == 1
    left = [count_recordings(other) for other in others]
    assert left == [0, 1, 1] if device.type == "cpu" else sum(left) < 3  # CUDA frees a pool as a whole
    monkeypatch.undo()
    for n, other in enumerate(others):
        for _ in range(2):
            assert torch.equal(other(torch.ones(3, device=device)), torch.full((3,), n + 1.0, device=device))


def test_a_failure_in_a_later_segment(device, session, monkeypatch, reason):
    """What ran before stays done: nothing happens twice."""
    counter, reference = torch.zeros((), device=device), torch.zeros((), device=device)

    def program(total):
        def run(x):
            total.add_(1)
            if x.sum().item() > 0:
                x = x * 2
            return (x + total).relu()

        return run

    g, plain = rote.graph(program(counter)), program(reference)
    Shortage(monkeypatch, session, "run", at=3, error=in_an_operation)
    for n in range(6):
        x = torch.full((4,), 1.0 + n // 6, device=device)
        assert torch.equal(g(x), plain(x)) and counter.item() == reference.item() == n + 1
    assert reason(g, "RT313").count == 6 - WARM + 1 and g.report().replayed == 0


def test_what_eager_could_not_do_either_is_raised(device, monkeypatch, session):
    """An operation in place is not tried again: the caller gets PyTorch's own error."""
    g, x = rote.graph(lambda x: (x * 2).add_(1)), torch.ones(4, device=device)
    for _ in range(WARM - 1):
        g(x)
    if device.type == "cpu":
        Shortage(monkeypatch, session, "run", at=1, times=1, error=in_an_operation)
        with pytest.raises(RuntimeError, match="can't allocate memory"):
            g(x)
        monkeypatch.undo()
    for _ in range(WARM + 1):
        assert torch.equal(g(x), x * 2 + 1)
    assert g.report().replayed >= 1


def test_sessions_tell_a_shortage_from_other_errors(bench, backend):
    b = bench()
    x = b.tensor(8)
    with pytest.raises(MemoryShortageError, match=r"no memory for aten::repeat") as caught:
        b.capture(lambda: x.repeat(1 << 44))
    assert is_shortage(caught.value) and is_shortage(caught.value.__cause__)
    b.session.abort()
    with pytest.raises(RuntimeError, match="shape") as caught:
        b.capture(lambda: x.view(3))
    assert not is_shortage(caught.value)


@pytest.mark.parametrize(
    ("error", "short"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), True),
        (RuntimeError(TEXT), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: operation not permitted when stream is capturing"), False),
        (ValueError("CUDA error: out of memory"), False),
    ],
)
def test_what_a_shortage_is(error, short):
    assert is_shortage(error) is short


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False")
class TestRealShortage:
    """What a capture may allocate is bounded; while one is open the allocator gives back no cached memory."""

    def record(self, extra):
        """Record with so many bytes more than were reserved while observing."""
        device = torch.device("cuda")
        gc.collect()  # what earlier tests left would make room in the meantime
        assert_pool_empty()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(device).total_memory
        x = torch.ones(64 << 20, device=device)
        g = rote.graph(lambda x: ((x * 3) * 2).sum())  # two temporaries of 256 MiB at once
        for _ in range(WARM - 1):
            g(x)
        try:
            torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + extra) / total)
            for _ in range(3):
                assert g(x).item() == 6.0 * (64 << 20)
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        return g

    def test_cached_memory_is_given_up_for_a_recording(self):
        g = self.record(300 << 20)
        assert g.report().recorded == 1 and g.report().replayed == 2

    def test_without_any_the_call_runs_as_in_eager(self, reason):
        g = self.record(32 << 20)
        assert reason(g, "RT313").count == 3 and g.report().replayed == 0
