"""A backend is what passes this: sessions, segments, and the memory they hold."""

from __future__ import annotations

import pytest
import torch

from rote.base.errors import CaptureError
from rote.runtime.backends.protocol.base import Backend, Capabilities


def test_it_is_a_backend(backend):
    assert isinstance(backend, Backend)
    assert backend.name in ("host", "cuda")
    assert isinstance(backend.capabilities, Capabilities)
    with backend.lock, backend.lock:  # reentrant
        backend.enter_call()
        backend.synchronize()
        backend.leave_call()


def test_operations_that_are_given_no_generator_draw_from_its_own(backend):
    generator = backend.generator()
    state = generator.get_state()
    first = torch.rand(3, device=backend.device)
    assert not torch.equal(generator.get_state(), state)
    generator.set_state(state)
    assert torch.equal(torch.rand(3, device=backend.device), first)


def test_after_end_the_memory_holds_the_results(bench):
    b = bench()
    x = b.tensor(4, fill=3.0)
    out = b.capture(lambda: (x * 2 + 1).sum())
    b.backend.synchronize()
    assert out.item() == 28.0
    b.finish()
    assert out.item() == 28.0


def test_replay_writes_the_same_addresses_from_what_the_inputs_hold(bench):
    b = bench()
    x = b.tensor(4)
    out = b.capture(lambda: x * 2)
    address = out.data_ptr()
    b.finish()
    for value in (5.0, -1.0, 0.5):
        x.fill_(value)
        b.replay()
        assert out.data_ptr() == address
        assert out.tolist() == [2 * value] * 4


def test_operations_are_counted(bench):
    b = bench()
    x = b.tensor(4)
    b.capture(lambda: x.mul(2).add(1).neg())
    assert b.segments[0].operations == 3
    b.finish()
    assert b.segments[0].operations == 3


def test_in_place_operations_write_the_input_again(bench):
    b = bench()
    x = b.tensor(3)
    b.capture(lambda: x.add_(1))
    assert x.tolist() == [2.0] * 3
    b.finish()
    b.replay()
    b.replay()
    assert x.tolist() == [4.0] * 3


def test_several_segments_with_an_operation_between(bench):
    b = bench()
    x = b.tensor(4)
    first = b.capture(lambda: x * 2)
    between = torch.zeros_like(x)
    between.copy_(first + 1)
    second = b.capture(lambda: between * first)
    b.finish()
    for value in (3.0, 7.0):
        x.fill_(value)
        b.backend.enter_call()
        b.segments[0].replay()
        between.copy_(first + 1)
        b.segments[1].replay()
        b.backend.leave_call()
        b.backend.synchronize()
        assert second.tolist() == [(2 * value + 1) * 2 * value] * 4


def test_a_segment_reads_what_an_earlier_one_left(bench):
    b = bench()
    x = b.tensor(4)
    hidden = b.capture(lambda: x + 1)
    out = b.capture(lambda: hidden * 10)
    b.finish()
    x.fill_(2.0)
    b.replay()
    assert out.tolist() == [30.0] * 4


def test_a_segment_of_no_operations_is_none(bench):
    b = bench()
    b.capture(lambda: None)
    assert b.segments == [None]
    x = b.tensor(2)
    out = b.capture(lambda: x + 1)
    b.finish()
    b.replay()
    assert out.tolist() == [2.0, 2.0]


def test_random_numbers_go_on_as_in_eager(bench):
    b = bench()
    x = b.tensor(64)
    torch.manual_seed(3)
    captured = b.capture(lambda: torch.rand_like(x)).clone()
    torch.manual_seed(3)
    expected = [torch.rand_like(x) for _ in range(4)]
    assert torch.equal(captured, expected[0])
    b.finish()
    c = bench()
    torch.manual_seed(3)
    out = c.capture(lambda: torch.rand_like(x))
    c.finish()
    for eager in expected[1:]:
        c.replay()
        assert torch.equal(out, eager)


def test_a_generator_of_ones_own(bench, backend):
    generator = torch.Generator(device=backend.device).manual_seed(5)
    b = bench(generators=(generator,))
    out = b.capture(lambda: torch.rand(8, device=backend.device, generator=generator))
    first = out.clone()
    b.finish()
    b.replay()
    second = out.clone()
    generator.manual_seed(5)
    for replayed in (first, second):
        assert torch.equal(torch.rand(8, device=backend.device, generator=generator), replayed)


# --- refused operations and abort -------------------------------------------------------------------------

REFUSED = {
    "item": lambda x: x.sum().item(),
    "bool": lambda x: bool(x.sum() > 0),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 0],
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_operations_raise(bench, name):
    b = bench()
    x = b.tensor(4)
    with pytest.raises(
        CaptureError, match=r"cannot be captured|was refused while a segment was being captured"
    ):
        b.capture(lambda: REFUSED[name](x))
    out = b.capture(lambda: x + 1)
    b.finish()
    x.fill_(6.0)
    b.replay()
    assert out.tolist() == [7.0] * 4


def test_abort_is_idempotent_and_a_later_capture_works(bench):
    b = bench()
    x = b.tensor(4)
    with b.session.stream():
        b.session.begin()
        b.session.abort()
        b.session.abort()
    out = b.capture(lambda: x * 3)
    b.finish()
    x.fill_(2.0)
    b.replay()
    assert out.tolist() == [6.0] * 4


def test_abort_after_a_refusal_leaves_random_numbers_usable(bench):
    b = bench()
    x = b.tensor(4)
    torch.manual_seed(1)
    eager = torch.rand_like(x)
    torch.manual_seed(1)
    with pytest.raises(CaptureError):
        b.capture(lambda: (x + 1).sum().item())
    assert torch.equal(torch.rand_like(x), eager)
    torch.rand_like(x)


def test_an_error_in_the_middle_leaves_stream_and_session_usable(bench):
    b = bench()
    x = b.tensor(4)
    stream = torch.cuda.current_stream() if x.is_cuda else None

    def wrong():
        x + 1
        raise ZeroDivisionError("of the callable")

    with pytest.raises(ZeroDivisionError, match="of the callable"):
        b.capture(wrong)
    assert stream is None or torch.cuda.current_stream() == stream
    out = b.capture(lambda: x + 2)
    b.finish()
    x.fill_(1.5)
    b.replay()
    assert out.tolist() == [3.5] * 4


def test_aside_runs_at_once(bench):
    b = bench()
    x = b.tensor(4)

    def call():
        y = x + 1
        with b.session.aside(), torch.utils._python_dispatch._disable_current_modes():
            assert b.tensor(2, fill=4.0).tolist() == [4.0, 4.0]
        return y * 2

    out = b.capture(call)
    b.finish()
    b.replay()
    assert out.tolist() == [4.0] * 4


# --- memory ---------------------------------------------------------------------------------------------
