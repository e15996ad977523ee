"""Special methods of the user's objects run as often as in a plain call: who looks at a call asks none."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

import rote

ASKED: Counter[str] = Counter()
ANSWERS: dict[str, Any] = {
    "__hash__": 1, "__eq__": True, "__lt__": True, "__len__": 1, "__bool__": True, "__repr__": "",
    "__contains__": True, "__float__": 1.0, "__call__": 2.0, "__enter__": 1.0, "__exit__": None,
    "__format__": "", "__getitem__": 2.0, "__index__": 1,
}  # fmt: skip


def _method(name: str) -> Callable[..., Any]:
    def method(self: Any, *given: Any) -> Any:
        ASKED[name] += 1
        return ANSWERS[name]

    return method


class State:
    turn = 0


def entered(value: Any, x: torch.Tensor) -> torch.Tensor:
    with value as scale:
        return x * scale


WAYS: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "called": lambda value, x: x * value(1),
    "called in a partial": lambda value, x: x * functools.partial(value, 1)(),
    "called in C": lambda value, x: x * sum(map(value, [1, 2])),
    "index": lambda value, x: x[:value],
    "pair of indices": lambda value, x: x[None, 0:value],
    "place": lambda value, x: x + [1.0, 2.0][value],
    "entered": entered,
    "item": lambda value, x: x * value[0],
    "truth": lambda value, x: x * 2 if value else x,
    "length": lambda value, x: x * len(value),
    "membership": lambda value, x: x * (3 in value),
    "key": lambda value, x: x * {value: 2.0}[value],
    "written": lambda value, x: x + len(f"{value}{[value]}"),
    "number": lambda value, x: x * float(value),
    "sorted": lambda value, x: x * len(sorted([value, value])),
    "returned": lambda value, x: (x + 1, value)[0],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("turns", [False, True])
def test_special_methods_run_as_often_as_in_a_plain_call(way: str, turns: bool, device: torch.device) -> None:
    """The first calls, which are observed and recorded; a number that turns has numbers followed."""

    def played(wrap: Callable[..., Any]) -> list[Any]:
        value: Any = type("Asked", (), {name: _method(name) for name in ANSWERS})()
        state, seen = State(), []

        def step(x: torch.Tensor) -> Any:
            if turns:
                state.turn += 1
            return WAYS[way](value, x) + state.turn

        g = wrap(step)
        for call in range(4):
            ASKED.clear()
            out = g(torch.full((2,), float(call), device=device))
            seen.append((out.tolist(), dict(ASKED)))
        return seen

    graphed = []
    plain = played(lambda fn: fn)
    calls = played(lambda fn: graphed.append(rote.graph(fn)) or graphed[0])
    eager = 4 - graphed[0].report().replayed
    assert [out for out, _ in calls] == [out for out, _ in plain]
    assert [asked for _, asked in calls][:eager] == [asked for _, asked in plain][:eager]
