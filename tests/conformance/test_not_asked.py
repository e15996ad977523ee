"""Special methods of the user's objects run as often as in a plain call: who looks at a call asks none."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
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


class Key:
    """Found in a dict by its own code, which counts."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __hash__(self) -> int:
        ASKED["__hash__"] += 1
        return 1

    def __eq__(self, other: object) -> bool:
        ASKED["__eq__"] += 1
        return isinstance(other, Key) and other.value == self.value

    def __repr__(self) -> str:
        ASKED["__repr__"] += 1
        return ""


def stored(held: dict[Any, Any], x: torch.Tensor) -> torch.Tensor:
    held[Key(2.0)] = 5.0
    return x * held[Key(2.0)]


IN_TABLES: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "item": lambda held, x: x * held[Key(2.0)],
    "item or default": lambda held, x: x * held.get(Key(4.0), 7.0),
    "default put in": lambda held, x: x * held.setdefault(Key(2.0), 7.0),
    "membership": lambda held, x: x * 2 if Key(2.0) in held else x,
    "membership of keys": lambda held, x: x * len(held.keys() & {Key(2.0)}),
    "membership of pairs": lambda held, x: x * 2 if (Key(2.0), 5.0) in held.items() else x,
    "values": lambda held, x: x * sum(held.values()),
    "pairs": lambda held, x: x * sum(number for _, number in held.items()),
    "compared": lambda held, x: x * 2 if held == dict(held) else x,
    "joined": lambda held, x: x * len(held | {Key(3.0): 1.0}),
    "copied": lambda held, x: x * dict(held).pop(Key(2.0)),
    "counted": lambda held, x: x * Counter(held)[Key(2.0)],
    "made on demand": lambda held, x: x * defaultdict(float, held)[Key(2.0)],
    "stored": stored,
    "set": lambda held, x: x * len({*held, Key(4.0)}),
    "returned": lambda held, x: (x * 2, {**held})[0],
}


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("inside", [False, True], ids=["keys", "tuples"])
@pytest.mark.parametrize("way", IN_TABLES)
def test_keys_from_outside_are_asked_as_often(
    way: str, inside: bool, given: bool, device: torch.device
) -> None:
    """The keys lie in a dict from outside, alone or in tuples; another value lies under one in the end."""

    def played(wrap: Callable[..., Any]) -> list[Any]:
        held: dict[Any, Any] = {Key(2.0): 2.0, Key(3.0): 3.0}
        held |= {(key, 1): number for key, number in held.items()} if inside else {}
        g = wrap((lambda x, held: IN_TABLES[way](held, x)) if given else lambda x: IN_TABLES[way](held, x))
        seen = []
        for call in range(7):
            if call == 4:
                held[Key(3.0)] = 9.0
            ASKED.clear()
            out = g(torch.full((2,), float(call), device=device), *[held] * given)
            seen.append((out.tolist(), [*held.values()], dict(ASKED) if call < 2 else {}))
        return seen

    assert played(rote.graph) == played(lambda fn: fn)


def _raises(self: Any) -> str:
    raise ValueError("not asked")


_TEXTS = {"__repr__": _raises, "__str__": _raises}
NAMED = Enum("NAMED", {"A": 1, "B": 2, "C": 3})
for _name, _method_of in _TEXTS.items():
    setattr(NAMED, _name, _method_of)
OWN = {kind: type("Own", (kind,), _TEXTS) for kind in (int, float, str, object)}
UNWRITTEN: dict[str, Callable[[int], Any]] = {
    "a member of an enumeration": lambda turn: [*NAMED][turn % 3],
    "a whole number": lambda turn: OWN[int](turn),
    "a number": lambda turn: OWN[float](turn),
    "a text": lambda turn: OWN[str](turn),
    "members of a set": lambda turn: {OWN[object]() for _ in range(turn)},
    "keys of a dict": lambda turn: {OWN[object](): turn},
    "a tuple": lambda turn: ([*NAMED][turn % 3], slice([*NAMED][turn % 3])),
}


def test_chains_that_are_as_long_as_the_stack(device: torch.device) -> None:
    @dataclass(frozen=True)
    class Link:
        before: Any

    def step(state: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
        state["tuple"], state["link"] = (state["tuple"],), Link(state["link"])
        state["table"][state["tuple"]] = x
        return x * len(state["table"])

    sides: list[dict[str, Any]] = [{"tuple": (), "link": None, "table": {}} for _ in range(2)]
    for side in sides:
        for _ in range(600):
            side["tuple"], side["link"] = (side["tuple"],), Link(side["link"])
    g = rote.graph(step)
    for turn in range(8):
        x = torch.full((2,), float(turn), device=device)
        assert torch.equal(g(sides[0], x), step(sides[1], x))
    mine = rote.graph(lambda x: step(sides[0], x))
    for turn in range(8):
        x = torch.full((2,), float(turn), device=device)
        assert torch.equal(mine(x), step(sides[1], x))


@pytest.mark.parametrize("place", ["found", "left", "given"])
@pytest.mark.parametrize("which", UNWRITTEN)
def test_reasons_are_told_without_the_texts_of_objects(which: str, place: str, device: torch.device) -> None:
    """What changes is named, whatever its class does where it is written."""
    state: Any = State()

    def step(x: torch.Tensor, value: Any = None) -> torch.Tensor:
        if place == "left":
            state.turn += 1
            state.held = UNWRITTEN[which](state.turn)
        return x * 2 if (value if place == "given" else state.held) else x

    g = rote.graph(step)
    for call in range(8):
        made = UNWRITTEN[which](call)
        state.held = made if place == "found" else None
        g(torch.ones(2, device=device), *[made] * (place == "given"))
    assert g.explain()
