"""Lifetimes, segments, islands, and who keeps which memory."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from rote.base.errors import CaptureError, InternalError
from rote.runtime.backends.host.backend import HostBackend
from rote.runtime.backends.host.session import HostSession
from rote.runtime.backends.protocol.base import Backend, Capabilities


def test_backend_satisfies_the_protocol(backend: HostBackend) -> None:
    assert isinstance(backend, Backend)
    assert (backend.name, backend.device) == ("host", torch.device("cpu"))
    assert backend.capabilities == Capabilities(asynchronous=False, executes_while_capturing=True)
    with backend.lock, backend.lock:
        backend.enter_call()
        backend.synchronize()
        backend.leave_call()
    assert backend.bytes_held() == 0


def test_the_result_is_the_operations_own(session: HostSession) -> None:
    x = torch.ones(2)
    session.begin()
    assert session.run(torch.ops.aten.add_.Tensor, (x, 1), {}) is x
    made = session.run(torch.ops.aten.neg.default, (x,), {})
    watch = weakref.ref(made)
    del made
    assert watch() is None
    assert session.end() is not None


def test_intermediates_share_memory_and_outputs_keep_theirs(
    record: Any, backend: HostBackend, held: Any
) -> None:
    x = torch.ones(1000)
    recording = record(lambda: (((x + 1) * 2).sin().cos() - 1).exp())
    assert held("chunk") == [2 * 4032]  # two of five intermediates at a time
    assert held("kept") == [4000] == [recording.output.nbytes]
    assert backend.bytes_held() == 2 * 4032 + 4000


def test_recordings_share_one_chunk_unless_exclusive(record: Any, held: Any) -> None:
    x = torch.ones(1000)

    def chain() -> torch.Tensor:
        return (x * 2).sin().exp()

    first, second = record(chain), record(chain)
    assert len(held("chunk")) == 1
    alone = record(chain, exclusive=True)
    assert len(held("chunk")) == 2
    x.fill_(0.5)
    for each in (first, second, alone, first):
        assert torch.equal(each.replay(), chain())


def test_poison_after_replay_leaves_outputs_and_replays_alone(record: Any, backend: HostBackend) -> None:
    x = torch.ones(10)
    recording = record(lambda: (x * 2).sin().exp())
    backend.pool.poison_after_replay = True
    for value in (0.5, 0.25):
        x.fill_(value)
        recording.replay()
        backend.leave_call()
        assert torch.equal(recording.output, (x * 2).sin().exp())


def test_an_output_survives_as_long_as_the_recording_and_is_freed_with_it(
    record: Any, backend: HostBackend
) -> None:
    gc.disable()
    try:
        recording = record(lambda: torch.ones(100) * 2)
        watch = weakref.ref(recording.output.untyped_storage())
        recording.output = None
        recording.segment.replay()
        assert watch() is not None
        recording.session.release()
        assert watch() is None and backend.bytes_held() == 0
    finally:
        gc.enable()


def test_replay_before_finish_and_after_release(session: HostSession, drive: Any) -> None:
    session.begin()
    with drive(session):
        torch.ones(2)
    segment = session.end()
    assert segment is not None and segment.operations == 1
    with pytest.raises(
        InternalError, match=r"replayed before its session was finished; call Session.finish\(\) first"
    ):
        segment.replay()
    session.finish()
    segment.replay()
    session.release()
    with pytest.raises(InternalError, match="a host segment was replayed after its session was released"):
        segment.replay()


def test_views_and_memory_alone_make_no_segment(
    session: HostSession, backend: HostBackend, drive: Any
) -> None:
    x = torch.ones(4, 4)
    session.begin()
    with drive(session):
        kept = x[1:].reshape(-1, 2).t()[:0], torch.empty(3), x.shape
    assert session.end() is None
    session.finish()
    assert backend.bytes_held() == kept[1].nbytes


def test_an_island_between_two_segments(backend: HostBackend, drive: Any, held: Any) -> None:
    session, x = backend.open(exclusive=False), torch.ones(4)
    session.begin()
    with drive(session):
        a = x * 2
        hidden = a + 1
    first = session.end()
    chosen = torch.tensor([a.sum().item()])
    session.begin()
    with drive(session):
        out = hidden * chosen
        del hidden
    second = session.end()
    session.finish()
    assert first is not None and second is not None
    for value in (3.0, -1.0):
        x.fill_(value)
        first.replay()
        chosen.copy_(a.sum())
        second.replay()
        assert torch.equal(out, (x * 2 + 1) * (x * 2).sum())
    assert held("chunk") == [64]  # hidden crosses the island in the arena


def test_an_island_that_writes_in_place(backend: HostBackend, drive: Any) -> None:
    session, x = backend.open(exclusive=False), torch.ones(4)
    session.begin()
    with drive(session):
        a = x * 2
    first = session.end()
    a.add_(5)
    session.begin()
    with drive(session):
        out = a + 1
    second = session.end()
    session.finish()
    assert first is not None and second is not None
    x.fill_(7)
    first.replay()
    a.add_(5)
    second.replay()
    assert torch.equal(out, x * 2 + 6)


def test_an_aborted_segment_leaves_its_tensors_as_foreign(backend: HostBackend, drive: Any) -> None:
    session, x = backend.open(exclusive=False), torch.ones(4)
    session.begin()
    with drive(session):
        a = x * 2
    first = session.end()
    session.begin()
    with drive(session), pytest.raises(CaptureError):
        b = a + 1
        b.sum().item()
    session.abort()
    session.begin()
    with drive(session):
        out = a * b
    second = session.end()
    session.finish()
    assert first is not None and second is not None and (first.operations, second.operations) == (1, 1)
    x.fill_(3)
    first.replay()
    b.fill_(10)
    second.replay()
    assert out.eq(60).all()


def test_a_later_session_uses_an_earlier_ones_tensor(record: Any) -> None:
    x = torch.ones(4)
    first = record(lambda: x * 2)
    second = record(lambda: first.output + 1)
    x.fill_(5)
    first.replay()
    assert second.replay().eq(11).all()


def test_addresses_are_used_again_by_strangers(backend: HostBackend, drive: Any) -> None:
    session, x = backend.open(exclusive=False), torch.ones(64)
    session.begin()
    with drive(session):
        (x * 2).sum()
    first = session.end()
    strangers = [torch.full((64,), float(n)) for n in range(20)]
    session.begin()
    with drive(session):
        out = torch.stack(strangers)
    second = session.end()
    session.finish()
    assert first is not None and second is not None
    first.replay()
    second.replay()
    assert torch.equal(out, torch.stack(strangers))


def test_what_the_caller_does_to_its_tensor_objects_does_not_bend_the_recording(record: Any) -> None:
    x, p = torch.ones(2, 3), torch.nn.Parameter(torch.ones(3))
    data = p.data
    recording = record(lambda: (x * p).detach() + 0)
    view = x.view(-1)
    x.t_()
    p.data = torch.zeros(3)
    view.copy_(torch.arange(6.0))
    data.fill_(2.0)
    assert torch.equal(recording.replay(), torch.arange(6.0).view(2, 3) * 2)


def test_inference_tensors_as_inputs_and_outputs(record: Any) -> None:
    with torch.inference_mode():
        x = torch.ones(4)
        recording = record(lambda: torch.nn.functional.linear(x[None], torch.ones(2, 4)).relu_())
        x.fill_(3)
    assert recording.output.is_inference()
    for grad in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with grad():
            assert recording.replay().eq(12).all()


def test_a_call_recorded_in_normal_mode_replays_inside_inference_mode(record: Any) -> None:
    x = torch.ones(4)
    recording = record(lambda: (x * 2).relu() + 1)
    x.fill_(3)
    with torch.inference_mode():
        recording.replay()
        assert torch.is_inference_mode_enabled() and not torch.is_grad_enabled()
    assert recording.output.eq(7).all() and torch.is_grad_enabled()


def test_modes_are_restored_when_an_operation_fails(record: Any) -> None:
    with torch.no_grad():
        ids = torch.tensor([0, 1])
        recording = record(lambda: torch.ones(3, 2).index_select(0, ids))
    ids.fill_(99)
    with pytest.raises(IndexError):
        recording.replay()
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def test_the_default_type_is_that_of_the_capture(record: Any) -> None:
    n = torch.arange(2)

    def call() -> tuple[torch.Tensor, ...]:
        torch.set_default_dtype(torch.float64)
        try:
            return torch.full((2,), 0.1), torch.rand(2), torch.linspace(0, 1, 3), n / 3
        finally:
            torch.set_default_dtype(torch.float32)

    recording = record(call)
    n.add_(1)
    torch.manual_seed(1)
    got = recording.replay()
    torch.manual_seed(1)
    for mine, wanted in zip(got, call(), strict=True):
        assert mine.dtype is torch.float64 and torch.equal(mine, wanted)
    assert torch.get_default_dtype() is torch.float32


def test_replay_ignores_autocast_and_modes(record: Any) -> None:
    seen: list[Any] = []

    class Dispatch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    class Function(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x = torch.randn(4, 4)
    conv = torch.nn.Conv1d(4, 4, 1)
    recording = record(lambda: conv(x @ x))
    wanted = recording.output.clone()
    with torch.autocast("cpu", dtype=torch.bfloat16), Dispatch(), Function():
        recording.segment.replay()
    assert torch.equal(recording.output, wanted) and seen == []


def test_capture_hides_its_bookkeeping_from_other_modes(session: HostSession, drive: Any) -> None:
    seen: list[str] = []

    class Outer(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x = torch.ones(3)
    session.begin()
    with Outer(), drive(session):
        (x + 1).relu()
    assert seen == ["aten.add.Tensor", "aten.relu.default"]


def test_a_generator_of_ones_own(record: Any) -> None:
    g = torch.Generator().manual_seed(4)
    recording = record(lambda: torch.rand(3, generator=g) + torch.randn(3, generator=g))
    g.manual_seed(4)
    wanted = torch.rand(3, generator=g) + torch.randn(3, generator=g)
    g.manual_seed(4)
    assert torch.equal(recording.replay(), wanted)


def test_literals(record: Any, backend: HostBackend) -> None:
    x = torch.ones(1)

    def call() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        total, held, constant = torch.tensor(1.0), torch.tensor([4.0]), torch.tensor([8.0])
        total += x[0]
        return total, held, x * constant

    recording = record(call)
    assert recording.segment.operations == 5
    for _ in range(2):
        recording.output[1].zero_()
        x.add_(1)
        recording.replay()
        assert [t.item() for t in recording.output] == [1 + x.item(), 4, 8 * x.item()]


def test_memory_borrowed_from_numpy_is_an_input(record: Any) -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.ones(3, dtype=numpy.float32)
    recording = record(lambda: torch.as_tensor(array) * 2)
    array[:] = 5
    assert recording.replay().eq(10).all()


def test_a_shrunk_storage_that_is_still_held(session: HostSession, drive: Any) -> None:
    session.begin()
    with drive(session):
        x = torch.ones(100) * 2
        x.untyped_storage().resize_(0)
    session.end()
    with pytest.raises(CaptureError) as caught:
        session.finish()
    assert str(caught.value) == (
        "a storage made during capture was shrunk from 400 to 0 bytes behind the operations that use it "
        "(UntypedStorage.resize_), and is still held; replay would write past its end. Don't resize "
        "storages in the callable, or let go of the tensor before it returns."
    )
    session.release()


def test_uninitialized_memory_stays_defined_in_deterministic_mode(record: Any) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        recording = record(lambda: torch.empty(3) + 0)
        assert recording.replay().isnan().all()
    finally:
        torch.use_deterministic_algorithms(False)


def test_operations_without_results(record: Any) -> None:
    flag = torch.tensor(True)
    recording = record(lambda: (torch._assert_async(flag), torch.ones(1))[1])
    assert recording.segment.operations == 2
    flag.fill_(False)
    with pytest.raises(RuntimeError, match="Expected Tensor with single nonzero value"):
        recording.replay()


@pytest.fixture
def library() -> Any:
    with torch.library._scoped_library("rote_test", "FRAGMENT") as made:
        made.define("odd(Tensor x) -> (Tensor, Tensor, Tensor, Tensor?)")
        made.define("empty(Tensor x) -> Tensor")

        def odd(x: torch.Tensor) -> Any:
            both = torch.cat([x, x * 2])
            return both[: x.numel()], both[x.numel() :], x.sum().expand(3, 2), None

        made.impl("odd", odd, "CPU")
        made.impl("empty", lambda x: x * 3, "CPU")
        yield torch.ops.rote_test


def test_results_that_share_memory_overlap_or_are_missing(record: Any, library: Any) -> None:
    x = torch.arange(4.0)

    def call() -> Any:
        a, b, c, d = library.odd(x)
        assert d is None
        return a + 0, b, c, c * 2

    recording = record(call)
    x.add_(1)
    recording.replay()
    for got, wanted in zip(recording.output, call(), strict=True):
        assert torch.equal(got, wanted) and got.stride() == wanted.stride()


def test_somebody_elses_operation_of_a_known_name(record: Any, library: Any) -> None:
    x = torch.ones(2)
    recording = record(lambda: library.empty(x))
    x.fill_(2)
    assert recording.replay().eq(6).all()


def test_lazily_conjugated_and_negated_views(record: Any) -> None:
    x = torch.complex(torch.ones(3, 3), torch.full((3, 3), 2.0))

    def call() -> Any:
        made = x * 2
        return torch.mm(made.conj(), made.t()), made.conj().imag.neg() + 1, torch.view_as_real(made).sum(-1)

    recording = record(call)
    x.mul_(torch.tensor(1 + 1j))
    recording.replay()
    for got, wanted in zip(recording.output, call(), strict=True):
        assert torch.equal(got, wanted)
