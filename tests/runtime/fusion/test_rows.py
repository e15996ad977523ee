"""Rows that kernels add up in the order of PyTorch's own kernels on a GPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.runtime.fusion.evaluated import summed
from tests.runtime.fusion.programs import Scene
from tests.runtime.fusion.test_groups import Planned, plan
from torch import Tensor
from torch.nn import functional as F

from rote.runtime.fusion import Fusible, NoKernelError, Written
from rote.runtime.fusion.rows import RowOrder
from rote.testing import assert_same

SHAPES = (
    (51, 1024), (3, 96), (1, 512), (7, 260), (2, 40), (64, 132), (5, 2), (1, 2048), (1, 4096), (2, 1100)
)  # fmt: skip


def on_gpu(function: Callable[..., tuple[Tensor, ...]], *args: Tensor) -> Planned:
    return plan(Scene(function, args), on_host=False)


def norm(x: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    """A sum, and nearly its norm: the interpreter has no roots."""
    x = x + y
    return x, x * (x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def standardized(x: Tensor) -> tuple[Tensor, ...]:
    """Sums of rows that follow from sums of rows."""
    x = x * 2
    x = x - x.mean(-1, keepdim=True)
    return (x * (x * x).sum(-1, keepdim=True),)


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_a_norm_is_one_kernel(rows, columns):
    planned = on_gpu(norm, torch.randn(1, rows, columns), torch.randn(rows, columns), torch.randn(columns))
    (kernel,) = planned.steps
    assert isinstance(kernel, Written) and len(kernel.stores) == 2
    assert kernel.body.rows == RowOrder.of(rows, columns)
    assert len(kernel.covers) == len(planned.group)


def test_sums_of_what_follows_from_sums():
    (kernel,) = on_gpu(standardized, torch.randn(4, 64)).steps
    assert isinstance(kernel, Written)


def test_kernels_calculate_what_their_bodies_say(tmp_path):
    pytest.importorskip("triton")
    from tests.runtime.fusion.test_triton import Given, play

    given = []
    for rows, columns in SHAPES:
        x = torch.randn(rows, columns)
        for planned in (on_gpu(norm, x, x * 3, x[0]), on_gpu(standardized, x)):
            (kernel,) = planned.steps
            assert isinstance(kernel, Written)
            reach = zip(kernel.body.reach, kernel.body.reads, strict=True)
            given.append(Given(kernel, [(torch.randn(most + 1) * 4).to(dtype) for most, dtype in reach]))
    play(given, tmp_path)


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_the_order_is_not_any(rows, columns):
    """Else a proof of it would prove nothing."""
    order = RowOrder.of(rows, columns)
    assert order is not None
    matrix = torch.randn(rows, columns)
    found = summed(matrix, order).view(rows, columns)[:, 0]
    torch.testing.assert_close(found, matrix.sum(1), rtol=1e-4, atol=1e-4)
    if rows * columns > 100:
        assert not torch.equal(found, torch.stack([row.cumsum(0)[-1] for row in matrix]))


@pytest.mark.parametrize(
    ("rows", "columns"), [(2, 130), (4096, 9000), (1, 1 << 20), (3, 0), (0, 8), (1 << 16, 1 << 14)]
)
def test_rows_whose_order_is_not_known(rows, columns):
    assert RowOrder.of(rows, columns) is None


def test_the_mean_of_ten_columns_is_not_a_tenth_of_their_sum_in_64_bits():
    order = RowOrder.of(3, 10)
    assert order is not None and order.share == torch.tensor(0.1).item() != 0.1


@pytest.mark.parametrize(
    "function",
    [
        lambda x: ((x + 1).mean(0),),
        lambda x: ((x + 1).mean(),),
        lambda x: ((x + 1).mean((0, 1)),),
        lambda x: ((x.double() + 1).sum(-1),),
        lambda x: ((x + 1).t().sum(-1),),
        lambda x: (x.sum(-1, dtype=torch.float64),),
    ],
)
def test_what_stays_with_pytorch(function):
    with pytest.raises(NoKernelError, match=r"no rule|rows|order"):
        on_gpu(function, torch.randn(4, 8))


def test_a_sum_that_others_read_is_in_memory():
    def both(x: Tensor) -> tuple[Tensor, ...]:
        mean = (x * 3 + 1).mean(-1, keepdim=True)
        return mean, x - mean * 2

    before, alone, after = on_gpu(both, torch.randn(8, 256)).steps
    assert isinstance(alone, Fusible) and alone.order is not None
    assert isinstance(before, Written) and before.body.rows is None
    assert isinstance(after, Written) and after.body.rows is None


def test_rows_of_arguments_are_left_alone():
    """Where they begin is not known, and PyTorch loads rows at odd places in another order."""
    steps = on_gpu(lambda x: (F.relu(x - x.mean(-1, keepdim=True)),), torch.randn(8, 256)).steps
    alone, after = steps
    assert isinstance(alone, Fusible) and isinstance(after, Written)


def test_other_rows_are_not_added_up_by_one_kernel():
    def two(x: Tensor) -> tuple[Tensor, ...]:
        wide, long = x * 2, (x * 3).view(16, 128)
        return wide - wide.mean(-1, keepdim=True), (long - long.mean(-1, keepdim=True)).view(8, 256)

    kernels = on_gpu(two, torch.randn(8, 256)).steps
    assert [each.body.rows for each in kernels if isinstance(each, Written)] == [
        RowOrder.of(8, 256), RowOrder.of(16, 128)
    ]  # fmt: skip


def test_equal_rows_are_added_up_once():
    def shifted(x: Tensor) -> tuple[Tensor, ...]:
        x = x + 1
        return x - x.mean(-1, keepdim=True), x + x.mean(-1, keepdim=True)

    (kernel,) = on_gpu(shifted, torch.randn(8, 256)).steps
    assert isinstance(kernel, Written) and len(kernel.stores) == 2
    assert_same(kernel.body.rows, RowOrder.of(8, 256), "rows")
