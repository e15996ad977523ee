"""States that calls replace as a whole: a new one is made of the old one."""

from __future__ import annotations

import dataclasses
import types
from typing import Any, NamedTuple

import pytest
import torch

import rote
from rote.testing import assert_same


class Named(NamedTuple):
    hidden: Any
    step: int
    rate: float = 0.5
    mode: str = "train"


@dataclasses.dataclass(frozen=True)
class Frozen:
    hidden: Any
    step: int
    rate: float = 0.5
    mode: str = "train"


class Home:
    state: Any


def as_table(hidden: Any, step: int) -> dict[str, Any]:
    return {"hidden": hidden, "step": step, "rate": 0.5, "mode": "train", "dtype": torch.float32}


def without_tensors(hidden: Any, step: int) -> dict[str, Any]:
    return {"step": step, "rate": 0.5, "mode": "train", "device": torch.device("cpu"), "none": None}


def made_named(state, hidden):
    return Named(hidden, state.step + 1, state.rate, state.mode)


def from_its_table(state, hidden):
    table = state._asdict()
    table.update(hidden=hidden, step=table["step"] + 1)
    return Named(**table)


def zipped(state, hidden):
    table = dict(zip(state._fields, state, strict=True))
    return Named(**{**table, "hidden": hidden, "step": table["step"] + 1})


def in_pairs(state, hidden):
    table = dict([("hidden", hidden), ("step", state.step + 1), ("rate", state.rate)])
    return Named(**table)


STEPS = {
    "a tuple": (lambda h, n: (h, n, 0.5, "train"), lambda s, h: (h, s[1] + 1, *s[2:])),
    "a named tuple": (Named, made_named),
    "replaced": (Named, lambda s, h: s._replace(hidden=h, step=s.step + 1)),
    "a rate that is replaced": (Named, lambda s, h: s._replace(hidden=h, step=s.step + 1, rate=s.rate * 0.9)),
    "from its table": (Named, from_its_table),
    "zipped": (Named, zipped),
    "in pairs": (Named, in_pairs),
    "frozen": (Frozen, lambda s, h: dataclasses.replace(s, hidden=h, step=s.step + 1)),
    "a dict": (as_table, lambda s, h: {**s, "hidden": h, "step": s["step"] + 1}),
    "a dict with keywords": (as_table, lambda s, h: dict(s, hidden=h, step=s["step"] + 1)),
    "a dict that is joined": (as_table, lambda s, h: s | {"hidden": h, "step": s["step"] + 1}),
    "no tensor": (without_tensors, lambda s, h: {**s, "step": s["step"] + 1}),
    "no tensor, in a list": (
        lambda h, n: ["train", n, 0.5, [1, 2]], lambda s, h: [s[0], s[1] + 1, *s[2:]]
    ),
}  # fmt: skip


def part(state: Any, name: str, place: int) -> Any:
    if isinstance(state, dict):
        return state.get(name)
    return state[place] if isinstance(state, (list, tuple)) else getattr(state, name)


def stepped(home: Home, step: Any, x: torch.Tensor) -> torch.Tensor:
    was = part(home.state, "hidden", 0)
    hidden = was + x * part(home.state, "step", 1) if isinstance(was, torch.Tensor) else x
    home.state = step(home.state, hidden)
    scale = 2.0 if part(home.state, "mode", 3) == "train" else 3.0
    return hidden * scale * part(home.state, "rate", 2) + part(home.state, "step", 1)


def alike(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert_same(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        alike(list(one.values()), list(other.values()))
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for mine, its in zip(one, other, strict=True):
            alike(mine, its)
    elif isinstance(one, Frozen):
        alike(vars(one), vars(other))
    else:
        assert one == other


@pytest.mark.parametrize("name", STEPS)
def test_a_state_is_replaced_by_the_next_one(device, name):
    first, step = STEPS[name]
    homes = Home(), Home()
    g = rote.graph(lambda x: stepped(homes[1], step, x), keep=True)
    for n in range(30):
        if n % 11 == 10:  # somebody else begins anew, in another mode
            for home in homes:
                home.state = changed(first(torch.zeros(2, device=device), 0), n == 21)
        elif not n:
            for home in homes:
                home.state = first(torch.zeros(2, device=device), 0)
        x = torch.full((2,), float(n), device=device)
        with torch.no_grad():
            assert_same(g(x), stepped(homes[0], step, x))
        alike(homes[0].state, homes[1].state)
    assert g.report().replayed >= 8, g.explain()


def changed(state: Any, differs: bool) -> Any:
    """The same in another mode."""
    if not differs:
        return state
    if isinstance(state, dict):
        return {**state, "mode": "test"}
    if isinstance(state, Named):
        return state._replace(mode="test")
    if isinstance(state, Frozen):
        return dataclasses.replace(state, mode="test")
    return type(state)([*state[:3], "test"])


def test_names_and_values_that_are_joined(device):
    """Of a dict made of pairs the keys are looked at, and values are handed on."""
    made = [
        lambda n: dict(zip(("a", "b"), (n * 2.0, 1.0), strict=True)),
        lambda n: dict([("a", n * 2.0), ("b", 1.0)]),
        lambda n: dict(zip((n % 3, "b"), (1.0, 2.0), strict=True)),
        lambda n: {} | dict(zip("ab", [n + 1, n * 0.5], strict=True)),
        lambda n: vars(types.SimpleNamespace(a=n * 2.0, b=n)),
        lambda n: vars(types.SimpleNamespace(**{"a": n, "b": 2})),
    ]
    for make in made:
        home = Home()

        def fn(x, make=make, home=home):
            found = make(home.state)
            return x * found.get("a", 2.0) + found["b"] + len(found)

        g = rote.graph(fn)
        for n in range(14):
            home.state = n
            x = torch.full((2,), 3.0, device=device)
            assert_same(g(x), fn(x))
        assert make is made[2] or g.report().replayed >= 6, g.explain()
