"""Random layers: weights with their codes, chains of stages, grids."""

from __future__ import annotations

from typing import Any

import torch
from benchmarks.w4a8_operators import Activation, PackedWeight, Transform, pack_weight
from torch import Tensor

CHAINS = ("nothing", "rotate", "permute", "rotate permute rotate", "permute rotate each", "three rotations")
GRIDS = ("symmetric", "asymmetric", "four bits", "static", "static symmetric", "static from zero", "channels")


def weight_of(
    n: int, k: int, bits: int, device: Any = "cpu", *, zero: bool = True
) -> tuple[Tensor, PackedWeight]:
    """Codes, and the same packed; the extremes of the range occur."""
    limit = 1 << (bits - 1)
    codes = torch.randint(-limit, limit, (n, k), dtype=torch.int8)
    codes[0, :] = -limit
    zeros = torch.randint(-limit, limit, (n,)) if zero else None
    packed = pack_weight(codes, torch.rand(n) * 0.01 + 0.001, zeros, bits)
    moved = {
        name: value.to(device) for name, value in vars(packed).items() if isinstance(value, torch.Tensor)
    }
    return codes.to(device), PackedWeight(**{**vars(packed), **moved})


def rotations(count: int, size: int) -> Tensor:
    """Orthogonal matrices."""
    return torch.linalg.qr(torch.randn(count, size, size))[0].contiguous()


def transform_of(
    chain: str, features: int, width: int, size: int, *, smooth: bool, dtype=torch.float32
) -> Transform:
    """One of the chains."""
    shared = rotations(1, size).to(dtype)
    order = torch.randperm(width).to(torch.int32)
    stages = {
        "nothing": (),
        "rotate": (shared,),
        "permute": (order,),
        "rotate permute rotate": (shared, order, rotations(1, size).to(dtype)),
        "permute rotate each": (order, rotations(width // size, size).to(dtype)),
        "three rotations": (shared, order, rotations(width // size, size).to(dtype), order, shared),
    }[chain]
    return Transform(torch.rand(width) + 0.5 if smooth else None, stages, width)


def grid_of(name: str, width: int) -> Activation:
    """One of the grids."""
    return {
        "symmetric": Activation(symmetric=True),
        "asymmetric": Activation(),
        "four bits": Activation(4, clip=0.9),
        "static": Activation(scale=torch.tensor([0.03]), zero=torch.tensor([5], dtype=torch.int32)),
        "static symmetric": Activation(symmetric=True, scale=torch.tensor([0.03])),
        "static from zero": Activation(scale=torch.tensor([0.03])),
        "channels": Activation(symmetric=True, scale=torch.rand(width) * 0.05 + 0.01),
    }[name]


def rows_of(tokens: int, features: int, dtype: torch.dtype) -> Tensor:
    """Activations with a hot channel, and one row of zeros where there are several."""
    x = torch.randn(tokens, features)
    x[:, 0] *= 20
    x[1:2] = 0
    return x.to(dtype)


def to(device: Any, change: Transform, grid: Activation) -> tuple[Transform, Activation]:
    """The same on a device."""

    def move(value: Tensor | None) -> Tensor | None:
        return None if value is None else value.to(device)

    stages = tuple(stage.to(device) for stage in change.stages)
    return Transform(move(change.smooth), stages, change.width), Activation(
        grid.bits, grid.symmetric, grid.clip, move(grid.scale), move(grid.zero)
    )


def transform_arguments(change: Transform, grid: Activation) -> tuple[Any, ...]:
    """As the operators take them."""
    return (
        change.smooth, change.stages, change.width, grid.bits, grid.symmetric, grid.clip, grid.scale,
        grid.zero,
    )  # fmt: skip


def weight_arguments(weight: PackedWeight, bias: Tensor | None) -> tuple[Any, ...]:
    """As the operators take them."""
    return weight.codes, weight.scale, weight.zero, weight.sums, bias


def layer_arguments(
    change: Transform, grid: Activation, weight: PackedWeight, bias: Tensor | None = None
) -> tuple[Any, ...]:
    """As the operator of a whole layer takes them."""
    whole = weight_arguments(weight, bias)
    return *transform_arguments(change, grid), *whole[:4], None, bias, weight.rows


def group_arguments(
    changes: list[Transform], grids: list[Activation], weights: list[PackedWeight],
    bias: list[Tensor | None], rotations: list[Tensor] | None = None, features: list[int] | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    """As the operator of layers with one input takes them; one transform is shared."""
    zeros = [weight.zero for weight in weights if weight.zero is not None]
    smooth, _, width, *rest, _, zero = transform_arguments(changes[0], grids[0])
    return (
        smooth, [stage for change in changes for stage in change.stages], width, *rest,
        [grid.scale for grid in grids if grid.scale is not None], zero,
        [w.codes for w in weights], [w.scale for w in weights], zeros,
        [w.sums for w in weights], rotations or [], [b for b in bias if b is not None],
        features or [w.rows for w in weights],
    )  # fmt: skip


def apart_of(
    sizes: tuple[int, ...], k: int, block: int, dtype: torch.dtype, *, rotated: bool, bias: bool
) -> tuple[Any, ...]:
    """Layers with transforms, static scales and row rotations of their own, as operators take them."""
    width = -(-k // block) * block
    chain = "permute rotate each"
    changes = [transform_of(chain, k, width, block, smooth=False, dtype=dtype) for _ in sizes]
    grids = [grid_of("channels", width) for _ in sizes]
    rows = [-(-n // block) * block if rotated else n for n in sizes]
    weights = [weight_of(n, width, 4, zero=False)[1] for n in rows]
    turns = [rotations(n // block, block).to(dtype) for n in rows] if rotated else None
    added: list[Tensor | None] = [torch.randn(n) if bias else None for n in sizes]
    return group_arguments(changes, grids, weights, added, turns, list(sizes))


def assert_same_codes(found: tuple[Tensor, ...], wanted: tuple[Tensor, ...]) -> None:
    """Codes are equal but for near ties, which the order of float32 additions decides."""
    codes, scale, zero, total = found
    apart = (codes.int() - wanted[0].int()).abs()
    assert codes.shape == wanted[0].shape and codes.dtype == torch.int8
    if apart.numel():
        assert apart.max() <= 1, f"codes differ by {apart.max()}"
        assert (apart > 0).float().mean() < 0.01, f"{(apart > 0).float().mean():.1%} of the codes differ"
    torch.testing.assert_close(scale, wanted[1], rtol=2e-4, atol=0)
    assert zero.shape == wanted[2].shape
    assert not zero.numel() or (zero - wanted[2]).abs().max() <= 1
    assert torch.equal(total, codes.sum(1, dtype=torch.int32))
