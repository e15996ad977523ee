"""PyTorch's attention operators: which ways there are for each, and what none is used for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.runtime.optimize.attentions import Shape
from torch import Tensor

from rote.runtime.optimize import ALTERNATIVES

WITH_MASK = {
    "_scaled_dot_product_cudnn_attention": lambda mask, *rest: ((mask, False, *rest), {}),
    "_scaled_dot_product_efficient_attention": lambda mask, *rest: ((mask, False, *rest), {}),
    "_scaled_dot_product_flash_attention_for_cpu": lambda mask, *rest: (rest, {"attn_mask": mask}),
    "_scaled_dot_product_fused_attention_overrideable": lambda mask, *rest: ((mask, *rest), {}),
}
"""What each takes behind query, key and value."""

OPERATORS = {**WITH_MASK, "_scaled_dot_product_flash_attention": lambda mask, *rest: (rest, {})}
MASKED = Shape("", 1, 4, 1, 5, 200, 64, mask="row")


def now(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(*args, **kwargs)


def operands(operator: str, shape: Shape, *rest: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    given = shape.made(torch.bfloat16)
    more, named = OPERATORS[operator](given.mask, *rest)
    return (given.query, given.key, given.value, *more), named


def fitting(operator: str, args: tuple[Any, ...], named: dict[str, Any]) -> list[str]:
    return [each.name for each in ALTERNATIVES.of(f"aten::{operator}") if each.fits(*args, **named)]


@pytest.mark.parametrize("operator", OPERATORS)
def test_operands_are_those_of_the_operator(operator):
    """On the host there are products, for masks also one that gives no number without keys."""
    schema = getattr(torch.ops.aten, operator).default._schema
    args, named = operands(operator, MASKED, 0.0, False)
    positional = [each for each in schema.arguments if not each.kwarg_only]
    assert [each.name for each in positional[:3]] == ["query", "key", "value"]
    for each, value in zip(positional, args, strict=False):
        assert isinstance(value, Tensor) == ("Tensor" in str(each.type)), each.name
    assert named.keys() <= {each.name for each in schema.arguments if each.kwarg_only}
    ways = 3 if operator in WITH_MASK else 2
    assert len(fitting(operator, args, named)) == ways
    assert len(fitting(operator, args, {**named, "scale": 0.3})) == ways


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("rest", [(0.1, False), (0.0, True)], ids=["dropout", "causal"])
def test_what_none_is_used_for(operator, rest):
    assert not fitting(operator, *operands(operator, MASKED, *rest))


def test_products_are_of_as_many_keys_as_queries_have_heads():
    operator = "_scaled_dot_product_flash_attention"
    grouped = operands(operator, Shape("", 1, 4, 2, 5, 200, 64))
    assert not fitting(operator, *grouped)


@pytest.mark.parametrize("operator", WITH_MASK)
@pytest.mark.parametrize("scale", [None, 0.3])
def test_they_are_given_mask_and_scale(operator, scale):
    args, named = operands(operator, MASKED)
    wide = [each.double() if isinstance(each, Tensor) else each for each in args]
    wide_named = {name: each.double() for name, each in named.items()}
    mask = next(each for each in (*wide[3:], *wide_named.values()) if isinstance(each, Tensor))
    wanted = torch.nn.functional.scaled_dot_product_attention(*wide[:3], attn_mask=mask, scale=scale)
    for each in ALTERNATIVES.of(f"aten::{operator}"):
        assert each.exact is not None
        torch.testing.assert_close(each.exact(*wide, **wide_named, scale=scale), wanted)
        if each.fits(*args, **named):
            found = each.calculate(now, *args, **named, scale=scale)
            torch.testing.assert_close(found.double(), wanted, rtol=2e-2, atol=1e-2)


def test_a_mask_that_leaves_no_key_is_answered_in_two_ways():
    operator = "_scaled_dot_product_efficient_attention"
    shape = MASKED._replace(mask="empty")
    args, named = operands(operator, shape)
    found = [
        each.calculate(now, *args, **named)
        for each in ALTERNATIVES.of(f"aten::{operator}")
        if each.fits(*args, **named)
    ]
    assert [bool(each[:, :, 2].isnan().all()) for each in found] == [False, False, True]
    assert [bool(each[:, :, 2].any()) for each in found] == [False, False, True]


@pytest.mark.parametrize("expanded", [False, True])
def test_edges_are_masks_that_leave_no_key_to_a_query(expanded):
    operator = "_scaled_dot_product_efficient_attention"
    (query, key, value, mask, *rest), _ = operands(operator, MASKED)
    if expanded:
        mask = mask.expand(1, 4, 5, 200)
    before = mask.clone()
    for each in ALTERNATIVES.of(f"aten::{operator}"):
        assert each.edges is not None
        ((operands_there, _),) = each.edges(query, key, value, mask, *rest)
        *same, edge, _ = operands_there
        assert [one is other for one, other in zip(same, (query, key, value), strict=True)] == [True] * 3
        assert edge.stride() == mask.stride() and (edge[:, :, 0] == float("-inf")).all()
        assert torch.equal(edge[:, :, 1:], mask[:, :, 1:])
    assert torch.equal(mask, before)
