"""The operators: exact integers, fake tensors, gradients, and the rules of torch.library."""

from __future__ import annotations

import pytest
import torch

from rote.quant import DuQuantConfig
from rote.quant.numerics.arithmetic import int_matmul, integer_product, quantize_rows
from rote.quant.numerics.packing import layout
from rote.quant.numerics.rotations import hadamard
from rote.quant.numerics.weights import quantize_weight

OPS = torch.ops.rote_quant


def codes(*shape: int, bits: int = 8) -> torch.Tensor:
    return torch.randint(-(1 << (bits - 1)), 1 << (bits - 1), shape, dtype=torch.int8)


@pytest.mark.parametrize(("rows", "width", "out"), [(0, 8, 3), (1, 8, 1), (17, 2050, 5), (33, 16, 24)])
def test_integer_products_are_exact(rows, width, out, device):
    a, b = codes(rows, width), codes(out, width)
    assert torch.equal(int_matmul(a.to(device), b.to(device)).cpu(), (a.long() @ b.long().T).int())


def test_the_worst_sum_is_exact(device):
    a = torch.full((2, 16384), -128, dtype=torch.int8, device=device)
    assert (int_matmul(a, a) == 128 * 128 * 16384).all()


@pytest.mark.parametrize("bits", [2, 4, 5, 8])
@pytest.mark.parametrize("group", [None, 16])
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_integer_layer_is_the_product_of_what_its_codes_stand_for(bits, group, symmetric):
    weight, x = torch.randn(9, 64), torch.randn(11, 64) + 0.5
    granularity = {"weight_granularity": "group", "weight_group_size": group} if group else {}
    config = DuQuantConfig(block_size=16, weight_symmetric=symmetric, **granularity)
    quantized = quantize_weight(weight, bits, config)
    rows = quantize_rows(x, 8, symmetric, 1.0, None, None)
    y = integer_product(rows, layout(quantized.codes, bits), *of_weight(quantized))
    q, scale, zero, total = rows
    assert torch.equal(total, q.sum(1, dtype=torch.int32)) and len(zero) == (0 if symmetric else 11)
    origin = 0 if symmetric else zero[:, None]
    exact = ((q.double() - origin) * scale[:, None].double()) @ quantized.values().double().T
    assert torch.allclose(y.double(), exact, rtol=1e-5, atol=1e-5)


def of_weight(quantized):
    """Scales, zero points and sums of codes."""
    parts = quantized.codes.reshape(*quantized.scale.shape, -1)
    return quantized.scale, quantized.zero, parts.sum(-1, dtype=torch.int32)


def arguments(device, *, act_bits=8, static=None, group=False, rows=False, bias=True, dtype=torch.float32):
    width, features = 32, 10
    granularity = {"weight_granularity": "group", "weight_group_size": 8} if group else {}
    config = DuQuantConfig(block_size=16, **granularity)
    weight = torch.randn(16, width)
    quantized = quantize_weight(weight, 4, config)
    act_scale = {None: None, "tensor": torch.tensor([0.02]), "channel": torch.rand(width) / 30 + 0.01}[static]
    rotation = hadamard(16).float()[None]
    tensors = [
        torch.rand(width) + 0.5,
        [rotation, torch.randperm(width).int(), rotation],
        width,
        act_bits,
        static == "channel",
        1.0,
        act_scale,
        torch.tensor([3], dtype=torch.int32) if static == "tensor" else None,
        layout(quantized.codes, 4),
        *of_weight(quantized),
        rotation if rows else None,
        torch.randn(features).to(dtype) if bias else None,
        features,
    ]
    return [
        t.to(device)
        if isinstance(t, torch.Tensor)
        else [item.to(device) for item in t]
        if isinstance(t, list)
        else t
        for t in tensors
    ]


CASES = [
    {},
    {"act_bits": 16},
    {"static": "tensor", "rows": True},
    {"static": "channel", "bias": False},
    {"group": True, "rows": True},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_opcheck(case, device):
    x = torch.randn(2, 3, 30, device=device, requires_grad=True)
    torch.library.opcheck(OPS.linear.default, (x, *arguments(device, **case)))


def test_opcheck_of_the_parts(device):
    found = arguments(device)
    x = torch.randn(5, 30, device=device)
    torch.library.opcheck(OPS.quantize_rows.default, (x, *found[:8]))
    rows = OPS.quantize_rows(x, *found[:8])
    torch.library.opcheck(OPS.product.default, (*rows, *found[8:12], None, torch.float32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(0, 30), (1, 30), (2, 0, 30), (30,)])
def test_shapes_and_types(shape, dtype, device):
    y = OPS.linear(torch.randn(shape).to(device, dtype), *arguments(device, dtype=dtype))
    assert y.shape == (*shape[:-1], 10) and y.dtype == dtype


def test_without_quantized_activations_the_gradient_is_that_of_differences(device):
    x = torch.randn(3, 30, device=device, requires_grad=True)
    found = arguments(device, act_bits=16, rows=True)
    up = torch.randn(3, 10, device=device)
    OPS.linear(x, *found).backward(up)
    direction = torch.randn(3, 30, device=device)
    ends = [(OPS.linear(x.detach() + step * direction, *found) * up).sum() for step in (1.0, -1.0)]
    assert x.grad is not None
    assert torch.allclose((x.grad * direction).sum(), (ends[0] - ends[1]) / 2, rtol=1e-3, atol=1e-3)


def test_parts_make_the_whole(device):
    found = arguments(device, bias=False)
    x = torch.randn(4, 30, device=device)
    parts = OPS.product(*OPS.quantize_rows(x, *found[:8]), *found[8:12], None, torch.float32)
    assert torch.equal(parts[:, :10], OPS.linear(x, *found))
