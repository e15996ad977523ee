"""Compiled kernels: loaded, run, captured, and replayed like operations."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest
import torch
from tests.conformance.kernels import SIZE, binary_of, eager, source_for

from rote.base.errors import EnvironmentError_, InternalError
from rote.runtime.backends.protocol import KernelLaunch
from rote.runtime.compiling import Binary

aten = torch.ops.aten


@pytest.fixture
def binary(backend):
    return binary_of(source_for(backend))


@pytest.fixture
def kernel(backend, binary):
    return backend.load(binary)


@pytest.fixture
def given(backend):
    def make(seed=0):
        generator = torch.Generator().manual_seed(seed)
        return [(torch.randn(SIZE, generator=generator) * 50).to(backend.device) for _ in range(2)]

    return make


def made(backend, session=None):
    """Memory for the results, of the session if there is one."""
    run = session.run if session is not None else (lambda op, args, options: op(*args, **options))
    return [
        run(aten.empty_strided.default, ([SIZE], [1]), {"dtype": dtype, "device": backend.device})
        for dtype in (torch.float32, torch.int64)
    ]


def capture(b, kernel, x, y, *, scale=2.0, plus=3, then=None):
    """A segment of a launch, and of what ``then`` makes of its results."""
    with b.session.stream():
        b.session.begin()
        try:
            results = made(b.backend, b.session)
            b.session.launch(KernelLaunch(kernel, [x, y], results, [scale], [plus]))
            out = then(b.session, *results) if then is not None else results
            b.segments.append(b.session.end())
        except BaseException:
            b.session.abort()
            raise
    return out


def same(found, expected):
    return all([torch.equal(one, other) for one, other in zip(found, expected, strict=True)])


def test_a_loaded_kernel_runs(backend, kernel, given):
    for seed, scale, plus in ((0, 2.0, 3), (1, -0.3, 1 << 40)):
        x, y = given(seed)
        results = made(backend)
        kernel([x, y, *results], [scale], [plus])
        backend.synchronize()
        assert same(results, eager(x, y, scale, plus))


def test_what_does_not_fit_is_not_launched(backend, kernel, given):
    x, y = given()
    results = made(backend)
    odd = torch.zeros(SIZE + 1, device=backend.device)[1:]
    for tensors, reals, integers, text in (
        ([x, y, *results[:1]], [1.0], [1], "takes 4 tensors and was given 3"),
        ([x, y, *results], [], [1], "takes 1 real numbers and was given 0"),
        ([x, y, *results], [1.0], [], "takes 1 integers and was given 0"),
        (
            [x.double(), y, *results],
            [1.0],
            [1],
            "tensor 0 is torch.float64, and",
        ),
        ([odd, y, *results], [1.0], [1], "tensor 0 does not begin at a multiple of 16 bytes"),
        ([x.to("meta"), y, *results], [1.0], [1], "tensor 0 is on meta"),
        ([x.to_sparse(), y, *results], [1.0], [1], "tensor 0 has no plain memory"),
    ):
        with pytest.raises(InternalError, match=text):
            kernel(tensors, reals, integers)
    kernel([x, odd, *results], [1.0], [1])  # nobody promised that this one is aligned


def test_a_kernel_for_another_device_is_not_loaded(backend, binary):
    other = Binary(replace(binary.source, capability=37), binary.code, binary.symbol)
    with pytest.raises(InternalError, match="it is for compute capability 37, and the device has"):
        backend.load(other)


def test_what_is_no_kernel_is_not_loaded(backend, binary):
    with pytest.raises(EnvironmentError_, match="kernel scaled_sum cannot be loaded"):
        backend.load(replace(binary, code=b"nothing"))
    with pytest.raises(EnvironmentError_, match="kernel other cannot be loaded"):
        backend.load(replace(binary, symbol="other"))


def test_a_segment_replays_it_from_what_its_inputs_hold(bench, kernel, given):
    b = bench()
    x, y = given()
    out = capture(b, kernel, x, y)
    b.backend.synchronize()
    assert same(out, eager(x, y, 2.0, 3))
    ran_at_once = (
        b.backend.capabilities.executes_while_capturing
    )  # otherwise making memory is captured as well
    assert b.segments[0].operations == (1 if ran_at_once else 1 + len(out))
    b.finish()
    for seed in (1, 2):
        for old, new in zip((x, y), given(seed), strict=True):
            old.copy_(new)
        b.replay()
        assert same(out, eager(x, y, 2.0, 3))


def test_it_stands_in_order_among_operations(bench, kernel, given):
    b = bench()
    x, y = given()

    def around():
        session = b.session
        doubled = session.run(aten.mul.Tensor, (x, 2.0), {})
        results = made(b.backend, session)
        session.launch(KernelLaunch(kernel, [doubled, y], results, [0.5], [7]))
        del doubled
        return session.run(aten.add.Tensor, (results[0], results[1]), {})

    with b.session.stream():
        b.session.begin()
        out = around()
        b.segments.append(b.session.end())
    b.finish()
    for seed in (1, 2):
        for old, new in zip((x, y), given(seed), strict=True):
            old.copy_(new)
        b.replay()
        total, rounded = eager(x * 2, y, 0.5, 7)
        assert torch.equal(out, total + rounded)


def test_memory_of_its_results_is_used_again(bench, kernel, given):
    """Each launch reads what the one before wrote, into memory that is planned when all are known."""
    b = bench()
    x, y = given()
    with b.session.stream():
        b.session.begin()
        current = x
        for _ in range(5):
            results = made(b.backend, b.session)
            b.session.launch(KernelLaunch(kernel, [current, y], results, [0.5], [1]))
            current = results[0]
            del results
        out = b.session.run(aten.clone.default, (current,), {})
        del current
        b.segments.append(b.session.end())
    b.finish()
    assert b.backend.bytes_held() >= 4 * SIZE
    x.copy_(given(4)[0])
    b.replay()
    expected = x
    for _ in range(5):
        expected = eager(expected, y, 0.5, 1)[0]
    assert torch.equal(out, expected)


def test_what_was_kept_of_its_results_is_written_by_replays(bench, kernel, given):
    b = bench()
    x, y = given()
    total = capture(b, kernel, x, y, then=lambda session, total, rounded: total)
    address = total.data_ptr()
    b.finish()
    x.neg_()
    b.replay()
    assert total.data_ptr() == address
    assert torch.equal(total, eager(x, y, 2.0, 3)[0])


def test_numbers_are_those_of_the_launch(bench, kernel, given):
    b = bench()
    x, y = given()
    first, second = capture(b, kernel, x, y, scale=1.0, plus=1), capture(b, kernel, x, y, scale=3.0, plus=-1)
    b.finish()
    b.replay()
    assert same(first, eager(x, y, 1.0, 1)) and same(second, eager(x, y, 3.0, -1))


def test_it_may_not_write_what_it_reads(bench, kernel, given):
    b = bench()
    x, _ = given()
    with b.session.stream():
        b.session.begin()
        results = made(b.backend, b.session)
        with pytest.raises(InternalError, match="it is to write memory that it reads"):
            b.session.launch(KernelLaunch(kernel, [x, results[0]], results, [1.0], [1]))
        b.session.abort()


def test_a_launch_needs_an_open_segment(bench, kernel, given):
    b = bench()
    x, y = given()
    with pytest.raises(InternalError, match=r"no segment open|with no segment"):
        b.session.launch(KernelLaunch(kernel, [x, y], made(b.backend), [1.0], [1]))


def test_an_aborted_segment_leaves_nothing(bench, kernel, given):
    b = bench()
    x, y = given()

    def fail(session, total, rounded):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        capture(b, kernel, x, y, then=fail)
    out = capture(b, kernel, x, y)
    b.finish()
    x.neg_()
    b.replay()
    assert same(out, eager(x, y, 2.0, 3))


def test_a_recording_holds_its_kernels(bench, backend, binary, given):
    b = bench()
    x, y = given()
    kernel = backend.load(binary)
    watched = weakref.ref(kernel)
    out = capture(b, kernel, x, y)
    b.finish()
    del kernel
    gc.collect()
    x.neg_()
    b.replay()
    assert same(out, eager(x, y, 2.0, 3))
    b.session.release()
    del b, out
    gc.collect()
    assert watched() is None


def test_it_can_be_loaded_again(backend, binary, given):
    x, y = given()
    for _ in range(3):
        kernel, results = backend.load(binary), made(backend)
        kernel([x, y, *results], [2.0], [3])
        backend.synchronize()
        assert same(results, eager(x, y, 2.0, 3))
        del kernel
        gc.collect()
        backend.trim()


def test_versions_count_no_replay(bench, kernel, given):
    b = bench()
    x, y = given()
    out = capture(b, kernel, x, y)
    b.finish()
    before = [tensor._version for tensor in (x, y, *out)]
    b.replay()
    assert [tensor._version for tensor in (x, y, *out)] == before
