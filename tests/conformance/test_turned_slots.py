"""Slots that a call finds with one plain value and leaves with another: a flag, a phase, what was None."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
import torch

import rote

CALLS = 40
REFS = (
    "s.first",
    "s.phase",
    "s.index",
    "s.inner.open",
    "KEPT['mode']",
    "KEPT['seen']",
    "LISTED[0]",
    "Of.shared",
)


def scene():
    """A fresh state, and the functions that turn it."""

    class Of:
        shared = None

    s = SimpleNamespace(first=True, phase="warm", index=None, inner=SimpleNamespace(open=False))
    kept, listed, on = {"mode": None, "seen": False}, [None, 1], False

    def flag(x):
        if s.first:
            s.first = False
            return x * 2
        return x * 3

    def none_first(x):
        if s.index is None:
            s.index = 0
        y = x * (s.index + 1)
        s.index += 1
        return y

    def phases(x):
        x = x * len(s.phase)
        s.phase = {"warm": "run", "run": "cool", "cool": "warm"}[s.phase]
        return x

    def closure(x):
        nonlocal on
        on = not on
        return x * (2 if on else 3)

    def items(x):
        kept["seen"] = not kept["seen"]
        if kept["mode"] is None:
            kept["mode"] = "set"
            x = x + 1
        return x * len(kept["mode"]), dict(kept)

    def inner(x):
        s.inner.open = not s.inner.open
        return x if s.inner.open else x - 1

    def listed_first(x):
        if listed[0] is None:
            listed[0] = "done"
            return x * 2
        return x

    def of_class(x):
        Of.shared = "b" if Of.shared == "a" else "a"
        return x * (2 if Of.shared == "a" else 3)

    def by_value(x):
        if (x.sum() > 0).item():
            s.phase = "up" if s.phase != "up" else "warm"
        return x * len(s.phase)

    def raises(x):
        s.first = not s.first
        if s.phase == "bad":
            raise ValueError("a bad phase")
        return x * (2 if s.first else 3)

    made = (flag, none_first, phases, closure, items, inner, listed_first, of_class, by_value, raises)
    names = {"s": s, "KEPT": kept, "LISTED": listed, "Of": Of}
    return {each.__name__: each for each in made}, names


BEGINS_AGAIN = (
    (4, "s.first = True"),
    (10, "s.index = None"),
    (5, "KEPT['mode'] = None"),
    (4, "LISTED[0] = None"),
)
ANYTHING = (
    (7, "s.first = None"), (9, "s.phase = 'bad'"), (11, "s.index = 3"), (6, "s.inner.open = 1"),
    (13, "Of.shared = None"), (9, "KEPT['seen'] = 'no'"), (10, "s.phase = 'run'"),
)  # fmt: skip
TURNS = {"none": (), "begins again": BEGINS_AGAIN, "anything": ANYTHING}


def values(names):
    return repr([eval(ref, names) for ref in REFS])


@pytest.mark.parametrize("name", scene()[0])
@pytest.mark.parametrize("turns", ["none", "begins again", "anything"])
def test_each_call_finds_and_leaves_what_it_would(device, name, turns):
    (plain, plainly), (graphed, names) = scene(), scene()
    plain, graphed = plain[name], rote.graph(graphed[name])
    torch.manual_seed(0)
    for number in range(CALLS):
        x, seen = torch.randn(3, device=device), []
        for each, its in ((plain, plainly), (graphed, names)):
            try:
                result = each(x)
                found = [part.tolist() if isinstance(part, torch.Tensor) else part for part in
                         (result if isinstance(result, tuple) else (result,))]  # fmt: skip
            except (ValueError, KeyError) as error:
                found = [repr(error)]
            seen.append((found, values(its)))
        assert seen[0] == seen[1], number
        for times, turn in TURNS[turns]:
            if number % times == times - 1:
                exec(turn, plainly)
                exec(turn, names)
    if turns != "anything" and name != "of_class":  # attributes of classes are read otherwise
        assert graphed.report().replayed >= CALLS // 2, graphed.explain()


@pytest.mark.parametrize(
    "name", [each for each in scene()[0] if each not in ("raises", "none_first", "of_class")]
)
def test_replays_are_verified_where_slots_turn(device, name):
    functions, names = scene()
    graphed, plain = rote.graph(functions[name], verify=1), scene()
    for number in range(24):
        x = torch.full((3,), float(number - 12), device=device)
        graphed(x)
        plain[0][name](x)
        assert values(names) == values(plain[1]), number
    assert graphed.report().replayed >= 8, graphed.explain()


def test_a_count_is_followed(device):
    """Of a number no state is recorded for each value."""
    s = SimpleNamespace(count=0)

    def step(x):
        s.count += 1
        return x * s.count

    graphed = rote.graph(step)
    for number in range(30):
        assert graphed(torch.ones(2, device=device)).tolist() == [number + 1.0] * 2
    assert graphed.report().replayed >= 20 and len(graphed.report().recordings) == 1


def test_random_turns(device):
    """Programs of assignments and conditions, with turns between the calls."""
    rng = random.Random(0)
    constants = ("None", "True", "False", "'a'", "'b'", "1", "2.5")
    for program in range(12):
        lines = ["def step(x):"]
        for _ in range(rng.randint(2, 5)):
            ref, other = rng.choice(REFS), rng.choice(REFS)
            value = rng.choice([*constants, f"not {other}", f"str({other})[:2]", f"({other} is None)"])
            ask = rng.choice([f"{other} is None", other, f"{other} == 'a'", "x.sum() > 0"])
            lines.append(rng.choice([f"    {ref} = {value}", f"    if {ask}: {ref} = {value}",
                                     f"    if {ask}: x = x * 2"]))  # fmt: skip
        turn = f"{rng.choice(REFS)} = {rng.choice(constants)}"
        text, steps, spaces = "\n".join([*lines, "    return x + 1"]), [], []
        for wrap in (lambda step: step, rote.graph):
            names = scene()[1]
            exec(text, names)
            steps.append(wrap(names["step"]))
            spaces.append(names)
        for number in range(24):
            x = torch.randn(3, device=device)
            found = [(step(x).tolist(), values(names)) for step, names in zip(steps, spaces, strict=True)]
            assert found[0] == found[1], (program, number, text)
            if number % 5 == 4:
                exec(turn, spaces[0])
                exec(turn, spaces[1])
