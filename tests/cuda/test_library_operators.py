"""Operators that a library brings in C++: recorded where a graph holds all that they do, and else not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import rote
from rote import Graphed
from rote.runtime.backends import PROCESS
from rote.runtime.operators import TRIED, GraphTrial
from rote.testing import assert_same

ops = pytest.importorskip("torchvision.ops")

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False"),
]
CALLS = 10


def play(fn, calls) -> Graphed:
    g = rote.graph(fn, keep=True)
    for number, args in enumerate(calls):
        assert_same(g(*args), fn(*args), f"call {number}")
    return g


def attempt(func, args) -> GraphTrial:
    backend = PROCESS.of(torch.device("cuda", torch.cuda.current_device()))
    with backend.lock:
        return TRIED.attempt(func, args, {}, backend.alone)


def boxes(count: int = 30) -> Tensor:
    corners = torch.rand(count, 2, device="cuda") * 20
    return torch.cat([corners, corners + 1 + torch.rand(count, 2, device="cuda") * 10], 1)


@torch.no_grad()
def test_a_kernel_on_the_legacy_stream():
    """No capture holds it, and none says so."""
    weight = torch.randn(4, 3, 3, 3, device="cuda")

    def fn(x: Tensor, offset: Tensor) -> Tensor:
        return ops.deform_conv2d(x * 2, offset, weight) + 1

    calls = [
        (torch.randn(1, 3, 10, 10, device="cuda"), torch.randn(1, 18, 8, 8, device="cuda"))
        for _ in range(CALLS)
    ]
    g = play(fn, calls)
    assert g.report().replayed == 0
    assert "torchvision::deform_conv2d gives something else from a graph" in g.explain()
    assert "RT208" not in g.explain()  # it is the trial that sets a seed


@torch.no_grad()
def test_a_first_kernel_on_the_legacy_stream():
    """A plain call on another stream would not wait for it either, and give what the graph gives."""
    func, weight = torch.ops.torchvision.deform_conv2d.default, torch.randn(4, 3, 3, 3, device="cuda")
    x, offset = torch.randn(1, 3, 10, 10, device="cuda"), torch.randn(1, 18, 8, 8, device="cuda")
    rest = torch.ones(1, 9, 8, 8, device="cuda"), torch.zeros(4, device="cuda")
    args = x, weight, offset, *rest, 1, 1, 0, 0, 1, 1, 1, 1, False
    assert attempt(func, args) is GraphTrial.DIFFERS
    assert attempt(func, (x, weight * 0, *args[2:])) is not GraphTrial.REPEATS


@torch.no_grad()
def test_a_kernel_on_the_current_stream():
    def fn(x: Tensor, rois: Tensor) -> Tensor:
        return ops.roi_align(x * 2, [rois], 4) + ops.roi_pool(x, [rois], 4)

    g = play(fn, [(torch.randn(1, 3, 32, 32, device="cuda"), boxes()) for _ in range(CALLS)])
    assert g.report().replayed >= CALLS - 3, g.explain()
    assert not [island for each in g.report().recordings for island in each.islands]


@torch.no_grad()
def test_one_whose_result_has_another_size_each_time():
    def fn(x: Tensor, scores: Tensor) -> Tensor:
        return ops.nms(x, scores, 0.5)[:3] * 2

    g = play(fn, [(boxes(), torch.rand(30, device="cuda")) for _ in range(30)])
    assert g.report().calls == 30


def test_numbers_and_flags_are_tried_for_themselves():
    x, rois = (
        torch.randn(1, 3, 32, 32, device="cuda"),
        torch.cat([torch.zeros(30, 1, device="cuda"), boxes()], 1),
    )
    func, numbers = torch.ops.torchvision.roi_align.default, (4, 4, 2, False)
    assert attempt(func, (x, rois, 1.0, *numbers)) is GraphTrial.REPEATS
    assert TRIED.find(func, (x, rois, 1.0, *numbers), {}) is GraphTrial.REPEATS
    assert TRIED.find(func, (x, rois, 0.5, *numbers), {}) is None
    assert TRIED.find(func, (x, rois, 1.0, 4, 4, 2, True), {}) is None


def test_random_numbers_behind_a_trial_that_fails():
    """A capture that cannot be ended leaves generators that no draw may use."""

    def fn(x: Tensor, scores: Tensor) -> Tensor:
        return x[ops.nms(x, scores, 0.5)[:3]] + torch.rand(1, device="cuda")

    calls = [(boxes(), torch.rand(30, device="cuda")) for _ in range(CALLS)]
    found = []
    for call in (fn, rote.graph(fn, keep=True)):
        torch.manual_seed(0)
        found.append([call(*args) for args in calls])
    assert_same(found[0], found[1])
    torch.rand(1, device="cuda")


def test_a_trial_draws_nothing():
    """Random numbers of the call are those of a plain one."""

    def fn(x: Tensor, rois: Tensor) -> Tensor:
        return ops.roi_align(x + torch.rand_like(x), [rois], 2) * torch.rand(1, device="cuda")

    calls = [(torch.randn(1, 3, 32, 32, device="cuda"), boxes()) for _ in range(CALLS)]
    found = []
    for call in (fn, rote.graph(fn, keep=True)):
        torch.manual_seed(0)
        found.append([call(*args) for args in calls])
    assert_same(found[0], found[1])


def test_backward_through_one():
    weight = torch.randn(3, 1, 1, device="cuda", requires_grad=True)

    def step(x: Tensor, rois: Tensor) -> Tensor:
        (grad,) = torch.autograd.grad(ops.roi_align(x * weight, [rois], 4).square().sum(), [weight])
        return grad

    g = rote.graph(step, keep=True)
    for _ in range(CALLS):
        args = torch.randn(1, 3, 32, 32, device="cuda"), boxes()
        assert torch.allclose(g(*args), step(*args), rtol=1e-4)  # it adds by atomics
