"""Containers that grow from call to call, or in which calls count on, and that the same calls read."""

from __future__ import annotations

import copy
import random
import threading
from collections import OrderedDict, defaultdict, deque
from types import SimpleNamespace

import pytest
import torch
from tests.conformance.numbers_programs import bits

import rote

pytestmark = pytest.mark.parametrize("device", ["cpu"], indirect=True)

CALLS = 30


class Memory:
    """As replay buffers are: it fills, and then goes round."""

    def __init__(self, size=100):
        self.size, self.members, self.place = size, [], 0

    def push(self, member):
        if len(self.members) < self.size:
            self.members.append(member)
        else:
            self.members[self.place] = member
        self.place = (self.place + 1) % self.size

    def __len__(self):
        return len(self.members)


class State(SimpleNamespace):
    """One that can be referred to weakly."""


def state():
    return State(
        h=[], q=deque(), d={}, o=OrderedDict(), lists=defaultdict(list), ring=[None] * 100, n=0,
        memory=Memory(), numbers=[0.5], transitions=[],
    )  # fmt: skip


def tensor(value):
    return value if isinstance(value, torch.Tensor) else torch.tensor(float(value or 0))


def length(s, x):
    s.h.append(x * 2)
    return x / len(s.h)


def length_before(s, x):
    y = x * 2 if len(s.h) < 9 else x * 3
    s.h.append(y)
    return y


def truth(s, x):
    y = x + s.h[-1] if s.h else x
    s.h.append(y)
    return y


def own(s, x):
    s.h.extend([x * 2, x * 3])
    return s.h[-1] - s.h[-2]


def difference(s, x):
    s.h.append(x * 2)
    return s.h[-1] - s.h[-2] if len(s.h) > 1 else x


def last_three(s, x):
    s.h += [x * 2]
    return torch.stack(s.h[-3:]).sum(0)


def in_order(s, x):
    s.h.append(x * 2)
    return sum([w * each for w, each in zip((0.5, 0.3, 0.2), reversed(s.h[-3:]), strict=False)])


def the_very_tensor(s, x):
    s.h.append(x * 2)
    return s.h[-1], s.h[-2:]


def deque_without_end(s, x):
    s.q.append(x * 2)
    return s.q[-1] - s.q[-2] if len(s.q) > 1 else x


def lists_by_name(s, x):
    s.lists["loss"].append(x.sum())
    return x * len(s.lists["loss"]) + s.lists["loss"][-1]


def pairs(s, x):
    y = x + s.h[-1][1] if s.h else x
    s.h.append((len(s.h), x * 2))
    return y * s.h[-1][0]


def losses(s, x):
    s.numbers.append(x.sum().item())
    return x * 2, sum(s.numbers[-4:]) / 4


def average(s, x):
    s.numbers.append(0.9 * s.numbers[-1] + 0.1 * x.sum().item())
    return x * s.numbers[-1]


def counted_key(s, x):
    s.d[s.n] = x * 2
    s.n += 1
    return x / len(s.d)


def counted_text(s, x):
    s.o[f"step {s.n}"] = x * 2
    s.n += 1
    return x + 1


def key_of_length(s, x):
    s.d[len(s.d)] = (x, s.n)
    return x + 1


def ring(s, x):
    s.ring[s.n] = x, x * 2
    s.n = (s.n + 1) % len(s.ring)
    return x + 1


def memory(s, x):
    s.memory.push((x, x.tanh()))
    return x if len(s.memory) < 8 else x * 2


def filled_first(s, x):
    if len(s.transitions) < 8:
        s.transitions.append(None)
    s.transitions[s.n % 8] = x, x * 2
    s.n += 1
    return x + 1


def by_count(s, x):
    y = x + s.h[s.n - 1] if s.n else x
    s.h.append(y)
    s.n += 1
    return y


def two_by_count(s, x):
    y = x + s.h[s.n - 1] * 2 - s.h[s.n - 2] if s.n > 1 else x
    s.n += 1
    s.h.append(y)
    return y


def first_and_last(s, x):
    y = x + s.h[s.n - 1] - s.h[0] if s.n else x
    s.h.append(y)
    s.n = s.n + 1
    return y


def deque_by_count(s, x):
    y = x + s.q[s.n - 1] if s.n else x
    s.q.append(y)
    s.n += 1
    return y


def own_by_count(s, x):
    s.h.append(x * 2)
    s.n += 1
    return s.h[s.n - 1] + x


def number_by_count(s, x):
    s.numbers.append(0.9 * s.numbers[s.n] + x.sum().item())
    s.n += 1
    return x * s.numbers[s.n - 1]


def out_of_step(s, x):
    y = x + s.h[s.n - 1] if s.n else x
    s.h.extend([y] if s.n % 5 else [y, x])
    s.n += 1
    return y


def in_the_middle(s, x):
    y = x + s.h[s.n // 2] if s.n else x
    s.h.append(y)
    s.n += 1
    return y


def one_of_two_ways(s, x):
    y = x + s.h[s.n - 1] if s.n and x.sum() > 0 else x - s.h[s.n - 2] if s.n > 1 else x
    s.h.append(y)
    s.n += 1
    return y


BY_COUNT = [
    by_count, two_by_count, first_and_last, deque_by_count, own_by_count, number_by_count, out_of_step,
    in_the_middle, one_of_two_ways,
]  # fmt: skip


REPLAYED = [
    by_count, two_by_count, first_and_last, deque_by_count,
    length, length_before, truth, own, difference, last_three, in_order, the_very_tensor, deque_without_end,
    lists_by_name, pairs, losses, average, counted_key, counted_text, key_of_length, ring, memory,
    filled_first,
]  # fmt: skip


def seen(value, ids):
    """All that can be told of a value: what it holds, and which objects are the same."""
    if isinstance(value, torch.Tensor):
        return "tensor", ids.setdefault(id(value), len(ids)), bits(value)
    if isinstance(value, dict):
        return type(value), [(key, key is keyed(key), seen(each, ids)) for key, each in value.items()]
    if isinstance(value, (list, tuple, deque)):
        return type(value), [seen(each, ids) for each in value]
    if isinstance(value, (SimpleNamespace, Memory)):
        return seen(vars(value), ids)
    return type(value), repr(value)


def keyed(key):
    """The small integer that Python has for a key, if it is one."""
    return int(str(key)) if type(key) is int and key < 200 else key


def play(program, change=None, calls=CALLS, graph=True, made=state):
    """Call a program with changes from outside between calls; all that can be seen, and the wrapper."""
    s, kept, found = made(), [], []
    g = rote.graph(lambda x: program(s, x), keep=True) if graph else lambda x: program(s, x)
    for number in range(calls):
        x = torch.randn(3, generator=torch.Generator().manual_seed(number))
        try:
            kept += [x, g(x)]
        except Exception as error:
            assert not isinstance(error, rote.RoteError)
            kept += [x, repr(error)]
        found.append(seen([kept[-6:], s], {}))
        if change is not None:
            change(number, s, kept)
    return [*found, seen([kept, s], {})], g


def in_both_ways(program, change=None, calls=CALLS, made=state):
    (plain, _), (found, g) = (play(program, change, calls, graph, made) for graph in (False, True))
    for number, (one, other) in enumerate(zip(plain, found, strict=True)):
        assert one == other, number
    return g


@pytest.mark.sampled(3)
@pytest.mark.parametrize("program", REPLAYED)
def test_it_is_replayed(device, program):
    g = in_both_ways(program)
    assert g.report().replayed >= CALLS - 16, g.explain()


# ---------------------------------------------------------------------- what others do between calls


def cleared(s):
    for each in (s.h, s.q, s.d, s.o, s.lists, s.memory.members, s.transitions):
        each.clear()


def lengthened(s):
    s.h.append(torch.ones(3)), s.q.append(torch.ones(3)), s.numbers.append(4), s.transitions.append(4)
    s.d[s.n] = s.d[77] = torch.ones(3)


def of_another_type(s):
    for each in (s.h, s.q, s.lists["loss"], s.numbers):
        each.append(True)
    s.n = float(s.n)


def of_another_kind(s):
    s.h.append(torch.ones(2, 3).double()), s.q.append(torch.ones(2, 3)), s.numbers.append(float("nan"))


def replaced(s):
    s.h, s.q, s.d, s.o, s.ring = (copy.copy(each) for each in (s.h, s.q, s.d, s.o, s.ring))


def shared(s):
    s.h = s.lists["loss"] = s.memory.members = s.numbers = [*s.h][-3:]


def written(s):
    for each in (*[*s.h][-2:], *[*s.q][-2:]):
        if isinstance(each, torch.Tensor):
            each.mul_(2)


def moved(s):
    s.h.reverse(), s.q.rotate(1), s.numbers.reverse()


def same(s):
    if s.h:
        s.h.append(s.h[-1])


def shorter(s):
    s.ring = s.ring[:5]
    while len(s.h) > 1:
        s.h.pop()
    del s.numbers[:-1]


def back(s):
    s.n = 0


OTHERS = [
    cleared, lengthened, of_another_type, of_another_kind, replaced, shared, written, moved, same, shorter,
    back,
]  # fmt: skip


@pytest.mark.sampled(20)
@pytest.mark.parametrize("change", [*OTHERS, None])
@pytest.mark.parametrize("program", BY_COUNT)
def test_members_that_are_counted(device, program, change):
    in_both_ways(program, lambda number, s, kept: change(s) if change and number == 16 else None, calls=28)


@pytest.mark.sampled(60)
@pytest.mark.parametrize("change", OTHERS)
@pytest.mark.parametrize("program", REPLAYED)
def test_what_others_change(device, program, change):
    in_both_ways(program, lambda number, s, kept: change(s) if number % 9 == 7 else None)


def test_another_thread_reads_between_calls(device):
    """It finds the very objects, and no numbers of rote's own."""
    found = []

    def read(number, s, kept):
        def run():
            found.append((seen([s.d, s.numbers, s.h], {}), [each is keyed(each) for each in s.d]))

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    def program(s, x):
        s.h.append(s.n)
        return counted_key(s, x), average(s, x), s.h[-1]

    in_both_ways(program, read)
    plain, graphed = found[:CALLS], found[CALLS:]
    assert plain == graphed


def test_an_exception_behind_what_is_added(device):
    def program(s, x):
        s.h.append(x * 2)
        s.d[s.n] = x
        s.n += 1
        if len(s.h) % 6 == 5:
            raise ValueError(len(s.h))
        return x + s.h[-2] if len(s.h) > 1 else x

    assert in_both_ways(program, calls=50).report().replayed > 5


def test_two_names_of_one_list(device):
    def program(s, x):
        s.h.append(x)
        other = s.also
        other.append(x * 2)
        return x * len(s.h) + other[-2]

    def made():
        s = state()
        s.also = s.h
        return s

    def part(number, s, kept):
        if number == 15:
            s.also = [*s.h]

    assert in_both_ways(program, part, made=made).report().replayed > 5


def test_what_is_stored_is_read_under_another_key(device):
    """The keys are one in some calls."""

    def program(s, x):
        first = s.d.get(3, 0.0)
        s.d[s.n] = x
        s.n = (s.n + 1) % 7
        return tensor(first) + tensor(s.d.get(3, 0.0)), 3 in s.d, s.d[min(s.d)]

    in_both_ways(program, calls=40)


@pytest.mark.parametrize("anew", [copy.deepcopy, lambda s: state()])
def test_the_object_that_holds_them_is_replaced(device, anew):
    """It dies with its lists, among them those in which something is carried."""

    def program(box, x):
        return last_three(box.held, x), counted_key(box.held, x)

    def change(number, box, kept):
        if number % 14 == 13:
            box.held = anew(box.held)

    in_both_ways(program, change, calls=45, made=lambda: SimpleNamespace(held=state()))


def test_a_check_of_what_is_appended(device):
    """The call asks how long the list is, which it makes longer."""
    h, found = [], []

    def program(x):
        y = x * 2 if len(h) > 1 else x * 3
        h.append(y)
        return y

    g = rote.graph(program, verify=2, keep=True)
    for number in range(30):
        if number % 3 == 0:
            h.clear()
        found.append(g(torch.full((3,), float(number)))[0].item())
    assert found == [number * (2.0 if number % 3 == 2 else 3.0) for number in range(30)]
    assert g.report().replayed > 5


def test_many_members_before_the_end(device):
    """So many are no arguments of a call."""

    def program(s, x):
        s.h.append(x)
        return torch.stack(s.h[-40:]).sum(0)

    in_both_ways(program, calls=50)


# ---------------------------------------------------------------------- any programs


def at(s, back):
    return s.h[-back] if len(s.h) >= back else 0.0


def store(s, key, value):
    s.d[key] = value


def into_ring(s, value):
    s.ring[s.n % 4] = value


def put_last(s, value):
    if s.h:
        s.h[-1] = value


def step(s, by):
    s.n += by


def fail(s):
    if len(s.h) % 7 == 6:
        raise ValueError(len(s.h))


def bounded(s, size):
    if len(s.h) > size:
        s.h.pop(0) if isinstance(s.h, list) else s.h.popleft()


def some(s, *bounds):
    return [*s.h][slice(*bounds)] if isinstance(s.h, deque) else s.h[slice(*bounds)]


STEPS = {
    "append": lambda s, x: s.h.append(x * 2),
    "argument": lambda s, x: s.h.append(x),
    "extend": lambda s, x: s.h.extend([x + 1, x + 2]),
    "number": lambda s, x: s.h.append(x.sum().item()),
    "counter": lambda s, x: s.h.append(s.n),
    "its length": lambda s, x: s.h.append(len(s.h)),
    "len": lambda s, x: x * len(s.h),
    "compared": lambda s, x: x if len(s.h) > 5 else x * 2,
    "truth": lambda s, x: x if s.h else x * 3,
    "last": lambda s, x: x + tensor(at(s, 1)),
    "last but one": lambda s, x: x + tensor(at(s, 2)),
    "given": lambda s, x: (at(s, 1), at(s, 3)),
    "by its length": lambda s, x: s.h[len(s.h) - 1] if s.h else x,
    "first": lambda s, x: tensor(s.h[0]) if s.h else x,
    "three": lambda s, x: sum(map(tensor, some(s, -3, None)), x),
    "two of three": lambda s, x: some(s, -3, -1),
    "two": lambda s, x: sum(map(tensor, some(s, None, 2)), x),
    "all": lambda s, x: sum(map(tensor, s.h), x),
    "pop": lambda s, x: s.h.pop() if s.h else x,
    "in place": lambda s, x: tensor(at(s, 2)).add_(1),
    "put": lambda s, x: put_last(s, x * 7),
    "is": lambda s, x: bool(s.h) and s.h[-1] is x,
    "bounded": lambda s, x: bounded(s, 4),
    "cut": lambda s, x: setattr(s, "h", some(s, -4, None)),
    "moved": lambda s, x: s.lists["other"].append(at(s, 1)),
    "fail": lambda s, x: fail(s),
    "key": lambda s, x: store(s, s.n, x * 2),
    "next key": lambda s, x: store(s, s.n + 1, x),
    "few keys": lambda s, x: store(s, s.n % 3, s.n),
    "fixed key": lambda s, x: store(s, 5, x),
    "text": lambda s, x: store(s, f"k{s.n}", x.sum()),
    "keys": lambda s, x: x * len(s.d),
    "found": lambda s, x: s.d.get(5, 1.0),
    "asked": lambda s, x: (s.n in s.d, 0 in s.d),
    "before": lambda s, x: s.d.get(s.n - 1),
    "values": lambda s, x: [*s.d.values()][-2:],
    "ring": lambda s, x: into_ring(s, (x, s.n)),
    "filled": lambda s, x: filled_first(s, x),
    "appended": lambda s, x: s.transitions.append(x),
    "of filled": lambda s, x: s.transitions[-1] if s.transitions else len(s.transitions),
    "of ring": lambda s, x: (s.ring[0], s.ring[-1], s.ring[s.n % 4]),
    "step": lambda s, x: step(s, 1),
}  # fmt: skip
GROWS = ("append", "argument", "extend", "number", "key", "few keys", "ring", "text", "filled")


@pytest.mark.sampled(100)
@pytest.mark.parametrize("seed", range(400))
def test_any_steps(device, seed):
    dice = random.Random(seed)
    steps = [dice.choice([*STEPS]) for _ in range(dice.randint(1, 4))]
    steps.insert(dice.randint(0, len(steps)), dice.choice(GROWS))
    steps.insert(dice.randint(0, len(steps)), "step")
    kind = dice.choice([list, list, deque, lambda: deque(maxlen=3)])

    def made():
        s = state()
        s.h, s.ring = kind(), [None] * 4
        return s

    chances = random.Random(seed + 1)
    changes = [chances.choice(OTHERS) if seed % 2 and chances.random() < 0.2 else None for _ in range(CALLS)]

    def change(number, s, kept):
        if changes[number] is not None and not (changes[number] is shared and kind is not list):
            changes[number](s)

    in_both_ways(lambda s, x: [STEPS[each](s, x) for each in steps], change, made=made)


def fails(s, x):
    s.h.append(x)
    raise ValueError(len(s.h))


def turned(s, x):
    s.h[-1], s.h[-2] = s.h[-2], s.h[-1]


TURNS = {
    "insert": lambda s, x: s.h.insert(0, x * 9),
    "pop first": lambda s, x: s.h.pop(0) if isinstance(s.h, list) else s.h.popleft(),
    "reverse": lambda s, x: s.h.reverse(),
    "delete": lambda s, x: s.h.__delitem__(0),
    "clear": lambda s, x: s.h.clear(),
    "turned": turned,
    "anew": lambda s, x: setattr(s, "h", copy.copy(s.h)),
    "kept": lambda s, x: setattr(s, "kept", s.h[-2]),
    "twice": lambda s, x: s.h.append(s.h[-2]),
    "in place": lambda s, x: s.h[-2].add_(5),
    "nothing": lambda s, x: s.h.append(None),
    "fails": fails,
}


@pytest.mark.sampled(60)
@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("program", [difference, last_three, losses, deque_without_end, truth])
@pytest.mark.parametrize("turn", TURNS)
def test_a_call_that_does_something_else(device, turn, program, early):
    """Whichever of the calls it is: observed, recorded, or replayed."""
    name = {losses: "numbers", deque_without_end: "q"}.get(program, "h")
    for odd in (7, 9, 10, 11, 12, 14):

        def run(s, x, odd=odd):
            s.n += 1
            s.h = getattr(s, name)
            if s.n == odd and early:
                TURNS[turn](s, x)
            found = program(s, x)
            if s.n == odd and not early:
                TURNS[turn](s, x)
            setattr(s, name, s.h)
            return found

        in_both_ways(run, calls=18)
