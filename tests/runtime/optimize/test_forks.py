"""Which products run at the same time; what runs is the same either way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.runtime.program.observed import observe
from torch import Tensor

from rote.runtime.optimize.effects import Effects
from rote.runtime.optimize.forks import Concurrent, forks
from rote.runtime.optimize.shortening import ShortStretch, shorten
from rote.runtime.program import operations as ops
from rote.runtime.recording import KernelModes

WIDE = 256


def stretch(function: Callable[..., Any], *args: Tensor) -> ShortStretch:
    """What is left of a call of one segment."""
    operations, results = observe(function, *args)
    captured = [index for index, each in enumerate(operations) if each.kind == ops.CAPTURED]
    modes = KernelModes.now()
    effects = Effects.of(operations, [captured], ())
    return shorten(effects, dict.fromkeys(captured, modes), [token.origin for token in results])


def sides(found: ShortStretch) -> list[tuple[int, int]]:
    """How many products run at the same time as how many others."""
    (run,) = found.runs
    each = list(forks(run.operations, found))
    assert sorted([item for one in each for item in (*one.first, *one.second)]) == list(run.operations)
    return [(len(one.first), len(one.second)) for one in each if one.second]


def square() -> Tensor:
    return torch.randn(WIDE, WIDE)


def test_projections_of_one_input():
    def attention(x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (x @ q) * (x @ k) + (x @ v)

    found = stretch(lambda x, *w: attention(x, *w), torch.randn(4, WIDE), square(), square(), square())
    (run,) = found.runs
    products = [each for each in run.operations if found.effects.operations[each].name == "aten::mm"]
    (both,) = [each for each in forks(products, found) if each.second]
    assert len(both.first) + len(both.second) == 3 and abs(len(both.first) - len(both.second)) == 1


def test_a_chain_is_one():
    assert sides(stretch(lambda x, w: x @ w @ w @ w, torch.randn(4, WIDE), square())) == []


def test_what_reads_an_earlier_one_runs_beside_another():
    found = stretch(lambda x, w: (x @ w, (x + 1) @ w, (x @ w @ w)), torch.randn(4, WIDE), square())
    (run,) = found.runs
    names = [found.effects.operations[each].name for each in run.operations]
    assert names.count("aten::mm") == 3  # x @ w once
    assert sides(found) == [(1, 1)]


@pytest.mark.parametrize("rows", [1 << 14])
def test_wide_products_keep_a_gpu_busy(rows):
    x, w = torch.randn(rows, WIDE), square()
    assert sides(stretch(lambda x, w: (x @ w, x @ (w + 1)), x, w)) == []


def test_heavy_ones_are_apart():
    def both(x: Tensor, wide: Tensor, *slim: Tensor) -> tuple[Tensor, ...]:
        return (x @ wide, *[x @ each for each in slim])

    found = stretch(both, torch.randn(4, WIDE), torch.randn(WIDE, 4 * WIDE), square(), square())
    (one,) = forks(found.runs[0].operations, found)
    assert one == Concurrent((one.first[0],), one.second) and len(one.second) == 2
