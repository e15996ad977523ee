"""Failed captures on a GPU: the allocator, the random state and later captures are as before."""

from __future__ import annotations

import ctypes
import gc
import threading

import pytest
import torch

import rote
from rote import CaptureError
from rote.runtime.backends.select import PROCESS
from rote.testing import compare

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False"),
]


def test_the_default_stream_is_never_captured():
    """Calls that are on it do not ask whether it is, which takes 0.4 us."""
    driver, relaxed = ctypes.CDLL("libcuda.so.1"), 2
    torch.cuda.synchronize()
    assert torch.cuda.default_stream().cuda_stream == 0
    assert driver.cuStreamBeginCapture_v2(ctypes.c_void_p(0), relaxed) != 0
    assert not torch.cuda.is_current_stream_capturing()
    assert torch.equal(torch.ones(2, device="cuda") + 1, torch.full((2,), 2.0, device="cuda"))


def reserved():
    """Bytes that the allocator cannot give back."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved()


@pytest.fixture
def backend():
    found = PROCESS.of(torch.device("cuda", torch.cuda.current_device()))
    with found.lock:
        found.enter_call()
        yield found


def warm_up(backend):
    """Streams, the library workspaces and the generator's state exist before memory is counted."""
    compare(lambda x: (x @ x + torch.rand_like(x)).sum(), [(torch.ones(64, 64, device="cuda"),)] * 6)
    session = backend.open(exclusive=False)
    with session.stream():
        session.begin()
        session.abort()
    session.release()


def fail(backend, place):
    """One session whose capture fails: at once, after work, or after a good segment."""
    session = backend.open(exclusive=False)
    x = torch.ones(1 << 20, device="cuda")
    kept = None
    try:
        with session.stream():
            session.begin()
            if place != "start":
                kept = session.run(torch.ops.aten.mul.Tensor, (x, 2), {})
                kept = session.run(torch.ops.aten.rand_like.default, (kept,), {})
            if place == "second segment":
                session.end()
                session.begin()
                kept = session.run(torch.ops.aten.mul.Tensor, (kept, 2), {})
            with pytest.raises(CaptureError, match="cannot be captured: "):
                session.run(torch.ops.aten._local_scalar_dense.default, (x[0],), {})
            session.abort()
    finally:
        del kept
        session.release()


@pytest.mark.parametrize("place", ["start", "middle", "second segment"])
def test_a_failed_capture_keeps_no_memory(backend, place):
    warm_up(backend)
    fail(backend, place)  # the first failure may make what later ones use again
    before = reserved()
    for _ in range(3):
        fail(backend, place)
        assert reserved() <= before  # less, where what earlier tests had is given back only now
    assert backend.bytes_held() == 0


@pytest.mark.parametrize("place", ["start", "middle"])
def test_a_failed_capture_leaves_the_generator_alone(backend, place):
    torch.cuda.manual_seed(5)
    torch.rand(3, device="cuda")
    before = torch.cuda.get_rng_state()
    fail(backend, place)
    assert torch.equal(torch.cuda.get_rng_state(), before)
    numbers = torch.rand(4, device="cuda")
    torch.cuda.set_rng_state(before)
    assert torch.equal(torch.rand(4, device="cuda"), numbers)


def test_a_generator_of_ones_own_after_a_failure(backend):
    generator = torch.Generator(device="cuda").manual_seed(3)
    before = generator.get_state()
    session = backend.open(exclusive=False, generators=(generator,))
    x = torch.ones(4, device="cuda")
    with session.stream():
        session.begin()
        session.run(torch.ops.aten.rand.generator, ([4],), {"generator": generator, "device": x.device})
        with pytest.raises(CaptureError):
            session.run(torch.ops.aten._local_scalar_dense.default, (x[0],), {})
        session.abort()
    session.release()
    assert torch.equal(generator.get_state(), before)
    torch.rand(4, device="cuda", generator=generator)


def test_the_current_stream_is_the_callers(backend):
    own = torch.cuda.Stream()
    for stream in (torch.cuda.default_stream(), own):
        with torch.cuda.stream(stream):
            fail(backend, "middle")
            assert torch.cuda.current_stream() == stream


def test_other_recordings_survive_a_failed_capture(backend):
    g = rote.graph(lambda x: (x * 2).exp().sum())
    for _ in range(5):
        g(torch.ones(64, device="cuda"))
    fail(backend, "middle")
    before = g.report().replayed
    x = torch.full((64,), 0.5, device="cuda")
    assert torch.equal(g(x), (x * 2).exp().sum()) and g.report().replayed == before + 1


def test_memory_of_a_wrapper_is_given_back():
    def use():
        g = rote.graph(lambda x: (x * 2).exp() @ x)
        for _ in range(5):
            g(torch.ones(512, 512, device="cuda"))
        g.reset()

    use()
    before = reserved()
    for _ in range(3):
        use()
        assert reserved() <= before  # less, where what earlier tests had is given back only now


def test_calls_of_many_shapes_share_a_pool():
    g = rote.graph(lambda x: (x * 2).exp().sin().cos())
    sizes = [1 << 20, 1 << 19, 1 << 18, 1 << 17]
    for size in sizes:
        for _ in range(4):
            g(torch.ones(size, device="cuda"))
    held = PROCESS.of(torch.device("cuda", torch.cuda.current_device())).bytes_held()
    assert held < 4 * sum(4 * size for size in sizes)
    g.reset()


def test_capture_on_several_threads():
    """Each thread records its own wrapper while the others record and run eagerly."""
    errors, barrier = [], threading.Barrier(4)

    def work(n):
        try:
            barrier.wait()
            for round_ in range(3):
                g = rote.graph(lambda x: (x @ x).relu() * (n + 1) + torch.rand(1, device="cuda") * 0)
                for call in range(8):
                    x = torch.full((64, 64), (call + n + round_) / 50, device="cuda")
                    assert torch.equal(g(x), (x @ x).relu() * (n + 1))
                assert g.report().replayed > 0
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_garbage_collected_in_a_capture():
    """A wrapper that dies while another one records: its graphs are destroyed later."""

    class Dying:
        def __init__(self):
            self.g = rote.graph(lambda x: x * 3)
            self.me = self
            for _ in range(4):
                self.g(torch.ones(8, device="cuda"))

    Dying()

    def fn(x):
        y = x * 2
        gc.collect()
        return y + 1

    g = compare(fn, [(torch.ones(8, device="cuda"),)] * 6)
    assert g.report().replayed >= 3


@pytest.mark.parametrize("kernel", ["FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH"])
def test_attention_with_dropout_forward_and_backward(kernel):
    """The seeds of the dropout lie on the host or on the device, as each kernel likes."""
    chosen = getattr(torch.nn.attention.SDPBackend, kernel)

    def attend(q, k, v):
        with torch.nn.attention.sdpa_kernel(chosen):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.3)

    def run(call):
        torch.manual_seed(0)
        found = []
        for number in range(7):
            leaves = [
                torch.randn(2, 4, 64, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
                for _ in range(3)
            ]
            out = call(*leaves)
            if number == 5 and isinstance(call, rote.Graphed):
                call.reset()  # this one is walked by plain autograd
            out.float().square().sum().backward()
            found.append([out.detach().clone(), *[leaf.grad for leaf in leaves]])
        return found

    g = rote.graph(attend)
    for wanted, got in zip(run(attend), run(g), strict=True):
        for one, other in zip(wanted, got, strict=True):
            torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2)  # atomic additions; same masks


@pytest.mark.parametrize("calls", [0, 2, 8])
def test_called_while_somebody_captures(calls):
    """The call becomes part of their graph, whatever is known about it; nothing is learnt from it."""

    def fn(x):
        return (x @ x).relu() + 1

    g, x = rote.graph(fn), torch.rand(64, 64, device="cuda")
    for _ in range(calls):
        g(x)
    before, graph = g.report(), torch.cuda.CUDAGraph()
    static = x.clone()
    fn(x)  # makes the handles of the libraries
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        made = g(static)
    assert g.report() == before
    static.copy_(torch.rand_like(x))
    graph.replay()
    assert torch.equal(made, fn(static))
    for _ in range(8):
        assert torch.equal(g(x), fn(x))
    assert g.report().replayed > before.replayed


def test_several_shapes_while_somebody_captures():
    g, sizes = rote.graph(lambda x: x * 2 + 1), (3, 5, 7)
    given = [torch.ones(size, device="cuda") for size in sizes]
    for _ in range(8):
        for x in given:
            g(x)
    before, graph = g.report(), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        made = [g(x) for x in given]
    graph.replay()
    assert [each.tolist() for each in made] == [[3.0] * size for size in sizes]
    assert g.report() == before
