"""The reference path against loops written from the paper's formulas, in float64, one number at a time."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rote.quant import DuQuantConfig
from rote.quant.converting.convert import build_layer


def rounded(value: float) -> int:
    """To the nearest, halves to even."""
    return round(value)


def product(row: list[float], matrix: list[list[float]]) -> list[float]:
    return [sum(row[i] * matrix[i][j] for i in range(len(row))) for j in range(len(matrix[0]))]


def transformed(row: list[float], smooth, rotations, orders, size: int) -> list[float]:
    """``x D^-1 R1 P R2 ...``, each R block-diagonal with one shared block."""
    if smooth is not None:
        row = [value / divisor for value, divisor in zip(row, smooth, strict=True)]
    for i, rotation in enumerate(rotations):
        blocks = [row[start : start + size] for start in range(0, len(row), size)]
        row = [value for block in blocks for value in product(block, rotation)]
        if i < len(orders):
            row = [row[place] for place in orders[i]]
    return row


def quantized(row: list[float], bits: int, ratio: float = 1.0) -> list[float]:
    """Asymmetric, unsigned: ``scale (clamp(round(x / scale) + z, 0, 2^b - 1) - z)``."""
    top = 2**bits - 1
    low, high = min(0.0, min(row) * ratio), max(0.0, max(row) * ratio)
    scale = max((high - low) / top, 1e-9)
    zero = min(max(-rounded(low / scale), 0), top)
    return [scale * (min(max(rounded(value / scale) + zero, 0), top) - zero) for value in row]


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from([(8, 3, 4), (12, 5, 4), (7, 2, 8), (16, 4, 16)]),
    st.integers(0, 2),
    st.sampled_from([None, 0.5, 0.6]),
    st.sampled_from([(4, 8, 1.0, 1.0), (4, 4, 0.9, 0.8), (3, 6, 1.0, 1.0), (8, 8, 1.0, 1.0)]),
    st.integers(0, 1000),
)
def test_the_reference_path_by_the_book(shape, rounds, alpha, grids, seed):
    width, out, size = shape
    weight_bits, act_bits, act_clip, weight_clip = grids
    generator = torch.Generator().manual_seed(seed)
    linear = torch.nn.Linear(width, out)
    linear.weight.data = torch.randn(out, width, generator=generator)
    x = torch.randn(6, width, generator=generator)
    x[:, 0] *= 30
    config = DuQuantConfig(
        block_size=size, permutation_rounds=rounds, smooth_alpha=alpha, weight_bits=weight_bits,
        act_bits=act_bits, act_clip=act_clip, weight_clip=weight_clip, weight_range="minmax",
        rotation_steps=3, path="reference",
    )  # fmt: skip
    layer = build_layer(linear, config, x)
    turn = layer.transform
    smooth = None if turn.smooth is None else turn.smooth.double().tolist()
    rotations = [rotation[0].double().tolist() for rotation in turn.rotations]
    orders = [order.tolist() for order in turn.orders]
    padding = [0.0] * (turn.width - width)

    if smooth is not None:  # max|x|^alpha / max|w|^(1 - alpha)
        for j in range(width):
            peak, column = float(x[:, j].abs().max()), float(linear.weight[:, j].detach().abs().max())
            assert math.isclose(smooth[j], peak**alpha / column ** (1 - alpha), rel_tol=1e-5)

    weight_rows = [
        transformed(
            [w * s for w, s in zip(row + padding, smooth or [1.0] * turn.width, strict=True)],
            None, rotations, orders, size,
        )
        for row in linear.weight.detach().double().tolist()
    ]  # fmt: skip
    weight = [quantized(row, weight_bits, weight_clip) for row in weight_rows]
    found_weight = layer.weight_values().double()
    off = (found_weight - torch.tensor(weight, dtype=torch.float64)).abs() > 1e-5 * found_weight.abs().max()
    assert off.sum() <= max(2, 0.02 * off.numel()), "ties at most"
    codes = layer.codes().long()
    assert codes.min() >= -(2 ** (weight_bits - 1)) and codes.max() < 2 ** (weight_bits - 1)

    found, bias, kept = layer(x).tolist(), linear.bias.tolist(), found_weight.tolist()
    for t, row in enumerate(x.double().tolist()):
        seen = quantized(transformed(row + padding, smooth, rotations, orders, size), act_bits, act_clip)
        step = (max(seen) - min(seen)) / (2**act_bits - 1)
        for o in range(out):
            terms = [a * w for a, w in zip(seen, kept[o], strict=True)]
            tie = step * max(map(abs, kept[o]))  # one activation that falls the other way
            assert abs(found[t][o] - sum(terms) - bias[o]) <= 1e-4 * sum(map(abs, terms)) + tie


def test_a_code_by_hand():
    assert quantized([-1.0, 0.0, 2.0], 2) == [-1.0, 0.0, 2.0]
    assert quantized([0.4, 1.5], 2, 1.0) == pytest.approx([0.5, 1.5])
