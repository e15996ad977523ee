"""PyTorch's attention operators, and what stands for them.

What else an operator gives (sums for a backward, seeds) nobody asks for where an alternative stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from ...compiling import KernelSource
from ...operators import schema_of
from . import in_order, parts, products
from .offered import Alternative, AlternativeRun, Operands
from .operands import Attention

_LIKE_QUERY = {
    "_scaled_dot_product_cudnn_attention": True,
    "_scaled_dot_product_efficient_attention": False,
    "_scaled_dot_product_flash_attention": True,
    "_scaled_dot_product_flash_attention_for_cpu": False,
    "_scaled_dot_product_fused_attention_overrideable": True,
}
"""The operators, and whether each lays out its result as the queries."""


class _Way(NamedTuple):
    """A way to calculate attention, by the name that reports have for it."""

    name: str
    fits: Callable[[Attention], bool]
    calculate: Callable[[AlternativeRun, Attention], torch.Tensor]
    kernels: Callable[[Attention], Sequence[KernelSource]] | None = None
    proof: Callable[[Attention], Iterator[Attention]] | None = None


def _by_parts(name: str, place: int, *, zero: bool = True) -> _Way:
    return _Way(
        name,
        _fits(parts.fits, zero),
        lambda run, given: parts.plan_for(given, place, zero=zero).run(run),
        lambda given: parts.plan_for(given, place, zero=zero).sources,
    )


def _by_products(name: str, halves: int, *, zero: bool = True) -> _Way:
    return _Way(
        name, _fits(products.fits, zero), lambda run, given: products.calculate(run, given, halves, zero=zero)
    )


def _fits(fits: Callable[[Attention], bool], zero: bool) -> Callable[[Attention], bool]:
    return lambda given: (zero or given.mask is not None) and fits(given)


_PARTS, _PRODUCTS = "attention by parts of the keys", "attention of few queries as products"
_NO_NUMBER = "no number without keys"
_WAYS = (
    _by_parts(_PARTS, 0),
    _by_parts(f"{_PARTS}, {_NO_NUMBER}", 0, zero=False),
    _by_parts(f"{_PARTS}, cut otherwise", 1),
    _by_products(_PRODUCTS, 1),
    _by_products(f"{_PRODUCTS}, weights in two parts", 2),
    _by_products(f"{_PRODUCTS}, {_NO_NUMBER}", 1, zero=False),
)
"""What is tried, in this order.

A mask may leave no key to a query. Most of PyTorch's kernels give 0 then, and earlier ones gave no number;
whose kernel does what is not written down anywhere, so both are tried on such a mask.
"""
_IN_ORDER = _Way(
    "attention in the operator's order",
    in_order.fits,
    lambda run, given: in_order.plan_for(given).run(run),
    lambda given: [in_order.plan_for(given).source],
    in_order.proof,
)


def _of(operator: str, way: _Way) -> Alternative:
    """An alternative of one of PyTorch's attention operators."""

    def known(*operands: Any, **named: Any) -> Attention:
        given = _read(operator, operands, named)
        assert given is not None, "it was asked whether it fits"
        return given

    def fits(*operands: Any, **named: Any) -> bool:
        given = _read(operator, operands, named)
        return given is not None and way.fits(given)

    def calculate(run: AlternativeRun, *operands: Any, **named: Any) -> torch.Tensor:
        return way.calculate(run, known(*operands, **named))

    def exact(*operands: Any, **named: Any) -> torch.Tensor:
        return known(*operands, **named).exact()

    def kernels(*operands: Any, **named: Any) -> Sequence[KernelSource]:
        return way.kernels(known(*operands, **named)) if way.kernels is not None else ()

    def edges(*operands: Any, **named: Any) -> Iterator[Operands]:
        given = known(*operands, **named)
        if given.mask is not None:
            yield _instead(given, replace(given, mask=_without_a_row(given.mask)), operands, named)

    def proof(*operands: Any, **named: Any) -> Iterator[Operands]:
        given = known(*operands, **named)
        for other in way.proof(given) if way.proof is not None else ():
            yield _instead(given, other, operands, named)

    return Alternative(
        f"aten::{operator}", way.name, fits, calculate, exact, kernels, edges,
        proof=proof if way.proof is not None else None,
    )  # fmt: skip


def _instead(
    given: Attention, other: Attention, operands: Sequence[Any], named: Mapping[str, Any]
) -> Operands:
    """Operands with the tensors of another attention."""
    olds = (given.query, given.key, given.value, given.mask)
    pairs = list(zip(olds, (other.query, other.key, other.value, other.mask), strict=True))

    def found(each: Any) -> Any:
        return next((new for old, new in pairs if old is each and old is not None), each)

    return [found(each) for each in operands], {name: found(each) for name, each in named.items()}


def _without_a_row(mask: torch.Tensor) -> torch.Tensor:
    """The mask with a query that no key is left for, laid out as it is."""
    memory = mask.untyped_storage().clone()
    found = torch.empty(0, dtype=mask.dtype, device=mask.device)
    found.set_(memory, mask.storage_offset(), mask.shape, mask.stride())
    once = found
    for number, step in enumerate(mask.stride()):
        once = once if step else once.narrow(number, 0, 1)
    once[..., :1, :].fill_(float("-inf"))
    return found


def _read(operator: str, operands: Sequence[Any], named: Mapping[str, Any]) -> Attention | None:
    """What an operator is given; None with dropout, or if it is causal."""
    schema = schema_of(getattr(torch.ops.aten, operator).default)
    given = {each.name: each.default_value for each in schema.arguments}
    given.update(zip(list(given), operands, strict=False))
    given.update(named)
    if given["dropout_p"] or given["is_causal"]:
        return None
    mask = given.get("attn_bias", given.get("attn_mask"))  # one operator takes neither
    return Attention(
        given["query"], given["key"], given["value"], mask, given["scale"], _LIKE_QUERY[operator]
    )


ATTENTION = (
    *[_of(name, way) for name in _LIKE_QUERY for way in _WAYS],
    _of("_scaled_dot_product_cudnn_attention", _IN_ORDER),
)
"""For each of PyTorch's operators, each way; and for cuDNN's the one that keeps its bits."""
