"""Streams: work before and after a call is ordered with it, whatever stream the caller uses."""

from __future__ import annotations

import os

import pytest
import torch

import rote

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False"),
]
WARM = rote.Options().warmup + 1


def slow(x):
    """Work that is still running when the next one is queued."""
    for _ in range(20):
        x = (x @ x).clamp(-1, 1)
    return x


def test_inputs_still_being_computed():
    g = rote.graph(lambda x: x * 2 + 1)
    for n in range(WARM + 5):
        x = slow(torch.full((1024, 1024), n / 1e6, device="cuda"))
        out = g(x)
        assert torch.equal(out, x * 2 + 1)


def test_a_stream_for_each_call():
    g = rote.graph(lambda x: slow(x))
    streams = [torch.cuda.Stream() for _ in range(3)]
    for n in range(12):
        stream = streams[n % 3]
        x = torch.full((512, 512), (n + 1) / 1e4, device="cuda")
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            out = g(x)
        torch.cuda.current_stream().wait_stream(stream)
        assert torch.equal(out, slow(x))
    assert g.report().replayed >= 8
    del out
    g.reset()


def test_the_current_stream_afterwards():
    g, own = rote.graph(lambda x: x * 2), torch.cuda.Stream()
    for stream in (own, torch.cuda.default_stream()) * (WARM + 1):
        with torch.cuda.stream(stream):
            g(torch.ones(4, device="cuda"))
            assert torch.cuda.current_stream() == stream


def test_memory_handed_out_is_safe_on_the_callers_stream():
    g, own = rote.graph(lambda x: x + 1), torch.cuda.Stream()
    with torch.cuda.stream(own):
        held = [g(torch.full((1 << 16,), float(n), device="cuda")) for n in range(20)]
    own.synchronize()
    for n, out in enumerate(held):
        assert out.eq(n + 1).all()


def test_pinned_memory_copied_inside():
    def fn(x):
        host = torch.empty(4, pin_memory=True)
        host.copy_(x, non_blocking=True)
        torch.cuda.current_stream().synchronize()
        return host.to("cuda", non_blocking=True) * 2

    g = rote.graph(fn)
    for n in range(WARM + 4):
        assert g(torch.full((4,), float(n), device="cuda")).tolist() == [2.0 * n] * 4


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_is_refused():
    g, x = rote.graph(lambda x: x * 2), torch.ones(3, device="cuda")
    for _ in range(4):
        g(x)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # no test machinery may run in here
        try:
            g(x)
            os.write(write, b"nothing raised")
        except BaseException as error:
            os.write(write, f"{type(error).__name__}: {error}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    message = os.read(read, 4096).decode()
    assert message.startswith("EnvironmentError_: this process was forked") and '"spawn"' in message
    assert torch.equal(g(x), x * 2)
