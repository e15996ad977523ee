"""How arguments are taken and results handed out: a caller sees nothing that eager does not show."""

from __future__ import annotations

import threading

import pytest
import torch

import rote
from rote.testing import compare

WARM = rote.Options().warmup + 1
CALLS = WARM + 4


def test_results_are_like_those_of_eager(device):
    def fn(x):
        return x * 2, (x + 1).t(), x.sum(), x > 0, x[:0] * 2, x.to(torch.bfloat16)

    g, x = rote.graph(fn), torch.randn(3, 5, device=device)
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        for _ in range(CALLS):
            with mode():
                found, right = g(x), fn(x)
            for mine, its in zip(found, right, strict=True):
                assert mine.equal(its) and mine.stride() == its.stride() and mine.dtype is its.dtype
                assert mine.is_inference() == its.is_inference() and mine.is_leaf and not mine.requires_grad
                assert mine.storage_offset() == 0 and mine.untyped_storage().nbytes() == mine.nbytes
                if not mine.is_inference():
                    assert mine._version == its._version == 0
    assert g.report().replayed >= 3 * 4


def test_a_result_goes_on_in_autograd(device):
    g, w = rote.graph(lambda x: x * 2), torch.ones(3, device=device, requires_grad=True)
    for n in range(CALLS):
        w.grad = None
        (g(torch.full((3,), float(n), device=device)) * w).sum().backward()
        assert w.grad is not None and w.grad.tolist() == [2.0 * n] * 3


def test_arguments_are_as_they_were(device):
    g, x = rote.graph(lambda x: x * 2), torch.ones(3, device=device)
    for _ in range(CALLS):
        version = x._version
        g(x)
        assert x._version == version
        x += 1
        assert g(x).equal(x * 2)


LAYOUTS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.t(),
    "permuted": lambda x: x.view(2, 2, 6).permute(2, 0, 1),
    "from the middle": lambda x: x[1:],
    "with gaps": lambda x: x[:, ::2],
    "expanded": lambda x: x[:1].expand(4, 6),
    "overlapping": lambda x: x.as_strided((3, 3), (1, 2)),
    "empty": lambda x: x[:0],
    "a number": lambda x: x[0, 0],
    "one wide": lambda x: x[:, :1],
    "conjugate": lambda x: torch.complex(x, -x).conj(),
    "negative": lambda x: torch.complex(x, -x).conj().imag,
    "booleans": lambda x: x > 0,
    "bytes": lambda x: (x * 8).byte(),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_arguments_of_every_layout(device, name):
    layout = LAYOUTS[name]
    calls = [(layout(torch.rand(4, 6, device=device)),) for _ in range(CALLS)]
    g = compare(lambda x: (x * 2, x.flatten()[:3] + 1), calls)
    assert g.report().replayed == CALLS - WARM


@pytest.mark.parametrize("count", [2, 4, 5, 9, 40])
def test_many_arguments_and_results(device, count):
    def fn(*xs):
        return [x * n for n, x in enumerate(xs)]

    calls = [tuple(torch.randn(3, n + 1, device=device) for n in range(count)) for _ in range(CALLS)]
    assert compare(fn, calls).report().replayed == CALLS - WARM


def test_arguments_that_are_dropped_at_once(device):
    g, held = rote.graph(lambda x: x.cumsum(0)), []
    for n in range(60):
        held.append(g(torch.full((4096,), float(n), device=device)))
        torch.full((4096,), -1.0, device=device)  # lies where the argument lay
    for n, y in enumerate(held):
        assert y[:2].tolist() == [n, 2 * n]


def test_a_result_as_the_next_argument(device):
    g, held = rote.graph(lambda x: x + 1), [torch.zeros(5, device=device)]
    for _ in range(CALLS + 20):
        held.append(g(held[-1]))
    assert [int(y[0]) for y in held] == list(range(len(held)))


def test_random_numbers_go_on(device):
    def fn(x):
        return torch.nn.functional.dropout(x, 0.5), torch.rand_like(x)

    assert compare(fn, [(torch.ones(64, device=device),)] * 12).report().replayed == 12 - WARM


def test_one_part_draws_random_numbers(device):
    """A store through a mask divides it into segments; only the last one draws."""

    def fn(x):
        y = x * 2
        y[x > 0.5] = x.max()
        return torch.rand_like(y) + y, y * 2

    calls = [(torch.rand(64, device=device),) for _ in range(12)]
    assert compare(fn, calls).report().replayed == 12 - WARM


def test_uninitialized_memory_that_is_filled(device):
    g, x = rote.graph(lambda x: x * 2), torch.randn(3, device=device)
    torch.use_deterministic_algorithms(True)
    try:
        for _ in range(CALLS):
            assert g(x).equal(x * 2)
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_thread_of_its_own(device):
    """The first call in a thread is a replay, before the thread has used the device."""
    g, found = rote.graph(lambda x: x * 2), []
    inputs = [torch.full((3,), float(n), device=device) for n in range(CALLS)]
    for x in inputs:
        g(x)
    for x in inputs:
        thread = threading.Thread(target=lambda x=x: found.append(g(x)))
        thread.start()
        thread.join()
    assert [y.tolist() for y in found] == [[2.0 * n] * 3 for n in range(CALLS)]


def test_two_parts_and_a_thousand_calls(device):
    def fn(x, y):
        z = x * y
        z[x > 0.5] = y.max()
        return z * 3, x + 1

    g = rote.graph(fn)
    pool = [torch.rand(32, device=device) for _ in range(7)]
    for n in range(300):
        x, y = pool[n % 7], pool[n * 3 % 5]
        if x is y:
            continue
        assert all(a.equal(b) for a, b in zip(g(x, y), fn(x, y), strict=True))
