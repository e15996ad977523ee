"""Numbers in attributes and members of objects among the arguments, one of a class after the other."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.conformance.numbers_programs import bits

import rote

pytestmark = pytest.mark.parametrize("device", ["cpu"], indirect=True)


class Plain:
    pass


class Slotted:
    __slots__ = ("h", "s", "t")


class Mixed(Slotted):
    pass


class Told:
    """Its attributes lie under other names, behind properties that count."""

    def __init__(self) -> None:
        self.asked = 0

    @property
    def t(self) -> Any:
        self.asked += 1
        return self.__dict__["_t"]

    @t.setter
    def t(self, value: Any) -> None:
        self.__dict__["_t"] = value


class Shadowed:
    """Its table has what the class hides."""

    t = property(lambda self: self.__dict__["t"] + 1, lambda self, value: self.__dict__.update(t=value))


class Refusing:
    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value if name != "t" or value < 40 else 0)


class Table(dict[str, Any]):
    pass


class Members(list[Any]):
    pass


def made(kind: Any, number: Any, device: torch.device) -> Any:
    state = kind() if kind not in (Table, Members) else kind({"n": number} if kind is Table else [number])
    state.h, state.t, state.s = torch.zeros(3, device=device), number, 0.5
    return state


def bodies() -> dict[str, Any]:
    def counted(x: Any, state: Any) -> Any:
        state.h = state.h * 0.5 + x
        state.t += 1
        return state.h + 1

    def used(x: Any, state: Any) -> Any:
        state.t = state.t + 1
        return x * state.t + state.s

    def compared(x: Any, state: Any) -> Any:
        state.t += 1
        return x + 1 if state.t % 5 == 0 else x * state.t

    def kept(x: Any, state: Any) -> Any:
        state.s = (state.t, [state.t * 2])
        state.t += 1
        return x * 2

    def looked_at(x: Any, state: Any) -> Any:
        state.t += 1
        return x * len(str(state.t)), state.t

    def table(x: Any, state: Any) -> Any:
        found = sum(value for value in getattr(state, "__dict__", {}).values() if type(value) is int)
        state.t += 1
        return x + found

    def identity(x: Any, state: Any) -> Any:
        before, state.t = state.t, state.t + 0
        return x + (before is state.t)

    def member(x: Any, state: Any) -> Any:
        key = "n" if isinstance(state, dict) else 0
        state[key] += 1
        return x * state[key]

    return {name: each for name, each in locals().items() if callable(each)}


KINDS = (Plain, Slotted, Mixed, Told, Shadowed, Refusing, Table, Members, SimpleNamespace)
BODIES = bodies()
FOLLOWED = {("counted", kind) for kind in (Plain, Slotted, Mixed, SimpleNamespace, Table, Members)}


def shown(state: Any) -> Any:
    names = ("h", "s", "t", "asked")
    held = {name: getattr(state, name) for name in names if hasattr(state, name)}
    inside = [*state.items()] if isinstance(state, dict) else [*state] if isinstance(state, list) else []
    return bits([held, inside, [*getattr(state, "__dict__", {})]])


def play(body: Any, kind: Any, device: torch.device, steps: int, first: Any, calls: int) -> int:
    graphed = rote.graph(lambda x, state: body(x, state), keep=True)
    states: list[Any] = []
    for call in range(calls):
        if call % steps == 0:
            states = [made(kind, first, device) for _ in range(2)]
        x = torch.arange(3.0, device=device) + call
        found = [bits(function(x, state)) for function, state in zip((graphed, body), states, strict=True)]
        assert found[0] == found[1], f"call {call}\n{graphed.explain()}"
        assert shown(states[0]) == shown(states[1]), f"state behind call {call}\n{graphed.explain()}"
    return graphed.report().replayed


CASES = [
    (name, kind)
    for name, kind in itertools.product(BODIES, KINDS)
    if name != "member" or issubclass(kind, (dict, list))
]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_attributes_that_count(device, name, kind):
    for steps, first in ((12, 0), (60, 0.25), (1, 3), (3, True)):
        follows = (name, kind) in FOLLOWED
        replayed = play(BODIES[name], kind, device, steps, first, 60 if follows else 26)
        assert replayed >= 30 or not follows or steps <= 10, (steps, first)


def test_a_number_in_objects_is_no_key_of_its_own(device):
    graphed = rote.graph(BODIES["used"], keep=True)
    for episode in range(3):
        state = made(Plain, 100 * episode, device)
        for _ in range(30):
            graphed(torch.ones(3, device=device), state)
    assert graphed.report().recorded <= 3
    assert graphed.report().replayed >= 70
