"""Random programs: views, writes, reads, constants, random numbers and shapes that depend on data."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from tests.differential.harness import check

import rote

SEEDS, SHORT = 150, 60
CALLS = 18
Values = list[torch.Tensor]


class Step(NamedTuple):
    """One operation: two operands are chosen by ``a`` and ``b``; ``c`` and ``d`` are its constants."""

    name: str
    a: float
    b: float
    c: float
    d: float


def choose(options: Any, share: float) -> Any:
    return options[int(share * len(options))]


UNARY = ["neg", "exp", "sin", "abs", "tanh", "relu", "sigmoid", "sqrt", "floor", "sign"]
BINARY = [torch.add, torch.mul, torch.sub, torch.maximum]
REDUCTIONS = [torch.sum, torch.mean, torch.amax]
WRITES = [
    lambda x, y: x.add_(1),
    lambda x, y: x.mul_(0.5),
    lambda x, y: x.copy_(y),
    lambda x, y: x.add_(y),
    lambda x, y: x.zero_(),
    lambda x, y: x.clamp_(-3, 3),
]
VIEWS = [
    lambda x: x[0],
    lambda x: x[1:],
    lambda x: x.t() if x.dim() == 2 else x.flip(0),
    lambda x: x.reshape(-1),
    lambda x: x[..., ::2],
    lambda x: x.unsqueeze(0),
    lambda x: x.squeeze(),
]


def condition(x, y, step, buffers):
    if x.sum() > step.d * 10:
        return y * 2
    y.add_(0.25)
    return y + 1


def loop(x, y, step, buffers):
    for _ in range(int(x.sum().abs().item()) % 3):
        y = y * 1.5
    return y


def write_slice(x, y, step, buffers):
    if x.dim():
        x[:1] = step.d


def write_masked(x, y, step, buffers):
    x[x > step.d * 4] = step.c


def scatter(x, y, step, buffers):
    if x.dim():
        x.scatter_(0, torch.zeros([1] * x.dim(), dtype=torch.long), step.d)


def write(x, y, step, buffers):
    choose(WRITES, step.c)(x, y)


def write_sum(x, y, step, buffers):
    x.copy_(y.reshape(-1)[:1].sum())


def write_out(x, y, step, buffers):
    torch.mul(x, 2, out=x)


def write_buffer(x, y, step, buffers):
    choose(buffers, step.c).add_(x.sum())


def update(x, y, step, buffers):
    buffers[0].mul_(0.9).add_(buffers[-1].mean())


# Each takes the operands, the step and the buffers, and returns a new value or None.
OPERATIONS: dict[str, Callable[..., torch.Tensor | None]] = {
    "unary": lambda x, y, s, _: getattr(torch, choose(UNARY, s.c))(x),
    "binary": lambda x, y, s, _: choose(BINARY, s.c)(x, y),
    "write": write,
    "view": lambda x, y, s, _: choose(VIEWS, s.c)(x) if x.dim() else x.view(1),
    "write slice": write_slice,
    "reduce": lambda x, y, s, _: choose(REDUCTIONS, s.c)(x),
    "cat": lambda x, y, s, _: torch.cat([x.reshape(-1), y.reshape(-1)])[:12],
    "clone": lambda x, y, s, _: x.clone(),
    "condition": condition,
    "item": lambda x, y, s, _: y * round(x.reshape(-1)[0].item()) % 3 if x.numel() else y,
    "mask": lambda x, y, s, _: x[x > s.d],
    "write masked": write_masked,
    "random": lambda x, y, s, _: torch.rand_like(x) if s.c < 0.5 else F.dropout(x, 0.5),
    "buffer": lambda x, y, s, buffers: choose(buffers, s.c),
    "write buffer": write_buffer,
    "where": lambda x, y, s, _: torch.where(x > s.d, x, y),
    "index": lambda x, y, s, _: x[torch.tensor([0, 0, -1])] if x.dim() else None,
    "constant": lambda x, y, s, _: torch.tensor([s.c, s.d]),
    "loop": loop,
    "write out": write_out,
    "dtype": lambda x, y, s, _: x.double() if s.c < 0.5 else x.int().float(),
    "nonzero": lambda x, y, s, _: x.nonzero().float(),
    "expand": lambda x, y, s, _: x.expand((2, *x.shape)),
    "write sum": write_sum,
    "scatter": scatter,
    "cumsum": lambda x, y, s, _: x.cumsum(0) if x.dim() else x,
    "softmax": lambda x, y, s, _: torch.softmax(x, -1) if x.dim() else x,
    "new": lambda x, y, s, _: x.new_full((3,), s.c) if s.d < 0.5 else torch.zeros_like(x),
    "update": update,
}
WEIGHTS = [{"binary": 2, "write": 2, "view": 2}.get(name, 1) for name in OPERATIONS]
RETURNS: list[Callable[[Values], Any]] = [
    lambda values: values[-1],
    lambda values: tuple(values),
    lambda values: {"a": values[-1], "b": [values[0], values[len(values) // 2]]},
    lambda values: [values[-1], values[-1][...], 3, None],
    lambda values: None,
]
# Arguments of many layouts, on one storage or several, disjoint or overlapping.
ARGUMENTS: list[Callable[[torch.Tensor], Values]] = [
    lambda base: [base[:6].clone().view(2, 3)],
    lambda base: [base[:6].view(2, 3), base[6:9]],
    lambda base: [base[:6].view(2, 3), base[3:9]],
    lambda base: [base[:12].view(3, 4).t(), base[20]],
    lambda base: [base[:4], base[:4]],
    lambda base: [base[::2], base[1::2]],
    lambda base: [base[1:2].expand(3), base[5:8]],
    lambda base: [torch.empty(0, 3), base[:3]],
    lambda base: [base[4:8].clone(), base[4:8].clone().double()],
    lambda base: [base.view(4, 6)[1:3, 2:5], base.view(4, 6)[:, 1]],
]


def program(steps: list[Step], finish: Callable[[Values], Any], buffers: Values) -> Callable[..., Any]:
    """A callable that runs the steps."""

    def run(*args: torch.Tensor) -> Any:
        values = list(args)
        for step in steps:
            x, y = choose(values, step.a), choose(values, step.b)
            made = OPERATIONS[step.name](x, y, step, buffers)
            if made is not None:
                values.append(made)
        return finish(values)

    return run


def arguments(seed: int, layout: Callable[[torch.Tensor], Values]) -> Values:
    r = random.Random(seed)
    return layout(torch.tensor([round(r.uniform(-2, 4), r.choice([0, 2])) for _ in range(24)]))


def scenario(seed: int) -> Callable[..., Iterator[Any]]:
    """A program, called on changing arguments; some repeat, some have another layout."""

    def make(wrap: Callable[..., Any]) -> Iterator[Any]:
        r = random.Random(seed)
        names = r.choices(list(OPERATIONS), WEIGHTS, k=r.randint(2, 9))
        steps = [Step(name, *(r.random() for _ in range(4))) for name in names]
        buffers = [torch.randn(3), torch.ones(2, 3)]
        g = wrap(program(steps, r.choice(RETURNS), buffers))
        usual, other = r.choice(ARGUMENTS), r.choice(ARGUMENTS)
        repeated, held = [r.randrange(1 << 30) for _ in range(4)], []
        for call in range(CALLS):
            values = r.choice(repeated) if r.random() < 0.7 else r.randrange(1 << 30)
            args = arguments(values, usual if r.random() < 0.85 else other)
            if r.random() < 0.03:
                buffers[0] = buffers[0].clone()
            if r.random() < 0.03:
                torch.manual_seed(call)
            try:
                out = g(*args)
            except (RuntimeError, IndexError, ValueError, OverflowError) as error:
                if isinstance(error, rote.RoteError):
                    raise
                out = error
            yield out, args, buffers
            held.append(out)
            if isinstance(out, torch.Tensor) and out.is_contiguous() and r.random() < 0.2:
                out.add_(1)
        yield held

    return make


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "seed",
    [*range(SHORT), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(SHORT, SEEDS))],
)
def test_random_program(seed: int):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Use of .* on expanded tensors is deprecated")
        check(scenario(seed), warmup=1 + seed % 2)
