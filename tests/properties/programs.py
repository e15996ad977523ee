"""Random programs of ATen operations, drawn by hypothesis and run by an interpreter.

A program is a list of steps over a pool of values that starts with the inputs. Every value has the shape
``(ROWS, COLUMNS)`` or is brought back to it, so that any two fit together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import hypothesis.strategies as st
import torch

ROWS, COLUMNS = 3, 4


class Step(NamedTuple):
    """One operation: its name, the positions of its operands (counted from the end) and a number."""

    kind: str
    first: int
    second: int
    number: int


def _view(x: torch.Tensor, n: int) -> torch.Tensor:
    return (x.t(), x.flip(0), x.view(-1)[::2], x[n % ROWS], x[:, n % COLUMNS :], x.expand(2, ROWS, COLUMNS))[
        n % 6
    ]


def _whole(x: torch.Tensor) -> torch.Tensor:
    """Any tensor brought to the common shape."""
    flat = x.reshape(-1).to(torch.float32)
    return flat.repeat(-(-ROWS * COLUMNS // max(flat.numel(), 1)))[: ROWS * COLUMNS].view(ROWS, COLUMNS)


def _branch(x: torch.Tensor, y: torch.Tensor, n: int) -> torch.Tensor:
    return x + n if (x.sum() > y.mean()).item() else y - n


def _write_view(x: torch.Tensor, y: torch.Tensor, n: int) -> torch.Tensor:
    x[n % ROWS, : n % COLUMNS].copy_(y[0, : n % COLUMNS])
    return x


def _masked(x: torch.Tensor, y: torch.Tensor, n: int) -> torch.Tensor:
    found = x[x > y]
    return _whole(found) if found.numel() else x * 0.5


def _in_place(x: torch.Tensor, y: torch.Tensor, n: int) -> torch.Tensor:
    return (x.add_(y, alpha=n), x.mul_(0.5), x.clamp_(-n - 1, n + 1), x.copy_(y), x.zero_())[n % 5]


KINDS: dict[str, Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]] = {
    "add": lambda x, y, n: x + y * n,
    "multiply": lambda x, y, n: x * y,
    "divide": lambda x, y, n: x / (y.abs() + 1 + n),
    "unary": lambda x, y, n: (x.sin(), x.tanh(), x.exp().clamp(max=9.0), -x, x.abs(), x.relu())[n % 6],
    "matmul": lambda x, y, n: (x @ y.t() @ x).clamp(-50, 50),
    "reduce": lambda x, y, n: x - x.mean(n % 2, keepdim=True) + y.amax(),
    "where": lambda x, y, n: torch.where(x > n - 2, x, y),
    "concatenate": lambda x, y, n: torch.cat([x[: n % ROWS], y])[:ROWS],
    "in place": _in_place,
    "view": lambda x, y, n: _whole(_view(x, n)) + y,
    "true view": lambda x, y, n: x.view(-1).view(ROWS, COLUMNS),
    "write view": _write_view,
    "branch": _branch,
    "number": lambda x, y, n: x * (round(x.sum().item()) % 3),
    "masked": _masked,
    "dropout": lambda x, y, n: torch.nn.functional.dropout(x, 0.1 + n / 10) + torch.rand_like(y) * n,
    "constant": lambda x, y, n: x + torch.tensor([float(n), 1.0, -1.0, 0.5], device=x.device),
    "cast": lambda x, y, n: (x.to(torch.float64) + n).to(torch.float32) + y.to(torch.int32),
    "sort": lambda x, y, n: x.sort(-1, descending=bool(n % 2))[0] + y.cumsum(0),
}

steps = st.builds(
    Step, st.sampled_from(sorted(KINDS)), st.integers(0, 5), st.integers(0, 5), st.integers(0, 5)
)  # fmt: skip
programs = st.lists(steps, min_size=1, max_size=8)


def interpret(program: list[Step]) -> Callable[..., list[torch.Tensor]]:
    """The program as a callable; it returns its last values, the written inputs among them."""

    def run(*inputs: torch.Tensor) -> list[torch.Tensor]:
        values = list(inputs)
        for step in program:
            x, y = values[-1 - step.first % len(values)], values[-1 - step.second % len(values)]
            values.append(KINDS[step.kind](x, y, step.number))
        return values[-3:]

    return run


def inputs(count: int, seed: int) -> tuple[torch.Tensor, ...]:
    """Inputs by seed: few different ones, so that paths come again."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(ROWS, COLUMNS, generator=generator) for _ in range(count))
