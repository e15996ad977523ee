"""Paths: branches, graph breaks, sizes that come and go, values the host reads, and errors in the middle."""

from __future__ import annotations

import pytest
import torch

from rote.testing import assert_same


def clipped(x):
    y = x + x
    if y.sum() > 0:
        return y + 10
    return y - 10


def signs(device, pattern):
    return [(torch.full((4, 4), float(sign), device=device),) for sign in pattern]


def test_a_branch(way, device):
    way.same(clipped, signs(device, [1, -1] * 10))
    assert way.replays() >= 10


def test_a_path_that_comes_up_late(way, device):
    way.same(clipped, signs(device, [-1] * 6 + [1] * 6 + [-1, 1] * 3))
    assert way.replays() >= 8


def test_what_is_held_across_a_branch(way, device):
    def fn(x):
        x = x + x + x
        y = x + 1
        torch._dynamo.graph_break()
        z = x * x
        return (y + 1, z) if x.sum() > 0 else y

    way.same(fn, signs(device, [0, 0, 0, 0, 1, 1, 1, 1, 0, 1] * 2))
    assert way.replays()


def test_a_function_that_is_called_twice_inside(way, inputs):
    def cube(x):
        torch._dynamo.graph_break()
        return x * x * x

    def fn(x):
        y = cube(x)
        return y + cube(y)

    way.same(fn, inputs())
    assert way.replays()


def test_another_callable_between_the_parts(way, inputs):
    other = way(lambda x: x + 4)

    def fn(x):
        y = x * x * x
        torch._dynamo.graph_break()
        return x + y

    graphed = way(fn)
    for (x,) in inputs():
        assert_same(graphed(x), fn(x))
        if x.sum() > 0:
            assert_same(other(x), x + 4)
    assert way.replays()


def test_sizes_that_come_back(way, inputs):
    calls = [call for _ in range(6) for size in (4, 5, 7) for call in inputs(size, count=1)]
    way.same(lambda x: (x * 2).cumsum(0), calls)
    assert way.recordings() == 3
    assert way.replays() >= 8


def test_every_size_is_warmed_up(way, device):
    ran = []

    def fn(x):
        return x * 2

    graphed = way(fn, strict=False)
    for size in (2, 3):
        before = way.replays()
        for _ in range(6):
            ran.append(graphed(torch.ones(size, 3, device=device)))
        assert 6 - way.warm <= way.replays() - before <= 5  # of a further size the first call may be recorded


def test_many_sizes_warn_of_nothing(way, inputs):
    calls = [call for size in range(2, 14) for call in inputs(size, count=1) * 4]
    way.same(lambda x: x * 2 + 1, calls)
    assert way.replays()


def test_a_value_that_is_returned_as_a_number(way, device):
    graphed = way(lambda x: x.item())
    for number in [3.0, 6.0] * 5:
        assert graphed(torch.tensor(number, device=device)) == number


def test_a_shape_that_depends_on_values(way, device):
    def fn(x):
        y = x * 2
        return y.nonzero() + 1, y.sum()

    patterns = ([1.0, 0.0, 2.0], [1.0, 0.0, 0.0])
    way.same(fn, [(torch.tensor(each, device=device),) for _ in range(8) for each in patterns])
    assert way.replays()


def test_what_precedes_shapes_that_never_come_back(way, device):
    def fn(x):
        y = (x * 2).sin()
        return y[x > 0] + 1, y.sum()

    calls = [(torch.arange(40.0, device=device) - number,) for number in range(1, 11)]
    way.same(fn, calls)
    if way.compiles:  # the code before the break is compiled, and recorded, alone
        assert way.replays()


def test_an_exception_in_the_middle(way, device):
    total = torch.zeros(4, device=device)

    def fn(x):
        total.add_(x)
        if x.sum() < 0:
            raise ValueError("negative")
        return total * 2

    graphed, expected = way(fn), 0.0
    for number in [1, 1, 1, 1, -1, 1, 1, -1, 1, 1]:
        expected += number
        x = torch.full((4,), float(number), device=device)
        if number < 0:
            with pytest.raises(ValueError, match="negative"):
                graphed(x)
        else:
            assert_same(graphed(x), torch.full((4,), 2 * expected, device=device))
    assert_same(total, torch.full((4,), expected, device=device))


def test_an_operation_that_raises(way, device):
    graphed = way(lambda x, y: (x + 1) @ y)
    good, bad = torch.ones(3, 3, device=device), torch.ones(5, 3, device=device)
    for number in range(10):
        if number % 3 == 2:
            with pytest.raises(
                Exception, match=r"mat1 and mat2|cannot be multiplied|a must be|same reduction dim"
            ):
                graphed(good, bad)
        else:
            assert_same(graphed(good, good), (good + 1) @ good)


def test_a_loop_over_layers(way, inputs):
    def fn(x):
        for scale in range(1, 5):
            x = x.sin() * scale
        return x

    way.same(fn, inputs())
    assert way.replays() == 8 - way.warm


def test_marks_between_steps_do_no_harm(way, inputs):
    graphed, held = way(lambda x: x * x * x), []
    for (x,) in inputs():
        torch.compiler.cudagraph_mark_step_begin()
        held.append((x, graphed(x)))
    for x, result in held:
        assert_same(result, x * x * x)
    assert way.replays()


def test_first_calls_run_plainly(way, device):
    graphed, seen = way(lambda x: x * 2), []
    for _ in range(6):
        graphed(torch.ones(3, device=device))
        seen.append(way.replays())
    assert seen == [max(0, number - way.warm) for number in range(1, 7)]
