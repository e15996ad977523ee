"""Surroundings: threads, streams, autocast, modes, tensors of other kinds, devices, warnings."""

from __future__ import annotations

import threading
import warnings

import pytest
import torch
from torch import nn

from rote.testing import assert_same

CUDA = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False"),
]


def on_cuda(test):
    for mark in CUDA:
        test = mark(test)
    return test


def test_several_threads(way, device):
    graphed = way(lambda x: (x * 3).sin() + 1)
    for _ in range(5):
        graphed(torch.ones(16, device=device))
    found, errors = [], []

    def work(number):
        try:
            for step in range(10):
                x = torch.full((16,), float(number * 10 + step), device=device)
                found.append((x, graphed(x)))
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not errors and len(found) == 30
    for x, result in found:
        assert_same(result, (x * 3).sin() + 1)


@on_cuda
def test_another_stream(way):
    def fn(x):
        for _ in range(20):
            x = x @ x
        return x

    x = torch.eye(256, device="cuda") * 0.5
    expected = fn(x) + 1
    graphed, stream = way(fn), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(6):
            assert_same(graphed(x) + 1, expected)
    torch.cuda.current_stream().wait_stream(stream)
    for _ in range(4):
        assert_same(graphed(x) + 1, expected)
    assert way.replays()


@on_cuda
def test_streams_in_turns(way):
    graphed, streams = way(lambda x: (x @ x).relu()), [torch.cuda.Stream() for _ in range(3)]
    for number in range(18):
        stream = streams[number % 3]
        with torch.cuda.stream(stream):
            x = torch.randn(64, 64, device="cuda")
            result, expected = graphed(x), (x @ x).relu()
        stream.synchronize()
        assert_same(result, expected)
    assert way.replays()


def test_autocast_in_turns(way, inputs, device):
    model = nn.Linear(4, 4, device=device)
    graphed = way(model)
    with torch.no_grad():
        for number, (x,) in enumerate(inputs(count=20)):
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=number % 2 == 0):
                assert_same(graphed(x), model(x))
    assert way.replays() >= 8


def test_autocast_inside(way, inputs, device):
    weight = torch.randn(4, 4, device=device)

    def fn(x):
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            y = x @ weight
        return y.float() + x

    way.same(fn, inputs())
    assert way.replays()


def test_inference_mode(way, inputs):
    graphed = way(lambda x: x * 2)
    with torch.inference_mode():
        for (x,) in inputs():
            result = graphed(x)
            assert_same(result, x * 2)
            assert result.is_inference()
    assert way.replays()


def test_tensors_of_inference_mode_outside_of_it(way, device):
    graphed = way(lambda x: x * 2)
    for number in range(12):
        with torch.inference_mode(number % 2 == 0):
            x = torch.randn(4, device=device)
        with torch.no_grad():
            assert_same(graphed(x), x * 2)


def test_grad_mode_set_inside(way, device):
    def fn(x):
        y = x * 2
        with torch.no_grad():
            z = y * 3
        return y, z

    graphed = way(fn)
    for _ in range(8):
        y, z = graphed(torch.randn(4, device=device, requires_grad=True))
        assert (y.requires_grad, z.requires_grad) == (True, False)
    assert way.replays()


@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace the builtin")
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_a_sparse_tensor_made_inside(way, device):
    def fn(indices, values):
        return torch.sparse_coo_tensor(indices, values, (8, 3), check_invariants=True).to_dense() * 2

    graphed = way(fn)
    for _ in range(6):
        indices, values = torch.randint(0, 8, (1, 5), device=device), torch.randn(5, 3, device=device)
        assert_same(graphed(indices, values), fn(indices, values))


def test_a_sparse_argument(way, device):
    graphed = way(lambda s, x: torch.sparse.mm(s, x) + 1)
    for _ in range(6):
        dense, x = torch.randn(4, 4, device=device).relu(), torch.randn(4, 3, device=device)
        assert_same(graphed(dense.to_sparse(), x), torch.sparse.mm(dense.to_sparse(), x) + 1)


class Scaled(torch.Tensor):
    """A class of tensors of one's own."""


def test_a_tensor_of_a_class_of_ones_own(way, inputs):
    if way.compiles:
        pytest.skip("PyTorch's own aot_eager does not take such tensors")
    graphed = way(lambda x: x * 2)
    for (x,) in inputs():
        mine = x.as_subclass(Scaled)
        result = graphed(mine)
        assert type(result) is Scaled
        assert_same(result.as_subclass(torch.Tensor), x * 2)


@on_cuda
def test_pinned_memory(way):
    graphed = way(lambda x: x.to("cuda", non_blocking=True) * 2)
    for number in range(8):
        x = torch.full((64,), float(number)).pin_memory()
        assert_same(graphed(x), torch.full((64,), 2.0 * number, device="cuda"))


@on_cuda
def test_arguments_on_two_kinds_of_devices(way):
    graphed = way(lambda x, y: (x + 1, y + 2))
    for _ in range(6):
        x, y = torch.randn(10, device="cuda"), torch.randn(20)
        assert_same(graphed(x, y), (x + 1, y + 2))


@on_cuda
def test_kernels_that_are_chosen_by_time(way):
    model = nn.Conv2d(5, 6, 3).cuda()
    with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=False):
        graphed = way(model)
        for _ in range(6):
            x = torch.randn(2, 5, 16, 16, device="cuda")
            torch.testing.assert_close(graphed(x), model(x))
    assert way.replays()


def test_nothing_is_warned_of(way, device):
    graphed = way(lambda x: x * x * x)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for size in [4] * 6 + list(range(5, 15)):
            graphed(torch.randn(size, device=device, requires_grad=True))  # no backward follows
    assert [str(each.message) for each in caught] == []


def test_default_types_in_turns(way, inputs):
    def fn(x):
        return x + torch.ones(4, device=x.device).sum()

    graphed = way(fn)
    try:
        for number, (x,) in enumerate(inputs(count=16)):
            torch.set_default_dtype((torch.float32, torch.float64)[number % 2])
            assert_same(graphed(x), fn(x))
    finally:
        torch.set_default_dtype(torch.float32)


def test_modules_in_two_modes(way, inputs, device):
    ours, theirs = (nn.Sequential(nn.BatchNorm1d(4), nn.Tanh()).to(device) for _ in range(2))
    graphed = way(ours)
    with torch.no_grad():
        for number, (x,) in enumerate(inputs(count=20)):
            for each in (ours, theirs):
                each.train(number % 4 < 2)
            assert_same(graphed(x), theirs(x), tolerance=way.near)
    assert_same([*ours.buffers()], [*theirs.buffers()], tolerance=way.near)
    assert way.replays()


def test_types_of_arguments_in_turns(way, device):
    graphed = way(lambda x: x * 2 + 1)
    for number in range(12):
        dtype = (torch.float32, torch.int64)[number % 2]
        x = torch.arange(5, device=device).to(dtype)
        assert_same(graphed(x), x * 2 + 1)
    assert way.replays()
