"""Numbers that change inside of what a call is given, and of state that it replaces."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import rote

CALLS = 50


@dataclasses.dataclass
class Batch:
    x: Tensor
    t: float


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: Tensor
    t: float


class Named(NamedTuple):
    x: Tensor
    t: float


def _used(b: Any) -> Any:
    return b["x"] * b["t"]


def _written(b: Any) -> Any:
    b["t"] = b["t"] + 1
    return b["x"] * b["t"]


def _kept(b: Any) -> Any:
    b["kept"] = b["t"]
    return b["x"] * 2


def _merged(b: Any) -> Any:
    both = {**b, "u": 1}
    return both["x"] * both["t"]


def _decides(b: Any) -> Any:
    return b["x"] * 2 if b["t"] > 10 else b["x"]


def _returned(b: Any) -> Any:
    return b, b["x"] + b["t"]


def _removed(b: Any) -> Any:
    return b["x"] * b.pop("t")


def _summed(b: Any) -> Any:
    return sum(each * 1.0 for each in b.values())


def _in_a_list(b: Any) -> Any:
    return b["x"] * b["items"][0] + b["items"][1]


def _in_a_dict_inside(b: Any) -> Any:
    return b["more"]["x"] * b["more"]["t"]


def _in_a_dataclass(b: Any) -> Any:
    return b["data"].x * b["data"].t


def _in_a_frozen_one(b: Any) -> Any:
    return b["frozen"].x + b["frozen"].t


def _in_a_named_tuple(b: Any) -> Any:
    return b["named"].x + b["named"].t


def _told(b: Any) -> Any:
    return b["x"] * len(f"{b['t']:.1f}")


REPLAYED = (
    _used, _written, _kept, _merged, _decides, _returned, _in_a_list, _in_a_dict_inside, _in_a_dataclass,
    _in_a_frozen_one, _in_a_named_tuple,
)  # fmt: skip
OTHERS = (_removed, _summed, _told)


def _given(call: int, device: torch.device) -> dict[str, Any]:
    x, t = torch.full((3,), call * 0.1, device=device), call * 0.5
    return {
        "x": x.clone(), "t": t, "items": [t, call + 3], "more": {"x": x.clone(), "t": call},
        "data": Batch(x.clone(), t), "frozen": Frozen(x.clone(), t), "named": Named(x.clone(), t),
    }  # fmt: skip


def _run(program: Callable[[Any], Any], device: torch.device) -> int:
    needed = {"x", "t"} if program is _summed else None
    act, early = rote.graph(program, keep=True), 0
    for call in range(CALLS):
        plain, graphed = (
            {key: value for key, value in _given(call, device).items() if needed is None or key in needed}
            for _ in range(2)
        )
        number = graphed["t"]
        expected, got = program(plain), act(graphed)
        assert repr(got) == repr(expected), call
        assert repr(graphed) == repr(plain), call
        if program in (_used, _decides, _merged):
            assert graphed["t"] is number
        if program is _returned:
            assert got[0] is graphed
        early = act.report().replayed if call == CALLS // 2 else early
    return act.report().replayed - early


@pytest.mark.parametrize("program", REPLAYED, ids=lambda each: each.__name__[1:])
def test_it_is_replayed(program: Callable[[Any], Any], device: torch.device) -> None:
    assert _run(program, device) >= CALLS // 4


@pytest.mark.parametrize("program", OTHERS, ids=lambda each: each.__name__[1:])
def test_it_is_right(program: Callable[[Any], Any], device: torch.device) -> None:
    _run(program, device)


def test_one_dict_given_twice(device: torch.device) -> None:
    act = rote.graph(lambda one, other: one["x"] * one["t"] + other["t"], keep=True)
    for call in range(20):
        given = {"x": torch.ones(2, device=device), "t": call * 1.5}
        assert torch.equal(act(given, given), torch.full((2,), call * 3.0, device=device))


def test_a_call_that_raises_leaves_the_number(device: torch.device) -> None:
    def fails(b: Any) -> Tensor:
        out = b["x"] * b["t"]
        if b["fails"]:
            raise ValueError(b["t"])
        return out

    act = rote.graph(fails, keep=True)
    for call in range(30):
        given = {"x": torch.ones(2, device=device), "t": call * 0.5, "fails": call % 3 == 2}
        number = given["t"]
        if given["fails"]:
            with pytest.raises(ValueError, match=str(number)):
                act(given)
        else:
            assert torch.equal(act(given), torch.full((2,), number, device=device))
        assert given["t"] is number


def _replaced(s: Any, x: Tensor) -> Tensor:
    s.state = dataclasses.replace(s.state, t=s.state.t + 1, x=s.state.x + x)
    return s.state.x * s.state.t


def _made_anew(s: Any, x: Tensor) -> Tensor:
    s.state = Frozen(s.state.x + x, s.state.t + 1)
    return s.state.x * s.state.t


def _merged_anew(s: Any, x: Tensor) -> Tensor:
    s.table = {**s.table, "t": s.table["t"] + 1, "x": s.table["x"] + x}
    return s.table["x"] * s.table["t"]


@pytest.mark.parametrize("program", [_replaced, _made_anew, _merged_anew], ids=lambda each: each.__name__[1:])
def test_state_that_is_replaced(program: Callable[[Any, Tensor], Tensor], device: torch.device) -> None:
    def state() -> Any:
        x = torch.zeros(3, device=device)
        return SimpleNamespace(state=Frozen(x.clone(), 0), table={"t": 0, "x": x.clone()})

    plain, graphed, early = state(), state(), 0
    act = rote.graph(lambda x: program(graphed, x), keep=True)
    for call in range(CALLS):
        x = torch.full((3,), call * 0.1, device=device)
        assert torch.equal(program(plain, x), act(x)), call
        assert repr(plain) == repr(graphed), call
        early = act.report().replayed if call == CALLS // 2 else early
    assert act.report().replayed - early >= CALLS // 4
