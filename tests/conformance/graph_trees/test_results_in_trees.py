"""Results: held, aliased, views of others, passed in again, and those that are no tensors."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rote.testing import assert_same


def storage(tensor):
    return tensor.untyped_storage()._cdata


def test_held_results_are_not_overwritten(way, inputs):
    calls = inputs(count=12)
    way.same(lambda x: x * x * x, calls)
    assert way.replays() == len(calls) - way.warm


def test_two_sizes_have_a_recording_each(way, inputs):
    calls = [call for pair in zip(inputs(4, 4), inputs(5, 5), strict=True) for call in pair]
    way.same(lambda x: x * x + 1, calls)
    assert way.recordings() == 2
    assert way.replays() >= 8


def test_results_that_share_memory_do_so(way, inputs):
    def fn(x):
        x = x * 20
        y = x * 10
        return x, x[0], x[2:], y[0], y[2:]

    graphed = way.same(fn, inputs())
    for (x,) in inputs():
        whole, first, rest, other, others = graphed(x)
        assert storage(whole) == storage(first) == storage(rest)
        assert storage(other) == storage(others) != storage(whole)
        whole.zero_()
        assert not first.any() and not rest.any() and other.any()


def test_results_that_share_memory_across_a_graph_break(way, inputs):
    def fn(x):
        x = x * 20
        first = x[0]
        torch._dynamo.graph_break()
        return x, first, x[1:]

    graphed = way(fn)
    for (x,) in inputs():
        whole, first, rest = graphed(x)
        assert storage(whole) == storage(first) == storage(rest)
        assert_same((whole, first, rest), fn(x))


def test_results_that_are_arguments_or_views_of_them(way, inputs):
    def fn(x):
        return x, x[0], x.t(), x + 1

    graphed = way(fn)
    for (x,) in inputs():
        same, row, turned, made = graphed(x)
        assert same is x
        assert storage(row) == storage(turned) == storage(x) != storage(made)
        x.fill_(3.0)
        assert (row == 3.0).all() and (turned == 3.0).all()
    assert way.replays()


def test_results_that_are_parameters_or_views_of_them(way, inputs, device):
    class Linear(nn.Linear):
        def forward(self, x):
            return self.weight.T @ x, self.weight, self.weight.T, self.weight[:2]

    model = Linear(4, 4, device=device)
    graphed = way(model)
    with torch.no_grad():
        for (x,) in inputs():
            product, itself, turned, rows = graphed(x)
            assert itself is model.weight
            assert storage(turned) == storage(rows) == storage(model.weight) != storage(product)
            assert_same(product, model.weight.T @ x)
    assert way.replays()


def test_a_view_of_a_result_holds_it(way, inputs):
    graphed = way(lambda x: x + x)
    views = [(x, graphed(x)[1:]) for (x,) in inputs()]
    for x, view in views:
        assert_same(view, (x + x)[1:])


def test_a_result_passed_in_again(way, device):
    def fn(x):
        return x * 2 - 1

    graphed, ours, theirs, held = way(fn), torch.full((4,), 1.5, device=device), None, []
    theirs = ours.clone()
    for _ in range(10):
        ours, theirs = graphed(ours), fn(theirs)
        held.append((ours, theirs))
    for mine, other in held:
        assert_same(mine, other)
    assert way.replays() >= 6


def test_a_result_of_one_callable_passed_to_another(way, inputs):
    first, second = way(lambda x: (x + 1, x + 2)), way(lambda x, y: x * x - y)
    held = []
    for (x,) in inputs():
        one, two = first(x)
        held.append((x, one, two, second(one, two), second(two, one)))
    for x, *found in held:
        one, two = x + 1, x + 2
        assert_same(found, [one, two, one * one - two, two * two - one])
    assert way.replays() >= 2 * len(held)


def test_results_passed_in_with_their_aliases(way, inputs):
    first = way(lambda x: (lambda y: (y, y[0]))(x * 3))
    second = way(lambda y, row: y + row)
    for (x,) in inputs():
        y, row = first(x)
        assert_same(second(y, row), x * 3 + (x * 3)[0])
    assert way.replays()


def test_results_that_the_caller_changes(way, inputs):
    graphed, kept = way(lambda x: x * 2), []
    for number, (x,) in enumerate(inputs()):
        y = graphed(x)
        assert_same(y, x * 2)
        y.add_(number)
        kept.append((x, y))
    for number, (x, y) in enumerate(kept):
        assert_same(y, x * 2 + number)


def test_results_that_are_no_tensors(way, inputs):
    way.same(lambda x: (x * 2, None, 3, "name", x.size(0), x.shape[1] * 0.5), inputs())
    assert way.replays()


def test_structures(way, inputs):
    way.same(lambda x: {"a": [x + 1, (x, None)], "b": {"c": x.sum()}}, inputs())
    assert way.replays()


def test_empty_results(way, inputs):
    def fn(x):
        return x + x, torch.zeros([0], device=x.device), torch.zeros([9], device=x.device)[0:0]

    way.same(fn, inputs())
    assert way.replays()


def test_empty_arguments(way, inputs):
    way.same(lambda x: (x + x, x.sum(), x.new_ones(3) + 1), inputs(0))
    assert way.replays()


def test_an_empty_tensor_on_the_host(way, inputs):
    way.same(lambda x: (x @ x, torch.tensor([])), inputs(4))


def test_scalars_on_the_host(way, inputs):
    calls = [(x, torch.tensor(float(n))) for n, (x,) in enumerate(inputs())]
    way.same(lambda x, scale: x * scale + 1, calls)


def test_numbers_that_change(way, inputs):
    calls = [(x, n % 2) for n, (x,) in enumerate(inputs(count=16))]
    way.same(lambda x, n: x * n + 1, calls)
    assert way.replays()


def test_expanded_arguments(way, device):
    calls = [(torch.randn(1, 16, device=device).expand(4, 16),) for _ in range(8)]
    graphed = way(lambda x: x + 4 + torch.ones(4, 16, device=x.device))
    for (x,) in calls:
        assert_same(graphed(x), x + 4 + torch.ones(4, 16, device=device))
    assert way.replays()


@pytest.mark.parametrize("turns", [False, True], ids=["always", "in turns"])
def test_arguments_that_are_not_aligned(way, device, turns):
    graphed = way(lambda x, y: x + y)
    for number in range(10):
        start = 1 + (number % 3 if turns else 0)
        x, y = torch.randn(24, device=device)[start : start + 20], torch.randn(20, device=device)
        assert_same(graphed(x, y), x + y)
    assert way.replays()


def test_strides_that_change(way, device):
    graphed = way(lambda x: x.sin() + 1)
    for number in range(16):
        x = torch.randn(3, 5, device=device)
        x = x.t() if number % 2 else torch.randn(5, 3, device=device)
        assert_same(graphed(x), x.sin() + 1)
    assert way.replays()


def test_constants_made_inside(way, inputs):
    way.same(lambda x: (x + torch.arange(4, device=x.device), torch.full((2,), 7, device=x.device)), inputs())
    assert way.replays()
