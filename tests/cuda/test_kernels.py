"""Compiled kernels on a GPU: what a refusal leaves, memory that they share, and when they are unloaded."""

from __future__ import annotations

import gc
import threading

import pytest
import torch
from tests.conformance.kernels import SIZE, binary_of, eager, source_for
from tests.cuda.hopper import COMPILE_S
from torch.nn import functional

import rote
from rote.base.errors import CaptureError, MemoryShortageError
from rote.runtime.backends import PROCESS
from rote.runtime.backends.cuda.graphs.cuda_driver import Driver, DriverError
from rote.runtime.backends.protocol import KernelLaunch
from rote.runtime.compiling import COMPILERS, Binary, KernelSource, Language, Programs

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False"),
]


@pytest.fixture
def backend():
    found = PROCESS.of(torch.device("cuda", torch.cuda.current_device()))
    with found.lock:
        found.enter_call()
        yield found


@pytest.fixture
def kernel(backend):
    return backend.load(binary_of(source_for(backend)))


def empty(session):
    make = torch.ops.aten.empty_strided.default
    return [
        session.run(make, ([SIZE], [1]), {"dtype": dtype, "device": "cuda"})
        for dtype in (torch.float32, torch.int64)
    ]


@pytest.mark.parametrize(("status", "error"), [(2, MemoryShortageError), (900, CaptureError)])
def test_a_refused_launch_is_a_refused_capture(backend, kernel, monkeypatch, status, error):
    x = torch.ones(SIZE, device="cuda")
    session = backend.open(exclusive=False)
    with session.stream():
        session.begin()
        with monkeypatch.context() as patch:

            def refuse(*_):
                raise DriverError("cuLaunchKernel refused", status)

            patch.setattr(Driver, "launch_kernel", refuse)
            with pytest.raises(error, match="kernel scaled_sum cannot be captured: cuLaunchKernel refused"):
                session.launch(KernelLaunch(kernel, [x, x.clone()], empty(session), [1.0], [1]))
        session.abort()
        session.begin()
        results = empty(session)
        session.launch(KernelLaunch(kernel, [x, x], results, [1.0], [1]))
        segment = session.end()
    session.finish()
    x.fill_(3.0)
    segment.replay()
    assert torch.equal(results[0], eager(x, x, 1.0, 1)[0])
    session.release()


def test_it_is_unloaded_with_its_last_holder(backend, monkeypatch):
    gc.collect()
    backend.trim()  # what earlier tests have left
    unloaded = []
    plain = Driver.unload
    monkeypatch.setattr(Driver, "unload", lambda api, module: unloaded.append(module) or plain(api, module))
    kernel = backend.load(binary_of(source_for(backend)))
    x = torch.ones(SIZE, device="cuda")
    session = backend.open(exclusive=False)
    with session.stream():
        session.begin()
        results = empty(session)
        session.launch(KernelLaunch(kernel, [x, x], results, [1.0], [1]))
        segment = session.end()
    session.finish()
    del kernel
    gc.collect()
    backend.trim()
    assert not unloaded
    x.fill_(3.0)
    segment.replay()
    assert torch.equal(results[0], eager(x, x, 1.0, 1)[0])
    del segment
    session.release()
    assert len(unloaded) == 1


def test_a_thread_without_a_context_launches_it(backend, kernel):
    x = torch.ones(SIZE, device="cuda")
    results = [torch.empty(SIZE, device="cuda"), torch.empty(SIZE, device="cuda", dtype=torch.int64)]
    torch.cuda.synchronize()
    caught = []

    def launch():
        try:
            kernel([x, x, *results], [2.0], [1])
            torch.cuda.synchronize()
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=launch)
    thread.start()
    thread.join()
    assert not caught
    assert torch.equal(results[0], eager(x, x, 2.0, 1)[0])


PRODUCT = """
import triton
import triton.language as tl


@triton.jit
def product(a, b, out):
    i = tl.arange(0, 128)
    place = i[:, None] * 128 + i[None, :]
    tl.store(out + place, tl.dot(tl.load(a + place), tl.load(b + place)))
"""


def test_more_shared_memory_than_every_kernel_has(backend):
    major, minor = torch.cuda.get_device_capability()
    source = KernelSource(
        Language.TRITON, "product", PRODUCT, ("bf16", "bf16", "fp32"), (True, True, True),
        grid=Programs(1, 4), capability=10 * major + minor,
    )  # fmt: skip
    job = COMPILERS.get().submit([source])
    assert job.wait(240)
    found = job.results()[source]
    assert isinstance(found, Binary), found.why
    assert found.shared_bytes > 48 << 10
    a, b = (torch.randint(-4, 4, (128, 128), device="cuda").bfloat16() for _ in range(2))
    out = torch.empty(128, 128, device="cuda")
    backend.load(found)([a, b, out])
    assert torch.equal(out, a.float() @ b.float())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("function", [torch.erf, functional.gelu, functional.silu, torch.tanh, torch.sin])
def test_functions_are_those_of_the_library_that_pytorch_was_built_with(function, dtype):
    """Triton comes with a library of its own, whose functions may have other bits."""

    def call(x):
        return function(x * 2) + 1

    g, x = rote.graph(call, keep=True), torch.randn(1000, device="cuda", dtype=dtype)
    for _ in range(4000):
        assert torch.equal(g(x), call(x))
        if g.wait_until_optimized(timeout_s=COMPILE_S):
            break
    text = g.explain()
    assert "fused: 3 operations into 1 launch" in text and "other bits" not in text, text
