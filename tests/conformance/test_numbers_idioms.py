"""A number that changes, as Python is written: where it lies, and how it is read and put back."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import rote

CALLS = 50


class Pair(NamedTuple):
    first: int
    second: float


@dataclasses.dataclass
class Counted:
    n: int = 0


@dataclasses.dataclass(frozen=True)
class Replaced:
    n: int = 0


class Slotted:
    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 0


class Counting:
    def __init__(self) -> None:
        self.n = 0

    def __next__(self) -> int:
        self.n += 1
        return self.n

    @property
    def more(self) -> int:
        return self.n + 1


def _tick() -> None:
    """A function that counts its calls in an attribute."""


def _state(device: torch.device) -> Any:
    return SimpleNamespace(
        d={"n": 0}, n=0, items=[0, 0], data=Counted(), frozen=Replaced(), pair=Pair(0, 1.0), couple=(0, 1.0),
        slots=Slotted(), counting=Counting(), counter=collections.Counter[str](), best=0.0, mean=0.0, bad=0,
        lacking=collections.defaultdict[str, int](int), iterator=itertools.count(), lr=1.0, log=list[int](),
        queue=collections.deque([0], maxlen=4), deep={"a": {"n": 0}}, weights=torch.ones(3, device=device),
        groups=[{"lr": 0.5}, {"lr": 0.1}], base=[0.5, 0.1], text="",
    )  # fmt: skip


def item(s: Any, x: Tensor) -> Tensor:
    s.d["n"] += 1
    return x * s.d["n"]


def get(s: Any, x: Tensor) -> Tensor:
    s.d["n"] = s.d.get("n", 0) + 1
    return x * s.d.get("n")


def get_of_nothing(s: Any, x: Tensor) -> Tensor:
    s.d["m"] = s.d.get("m", 5) + 1
    return x * s.d.get("none", 2)


def set_default(s: Any, x: Tensor) -> Tensor:
    n = s.d.setdefault("n", 7)
    s.d["n"] = n + 1
    return x * n


def asked_for(s: Any, x: Tensor) -> Tensor:
    if "m" not in s.d:
        s.d["m"] = 0
    s.d["m"] += 1
    return x * s.d["m"]


def get_attribute(s: Any, x: Tensor) -> Tensor:
    s.m = getattr(s, "m", 0) + 1
    return x * s.m


def has_attribute(s: Any, x: Tensor) -> Tensor:
    if not hasattr(s, "m"):
        s.m = 0
    s.m += 1
    return x * s.m


def set_attribute(s: Any, x: Tensor) -> Tensor:
    setattr(s, "n", s.n + 1)  # noqa: B010
    return x * getattr(s, "n")  # noqa: B009


def last_of_list(s: Any, x: Tensor) -> Tensor:
    s.items[-1] += 1
    return x * s.items[-1]


def data(s: Any, x: Tensor) -> Tensor:
    s.data.n += 1
    return x * s.data.n


def slots(s: Any, x: Tensor) -> Tensor:
    s.slots.n += 1
    return x * s.slots.n


def a_property(s: Any, x: Tensor) -> Tensor:
    s.counting.n += 2
    return x * s.counting.more


def deep(s: Any, x: Tensor) -> Tensor:
    s.deep["a"]["n"] += 1
    return x * s.deep["a"]["n"]


def in_turns(s: Any, x: Tensor) -> Tensor:
    s.n = (s.n + 1) % 3
    return x * s.n


def every(s: Any, x: Tensor) -> Tensor:
    s.n += 1
    return x * 2 if s.n % 5 == 0 else x * s.n


def warm_up(s: Any, x: Tensor) -> Tensor:
    s.n += 1
    decay = min(0.999, (1 + s.n) / (10 + s.n))
    s.weights.lerp_(x, 1 - decay)
    return s.weights + 0


def cosine(s: Any, x: Tensor) -> Tensor:
    s.n += 1
    s.weights.add_(x, alpha=-0.5 * (1 + math.cos(math.pi * s.n / 100)))
    return s.weights + 0


def best_so_far(s: Any, x: Tensor) -> Tensor:
    s.best = max(s.best, x.sum().item())
    return x * s.best


def average(s: Any, x: Tensor) -> Tensor:
    s.n += 1
    s.mean += (x.sum().item() - s.mean) / s.n
    return x * s.mean


def patience(s: Any, x: Tensor) -> Tensor:
    value = x.sum().item()
    if value < s.best:
        s.best, s.bad = value, 0
    else:
        s.bad += 1
    if s.bad > 3:
        s.lr, s.bad = s.lr * 0.5, 0
    return x * s.lr


def reset_now_and_then(s: Any, x: Tensor) -> Tensor:
    s.mean += x.sum().item()
    s.n += 1
    if s.n % 4 == 0:
        s.mean = 0.0
    return x * 2


def schedule(s: Any, x: Tensor) -> Tensor:
    s.n += 1
    for group, rate in zip(s.groups, [base * 0.9**s.n for base in s.base], strict=True):
        group["lr"] = rate
    return x * s.groups[0]["lr"] + s.groups[1]["lr"]


def function(s: Any, x: Tensor) -> Tensor:
    s.tick.calls += 1
    return x * s.tick.calls


def in_modes(s: Any, x: Tensor) -> Tensor:
    s.n += 1
    with torch.no_grad(), torch.inference_mode(mode=False):
        return x * s.n


def a_tuple(s: Any, x: Tensor) -> Tensor:
    first, second = s.couple
    s.couple = (first + 1, second * 0.9)
    return x * first + second


def taken_out(s: Any, x: Tensor) -> Tensor:
    s.d["n"] = s.d.pop("n") + 1
    return x * s.d["n"]


def updated(s: Any, x: Tensor) -> Tensor:
    s.d.update(n=s.d["n"] + 1)
    return x * s.d["n"]


def merged(s: Any, x: Tensor) -> Tensor:
    s.d |= {"n": s.d["n"] + 1}
    return x * s.d["n"]


def of_variables(s: Any, x: Tensor) -> Tensor:
    vars(s)["n"] += 1
    return x * vars(s)["n"]


def frozen(s: Any, x: Tensor) -> Tensor:
    s.frozen = dataclasses.replace(s.frozen, n=s.frozen.n + 1)
    return x * s.frozen.n


def named(s: Any, x: Tensor) -> Tensor:
    s.pair = s.pair._replace(first=s.pair.first + 1)
    return x * s.pair.first


def counter(s: Any, x: Tensor) -> Tensor:
    s.counter["n"] += 1
    return x * s.counter["n"]


def lacking(s: Any, x: Tensor) -> Tensor:
    s.lacking["n"] += 1
    return x * s.lacking["n"]


def stepped(s: Any, x: Tensor) -> Tensor:
    return x * next(s.counting)


def iterator(s: Any, x: Tensor) -> Tensor:
    return x * next(s.iterator)


def queue(s: Any, x: Tensor) -> Tensor:
    s.queue.append(s.queue[-1] + 1)
    return x * s.queue[-1]


def text(s: Any, x: Tensor) -> Tensor:
    s.n += 1
    s.text = f"step {s.n}"
    return x * 2


def written_down(s: Any, x: Tensor) -> Tensor:
    s.n += 1
    s.log.append(s.n)
    return x * s.n


REPLAYED = (
    item, get, get_of_nothing, set_default, asked_for, get_attribute, has_attribute, set_attribute,
    last_of_list, data, slots, a_property, deep, in_turns,
    every, warm_up, cosine, best_so_far, average, patience,
    reset_now_and_then, schedule, function, in_modes, a_tuple, written_down,
    taken_out, updated, merged, of_variables, counter, lacking, queue,
)  # fmt: skip
OTHERS = (
    frozen, named, stepped, iterator, text,
)  # fmt: skip


def _told(state: Any) -> str:
    """All numbers of a state, and its tensors."""
    held = {**vars(state), "slots": state.slots.n, "counting": state.counting.n, "tick": vars(state.tick)}
    return repr(held)


def _run(program: Callable[[Any, Tensor], Tensor], device: torch.device, *, disturbed: bool = False) -> int:
    plain, graphed = _state(device), _state(device)
    for each in (plain, graphed):
        each.tick = lambda: None
        each.tick.calls = 0
    act = rote.graph(lambda x: program(graphed, x), keep=True)
    early = 0
    for call in range(CALLS):
        x = torch.full((3,), math.sin(call), device=device)
        assert torch.equal(program(plain, x), act(x)), call
        told = [_told(each).replace(repr(each.tick), "") for each in (plain, graphed)]
        assert told[0] == told[1], call
        if disturbed and call % 9 == 8:
            for each in (plain, graphed):
                each.d.pop("m", None)
                each.d["none"] = call
                each.n, each.d["n"], each.m = call * 2, -call, 1.5
        early = act.report().replayed if call == CALLS // 2 else early
    return act.report().replayed - early


@pytest.mark.parametrize("program", REPLAYED, ids=lambda each: each.__name__)
def test_it_is_replayed(program: Callable[[Any, Tensor], Tensor], device: torch.device) -> None:
    assert _run(program, device) >= CALLS // 4


@pytest.mark.sampled(2)
@pytest.mark.parametrize("program", [*REPLAYED, *OTHERS], ids=lambda each: each.__name__)
def test_it_is_right(program: Callable[[Any, Tensor], Tensor], device: torch.device) -> None:
    _run(program, device, disturbed=True)
