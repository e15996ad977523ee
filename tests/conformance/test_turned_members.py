"""Slots that a call finds with one member of an enumeration and leaves with another: state machines."""

from __future__ import annotations

import random
from collections import deque
from enum import Enum, Flag, IntEnum, StrEnum, auto
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch

import rote

CALLS = 40


def plain():
    return Enum("Gait", {"STAND": "stand", "WALK": "walk", "RUN": "run"})


def alike():
    class Alike(Enum):
        """Its members hold equal numbers, and each has one that changes."""

        STAND, WALK, RUN = auto(), auto(), auto()

        def __init__(self, _):
            self.speed, self.seen = 2.0, 0

    return Alike


def equal():
    class Equal(Enum):
        """Its code says that all are equal."""

        STAND, WALK, RUN = 1, 2, 3

        def __eq__(self, other):
            return True

        def __hash__(self):
            return 1

    return Equal


def counted():
    return IntEnum("Counted", ["STAND", "WALK", "RUN"])


def named():
    class Named(StrEnum):
        STAND, WALK, RUN = "a", "bb", "ccc"

    return Named


def combined():
    return Flag("Combined", ["STAND", "WALK", "RUN"])


KINDS = (plain, alike, equal, counted, named, combined)


class Pair(NamedTuple):
    gait: object
    times: object


def scene(make):
    """A fresh class of members, a state over them, and the functions that turn it."""
    kind = make()
    stand, walk, run = kind.STAND, kind.WALK, kind.RUN
    after = {id(stand): walk, id(walk): run, id(run): stand}
    s = SimpleNamespace(now=stand, last=None, pair=Pair(stand, 1), inner=SimpleNamespace(now=run))
    table = {"stand": walk, "walk": run, "run": stand, "STAND": walk, "WALK": run, "RUN": stand}
    kept, listed, speeds = {"now": stand}, [stand, run], {stand.name: 1.0, walk.name: 2.0, run.name: 3.0}

    def by_identity(x):
        if s.now is stand:
            s.now = walk
            return x * 2
        s.now = run if s.now is walk else stand
        return x * 3

    def by_equality(x):
        x = x * 2 if s.now == stand else x * 3
        s.now = walk if s.now == stand else stand
        return x

    def by_hash(x):
        s.now = {stand: walk, walk: run, run: stand}[s.now]
        return x + 1

    def by_name(x):
        s.now = table[s.now.name]
        return x * speeds[s.now.name]

    def by_value(x):
        s.now = kind(s.now.value)
        s.last = kind[s.now.name]
        s.now = after[id(s.now)]
        return x + 1

    def exchanged(x):
        s.now, s.inner.now = s.inner.now, s.now
        return x

    def remembered(x):
        s.last, s.now = s.now, table[s.now.name]
        return x * 2, s.last

    def unread(x):
        s.last = s.now
        s.now = walk
        return x

    def items(x):
        kept["now"] = table[kept["now"].name]
        listed[0] = kept["now"]
        return x * speeds[listed[0].name], list(listed)

    def as_whole(x):
        s.pair = Pair(table[s.pair.gait.name], s.pair.times + 1)
        return x * speeds[s.pair.gait.name] + s.pair.times, s.pair

    def by_tensor(x):
        if (x.sum() > 0).item():
            s.now = table[s.now.name]
        return x * speeds[s.now.name]

    def of_members(x):
        if hasattr(s.now, "seen"):
            s.now.seen += 1
        s.now = table[s.now.name]
        return x * getattr(s.now, "speed", 1)

    def raises(x):
        s.now = table[s.now.name]
        if s.now is s.inner.now:
            raise ValueError("no running here")
        return x * 2

    made = (by_identity, by_equality, by_hash, by_name, by_value, exchanged, remembered, unread, items,
            as_whole, by_tensor, of_members, raises)  # fmt: skip
    return {each.__name__: each for each in made}, {"s": s, "kept": kept, "listed": listed, "kind": kind}


PROGRAMS = tuple(scene(plain)[0])
FEW = ("by_name", "by_value", "items", "unread", "of_members")
CASES = [(kind, name) for kind in KINDS for name in (PROGRAMS if kind in (plain, alike) else FEW)]
ANYTHING = (
    (7, "s.now = kind.RUN"), (5, "s.last = kind.WALK"), (9, "kept['now'] = kind.STAND"), (13, "s.now = None"),
    (11, "s.pair = s.pair._replace(gait=kind.WALK)"), (8, "s.inner.now = kind.STAND"), (10, "s.now = 'walk'"),
    (15, "s.now = s.inner.now = kind.STAND"), (12, "kind.WALK.speed = 3.0"), (25, "kind.WALK.speed = 2.0"),
)  # fmt: skip


def told(value, kind):
    """Which object a member is, and what it holds, as far as two classes can be compared."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [told(each, kind) for each in value]
    if not isinstance(value, kind):
        return value
    return [name for name, member in kind.__members__.items() if member is value], vars(value).get("seen")


def state_of(names):
    """What lies in all slots."""
    s, kept, listed, kind = [names[each] for each in ("s", "kept", "listed", "kind")]
    return told([s.now, s.last, s.pair, s.inner.now, kept["now"], listed], kind)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_each_call_finds_and_leaves_the_member_that_it_would(device, kind, name, turned):
    (steps, plainly), (graphed, names) = scene(kind), scene(kind)
    eager, graphed = steps[name], rote.graph(graphed[name])
    torch.manual_seed(0)
    for number in range(CALLS):
        x, seen = torch.randn(3, device=device), []
        for each, its in ((eager, plainly), (graphed, names)):
            try:
                found = told(each(x), its["kind"])
            except (ValueError, KeyError, AttributeError) as error:
                found = type(error)
            seen.append((found, state_of(its)))
        assert seen[0] == seen[1], number
        for times, turn in ANYTHING if turned else ():
            if number % times == times - 1:
                exec(turn, plainly)
                exec(turn, names)
    if not turned and name not in ("of_members", "raises"):
        assert graphed.report().replayed >= CALLS // 3, graphed.explain()


def test_a_window_of_members_is_moved(device):
    gait = plain()

    def make():
        kept, turns = deque([gait.STAND] * 3, maxlen=3), [gait.STAND]

        def step(x):
            turns[0] = gait.WALK if turns[0] is gait.STAND else gait.STAND
            kept.append(turns[0])
            return x * sum([each is gait.WALK for each in kept])

        return step, kept

    (eager, of_eager), (step, kept) = make(), make()
    graphed = rote.graph(step)
    for number in range(24):
        x = torch.full((2,), float(number), device=device)
        assert torch.equal(graphed(x), eager(x)) and kept == of_eager, number


def test_random_machines(device):
    """Tables of turns under conditions, with turns between the calls."""
    rng = random.Random(1)
    members = ("kind.STAND", "kind.WALK", "kind.RUN")
    refs = ("s.now", "s.last", "s.inner.now", "kept['now']", "listed[0]", "listed[1]")
    for program in range(10):
        make, lines = rng.choice(KINDS), ["def step(x):"]
        for _ in range(rng.randint(2, 5)):
            ref, other, member = (
                rng.choice(refs),
                rng.choice(refs),
                f"kind.{rng.choice(('STAND', 'WALK', 'RUN'))}",
            )
            value = rng.choice([member, other, f"(kind.RUN if {other} is {member} else {member})", "None"])
            ask = rng.choice([f"{other} is {member}", f"{other} == {member}", f"isinstance({other}, kind)"])
            lines.append(rng.choice([f"    {ref} = {value}", f"    if {ask}: {ref} = {value}",
                                     f"    if {ask}: x = x * 2"]))  # fmt: skip
        turn = f"{rng.choice(refs)} = {rng.choice(members)}"
        text, steps, spaces = "\n".join([*lines, "    return x + 1"]), [], []
        for wrap in (lambda step: step, rote.graph):
            names = scene(make)[1]
            exec(text, names)
            steps.append(wrap(names["step"]))
            spaces.append(names)
        for number in range(20):
            x = torch.randn(3, device=device)
            pairs = zip(steps, spaces, strict=True)
            found = [(step(x).tolist(), state_of(names)) for step, names in pairs]
            assert found[0] == found[1], (program, number, text)
            if number % 5 == 4:
                exec(turn, spaces[0])
                exec(turn, spaces[1])
