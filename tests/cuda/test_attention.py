"""Attention by parts of the keys on a GPU: every tile, in graphs, and in the place of PyTorch's operators."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from tests.cuda import hopper
from tests.cuda.hopper import COMPILE_S
from tests.runtime.optimize.attentions import SHAPES, Shape, error, exact, of_torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import rote
from rote.runtime.optimize.alternatives import parts
from rote.runtime.optimize.alternatives.operands import Attention
from rote.runtime.optimize.alternatives.parts import PartsPlan
from rote.runtime.optimize.alternatives.tiles import Cut

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False"),
]

LARGE = [
    Shape("pi0: actions", 1, 8, 1, 51, 867, 256, mask="row"),
    Shape("pi0: vision", 1, 16, 16, 256, 256, 72),
    Shape("pi0: prefix", 1, 8, 1, 816, 816, 256, mask="row"),
    Shape("decoding", 1, 32, 8, 1, 2048, 128),
    Shape("decoding, shared", 2, 16, 1, 2, 4100, 64, mask="keys"),
]
MORE_THAN_TORCH = 1.05
"""How many times as far from the exact result as PyTorch's a result may be."""


def runner_for(plans: list[PartsPlan]):
    """Runs plans at once."""
    return hopper.runner_for([source for plan in plans for source in plan.sources])


def plans_of(given: Attention, cuts: list[Cut] | None = None) -> list[PartsPlan]:
    capability = parts.plan_for(given).capability
    return [PartsPlan(given, cut, capability) for cut in cuts or parts.cuts(given)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [*SHAPES, *LARGE], ids=lambda shape: shape.name)
def test_every_tile_comes_as_near_as_pytorch(shape, dtype):
    given = shape.made(dtype, "cuda")
    assert parts.fits(given)
    wanted, own = exact(given), of_torch(given)
    plans = plans_of(given)
    with runner_for(plans) as run:
        for plan in plans:
            result = plan.run(run)
            assert result.dtype is dtype and result.shape == own.shape and bool(result.isfinite().all())
            mine, torchs = error(result, wanted), error(own, wanted)
            assert mine <= MORE_THAN_TORCH * torchs, (plan.cut, mine, torchs)
            assert torch.equal(result, plan.run(run)), "the same bits again"


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_is_where_the_exact_result_has_it(number):
    given = Shape("", 1, 4, 2, 6, 200, 64, mask="heads").made(torch.bfloat16, "cuda")
    for name in ("query", "key", "value", "mask"):
        tensor = getattr(given, name).clone()
        tensor[0, 0, 1, 3] = number
        case = replace(given, **{name: tensor})
        plans = plans_of(case)
        with runner_for(plans) as run:
            for plan in plans:
                torch.testing.assert_close(
                    plan.run(run), exact(case).to(torch.bfloat16), equal_nan=True, rtol=2e-2, atol=2e-2
                )


@pytest.mark.parametrize("shape", [SHAPES[0], LARGE[0], LARGE[3]], ids=lambda shape: shape.name)
def test_they_are_captured(shape):
    given = shape.made(torch.bfloat16, "cuda")
    plans = plans_of(given)
    with runner_for(plans) as run:
        plans[0].run(run)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = [plan.run(run) for plan in plans]
        for seed in (1, 2):
            other = shape.made(torch.bfloat16, "cuda", seed)
            given.query.copy_(other.query)
            given.value[:, :1].copy_(other.value[:, :1])
            graph.replay()
            for plan, result in zip(plans, results, strict=True):
                assert torch.equal(result, plan.run(run)), plan.cut


# ---------------------------------------------------------------------- in the place of operators

OPERATORS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
}


def attend(given: Attention, mask: Tensor | None) -> Tensor:
    grouped = given.heads != given.key.shape[1]
    return F.scaled_dot_product_attention(
        given.query, given.key, given.value, attn_mask=mask, enable_gqa=grouped
    )


@contextmanager
def operator_for(given: Attention, name: str):
    """The operator is the one that is used, with what it gives; the test is skipped if it cannot."""
    with sdpa_kernel(OPERATORS[name]):
        try:
            result = attend(given, given.mask)
        except RuntimeError as error:
            pytest.skip(f"{name}: {error}")
        yield result


@pytest.mark.parametrize("layout", ["heads", "tokens"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_results_lie_as_the_operators(operator, layout):
    """Otherwise each costs a copy."""
    given = Shape("", 2, 4, 4, 6, 200, 64, layout=layout).made(torch.bfloat16, "cuda")
    given = replace(given, like_query=operator != "efficient")
    with operator_for(given, operator) as result:
        assert result.stride() == given.strides


@pytest.mark.parametrize("shape", [LARGE[0], SHAPES[0], SHAPES[3], LARGE[3]], ids=lambda shape: shape.name)
@pytest.mark.parametrize("operator", OPERATORS)
def test_a_recording_uses_them(operator, shape):
    """With what PyTorch gives, also for a row that no key is left in and that only a later call has."""
    given = shape.made(torch.bfloat16, "cuda")

    def call(query: Tensor, mask: Tensor | None) -> Tensor:
        return attend(replace(given, query=query), mask) * 2

    with operator_for(given, operator):
        g = rote.graph(call, keep=True, numerics="near")
        query, mask = given.query.clone(), given.mask
        for _ in range(4000):
            torch.testing.assert_close(g(query, mask), call(query, mask), rtol=2e-2, atol=2e-2)
            if g.wait_until_optimized(timeout_s=COMPILE_S):
                break
        (recording,) = g.report().recordings
        found = recording.tier
        assert found is not None and found.near, g.explain()
        assert found.near[0].alternative.startswith("attention by parts of the keys"), g.explain()
        if mask is not None:
            mask = mask.clone()
            mask[:, :, 0] = float("-inf")
        other = torch.randn_like(query)
        for each in (mask, given.mask):
            torch.testing.assert_close(
                g(other, each), call(other, each), rtol=2e-2, atol=2e-2, equal_nan=True
            )
        assert torch.equal(g(other, mask), g(other, mask))
