"""Several threads call the same wrapper; each call is right."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import rote
from rote.runtime.backends import select
from rote.runtime.recording.contest.contest import BLOCK, BLOCKS
from rote.runtime.recording.contest.contest import WARM as BEFORE
from rote.testing import count_recordings

WARM = rote.Options().warmup + 1
THREADS, CALLS = 4, 25


def everywhere(work):
    """Run ``work(n)`` on several threads at once; raises what any of them raised."""
    barrier = threading.Barrier(THREADS)

    def start(n):
        torch.set_num_threads(1)
        barrier.wait()
        return work(n)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(start, range(THREADS)))


@pytest.mark.parametrize("keep", [False, True])
def test_the_same_key(device, keep):
    g = rote.graph(lambda x: (x * 2).exp().sum(0), keep=keep)
    for _ in range(WARM):
        g(torch.zeros(3, 2, device=device))

    def work(n):
        for call in range(CALLS):
            x = torch.full((3, 2), (n * CALLS + call) / 50, device=device)
            assert torch.equal(g(x), (x * 2).exp().sum(0))

    everywhere(work)
    report = g.report()
    assert report.calls == THREADS * CALLS + WARM and count_recordings(g) == 1
    timed = sum(reason.count for reason in report.reasons if reason.code == "RT308")
    assert report.replayed == THREADS * CALLS - timed and timed == (0 if keep else (BEFORE + BLOCK) * BLOCKS)


def test_a_reset_beside_replays(device):
    """Recordings go while other threads are in the middle of replaying them."""
    g = rote.graph(lambda x: (x * 2).exp().sum(0), keep=True)

    def work(n):
        for call in range(4 * CALLS):
            if n == 0 and call % 20 == 19:
                g.reset()
            x = torch.full((3, 2), (n * CALLS + call) / 100, device=device)
            assert torch.equal(g(x), (x * 2).exp().sum(0))

    everywhere(work)
    assert count_recordings(g) <= 1


def test_a_reset_at_each_line_of_a_replay(device):
    """The function that was written for a recording is stopped at each of its lines."""
    g = rote.graph(lambda x: (x * 2).exp().sum(0), keep=True)
    x = torch.ones(3, 2, device=device)
    expected, stop_at, line = (x * 2).exp().sum(0), 0, 0
    others: list[threading.Thread] = []

    def stop(frame, event, arg):
        nonlocal line
        if event != "line" or frame.f_code.co_name != "replay":
            return stop if frame.f_code.co_name == "replay" else None
        line += 1
        if line == stop_at:
            others.append(threading.Thread(target=g.reset))
            others[0].start()
            others[0].join(0.05)  # it may wait for the lock
        return stop

    while line >= stop_at:
        for _ in range(WARM):
            g(x)
        line, stop_at = 0, stop_at + 1
        sys.settrace(stop)
        try:
            value = g(x)
        finally:
            sys.settrace(None)
        assert torch.equal(value, expected), f"line {stop_at}"
        for other in others:
            other.join()
        others.clear()
    assert stop_at > 5


def test_the_same_new_key(device):
    g = rote.graph(lambda x: (x * 2).exp().sum(0))

    def work(n):
        for call in range(CALLS):
            x = torch.full((3, 2), (n * CALLS + call) / 50, device=device)
            assert torch.equal(g(x), (x * 2).exp().sum(0))

    everywhere(work)
    assert count_recordings(g) == 1


def test_a_call_beside_an_observation_is_counted(device):
    inside, go = threading.Event(), threading.Event()

    def fn(x):
        if threading.current_thread() is worker:
            inside.set()
            go.wait(20)
        return x * 2

    g, x = rote.graph(fn), torch.ones(2, device=device)
    worker = threading.Thread(target=g, args=(x,))
    worker.start()
    inside.wait(20)
    try:
        assert g(x).tolist() == [2.0, 2.0]
    finally:
        go.set()
        worker.join()
    assert g.report().calls == 2


def test_a_key_for_each_thread(device):
    g = rote.graph(lambda x: x.cumsum(0) + 1)

    def work(n):
        for call in range(CALLS):
            x = torch.full((n + 1,), float(call), device=device)
            assert torch.equal(g(x), x.cumsum(0) + 1)

    everywhere(work)
    assert 1 <= count_recordings(g) <= THREADS


def test_outputs_held_by_threads(device):
    g = rote.graph(lambda x: x * 2)

    def work(n):
        held = [(call, g(torch.full((8,), float(call + n), device=device))) for call in range(CALLS)]
        for call, out in held:
            assert out.tolist() == [2.0 * (call + n)] * 8

    everywhere(work)


def test_host_reads_on_threads(device):
    def fn(x):
        return x * int(x.sum().item())

    g = rote.graph(fn)

    def work(n):
        for call in range(CALLS):
            value = float((n + call) % 3)
            assert g(torch.full((1,), value, device=device)).item() == value * int(value)

    everywhere(work)


def test_many_wrappers_at_once(device):
    def work(n):
        for _ in range(4):
            g = rote.graph(lambda x: x * (n + 1))
            for call in range(6):
                x = torch.full((4,), float(call), device=device)
                assert torch.equal(g(x), x * (n + 1))

    everywhere(work)


def test_an_exception_on_one_thread_leaves_the_others_alone(device):
    def fn(x, n):
        if n == 1:
            raise KeyError(n)
        return x + n

    g = rote.graph(fn)

    def work(n):
        for _ in range(CALLS):
            x = torch.ones(2, device=device)
            if n == 1:
                with pytest.raises(KeyError):
                    g(x, n)
            else:
                assert torch.equal(g(x, n), x + n)

    everywhere(work)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False")
def test_streams():
    g = rote.graph(lambda x: (x @ x).relu() * 2)
    streams = [torch.cuda.Stream() for _ in range(3)]
    held = []
    for n in range(30):
        stream = streams[n % 3]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            x = torch.full((256, 256), n / 100, device="cuda")
            held.append((x, g(x)))
    torch.cuda.synchronize()
    for x, out in held:
        assert torch.equal(out, (x @ x).relu() * 2)


def test_eager_calls_hold_no_lock(device, monkeypatch):
    """A callable that runs eagerly may wait for a thread that calls the same wrapper."""
    monkeypatch.setattr(select, "PATIENCE_S", 0.05)
    counter = iter(range(1000))

    def fn(x):
        number = next(counter)  # never steady
        if x.shape[0] == 1:
            return x * number
        found = []
        thread = threading.Thread(target=lambda: found.append(g(x[:1])))
        thread.start()
        thread.join(timeout=20)
        return x + found[0]

    g = rote.graph(fn)
    for _ in range(12):
        g(torch.ones(1, device=device))
    for _ in range(12):
        assert g(torch.ones(2, device=device)).shape == (2,)
