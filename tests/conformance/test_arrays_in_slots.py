"""Arrays that lie outside, where others come: replays compute with them, and share no memory with them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import rote
from rote.testing import assert_same

CALLS = 24
MADE: dict[str, Callable[[Any], torch.Tensor]] = {
    "from_numpy": torch.from_numpy,
    "as_tensor": torch.as_tensor,
    "view": lambda array: torch.from_numpy(array)[1:],
    "part": lambda array: torch.from_numpy(array[1:]),
    "reshaped": lambda array: torch.as_tensor(array.reshape(2, 2)),
    "copy": torch.tensor,
    "converted": lambda array: torch.as_tensor(array, dtype=torch.float32),
}


def computes(s: Any, x: torch.Tensor, made: torch.Tensor) -> Any:
    return x.sum() - made


def returns(s: Any, x: torch.Tensor, made: torch.Tensor) -> Any:
    return x.sum() - made, made


def returns_a_view(s: Any, x: torch.Tensor, made: torch.Tensor) -> Any:
    return made.unsqueeze(0)


def keeps(s: Any, x: torch.Tensor, made: torch.Tensor) -> Any:
    s.kept = made
    return made * 2


def keeps_among(s: Any, x: torch.Tensor, made: torch.Tensor) -> Any:
    s.kept = {"it": [made]}
    return made * 2


def writes(s: Any, x: torch.Tensor, made: torch.Tensor) -> Any:
    made.add_(1)
    return x.sum() - made


def writes_seldom(s: Any, x: torch.Tensor, made: torch.Tensor) -> Any:
    made.add_((x.sum() > 30).to(made.dtype))  # what calls that are observed do not show
    return x.sum() - made


def by_the_caller(s: Any, number: int) -> None:
    s.array = np.arange(4.0) * number


def by_itself(s: Any, number: int) -> None:
    s.number = number


def seldom(s: Any, number: int) -> None:
    if number % 5 == 4:
        s.array = np.arange(4.0) * number
    elif number % 3 == 0:
        s.array += 1


def rows(s: Any, number: int) -> None:
    s.array = s.rows[number % 3]


def played(wrap: Any, make: Any, act: Any, between: Any) -> list[Any]:
    s = SimpleNamespace(array=np.arange(4.0), rows=np.arange(12.0).reshape(3, 4), kept=None, number=0)

    def call(x: torch.Tensor) -> Any:
        found = act(s, x, make(s.array))
        if between is by_itself:
            s.array = s.array * 0.5 + 1
        return found

    step, seen = wrap(call), list[Any]()
    for number in range(CALLS):
        between(s, number)
        was = s.array
        found = step(torch.full((4,), number / 2))
        was[2:] += 1  # seen by whatever lies there
        seen.append([*map(copied, (found, s.kept, was.copy(), s.array.copy(), s.rows.copy()))])
    return seen


def copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, (list, tuple)):
        return [copied(each) for each in value]
    return copied([*value.values()]) if isinstance(value, dict) else value


def compared(make: Any, act: Any, between: Any) -> int:
    graphs: list[Any] = []

    def wrap(function: Any) -> Any:
        graphs.append(rote.graph(function, keep=True))
        return graphs[-1]

    assert_same(played(wrap, make, act, between), played(lambda function: function, make, act, between))
    return graphs[-1].report().replayed


@pytest.mark.sampled(12)
@pytest.mark.parametrize("between", [by_the_caller, by_itself, seldom, rows])
@pytest.mark.parametrize(
    "act", [computes, returns, returns_a_view, keeps, keeps_among, writes, writes_seldom]
)
@pytest.mark.parametrize("make", MADE)
def test_what_lies_in_its_memory_stays_there(make: str, act: Any, between: Any) -> None:
    compared(MADE[make], act, between)


@pytest.mark.parametrize("between", [by_the_caller, by_itself, rows])
@pytest.mark.parametrize("make", ["from_numpy", "part", "copy", "converted"])
def test_replays_compute_with_the_one_that_lies_there(make: str, between: Any) -> None:
    assert compared(MADE[make], computes, between) > CALLS // 2
