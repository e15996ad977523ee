"""Loops over states that grow: caches, lists of steps, dicts of histories, all new for each prompt."""

from __future__ import annotations

import copy
from collections import OrderedDict
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rote
from rote.testing import assert_same

PROMPTS, STEPS, PLACES = 5, 6, 2
WIDTH = 4


class Cache:
    """As those of transformers: nothing is there before the first step."""

    def __init__(self):
        self.layers = [Layer() for _ in range(PLACES)]


class Layer:
    def __init__(self):
        self.held, self.started = None, False

    def update(self, new):
        if not self.started:
            self.held, self.started = new.new_zeros(1, 0, WIDTH), True
        self.held = torch.cat([self.held, new], 1)
        return self.held


class Slotted:
    __slots__ = ("first", "second")


@dataclass
class Fields:
    first: torch.Tensor | None = None
    second: torch.Tensor | None = None


@dataclass
class Lists:
    held: list = field(default_factory=lambda: [None] * PLACES)


def _cat(old, new):
    return new if old is None else torch.cat([old, new], 1)


def layers(states, place, new):
    return states.layers[place].update(new)


def attributes(states, place, new):
    name = ("first", "second")[place]
    setattr(states, name, _cat(getattr(states, name, None), new))
    return getattr(states, name)


def members(states, place, new):
    states[place] = _cat(states[place], new)
    return states[place]


def keys(states, place, new):
    states[f"k{place}"] = _cat(states.get(f"k{place}"), new)
    return states[f"k{place}"]


def in_a_list(states, place, new):
    states.held[place] = _cat(states.held[place], new)
    return states.held[place]


def in_a_new_list(states, place, new):
    states.held = [_cat(each, new) if place == number else each for number, each in enumerate(states.held)]
    return states.held[place]


def appended(states, place, new):
    states[place].append(new)
    return torch.cat(states[place], 1)


def appended_inside(states, place, new):
    states.held[place].append(new)
    return torch.cat(states.held[place], 1)


KINDS = {
    "layers": (Cache, layers),
    "attributes": (SimpleNamespace, attributes),
    "slots": (Slotted, attributes),
    "fields": (Fields, attributes),
    "members": (lambda: [None] * PLACES, members),
    "keys": (dict, keys),
    "ordered keys": (OrderedDict, keys),
    "a list in a dataclass": (Lists, in_a_list),
    "a list in an object": (lambda: SimpleNamespace(held=[None] * PLACES), in_a_list),
    "a list put there anew": (lambda: SimpleNamespace(held=[None] * PLACES), in_a_new_list),
    "appended": (lambda: [[] for _ in range(PLACES)], appended),
    "appended inside": (lambda: SimpleNamespace(held=[[] for _ in range(PLACES)]), appended_inside),
}


def tensors(states):
    """All tensors in the states, in order."""
    if states is None or isinstance(states, (bool, int)):
        return []
    if isinstance(states, torch.Tensor):
        return [states]
    if isinstance(states, dict):
        return [each for key, value in states.items() for each in (key, *tensors(value))]
    if isinstance(states, (list, tuple)):
        return [len(states), *[each for value in states for each in tensors(value)]]
    if hasattr(states, "__slots__"):
        return [each for name in states.__slots__ for each in tensors(getattr(states, name, None))]
    return tensors(vars(states))


def step_over(update, weight, *, returns):
    """A step of a decoder, with states that it is given."""

    def step(x, states):
        for place in range(PLACES):
            seen = update(states, place, x @ weight)
            x = x + torch.softmax(x @ seen.transpose(1, 2), -1) @ seen
        x = x[:, -1:] / x.abs().amax()
        return (x, states) if returns else x

    return step


def halve(states):
    for each in tensors(states):
        if isinstance(each, torch.Tensor):
            each.mul_(0.5)


def changed(states, change):
    """The same states, all tensors changed."""
    if isinstance(states, torch.Tensor):
        return change(states)
    if isinstance(states, dict):
        for key, value in states.items():
            states[key] = changed(value, change)
    elif isinstance(states, list):
        states[:] = [changed(value, change) for value in states]
    elif states is not None and not isinstance(states, bool):
        names = getattr(states, "__slots__", None) or list(vars(states))
        for name in names:
            setattr(states, name, changed(getattr(states, name, None), change))
    return states


def share(states):
    """All tensors of the states are one."""
    first = next((each for each in tensors(states) if isinstance(each, torch.Tensor)), None)
    return changed(states, lambda each: first)


def play(step, make, lengths, touches, weight, device):
    """Some prompts, with what the caller does between two steps."""
    seen, kept = [], []
    for prompt, length in enumerate(lengths):
        states = make()
        x = torch.linspace(-1, 1, length * WIDTH, device=device).view(1, length, WIDTH) * (prompt + 1)
        for number in range(STEPS):
            out = step(x, states)
            x, states = out if isinstance(out, tuple) else (out, states)
            seen.append([x.clone(), *[each.clone() if isinstance(each, torch.Tensor) else each
                                      for each in tensors(states)]])  # fmt: skip
            touch = touches.get((prompt, number))
            if touch == "halved":
                halve(states)
            elif touch == "weight":
                weight.mul_(0.9)
            elif touch == "another prompt":
                states = make()
            elif touch == "cropped":
                states = changed(states, lambda each: each[:, : max(each.shape[1] - 1, 1)])
            elif touch == "forked":
                kept.append(states)
                states = copy.deepcopy(states)
            elif touch == "half forked":
                kept.append(states)
                states = copy.copy(states)
            elif touch == "shared":
                states = share(states)
            elif touch == "earlier" and kept:
                states = kept[0]
        kept.append(states)
    seen.append([each for states in kept for each in tensors(states)])  # what was left behind is not written
    return seen


def in_both_ways(kind, lengths, touches, device, *, returns=False, grad=False):
    make, update = KINDS[kind]
    found, graphed = [], None
    for graphs in (False, True):
        weight = torch.linspace(-1, 1, WIDTH * WIDTH, device=device).view(WIDTH, WIDTH).contiguous()
        step = step_over(update, weight, returns=returns)
        graphed = rote.graph(step, keep=True) if graphs else None
        with torch.set_grad_enabled(grad):
            found.append(play(graphed or step, make, lengths, touches, weight, device))
    for plain, replayed in zip(*found, strict=True):
        assert_same(replayed, plain)
    return graphed


@pytest.mark.parametrize("returns", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_lengths_are_found_again_by_the_next_prompts(device, kind, returns):
    graphed = in_both_ways(kind, [3] * PROMPTS, {}, device, returns=returns)
    assert graphed.report().replayed >= 2 * STEPS, graphed.explain()


def test_a_class_is_taken_apart_where_a_call_leaves_tensors_in_it(device):
    """One object in every call: as attributes under guard they would be other ones in every call."""
    graphed = in_both_ways("layers", [3] * 3, {}, device)
    assert graphed.report().replayed >= STEPS - 3, graphed.explain()


def test_a_number_left_in_an_object_does_not_take_it_apart(device):
    class Counter:
        number = 0

    def count(x, counter):
        counter.number += 1
        return x * 2

    graphed, counter = rote.graph(count), Counter()
    for _ in range(8):
        graphed(torch.ones(2, device=device), counter)
    assert counter.number == 8
    assert not graphed._openings.open


TOUCHES = [
    *("halved", "weight", "another prompt", "cropped"),
    *("forked", "half forked", "shared", "earlier"),
]


def test_the_report_says_how_many_lengths_would_share_a_recording(device):
    graphed = in_both_ways("members", [3] * 2, {}, device)
    told = [each for each in graphed.report().reasons if each.code == "RT306"]
    assert any(
        f"{STEPS - 1} lengths of it from 3 to {STEPS + 1}" in each.message and "mask" in each.remedy
        for each in told
    ), graphed.explain()


touch_any = st.sampled_from(TOUCHES)
touched = st.dictionaries(st.tuples(st.integers(0, 7), st.integers(0, STEPS - 1)), touch_any, max_size=6)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    lengths=st.lists(st.integers(1, 3), min_size=4, max_size=8),
    touches=touched,
    returns=st.booleans(),
    grad=st.booleans(),
)
def test_any_prompts(device, kind, lengths, touches, returns, grad):
    in_both_ways(kind, lengths, touches, device, returns=returns, grad=grad)
