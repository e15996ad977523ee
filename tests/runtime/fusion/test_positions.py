"""Where elements lie: sums of digits, held against PyTorch's own views."""

from __future__ import annotations

import random

import pytest
import torch
from tests.runtime.fusion.evaluated import digits, offsets

from rote.runtime.fusion import ElementPosition
from rote.runtime.fusion.positions import Term, aligned, behind, digit_behind, digits_of, piece


def dense(choose: random.Random, shape: list[int]) -> torch.Tensor:
    """The numbers of its elements in the order in which they lie, in a tensor without gaps."""
    order = list(range(len(shape)))
    choose.shuffle(order)
    strides, count = [0] * len(shape), 1
    for dimension in reversed(order):
        strides[dimension] = count
        count *= shape[dimension]
    return torch.arange(count).as_strided(shape, strides)


def viewed(choose: random.Random, tensor: torch.Tensor) -> torch.Tensor:
    for _ in range(choose.randint(0, 3)):
        dimension = choose.randrange(tensor.dim())
        size = tensor.shape[dimension]
        match choose.randrange(5):
            case 0:
                tensor = tensor.transpose(dimension, choose.randrange(tensor.dim()))
            case 1:
                low = choose.randrange(size)
                tensor = tensor.narrow(dimension, low, choose.randint(1, size - low))
            case 2:
                tensor = tensor.unsqueeze(dimension)
            case 3:
                tensor = tensor.expand(2, *tensor.shape)
            case _ if tensor.is_contiguous() and not tensor.numel() % 2:
                tensor = tensor.reshape(2, tensor.numel() // 2)
            case _:
                pass
    return tensor


@pytest.mark.parametrize("block", range(4))
def test_a_position_behind_another(block):
    composed = 0
    for seed in range(500 * block, 500 * block + 500):
        choose = random.Random(seed)
        made = dense(choose, [choose.choice((1, 2, 3, 4)) for _ in range(choose.randint(1, 4))])
        own = digits_of(made.shape, made.stride())
        assert own is not None
        sizes = [size if choose.random() < 0.7 else 1 for size in made.shape]
        strides = [choose.choice((0, 1, 2, 5, 7)) for _ in sizes]
        second = aligned(own, made.dim(), sizes, strides, choose.randint(0, 3))
        view = viewed(choose, made)
        reader = dense(choose, list(view.shape))
        its = digits_of(reader.shape, reader.stride())
        assert its is not None
        first = aligned(its, view.dim(), view.shape, view.stride(), int(view.storage_offset()))
        lies = torch.empty(reader.numel(), dtype=torch.int64)
        lies.as_strided(reader.shape, reader.stride()).copy_(view)
        assert torch.equal(offsets(first, reader.numel()), lies), seed
        found = behind(first, second, made.numel())
        if found is not None:
            composed += 1
            assert torch.equal(offsets(found, reader.numel()), offsets(second, made.numel())[lies]), seed
    assert composed > 450


def test_pieces_of_a_concatenation():
    pieces = [torch.arange(6).view(3, 2), 10 + torch.arange(3).view(3, 1)]
    whole = torch.cat(pieces, 1)
    own = digits_of(whole.shape, whole.stride())
    assert own is not None
    first, second = [
        piece(own, 1, low, each.stride(), each.shape[1], 0) for low, each in zip((0, 2), pieces, strict=True)
    ]
    digit = digit_behind(ElementPosition.same(9), 1, 3)
    assert digit == Term(1, 3, 1, 0, 3)
    inside = digits(digit, 9) < 2
    assert torch.equal(pieces[0].flatten()[offsets(first, 9)[inside]], whole.flatten()[inside])
    assert torch.equal(pieces[1].flatten()[offsets(second, 9)[~inside]], whole.flatten()[~inside])


def test_what_is_no_sum_of_digits():
    rows = ElementPosition(0, (Term(1, 6, 2, 0, 6),))  # every other element of twelve
    assert behind(rows, ElementPosition(0, (Term(3, 4, 1, 0, 4), Term(1, 3, 5, 0, 3))), 12) is None
    assert digit_behind(rows, 3, 4) is None


@pytest.mark.parametrize(
    ("shape", "stride"), [((2, 3), (4, 1)), ((2, 3), (0, 1)), ((2, 2), (1, 1)), ((0, 3), (3, 1))]
)
def test_tensors_with_gaps_or_overlaps_have_no_digits(shape, stride):
    assert digits_of(shape, stride) is None
