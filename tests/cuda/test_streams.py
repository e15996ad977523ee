"""Streams: work before and after a call is ordered with it, whatever stream the caller uses."""

from __future__ import annotations

import os
import threading

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


# ---------------------------------------------------------------------- streams of the call's own


class OwnStream:
    """A stream and an event, for the programs below."""

    def __init__(self):
        self.stream, self.event = torch.cuda.Stream(), torch.cuda.Event()
        self.buffer = torch.zeros(256, 256, device="cuda")


def forked_and_joined(own, x):
    own.stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(own.stream):
        half = slow(x)
    y = x * 2
    torch.cuda.current_stream().wait_stream(own.stream)
    return y + half


def entered_as_an_object(own, x):
    own.stream.wait_stream(torch.cuda.current_stream())
    with own.stream:
        half = slow(x)
    torch.cuda.current_stream().wait_event(own.stream.record_event())
    return x + half


def set_by_hand(own, x):
    before = torch.cuda.current_stream()
    own.stream.wait_stream(before)
    torch.cuda.set_stream(own.stream)
    half = slow(x)
    torch.cuda.set_stream(before)
    before.wait_stream(own.stream)
    return x - half


def waited_for_by_the_host(own, x):
    own.stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(own.stream):
        half = slow(x)
    own.stream.synchronize()
    return x - half


def left_to_itself(own, x):
    """Whoever reads the buffer waits for the stream."""
    own.stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(own.stream):
        own.buffer.copy_(slow(x))
    return x * 2


def joined_in_a_backward(own, x):
    """Autograd runs the backward of an operation on its stream."""
    weight = own.buffer.clone().requires_grad_()
    own.stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(own.stream):
        half = (x @ weight).tanh()
    torch.cuda.current_stream().wait_stream(own.stream)
    (gradient,) = torch.autograd.grad((half * x).sum(), weight)
    return gradient


OWN = [
    forked_and_joined, entered_as_an_object, set_by_hand, waited_for_by_the_host, left_to_itself,
    joined_in_a_backward,
]  # fmt: skip


@pytest.mark.parametrize("program", OWN)
def test_a_call_that_uses_a_stream_of_its_own(program):
    plain, graphed = OwnStream(), OwnStream()
    g = rote.graph(lambda x: program(graphed, x))
    for n in range(WARM + 8):
        x = slow(torch.full((256, 256), (n + 1) / 1e4, device="cuda"))
        expected, out = program(plain, x), g(x)
        for own in (plain, graphed):
            torch.cuda.current_stream().wait_stream(own.stream)
        assert torch.equal(out, expected)
        assert torch.equal(graphed.buffer, plain.buffer)
    assert g.report().replayed >= 6, g.explain()
    del out
    g.reset()


def test_what_was_begun_on_a_stream_is_waited_for():
    """The call is given what another stream is still at work on, and waits for that stream itself."""
    own = torch.cuda.Stream()

    def fn(x):
        torch.cuda.current_stream().wait_stream(own)
        return x * 2

    g = rote.graph(fn)
    for n in range(WARM + 8):
        x = torch.full((1024, 1024), (n + 1) / 1e5, device="cuda")
        own.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(own):
            slow_one = slow(slow(x))
        out = g(slow_one)
        own.synchronize()
        assert torch.equal(out, slow_one * 2)
    assert g.report().replayed >= 6, g.explain()


def test_an_event_that_others_have_recorded_is_waited_for():
    own, event = torch.cuda.Stream(), torch.cuda.Event()

    def fn(x):
        torch.cuda.current_stream().wait_event(event)
        return x * 2

    g = rote.graph(fn)
    for n in range(WARM + 8):
        x = torch.full((1024, 1024), (n + 1) / 1e5, device="cuda")
        own.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(own):
            slow_one = slow(slow(x))
            event.record()
        out = g(slow_one)
        own.synchronize()
        assert torch.equal(out, slow_one * 2)
    assert g.report().replayed >= 6, g.explain()


def test_the_stream_of_a_call_is_ordered_after_it():
    """A stream that the call has used goes on with what the call has made there."""
    own = torch.cuda.Stream()

    def fn(x):
        own.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(own):
            return slow(slow(x))

    g = rote.graph(fn)
    for n in range(WARM + 8):
        x = torch.full((1024, 1024), (n + 1) / 1e5, device="cuda")
        out = g(x)
        with torch.cuda.stream(own):
            after = out * 2
        own.synchronize()
        assert torch.equal(after, slow(slow(x)) * 2)
    assert g.report().replayed >= 6, g.explain()
    del out
    g.reset()


def by_the_device(x, own):
    torch.cuda.synchronize()


def by_the_current_device(x, own):
    torch.accelerator.synchronize()


def by_its_stream(x, own):
    torch.cuda.current_stream().synchronize()


def by_another_stream(x, own):
    own.stream.wait_stream(torch.cuda.current_stream())
    own.stream.synchronize()


def by_an_event(x, own):
    event = torch.cuda.Event()
    event.record()
    event.synchronize()


@pytest.mark.parametrize(
    "wait", [by_the_device, by_the_current_device, by_its_stream, by_another_stream, by_an_event]
)
def test_the_host_waits_in_each_replay(wait):
    """What the call copies to the host by itself is there when the host has waited."""
    own, host = OwnStream(), torch.zeros(256, pin_memory=True)

    def fn(x):
        y = slow(x)
        host.copy_(y[0], non_blocking=True)
        wait(y, own)
        return y * host.sum().item()

    g = rote.graph(fn)
    for n in range(WARM + 8):
        x = torch.full((256, 256), (n + 1) / 1e4, device="cuda")
        expected = slow(x)
        out = g(x)
        assert torch.equal(host, expected[0].cpu())
        assert torch.equal(out, expected * expected[0].cpu().sum().item())
    report = g.report()
    assert report.replayed >= 4, g.explain()
    del out
    g.reset()


def test_a_wait_is_an_island_of_its_rule():
    def fn(x):
        y = x * 2
        torch.cuda.synchronize()
        return y + 1

    g = rote.graph(fn)
    for n in range(WARM + 6):
        assert torch.equal(
            g(torch.full((4,), float(n), device="cuda")), torch.full((4,), 2.0 * n + 1, device="cuda")
        )
    (recording,) = g.report().recordings
    assert [(each.code, each.operation) for each in recording.islands] == [
        ("RT133", "rote_transfers::synchronize")
    ]
    g.reset()


def test_an_event_that_outlives_the_call():
    event = torch.cuda.Event(enable_timing=True)

    def fn(x):
        y = slow(x)
        event.record()
        return y

    g, own = rote.graph(fn), torch.cuda.Stream()
    for n in range(WARM + 6):
        x = torch.full((1024, 1024), (n + 1) / 1e5, device="cuda")
        out = g(x)
        own.wait_event(event)
        with torch.cuda.stream(own):
            after = out * 2
        own.synchronize()
        assert torch.equal(after, slow(x) * 2)
    report = g.report()
    assert report.replayed == 0
    assert any(found.code == "RT135" and "no replay records it" in found.message for found in report.reasons)


def test_a_stream_whose_methods_are_in_c():
    """It becomes current, and what is put there is captured all the same."""
    own = torch.Stream("cuda")

    def fn(x):
        with own:
            half = slow(x)
        return x + half

    g = rote.graph(fn)
    for n in range(WARM + 6):
        x = torch.full((64, 64), (n + 1) / 1e4, device="cuda")
        torch.cuda.synchronize()
        out = g(x)
        torch.cuda.synchronize()
        assert torch.equal(out, x + slow(x))
    assert g.report().replayed >= 4, g.explain()
    del out
    g.reset()


def test_streams_that_are_ordered_in_c():
    own = torch.Stream("cuda")

    def fn(x):
        own.wait_stream(torch.cuda.current_stream())
        with own:
            half = slow(x)
        own.synchronize()
        return x + half

    g = rote.graph(fn)
    for n in range(WARM + 6):
        x = torch.full((64, 64), (n + 1) / 1e4, device="cuda")
        assert torch.equal(g(x), x + slow(x))
    report = g.report()
    assert report.replayed == 0 and "orders streams in C" in g.explain()


def test_gradients_that_add_up_on_another_stream():
    """A node of autograd lives as long as a graph has it, and runs on the stream on which it was made."""

    def build():
        weight = (torch.arange(256 * 256, device="cuda").reshape(256, 256) / 1e5).requires_grad_()
        weight.register_hook(lambda gradient: gradient * 2)  # so nothing stands for it in a recording
        held = (weight * 1).sum()
        optimizer = torch.optim.SGD([weight], lr=0.1, foreach=False)

        def step(x):
            optimizer.zero_grad(set_to_none=False)
            loss = slow(x @ weight).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return weight, held, step

    (plain, _held, step), (graphed, _also, again) = build(), build()
    g, own = rote.graph(again), torch.cuda.Stream()
    for n in range(WARM + 8):
        x = torch.full((256, 256), (n + 1) / 1e4, device="cuda")
        own.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(own):
            expected, out = step(x), g(x)
            assert torch.equal(out, expected)
        torch.cuda.current_stream().wait_stream(own)
        assert torch.equal(plain, graphed) and torch.equal(plain.grad, graphed.grad)
    assert g.report().replayed >= 6, g.explain()
    g.reset()


def test_other_threads_use_their_streams_meanwhile():
    stop, errors = threading.Event(), []

    def load():
        own, done = torch.cuda.Stream(), torch.cuda.Event()
        while not stop.is_set():
            with torch.cuda.stream(own):
                if torch.cuda.current_stream() != own:
                    errors.append("another stream is current")
                x = torch.ones(64, 64, device="cuda") * 3
                done.record()
            torch.cuda.current_stream().wait_event(done)
            if x.sum().item() != 3 * 64 * 64:
                errors.append("another sum")

    plain, graphed = OwnStream(), OwnStream()
    thread = threading.Thread(target=load)
    thread.start()
    try:
        for _ in range(4):
            g = rote.graph(lambda x: forked_and_joined(graphed, x))
            for n in range(WARM + 4):
                x = torch.full((256, 256), (n + 1) / 1e4, device="cuda")
                assert torch.equal(g(x), forked_and_joined(plain, x))
            g.reset()
    finally:
        stop.set()
        thread.join()
    assert not errors
