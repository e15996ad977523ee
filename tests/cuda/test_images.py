"""Operators on images in other ways: group norms, and convolutions and layer norms of what is turned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.cuda.hopper import COMPILE_S, runner_for
from torch import Tensor, nn

import rote
from rote.runtime.fusion import HOSTILE, ORDINARY, hostile_like, is_equal
from rote.runtime.optimize.alternatives import ALTERNATIVES, Alternative
from rote.runtime.recording import Numerics

aten = torch.ops.aten

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False"),
]
HALVES = [torch.float16, torch.bfloat16]


def offered(operator: str) -> Alternative:
    (found,) = ALTERNATIVES.of(f"aten::{operator}", numerics=Numerics.EXACT)
    return found


def draws(*tensors: Tensor | None) -> Iterator[list[Tensor | None]]:
    """Ordinary and hostile numbers in all, and in each alone."""
    for seed, kind in enumerate([*HOSTILE, *[ORDINARY] * 4]):
        others = [
            None if each is None else hostile_like(each, kind, 3 * seed + number)
            for number, each in enumerate(tensors)
        ]
        yield others
        for number, other in enumerate(others):
            if other is not None:
                yield [*tensors[:number], other, *tensors[number + 1 :]]


GROUP_NORMS = [
    ((2, 320, 32, 32), 32),
    ((2, 640, 8, 8), 32),
    ((1, 64, 7, 7), 8),
    ((3, 12, 5, 3), 4),
    ((2, 96, 33, 31), 32),
    ((2, 32, 4, 4), 32),
    ((2, 16, 511), 16),
    ((1, 8, 6, 10, 11), 1),
]


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32], ids=str)
@pytest.mark.parametrize(("weighted", "biased"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize(("shape", "groups"), GROUP_NORMS, ids=str)
def test_every_bit_of_a_group_norm(
    shape: tuple[int, ...], groups: int, dtype: torch.dtype, *, weighted: bool, biased: bool
):
    torch.manual_seed(0)
    x = torch.randn(shape, device="cuda").to(dtype)
    weight, bias = (
        torch.randn(shape[1], device="cuda").to(dtype) if each else None for each in (weighted, biased)
    )
    each, pixels = offered("native_group_norm"), x[0, 0].numel()
    sizes = (shape[0], shape[1], pixels, groups)
    assert each.fits(x, weight, bias, *sizes, 1e-5)
    assert each.kernels is not None
    sources = [source for eps in (1e-5, 1e-3) for source in each.kernels(x, weight, bias, *sizes, eps)]
    with runner_for(sources) as run:
        for number, (drawn, *scaled) in enumerate(draws(x, weight, bias)):
            assert drawn is not None
            for given in (drawn, drawn * 2.0**-8, drawn * 0.01 + 1):
                operands = (given, *scaled, *sizes, (1e-5, 1e-3)[number % 2])
                wanted = aten.native_group_norm(*operands)[0]
                assert bool(is_equal(each.calculate(run, *operands), wanted)), number


def test_group_norms_that_are_left_alone():
    each, x = offered("native_group_norm"), torch.randn(2, 32, 8, 8, device="cuda")
    weight = torch.randn(32, device="cuda")
    assert each.fits(x, weight, weight, 2, 32, 64, 4, 1e-5)
    assert not each.fits(x, None, None, 2, 32, 64, 4, 1e-5)  # PyTorch has another kernel there
    assert not each.fits(x.to(memory_format=torch.channels_last), weight, weight, 2, 32, 64, 4, 1e-5)
    assert not each.fits(x.half(), weight, weight, 2, 32, 64, 4, 1e-5)
    assert not each.fits(x[:, :, :1, :1].contiguous(), weight, weight, 2, 32, 1, 4, 1e-5)
    assert not each.fits(x.double(), weight.double(), None, 2, 32, 64, 4, 1e-5)
    assert not each.fits(x.cpu(), weight.cpu(), None, 2, 32, 64, 4, 1e-5)


CONVOLUTIONS = [
    ((2, 64, 16, 16), 96, 3, {}),
    ((1, 8, 9, 11), 200, 3, {"stride": 2, "padding": 1}),
    ((2, 320, 8, 8), 320, 3, {"padding": 1}),
    ((3, 24, 12, 12), 40, 5, {"dilation": 2, "padding": (4, 3)}),
]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(("shape", "channels", "width", "options"), CONVOLUTIONS, ids=str)
def test_a_convolution_of_turned_images(
    shape: tuple[int, ...], channels: int, width: int, options: Any, dtype: torch.dtype, *, biased: bool
):
    torch.manual_seed(0)
    layer = nn.Conv2d(shape[1], channels, width, bias=biased, device="cuda", dtype=dtype, **options)
    settings = (list(layer.stride), list(layer.padding), list(layer.dilation), False, [0, 0], 1)
    each = offered("convolution")
    with torch.no_grad():
        x = torch.randn(shape, device="cuda").to(dtype)
        weight, bias = layer.weight.detach(), None if layer.bias is None else layer.bias.detach()
        assert each.fits(x, weight, bias, *settings)
        assert each.kernels is not None
        with runner_for([*each.kernels(x, weight, bias, *settings)]) as run:
            for _ in range(4):
                x = torch.randn_like(x)
                found, wanted = each.calculate(run, x, weight, bias, *settings), layer(x)
                exact = aten.convolution(
                    x.double(), weight.double(), None if bias is None else bias.double(), *settings
                )
                assert (found.stride(), found.dtype) == (wanted.stride(), wanted.dtype)
                error = (found - exact).square().mean().sqrt()
                assert error <= 1.02 * (wanted - exact).square().mean().sqrt()


def test_convolutions_that_are_left_alone():
    each, settings = offered("convolution"), ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    x = torch.randn(2, 64, 8, 8, device="cuda", dtype=torch.float16)
    weight = torch.randn(64, 64, 3, 3, device="cuda", dtype=torch.float16)
    assert each.fits(x, weight, None, *settings)
    assert not each.fits(x.to(memory_format=torch.channels_last), weight, None, *settings)
    assert not each.fits(x.float(), weight.float(), None, *settings)
    assert not each.fits(x, weight[:, :, :1, :1].contiguous(), None, *settings)
    assert not each.fits(x, weight[:, :32].contiguous(), None, *settings[:5], 2)
    assert not each.fits(x, weight, None, *settings[:3], True, [0, 0], 1)
    assert not each.fits(x[0], weight, None, *settings)


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32], ids=str)
@pytest.mark.parametrize("shape", [(2, 320, 4096), (64, 300), (3, 17, 1000), (130, 130)], ids=str)
def test_a_layer_norm_of_a_transposed_matrix(shape: tuple[int, ...], dtype: torch.dtype):
    each, width = offered("native_layer_norm"), shape[-2]
    x = torch.randn(shape, device="cuda").to(dtype).transpose(-1, -2)
    weight, bias = torch.randn(2, width, device="cuda").to(dtype)
    assert each.fits(x, [width], weight, bias, 1e-5)
    assert each.kernels is not None
    with runner_for([*each.kernels(x, [width], weight, bias, 1e-5)]) as run:
        for given in (x, x * 1e-3 + 1):
            given = given.mT.contiguous().mT
            found = each.calculate(run, given, [width], weight, bias, 1e-5)
            assert torch.equal(found, F.layer_norm(given, [width], weight, bias, 1e-5))


def test_layer_norms_that_are_left_alone():
    each, x = offered("native_layer_norm"), torch.randn(4, 64, 100, device="cuda")
    turned = x.transpose(-1, -2)
    assert each.fits(turned, [64], None, None, 1e-5)
    assert each.fits(x.permute(2, 0, 1), [64], None, None, 1e-5)
    for other in (x, turned[:, :50], turned[:, :, :32], x.permute(1, 0, 2), turned[:1, :3], x.cpu().mT):
        assert not each.fits(other, [other.shape[-1]], None, None, 1e-5)
    assert not each.fits(turned, [100, 64], None, None, 1e-5)
    assert not each.fits(turned.double(), [64], None, None, 1e-5)


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(8, channels)
        self.convolution = nn.Conv2d(channels, channels, 3, padding=1)
        self.flat = nn.LayerNorm(channels)
        self.project = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.convolution(F.silu(self.norm(x)))
        flat = self.project(self.flat(x.flatten(2).transpose(1, 2)))
        return x + flat.transpose(1, 2).reshape(x.shape)


@pytest.mark.parametrize("numerics", ["exact", "near"])
def test_a_recording_uses_them(numerics: Any):
    """Results are equal to the bit with ``exact``; state that changes is followed."""
    torch.manual_seed(0)
    model = nn.Sequential(*[Block(256) for _ in range(4)]).to("cuda", torch.float16)
    for each in model.parameters():
        each.requires_grad_(False)
    g = rote.graph(model, keep=True, numerics=numerics)
    x = torch.randn(2, 256, 16, 16, device="cuda", dtype=torch.float16)

    def compare() -> None:
        found, wanted = g(x), model(x)
        assert torch.equal(found, wanted) if numerics == "exact" else torch.allclose(found, wanted, atol=0.05)

    for _ in range(4000):
        compare()
        if g.wait_until_optimized(timeout_s=COMPILE_S):
            break
    (recording,) = g.report().recordings
    assert recording.tier is not None
    found = {each.operator: each.operations for each in recording.tier.near}
    assert found.get("native_group_norm") == 4, g.explain()
    assert found.get("native_layer_norm") == 4, g.explain()
    assert numerics == "exact" or found.get("convolution") == 4, g.explain()
    for each in model.parameters():  # nothing is kept of a weight
        each.mul_(1.25)
    for factor in (1.0, -3.0):
        x = x * factor
        compare()
