"""Attention with the bits of cuDNN's kernels: in all numbers, on operands that would show any other step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from tests.cuda.hopper import COMPILE_S, is_hopper, runner_for
from tests.runtime.optimize.attentions import Shape
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import rote
from rote.runtime.fusion import HOSTILE, hostile_like, is_equal
from rote.runtime.optimize.alternatives import in_order
from rote.runtime.optimize.alternatives.operands import Attention

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not is_hopper(), reason="the kernels whose steps are known are those for Hopper"),
]

SHAPES = [
    Shape("pi0: actions", 1, 8, 1, 51, 611, 256, mask="row"),
    Shape("pi0: actions, keys apart", 1, 8, 8, 51, 867, 256, mask="row"),
    Shape("pi0: vision", 1, 16, 16, 256, 256, 72),
    Shape("pi0: prefix", 1, 8, 1, 560, 560, 256, mask="row"),
    Shape("no mask", 2, 4, 4, 200, 900, 128),
    Shape("a row without keys", 1, 4, 4, 77, 300, 128, mask="empty"),
    Shape("the smallest number", 1, 12, 12, 16, 777, 64, mask="small"),
    Shape("a mask for each head", 2, 4, 4, 33, 130, 64, mask="heads"),
    Shape("aligned", 1, 12, 12, 128, 128, 64, layout="heads"),
]


def of_cudnn(given: Attention) -> Tensor:
    mask = given.mask
    if mask is not None:
        mask = mask.expand(given.batch, given.heads, given.queries, given.keys)
    operator = torch.ops.aten._scaled_dot_product_cudnn_attention.default
    return operator(given.query, given.key, given.value, mask, False, 0.0, False, scale=given.given_scale)[0]


def hostile(given: Attention) -> Iterator[Attention]:
    for seed, kind in enumerate(HOSTILE):
        query, key, value = (
            hostile_like(each, kind, 3 * seed + number)
            for number, each in enumerate((given.query, given.key, given.value))
        )
        yield replace(given, query=query)
        yield replace(given, value=value)
        yield replace(given, query=query, key=key, value=value)
        if given.mask is not None:
            yield replace(given, mask=hostile_like(given.mask, kind, 50 + seed))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_every_bit_is_that_of_cudnn(shape: Shape, dtype: torch.dtype):
    given = shape.made(dtype, "cuda")
    assert in_order.fits(given)
    plan = in_order.plan_for(given)
    with runner_for([plan.source]) as run:
        for number, each in enumerate((given, *hostile(given), *in_order.proof(given))):
            result = replace(plan, given=each).run(run)
            assert bool(is_equal(result, of_cudnn(each))), number


def test_queries_alone_are_left_to_cudnn():
    assert not in_order.fits(Shape("", 1, 8, 8, 1, 300, 64).made(torch.bfloat16, "cuda"))


# ---------------------------------------------------------------------- other steps


class Other(NamedTuple):
    """What another kernel might do at a step.

    Attributes:
        was: A part of the text of this one.
        other: What stands there instead.
        masked: It is done with a mask alone.
    """

    was: str
    other: str
    masked: bool = False


OTHERS = {
    "threads in another order": Other(
        "tl.reduce(tl.reduce(tl.reshape(sums, (BM, 2, 2)), 2, _plus), 1, _plus)",
        "tl.reduce(tl.reduce(tl.reshape(sums, (BM, 2, 2)), 1, _plus), 1, _plus)",
    ),
    "keys in other threads": Other(
        "(BM, BN // 8, 4, 2)), (0, 2, 1, 3)", "(BM, 4, BN // 8, 2)), (0, 1, 2, 3)"
    ),
    "the sum of rounded weights": Other(
        "tl.reshape(weight, ", "tl.reshape(weight.to(value.dtype.element_ty).to(tl.float32), "
    ),
    "another logarithm": Other("tl.constexpr(1.4426950216293335)", "tl.constexpr(1.4426952)", masked=True),
    "the sum in two steps": Other("_fma(lower[:, None], sums, each)", "_mul(lower[:, None], sums) + each"),
    "scale and mask in two steps": Other(
        "_fma(score, SCALE, added.to(tl.float32))", "_mul(score, SCALE) + added.to(tl.float32)", masked=True
    ),
    "power and largest in one step": Other(
        "_exp2(_sub(power, tl.where(some, higher, 0.0)[:, None]))",
        "_exp2(_fma(score, LOG2_E if MASKED else FACTOR, -tl.where(some, higher, 0.0)[:, None]))",
    ),
    "a division at the end": Other(
        "_mul(acc, tl.where(total != 0.0, _inverse(total), 0.0)[:, None])",
        "tl.math.div_rn(acc, tl.where(total != 0.0, total, 1.0)[:, None] + tl.zeros_like(acc))",
    ),
}


@pytest.mark.parametrize("mask", ["none", "row"])
@pytest.mark.parametrize("other", OTHERS)
def test_the_proof_shows_another_step(other: str, mask: str):
    """A step that it did not see could differ in a later call."""
    was, text, masked = OTHERS[other]
    if masked and mask == "none":
        pytest.skip("there is no such step without a mask")
    given = Shape("", 1, 8, 1, 51, 611, 128, mask=mask).made(torch.bfloat16, "cuda")
    plan = in_order.plan_for(given)
    assert plan.source.text.count(was) == 1
    changed = replace(plan.source, text=plan.source.text.replace(was, text))
    differ = 0
    with runner_for([changed]) as run:
        for each in in_order.proof(given):
            result = torch.empty_like(given.query)
            run.launch(changed, each.tensors, [result])
            differ += int((result != of_cudnn(each)).sum())
    print(f"{other}: {differ} numbers differ")
    assert differ > 0


# ---------------------------------------------------------------------- in the place of the operator


@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[4]], ids=lambda shape: shape.name)
def test_a_recording_uses_it_without_being_asked(shape: Shape):
    """Also for a row that no key is left in and that only a later call has."""
    given = shape.made(torch.bfloat16, "cuda")

    def call(query: Tensor, mask: Tensor | None) -> Tensor:
        return F.scaled_dot_product_attention(query, given.key, given.value, attn_mask=mask) * 2

    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        g = rote.graph(call, keep=True)
        query, mask = given.query.clone(), given.mask
        for _ in range(4000):
            assert torch.equal(g(query, mask), call(query, mask))
            if g.wait_until_optimized(timeout_s=COMPILE_S):
                break
        (recording,) = g.report().recordings
        found = recording.tier
        assert found is not None, g.explain()
        (use,) = found.near
        assert (use.alternative, use.how, use.error) == ("attention in the operator's order", "proved", None)
        assert "proved: 1 _scaled_dot_product_cudnn_attention as" in g.explain()
        if mask is not None:
            mask = mask.clone()
            mask[:, :, 0] = float("-inf")
        for other in (torch.randn_like(query), query * 100, query * float("nan")):
            for each in (mask, given.mask):
                assert bool(is_equal(g(other, each), call(other, each)))
