"""Products of few rows with the bits of cuBLAS: how it cuts columns up, and every number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from tests.cuda.hopper import COMPILE_S, is_hopper, runner_for
from torch import Tensor

import rote
from rote.runtime.fusion import HOSTILE, ORDINARY, hostile_like, is_equal
from rote.runtime.optimize.alternatives.few_rows import FewRows, FewRowsOperands, FewRowsPlan
from rote.runtime.optimize.alternatives.split import CublasProduct, part_of

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not is_hopper(), reason="the order of sums is known of kernels for Hopper"),
]


class Sizes(NamedTuple):
    """Of a product ``(rows, width)`` by ``(width, columns)``."""

    rows: int
    width: int
    columns: int
    biased: bool = False


SIZES = [
    Sizes(51, 1024, 2048),
    Sizes(51, 1024, 256),
    Sizes(51, 2048, 1024),
    Sizes(51, 4096, 1024),
    Sizes(50, 1024, 1024, biased=True),
    Sizes(64, 768, 3072, biased=True),
    Sizes(1, 2048, 2048),
    Sizes(1, 8192, 2048),
    Sizes(8, 8192, 2048),
    Sizes(16, 4096, 4096),
    Sizes(3, 320, 640),
    Sizes(32, 256, 256),
]


def made(sizes: Sizes, dtype: torch.dtype) -> FewRowsOperands:
    torch.manual_seed(0)
    x = torch.randn(sizes.rows, sizes.width, device="cuda").to(dtype)
    weight = torch.randn(sizes.columns, sizes.width, device="cuda").to(dtype)
    bias = torch.randn(sizes.columns, device="cuda").to(dtype) if sizes.biased else None
    return FewRowsOperands(x, weight.t(), bias)


def described(given: FewRowsOperands) -> FewRows:
    each = given.described(90)
    product = CublasProduct(
        each.rows, each.width, each.columns, each.dtype, (each.row_step, each.column_step), each.biased,
        given.x.device,
    )  # fmt: skip
    return replace(each, part=part_of(product))


def of_cublas(given: FewRowsOperands) -> Tensor:
    if given.bias is None:
        return torch.mm(given.x, given.matrix)
    return torch.addmm(given.bias, given.x, given.matrix)


def others(given: FewRowsOperands, kind: str, seed: int) -> Iterator[FewRowsOperands]:
    x, matrix = hostile_like(given.x, kind, 3 * seed), hostile_like(given.matrix, kind, 3 * seed + 1)
    yield given._replace(x=x)
    yield given._replace(x=x, matrix=matrix)
    if given.bias is not None:
        yield given._replace(bias=hostile_like(given.bias, kind, 3 * seed + 2))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_every_bit_is_that_of_cublas(sizes: Sizes, dtype: torch.dtype):
    given = made(sizes, dtype)
    each = described(given)
    plan = FewRowsPlan((each,), each.in_order)
    kinds = [*HOSTILE, *[ORDINARY] * 8]
    with runner_for([*plan.sources]) as run:
        for seed, kind in enumerate(kinds):
            for other in (given, *others(given, kind, seed)):
                (result,) = plan.run(run, [other])
                assert bool(is_equal(result, of_cublas(other))), (each.part, kind)


@pytest.mark.parametrize("sizes", [SIZES[2], SIZES[3], SIZES[6]], ids=str)
def test_ordinary_numbers_show_another_cut(sizes: Sizes):
    given = made(sizes, torch.bfloat16)
    each = described(given)
    parts = {each.width, *[-(-each.width // (64 * n)) * 64 for n in (2, 3, 4, 8)]} - {each.part}
    changed = [FewRowsPlan((two,), two.in_order) for two in [replace(each, part=part) for part in parts]]
    with runner_for([source for plan in changed for source in plan.sources]) as run:
        for plan in changed:
            differ = 0
            for seed in range(32):
                other = given._replace(x=hostile_like(given.x, ORDINARY, seed))
                (result,) = plan.run(run, [other])
                differ += int((result != of_cublas(other)).sum())
            assert differ > 16, (each.part, plan.tile)


def test_a_recording_uses_them_without_being_asked():
    """Three projections of the same rows are one launch, and the one behind them is cut up as cuBLAS does."""
    torch.manual_seed(0)
    wide, kept, back = (
        torch.nn.Linear(*sizes, bias=False, device="cuda", dtype=torch.bfloat16)
        for sizes in ((1024, 2048), (1024, 256), (4096, 1024))
    )
    other = torch.nn.Linear(1024, 2048, device="cuda", dtype=torch.bfloat16)

    @torch.no_grad()
    def call(x: Tensor) -> Tensor:
        for _ in range(6):
            found = torch.cat([wide(x), other(x).relu()], 1)
            x = back(found) * 0.1 + kept(x).sum()
        return x

    g = rote.graph(call, keep=True)
    x = torch.randn(51, 1024, device="cuda", dtype=torch.bfloat16)
    for _ in range(4000):
        assert torch.equal(g(x), call(x))
        if g.wait_until_optimized(timeout_s=COMPILE_S):
            break
    (recording,) = g.report().recordings
    assert recording.tier is not None
    found = {(each.operator, each.how): each.operations for each in recording.tier.near}
    assert found == {("mm", "proved"): 18, ("addmm", "proved"): 6}, g.explain()
    with torch.no_grad():
        for each in (wide, kept, back, other):  # nothing is kept of a weight
            each.weight.mul_(1.5)
    for factor in (1.0, -3.0, float("inf")):
        assert bool(is_equal(g(x * factor), call(x * factor)))
