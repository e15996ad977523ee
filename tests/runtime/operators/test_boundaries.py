"""Which operations end a segment, and why."""

from __future__ import annotations

import pytest
import torch

from rote.hazards import rules
from rote.runtime.operators.boundaries import Placement, place, rule_of
from rote.runtime.operators.facts import facts_of
from rote.runtime.operators.operands import written_operands
from rote.runtime.operators.torch_private import composite_call

aten = torch.ops.aten
X, MASK, INDEX = torch.ones(3), torch.tensor([True, False, True]), torch.tensor([0, 1])
NUMBER = torch.tensor(2.0)
META = torch.ones(3, device="meta")


def placed(func, *tensors, on_host=True, **kwargs):
    return place(facts_of(func), list(tensors), kwargs, on_host, sized=True)


@pytest.mark.parametrize(
    ("func", "tensors", "placement"),
    [
        (aten.mul.Tensor, (X, X), Placement.CAPTURED),
        (aten._local_scalar_dense.default, (X,), Placement.READ),
        (aten.equal.default, (X, X), Placement.READ),
        (aten.is_nonzero.default, (X,), Placement.READ),
        (aten.nonzero.default, (X,), Placement.SHAPED),
        (aten.masked_select.default, (X, MASK), Placement.SHAPED),
        (aten._unique2.default, (X,), Placement.SHAPED),
        (aten.bincount.default, (INDEX,), Placement.SHAPED),
        (aten.index.Tensor, (X, MASK), Placement.SHAPED),
        (aten.index.Tensor, (X, MASK.byte()), Placement.SHAPED),
        (aten.index.Tensor, (X, INDEX), Placement.CAPTURED),
        (aten.index_put_.default, (X, MASK, X), Placement.ISLAND),
        (aten.index_put_.default, (X, INDEX, X), Placement.CAPTURED),
        (aten.index_put_.default, (MASK, INDEX, MASK), Placement.CAPTURED),
        (aten.index_put_.default, (X, MASK, NUMBER), Placement.ISLAND),
        (aten.mul.Tensor, (META, META), Placement.ANYWHERE),
        (aten.view.default, (X,), Placement.CAPTURED),
    ],
)
def test_on_the_host(func, tensors, placement):
    assert placed(func, *tensors) is placement


def test_a_number_that_is_filled_in_is_not_counted():
    facts = facts_of(aten.index_put_.default)
    assert place(facts, [X, MASK, NUMBER], {}, True, sized=True, fills=True) is Placement.CAPTURED
    assert rule_of(aten.index_put_.default, Placement.ISLAND, False, [X, MASK, X]) is rules.DYNAMIC_SHAPE


def test_factories():
    assert placed(aten.ones.default) is Placement.CAPTURED
    assert placed(aten.ones.default, device="cpu") is Placement.CAPTURED
    assert placed(aten.empty.memory_format, device=torch.device("meta")) is Placement.ANYWHERE


@pytest.mark.parametrize(
    ("func", "tensors", "kwargs", "placement"),
    [
        (aten.mul.Tensor, (X, X), {}, Placement.EARLY),
        (aten.add_.Tensor, (X, X), {}, Placement.ISLAND),
        (aten.ones.default, (), {"device": "cuda"}, Placement.CAPTURED),
        (aten.ones.default, (), {"device": "cpu"}, Placement.EARLY),
        (aten.ones.default, (), {}, Placement.EARLY),
        (aten._local_scalar_dense.default, (X,), {}, Placement.READ),
        (aten.mul.Tensor, (META, META), {}, Placement.ANYWHERE),
    ],
)
def test_host_memory_beside_a_gpu(func, tensors, kwargs, placement):
    assert placed(func, *tensors, on_host=False, **kwargs) is placement


@pytest.mark.parametrize(
    ("func", "placement", "refused", "rule"),
    [
        (aten.mul.Tensor, Placement.ISLAND, True, rules.REFUSED),
        (aten.mul.Tensor, Placement.EARLY, False, rules.HOST_OPERATION),
        (aten._to_copy.default, Placement.EARLY, False, rules.DEVICE_COPY),
    ],
)
def test_rules(func, placement, refused, rule):
    assert rule_of(func, placement, refused, [X]) is rule


def test_facts():
    facts = facts_of(aten.add_.Tensor)
    assert facts.name == "aten::add_.Tensor"
    assert facts.mutable and not facts.dynamic and not facts.seeded and facts.written == ((0, "self"),)
    assert facts_of(aten.nonzero.default).dynamic
    for func in (
        aten.rand.default,
        aten.bernoulli.default,
        aten.normal_.default,
        aten.native_dropout.default,
    ):
        assert facts_of(func).seeded, func
    assert facts_of(aten.mul.Tensor) is facts_of(aten.mul.Tensor)


@pytest.mark.parametrize(
    ("func", "args", "kwargs", "written"),
    [
        (aten.mul.Tensor, (X, X), {}, []),
        (aten.add_.Tensor, (X, X), {}, [X]),
        (aten.add.out, (X, X), {"out": INDEX}, [INDEX]),
        (aten._foreach_add_.Scalar, ([X, MASK], 1), {}, [X, MASK]),
        (aten.native_batch_norm.default, (X, None, None, INDEX, MASK, True, 0.1, 0.1), {}, [INDEX, MASK]),
        (aten.native_batch_norm.default, (X, None, None, INDEX, MASK, False, 0.1, 0.1), {}, []),
    ],
)
def test_written_operands(func, args, kwargs, written):
    found = written_operands(facts_of(func), args, kwargs)
    assert [id(tensor) for tensor in found] == [id(tensor) for tensor in written]


@pytest.mark.parametrize("name", ["cudnn", "flash", "fused", "efficient"])
def test_sizes_among_the_results_of_attention_are_no_values(name):
    """They follow from shapes: attention is captured like any other operation."""
    suffix = "_attention_overrideable" if name == "fused" else "_attention"
    facts = facts_of(getattr(aten, f"_scaled_dot_product_{name}{suffix}").default)
    assert not facts.dynamic and not facts.beside and not facts.reads and facts.simple


def test_composite_operations():
    assert composite_call(aten.linear.default) is not None
    assert composite_call(aten.mm.default) is None
    assert composite_call(aten.silu_backward.default) is None


def test_sizes_that_nobody_tells():
    """A graph of CUDA's holds no other sizes than its own, so there the operation is captured."""
    facts = facts_of(torch.ops.aten.sin.default)
    assert place(facts, [X], {}, True, sized=False) is Placement.SHAPED
    assert place(facts, [X], {}, True, sized=True) is Placement.CAPTURED
