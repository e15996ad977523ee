"""Numbers that change, in what raises with some of them: a handler of the call goes another way then."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from datetime import date
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch

import rote

ROW = torch.arange(4.0)


class Letter(enum.IntEnum):
    A, B = 1, 2


RAISES: dict[str, Callable[[int], Any]] = {
    "quotient": lambda n: 12 // n, "rest": lambda n: 12 % n, "fraction": lambda n: 1.5 / n,
    "item": lambda n: (5, 6, 7)[n], "member": lambda n: {1: 5, 2: 6}[n], "shifted": lambda n: 1 << (2 - n),
    "of an array": lambda n: numpy.arange(3.0)[n], "of a tensor": lambda n: ROW[:3][n],
    "root": lambda n: math.sqrt(2 - n), "logarithm": lambda n: math.log(n),
    "power": lambda n: math.exp(n * 300) and n, "character": lambda n: ord(chr(n - 1)),
    "bytes": lambda n: (n * 100).to_bytes(1, "big")[0], "text": lambda n: len(f"{1.5:.{n - 1}f}"),
    "number of a text": lambda n: int(str(n).replace("3", "x")), "enumeration": lambda n: Letter(n).value,
    "place": lambda n: [1, 2].index(n), "popped": lambda n: [5, 6, 7].pop(n),
    "day": lambda n: date(2023, 2, 26 + n).day, "range": lambda n: len(range(0, 10, n)),
    "whole": lambda n: int(float("inf") if n == 3 else n * 1.5),
}  # fmt: skip


def played(wrap: Any, raising: Callable[[int], Any], numbers: list[int]) -> list[Any]:
    state = SimpleNamespace(n=1)

    def step(x: torch.Tensor) -> torch.Tensor:
        try:
            return x * raising(state.n)
        except (ValueError, ArithmeticError, LookupError):
            return x - 1

    step, seen = wrap(step), list[Any]()
    for number in numbers:
        state.n = number
        seen.append(step(ROW).tolist())
    return seen


@pytest.mark.sampled(4)
@pytest.mark.parametrize("numbers", [[call // 6 % 4 for call in range(30)], [call % 4 for call in range(30)]])
@pytest.mark.parametrize("name", [*RAISES])
def test_the_handler_runs_where_it_does(name: str, numbers: list[int]) -> None:
    found = played(lambda step: rote.graph(step, keep=True), RAISES[name], numbers)
    assert found == played(lambda step: step, RAISES[name], numbers)
