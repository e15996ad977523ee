"""Kernels that ask how their operands lie in memory, or whether one is another."""

from __future__ import annotations

import pytest
import torch

from rote.testing import compare


def rows(device, count, *, calls=6):
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(count, 4, generator=generator).to(device),) for _ in range(calls)]


@pytest.mark.parametrize("part", [0, 1])
def test_one_part_of_a_decomposition(device, part):
    g = compare(lambda x: torch.linalg.qr(x * 1)[part] + 1, rows(device, 4))
    assert g.report().replayed == 4


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.linalg.qr(x)[0] * torch.linalg.qr(x)[1].diagonal().sign(),
        lambda x: torch.svd_lowrank(x, 2)[1],
        lambda x: torch.linalg.lu_factor(x * 1)[1] + 1,
        lambda x: torch.linalg.slogdet(x * 1)[0] + 1,
        lambda x: torch.linalg.inv_ex(x * 1).inverse + 1,
    ],
)
def test_decompositions_on_the_way(device, function):
    compare(function, rows(device, 4))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.gather(x * 2, 0, (x * 1).long()) + 1,
        lambda x: torch.take(x * 2, (x * 1).long()) + 1,
        lambda x: (x * 2).index_select(0, (x[:, 0] * 1).long()) + 1,
        lambda x: (x * 2).cumsum(0) + 1,
        lambda x: (x * 2).sort(0)[0] + 1,
    ],
)
def test_nothing_in_a_batch(device, function):
    g = compare(function, rows(device, 0))
    assert g.report().replayed == 4


def test_lazy_zeros_of_autograd(device):
    def curvature(x):
        return torch.func.hessian(lambda row: (row.sin() * row).sum())(x[0])

    compare(curvature, rows(device, 3))
    for function in (torch.sgn, torch.round, lambda x: x.detach().clone()):
        g = compare(lambda x: torch.autograd.functional.jvp(function, x, x)[1] + 1, rows(device, 3))  # noqa: B023
        assert g.report().replayed >= 3, g.explain()
