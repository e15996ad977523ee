"""A call reads what its caller has gathered in a container, and empties that: the buffer of an episode."""

from __future__ import annotations

import random
import weakref
from collections import deque
from types import SimpleNamespace

import pytest
import torch
from tests.conformance.numbers_programs import bits

import rote


def emptied(name, how="clear"):
    """Reads all, and empties the container in one of the ways that Python has."""

    def run(s, x):
        held = getattr(s, name)
        values = list(held.values()) if isinstance(held, dict) else list(held)
        found = x * 2
        for each in values:
            found = found + (each[0] * each[1] if isinstance(each, tuple) else each)
        if how == "del":
            del held[:]
        elif how == "slice":
            held[:] = []
        elif how == "pop":
            while held:
                held.pop()
        else:
            held.clear()
        return found + len(held)

    return run


def twice(s, x):
    found = emptied("tensors")(s, x)
    s.tensors.clear()
    return found if s.tensors else found * 2


def kept(s, x):
    s.kept = s.tensors[0]
    return emptied("tensors")(s, x)


def written(s, x):
    for each in s.tensors:
        each.mul_(2)
    return emptied("tensors")(s, x)


def returned(s, x):
    found = s.tensors[:]
    s.tensors.clear()
    return found, x * 2


def raised(s, x):
    found = emptied("numbers")(s, x)
    try:
        return s.numbers[0] * x
    except IndexError:
        return found * 2


def ended(s, x):
    """The returns of an episode, as textbooks compute them."""
    returns, found = [], 0.0
    for reward in s.numbers[::-1]:
        found = reward + 0.99 * found
        returns.insert(0, found)
    returns = torch.tensor(returns, device=x.device)
    returns = (returns - returns.mean()) / (returns.std() + 1e-8)
    loss = sum(-each.sum() * value for each, value in zip(s.tensors, returns, strict=True))
    del s.numbers[:]
    del s.tensors[:]
    return loss * x


def learned(s, x):
    """A step of an optimizer, by what was gathered."""
    if s.optimizer is None:
        s.weight = torch.nn.Parameter(torch.ones(3, device=x.device))
        s.optimizer = torch.optim.SGD([s.weight], 0.1, momentum=0.9)
    loss = (torch.stack(s.tensors) * s.weight).square().sum()
    s.optimizer.zero_grad()
    loss.backward()
    s.optimizer.step()
    s.tensors.clear()
    return loss.detach() * x


REPLAYED = {
    "numbers": emptied("numbers"), "tensors": emptied("tensors"), "a queue": emptied("queue"),
    "numbers deleted": emptied("numbers", "del"), "tensors deleted": emptied("tensors", "del"),
    "numbers in a slice": emptied("numbers", "slice"), "tensors in a slice": emptied("tensors", "slice"),
    "numbers popped": emptied("numbers", "pop"), "tensors popped": emptied("tensors", "pop"),
    "a queue popped": emptied("queue", "pop"), "pairs": emptied("pairs"), "a table": emptied("table"),
    "a table of numbers": emptied("values"), "twice": twice, "kept": kept, "written": written,
    "returned": returned, "raised": raised, "an episode": ended, "a step": learned,
}  # fmt: skip
OTHERS = {
    "a set": emptied("group"),
    "and filled": lambda s, x: (emptied("numbers")(s, x), s.numbers.append(s.n))[0],
    "and filled with tensors": lambda s, x: (emptied("tensors")(s, x), s.tensors.append(x * 2))[0],
    "by another name": lambda s, x: (sum(s.tensors) * x, s.other.clear(), len(s.tensors))[::2],
    "and looked at": lambda s, x: (s.numbers.append(s.n), emptied("numbers")(s, x), len(s.numbers))[1:],
    "at times": lambda s, x: emptied("numbers")(s, x) if s.n % 3 else x * len(s.numbers),
    "of objects": lambda s, x: (x * sum(each.v for each in s.objects), s.objects.clear())[0],
}


def fill(s, count, chance, device):
    """What the caller gathers before a call; tells which tensors die with it."""
    tensors = [torch.full((3,), chance.random(), device=device) for _ in range(count)]
    s.tensors.extend(tensors)
    s.numbers.extend([chance.random() for _ in range(count)])
    s.queue.extend([torch.full((3,), chance.random(), device=device) for _ in range(count)])
    s.pairs.extend(
        [(torch.full((3,), chance.random(), device=device), chance.random()) for _ in range(count)]
    )
    s.table.update({str(n): torch.full((3,), chance.random(), device=device) for n in range(count)})
    s.values.update({n: chance.random() for n in range(count)})
    s.group.update({s.n % 3, 7})
    s.objects.extend([SimpleNamespace(v=chance.random()) for _ in range(count)])
    return [weakref.ref(each) for each in tensors]


def world():
    s = SimpleNamespace(
        n=0, tensors=[], numbers=[], queue=deque(), pairs=[], table={}, values={}, group=set(), objects=[],
        kept=None, other=None, optimizer=None, weight=None,
    )  # fmt: skip
    s.other = s.tensors
    return s


def play(program, counts, device):
    (mine, theirs), chances = (world(), world()), (random.Random(1), random.Random(1))
    run = rote.graph(lambda x: program(mine, x), keep=True)
    for number, count in enumerate(counts):
        both = []
        for s, chance, call in (
            (mine, chances[0], run),
            (theirs, chances[1], lambda x: program(theirs, x)),
        ):
            s.n = number
            held = fill(s, count, chance, device)
            found = call(torch.full((3,), number / 7, device=device))
            left = bits((list(s.queue), s.tensors, s.numbers, s.pairs, s.table, s.values, s.kept, s.weight))
            both.append((bits(found), left, len(s.objects), s.group, [each() is None for each in held]))
        assert both[0] == both[1], number
    return run.report().replayed


@pytest.mark.parametrize("program", REPLAYED.values(), ids=REPLAYED)
def test_what_is_emptied(device, program):
    assert play(program, [3] * 24, device) >= 14


@pytest.mark.sampled(2)
@pytest.mark.parametrize("counts", [[4, 2, 3] * 10, [2, 3, 2, 5, 3, 2, 4, 2] * 4])
@pytest.mark.parametrize("program", {**REPLAYED, **OTHERS}.values(), ids={**REPLAYED, **OTHERS})
def test_as_in_plain_calls(device, program, counts):
    play(program, counts, device)
