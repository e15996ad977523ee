"""Random programs of pointwise operations, views and concatenations, as functions of tensors."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

DTYPES = (torch.float32, torch.bfloat16, torch.int64)


class Scene(NamedTuple):
    """A function, and what it is called with."""

    function: Callable[..., tuple[Tensor, ...]]
    args: tuple[Tensor, ...]


def scene(seed: int, *, most: int = 12) -> Scene:
    """A program: each step takes earlier values, and some of them are results."""
    choose = random.Random(seed)
    shape = tuple([choose.choice((1, 2, 3, 4, 6)) for _ in range(choose.randint(1, 4))])
    torch.manual_seed(seed)
    args = tuple([_made(choose, shape) for _ in range(choose.randint(1, 4))])
    steps = [(choose.randrange(len(STEPS)), choose.random(), choose.getrandbits(32))
             for _ in range(choose.randint(1, most))]  # fmt: skip
    wanted = choose.randint(1, 3)

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        values = list(tensors)
        for kind, _, bits in steps:
            made = STEPS[kind](random.Random(bits), values)
            if made is not None:
                values.append(made)
        return tuple([value + 0 for value in values[-wanted:]])

    return Scene(function, args)


def _made(choose: random.Random, shape: tuple[int, ...]) -> Tensor:
    sizes = [size if choose.random() < 0.8 else 1 for size in shape]
    sizes = sizes[choose.randint(0, len(sizes) - 1) if choose.random() < 0.2 else 0 :]
    made = (torch.randn(sizes) * 4).to(choose.choice(DTYPES))
    if len(sizes) > 1 and choose.random() < 0.4:
        made = made.transpose(0, -1).contiguous().transpose(0, -1)
    return made


Step = Callable[[random.Random, list[Tensor]], Any]


def _binary(function: Callable[[Tensor, Tensor], Tensor]) -> Step:
    def step(choose: random.Random, values: list[Tensor]) -> Tensor | None:
        left = choose.choice(values)
        fitting = [value for value in values if _fits(left, value)]
        return function(left, choose.choice(fitting)) if fitting else None

    return step


def _fits(left: Tensor, right: Tensor) -> bool:
    try:
        torch.broadcast_shapes(left.shape, right.shape)
    except RuntimeError:
        return False
    return True


def _unary(function: Callable[[Tensor], Tensor]) -> Step:
    return lambda choose, values: function(choose.choice(values))


def _view(choose: random.Random, values: list[Tensor]) -> Tensor | None:
    value = choose.choice(values)
    if not value.dim() or not value.numel():
        return None
    kind = choose.randrange(5)
    dim = choose.randrange(value.dim())
    if kind == 0:
        return value.transpose(dim, choose.randrange(value.dim()))
    if kind == 1:
        low = choose.randrange(value.shape[dim])
        return value.narrow(dim, low, choose.randint(1, value.shape[dim] - low))
    if kind == 2:
        return value.unsqueeze(dim)
    if kind == 3:
        return value.expand(2, *value.shape)
    return value.view(-1) if value.is_contiguous() else None


def _cat(choose: random.Random, values: list[Tensor]) -> Tensor | None:
    first = choose.choice(values)
    if not first.dim():
        return None
    dim = choose.randrange(first.dim())

    def goes(other: Tensor) -> bool:
        same = other.dtype is first.dtype and other.dim() == first.dim()
        return same and all(
            [a == b for n, (a, b) in enumerate(zip(other.shape, first.shape, strict=True)) if n != dim]
        )

    pieces = [choose.choice([value for value in values if goes(value)]) for _ in range(choose.randint(1, 3))]
    made = torch.cat([first, *pieces], dim)
    return made if made.numel() <= 4096 else None


STEPS: tuple[Step, ...] = (
    _binary(lambda a, b: a + b),
    _binary(lambda a, b: a - b),
    _binary(lambda a, b: a * b),
    _binary(torch.maximum),
    _binary(lambda a, b: torch.where(a > b, a, b)),
    _unary(lambda a: -a),
    _unary(lambda a: a * 3),
    _unary(lambda a: a + 1),
    _unary(lambda a: (a.float() * 0.3).to(torch.bfloat16)),
    _unary(lambda a: a.clamp(min=-2, max=3)),
    _unary(lambda a: a.abs()),
    _view,
    _view,
    _view,
    _cat,
)
