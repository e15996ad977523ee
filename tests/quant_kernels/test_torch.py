"""The implementation for CPUs against numbers calculated directly, and the operators as torch tests them."""

from __future__ import annotations

import pytest
import torch
from benchmarks.w4a8_operators import Activation, linear, product, quantize_rows, transform_rows
from tests.quant_kernels import cases

from rote.quant.kernels.transform import plan


def values(rows: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """What codes of activations stand for."""
    codes, scale, zero, _ = rows
    origin = zero.double() if zero.numel() else torch.zeros_like(scale).double()
    return (codes.double() - origin[:, None]) * scale.double()[:, None]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("grid", cases.GRIDS)
def test_linear_is_the_product_of_what_codes_stand_for(bits: int, grid: str):
    change = cases.transform_of("rotate permute rotate", 120, 128, 32, smooth=True)
    target = cases.grid_of(grid, 128)
    codes, weight = cases.weight_of(70, 128, bits)
    x, bias = cases.rows_of(5, 120, torch.float32), torch.randn(70)
    zero = weight.zero.double() if weight.zero is not None else 0
    dense = (codes.double() - zero) * weight.scale.double()
    wanted = values(quantize_rows(x, change, target)) @ dense.T + bias.double()
    found = linear(x.reshape(5, 1, 120), change, target, weight, bias)
    assert found.shape == (5, 1, 70)
    torch.testing.assert_close(found.reshape(5, 70).double(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("grid", ["symmetric", "asymmetric", "four bits"])
def test_codes_are_within_half_a_step(grid: str):
    change = cases.transform_of("rotate", 128, 128, 32, smooth=False)
    target = cases.grid_of(grid, 128)
    rows = quantize_rows(cases.rows_of(9, 128, torch.float32), change, target)
    exact = transform_rows(cases.rows_of(0, 128, torch.float32), change, torch.float32)
    assert exact.shape == (0, 128)
    torch.manual_seed(0)
    x = torch.randn(9, 128)
    codes, scale, *_ = rows = quantize_rows(x, change, target)
    exact = transform_rows(x, change, torch.float32)
    limit = 1 << (target.bits - 1)
    inside = (codes > -limit) & (codes < limit - 1)
    apart = (values(rows) - exact.double()).abs() / scale.double()[:, None]
    assert apart[inside].max() <= 0.501


@pytest.mark.parametrize("tokens", [0, 1, 3])
def test_sums_are_exact(tokens: int):
    codes, weight = cases.weight_of(33, 4100, 8)
    x = torch.randint(-128, 128, (tokens, 4100), dtype=torch.int8)
    x[:, :2000] = -128
    rows = (x, torch.ones(tokens), torch.empty(0, dtype=torch.int32), x.sum(1, dtype=torch.int32))
    assert torch.equal(
        product(rows, weight, None, torch.int32), (x.double() @ codes.double().T).to(torch.int32)
    )


def test_activations_that_are_not_quantized():
    change = cases.transform_of("rotate", 64, 64, 32, smooth=False)
    codes, weight = cases.weight_of(10, 64, 4)
    assert weight.zero is not None
    x = torch.randn(3, 64)
    dense = (codes.float() - weight.zero.float()) * weight.scale
    wanted = transform_rows(x, change, torch.float32) @ dense.T
    torch.testing.assert_close(linear(x, change, Activation(bits=16), weight), wanted, rtol=1e-5, atol=1e-5)


def operators():
    change, grid = cases.transform_of("rotate permute rotate", 60, 64, 32, smooth=True), Activation()
    _, weight = cases.weight_of(10, 64, 4)
    x = cases.rows_of(3, 60, torch.bfloat16)
    rows = quantize_rows(x, change, grid)
    both, packed = cases.transform_arguments(change, grid), cases.weight_arguments(weight, None)
    names = torch.ops.rote_quant
    group = cases.group_arguments([change], [grid], [weight, weight], [None, None])
    scales = [torch.rand(64) for _ in range(2)]
    return [
        pytest.param(names.transform_rows, (x, *both[:3], torch.float32), id="transform_rows"),
        pytest.param(names.quantize_rows, (x, *both), id="quantize_rows"),
        pytest.param(names.product, (*rows, *packed, torch.bfloat16), id="product"),
        pytest.param(names.linear, (x, *cases.layer_arguments(change, grid, weight)), id="linear"),
        pytest.param(names.linears, (x, *group), id="linears"),
        pytest.param(names.rounded_rows, (x, *both), id="rounded_rows"),
        pytest.param(names.rounded_apart, (x, [change.stages[1]] * 2, 64, 8, True, scales), id="apart"),
    ]


@pytest.mark.parametrize(("operator", "arguments"), operators())
def test_operators_pass_the_checks_of_torch(operator, arguments):
    arguments = [list(item) if isinstance(item, tuple) else item for item in arguments]
    tests = ("test_schema", "test_faketensor")
    torch.library.opcheck(operator.default, tuple(arguments), test_utils=tests)


CHAINS = {
    "nothing": 1,
    "rotate": 1,
    "rotate permute rotate": 1,
    "permute rotate each": 1,
    "three rotations": 3,
}


@pytest.mark.parametrize("chain", CHAINS)
def test_launches(chain: str):
    """Every stage is in one launch, in order, and there are no more launches than have to be."""
    stages = cases.transform_of(chain, 256, 256, 128, smooth=False).stages
    launches = plan(stages)
    planned = [
        item for piece in launches for item in (piece.first, piece.order, piece.second) if item is not None
    ]
    assert len(launches) == CHAINS[chain]
    assert all(torch.equal(found, wanted) for found, wanted in zip(planned, stages, strict=True))


def test_a_layer_is_one_node_of_a_graph():
    change, grid = cases.transform_of("rotate permute rotate", 60, 64, 32, smooth=True), Activation()
    _, weight = cases.weight_of(10, 64, 4)
    faster = torch.compile(
        lambda x: linear(x * 2, change, grid, weight) + 1, fullgraph=True, backend="aot_eager"
    )
    for tokens in (3, 4, 5):
        x = cases.rows_of(tokens, 60, torch.bfloat16).reshape(tokens, 1, 60)
        assert torch.equal(faster(x), linear(x * 2, change, grid, weight) + 1)


def test_the_group_and_its_gradient_pass_the_checks_of_torch():
    change, grid = cases.transform_of("rotate permute rotate", 60, 64, 32, smooth=True), Activation()
    weights = [cases.weight_of(n, 64, 4)[1] for n in (10, 7)]
    arguments = cases.group_arguments([change], [grid], weights, [torch.randn(10), torch.randn(7)])
    arguments = tuple(list(item) if isinstance(item, tuple) else item for item in arguments)
    x = torch.randn(2, 3, 60, requires_grad=True)
    torch.library.opcheck(torch.ops.rote_quant.linears.default, (x, *arguments))
