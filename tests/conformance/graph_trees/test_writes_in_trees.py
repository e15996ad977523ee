"""Writes: to arguments, parameters, buffers and results, by the callable and by its caller."""

from __future__ import annotations

import torch
from torch import nn

from rote.testing import assert_same


def test_an_argument_that_is_written_and_returned(way, device):
    def fn(x):
        x.add_(2)
        return x

    graphed = way(fn)
    for number in range(8):
        x = torch.full((4,), float(number), device=device)
        assert graphed(x) is x
        assert_same(x, torch.full((4,), number + 2.0, device=device))
    assert way.replays()


def test_one_argument_that_is_written_in_every_call(way, device):
    total = torch.zeros(4, device=device)
    graphed = way(lambda x, total: total.add_(x).sum())
    for number in range(1, 13):
        assert_same(graphed(torch.ones(4, device=device), total), torch.tensor(4.0 * number, device=device))
    assert_same(total, torch.full((4,), 12.0, device=device))
    assert way.replays()


def test_arguments_that_share_memory_and_are_written(way, device):
    def fn(x, row):
        row.mul_(2)
        return x + 1

    graphed = way(fn)
    for number in range(8):
        ours = torch.full((2, 3), float(number), device=device)
        theirs = ours.clone()
        assert_same(graphed(ours, ours[0]), fn(theirs, theirs[0]))
        assert_same(ours, theirs)


def test_buffers_that_are_written(way, inputs, device):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.ones(4, 4))

        def forward(self, x):
            self.total.add_(x)
            return self.total + x

    ours, theirs = Model().to(device), Model().to(device)
    graphed = way(ours)
    for (x,) in inputs():
        assert_same(graphed(x), theirs(x), tolerance=way.near)
        assert_same(ours.total, theirs.total, tolerance=way.near)
    assert way.replays()


def test_running_statistics(way, inputs, device):
    ours, theirs = (nn.BatchNorm1d(4).to(device) for _ in range(2))
    graphed = way(ours)
    for (x,) in inputs():
        assert_same(graphed(x), theirs(x), tolerance=way.near)
    assert_same([*ours.buffers()], [*theirs.buffers()], tolerance=way.near)
    assert way.replays()


def test_parameters_that_the_caller_changes(way, inputs, device):
    model = nn.Linear(4, 4, device=device)
    graphed = way(model)
    with torch.no_grad():
        for (x,) in inputs(count=12):
            assert_same(graphed(x), model(x), tolerance=way.near)
            model.weight.mul_(0.5)
    assert way.replays() == 12 - way.warm


def test_parameters_that_move(way, inputs, device):
    model = nn.Linear(4, 4, device=device)
    graphed = way(model)
    with torch.no_grad():
        for number, (x,) in enumerate(inputs(count=16)):
            if number in (5, 6, 11):
                model.weight.data = torch.randn(4, 4, device=device)
            assert_same(graphed(x), model(x), tolerance=way.near)
    assert way.replays()


def test_a_result_of_one_callable_is_written_by_another(way, inputs):
    def write(x):
        x.add_(2)
        return x * 2

    first, second = way(lambda x: x + 1), way(write)
    for (x,) in inputs():
        made = first(x)
        kept = made.clone()
        assert_same(second(made), (kept + 2) * 2)
        assert_same(made, kept + 2)
        other = kept.clone()  # a tensor of eager in its place
        assert_same(second(other), (kept + 2) * 2)
        assert_same(other, kept + 2)
    assert way.replays() >= len(inputs())


def test_results_are_written_into_a_given_tensor(way, device):
    def fn(x, y, out):
        return torch.logical_xor(x, y, out=out)

    graphed = way(fn)
    for number in range(8):
        x, y = torch.arange(6, device=device) % 2, (torch.arange(6, device=device) + number) % 3
        ours, theirs = (torch.zeros(6, dtype=torch.float16, device=device) for _ in range(2))
        assert_same(graphed(x, y, ours), fn(x, y, theirs))
        assert_same(ours, theirs)


def test_a_view_of_an_argument_is_written(way, device):
    def fn(x):
        x[1:].zero_()
        return x.sum(), x[0]

    graphed = way(fn)
    for number in range(8):
        ours = torch.full((3,), number + 1.0, device=device)
        theirs = ours.clone()
        assert_same(graphed(ours), fn(theirs))
        assert_same(ours, theirs)
    assert way.replays()


def test_arguments_keep_what_others_wrote(way, device):
    graphed, x = way(lambda x: x * 2), torch.ones(4, device=device)
    for number in range(10):
        assert_same(graphed(x), torch.full((4,), 2.0 * (number + 1), device=device))
        x.add_(1)
    assert way.replays() == 10 - way.warm


def test_a_cache_that_is_filled_step_by_step(way, device):
    def fn(cache, x, at):
        cache.index_copy_(0, at, x)
        return cache.sum(0)

    graphed, ours, theirs = way(fn), torch.zeros(12, 3, device=device), torch.zeros(12, 3, device=device)
    for number in range(12):
        x, at = torch.randn(1, 3, device=device), torch.tensor([number], device=device)
        assert_same(graphed(ours, x, at), fn(theirs, x, at))
    assert_same(ours, theirs)
    assert way.replays()
