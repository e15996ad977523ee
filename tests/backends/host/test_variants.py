"""Which ``out=`` overloads are used, and that none is trusted untried."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rote.backends.host import trial
from rote.backends.host.operations import Catalog
from rote.backends.host.variants import Variant, find_variant

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("func", "out", "outs"),
    [
        (aten.add.Tensor, aten.add.out, ("out",)),
        (aten.addmm.default, aten.addmm.out, ("out",)),
        (aten.topk.default, aten.topk.values, ("values", "indices")),
        (aten.threshold_backward.default, aten.threshold_backward.grad_input, ("grad_input",)),
        (aten.relu.default, aten.clamp_min.out, ("out",)),
        (aten.sum.default, aten.sum.IntList_out, ("out",)),
        (aten.index.Tensor, aten.index.Tensor_out, ("out",)),
    ],
)
def test_native_overloads(func: Any, out: Any, outs: tuple[str, ...]) -> None:
    variant = find_variant(func)
    assert variant is not None and (variant.op, variant.outs) == (out, outs)


@pytest.mark.parametrize(
    "func",
    [
        aten.add_.Tensor,  # writes
        aten.convolution_backward.default,  # generated overload only
        aten.native_layer_norm.default,  # generated overload only
        aten._foreach_mul.Scalar,  # returns a list
        aten.mse_loss.default,  # uses its output as scratch
        aten.multinomial.default,  # random
        aten.view.default,  # a view
        aten._linalg_check_errors.default,  # returns nothing
    ],
    ids=str,
)
def test_no_overload(func: Any) -> None:
    assert find_variant(func) is None


def test_an_overload_that_resizes_its_output_is_found_out() -> None:
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    scratch = Variant(aten.cat.out, ("out",), lambda args, kwargs: (([*args],), kwargs))
    assert not trial.fits(scratch, (x, y), {}, [torch.cat([x, y])[:0]])
    assert trial.fits(scratch, (x, y), {}, [torch.cat([x, y])])


def test_an_overload_with_other_numbers_is_found_out() -> None:
    x, y = torch.randn(3), torch.randn(3)
    add = Variant(aten.add.out, ("out",))
    assert trial.fits(add, (x, y), {}, [x + y])
    assert not trial.fits(add, (x, y), {}, [(x + y).nextafter(torch.tensor(9.0))])
    assert not trial.fits(add, (x, torch.randn(2)), {}, [x + y])


def test_a_kind_of_call_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []

    def fits(variant: Variant, *rest: Any) -> bool:
        tried.append(variant.op)
        return True

    monkeypatch.setattr("rote.backends.host.operations.fits", fits)
    catalog = Catalog()
    add = catalog.facts(aten.add.Tensor)
    for size in (3, 3, 4):
        x = torch.ones(size)
        form = catalog.forms.of(x)
        assert catalog.variant(add, (x, x), {}, [form, form], [x + x]) is not None
    assert len(tried) == 2
    assert catalog.variant(add, (x, 1), {}, [form], [x + 1]) is not None
    assert catalog.variant(add, (x, 1.0), {}, [form], [x + 1]) is not None
    assert len(tried) == 4
