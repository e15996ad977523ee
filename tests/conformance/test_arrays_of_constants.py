"""Arrays among results whose numbers are fixed: a replay hands out copies of its own."""

from __future__ import annotations

import functools
from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import rote

CALLS = 24


def scene():
    """A fresh state, and functions with arrays in what they return."""
    table, s = np.arange(3.0), SimpleNamespace(a=np.zeros(3), n=0, out=None, listed=[np.ones(2)])

    @functools.lru_cache
    def cached(n):
        return np.ones(n)

    def filled(array, key, value):
        array[key] = value
        return array

    def written(x, array, write):
        write(array, x)
        return x * 2, array

    zeros = functools.partial(np.zeros, 3, np.float32)
    replayed = {
        "alone": lambda x: np.zeros(3),
        "beside": lambda x: (x * 2, np.zeros(3), np.array([1, 2], np.int8), np.array(True)),
        "nested": lambda x: {"a": x + 1, "info": {"mask": np.ones((2, 2)), "l": [np.eye(2)]}},
        "of_other_forms": lambda x: (x, np.zeros((2, 3), order="F"), np.arange(6).reshape(2, 3).T),
        "every_second": lambda x: (x, np.arange(5)[::2]),
        "written": lambda x: (x * 2, filled(np.zeros(3), 1, 5.0)),
        "of_a_condition": lambda x: (x * 2, np.zeros(3) + table),
        "of_tensors": lambda x: (x * 2, np.array([float(each) for each in x])),
        "at_a_place": lambda x: (x * 2, filled(np.zeros(3), int(x.argmax()), 1)),
    }
    others = {
        "a_global": lambda x: (x * 2, table),
        "a_view": lambda x: (x * 2, table[1:]),
        "the_same": lambda x: (x * 2, np.asarray(table)),
        "in_other_form": lambda x: (x * 2, np.ravel(s.a), s.a.reshape(3, 1)),
        "an_attribute": lambda x: (x * 2, vars(s)["a"], next(iter(s.listed))),
        "of_a_cache": lambda x: (x * 2, cached(3), cached(3)[1:]),
        "twice": lambda x: (lambda a: (x, a, [a]))(np.zeros(3)),
        "sharing": lambda x: (lambda a: (x, a, a[:2]))(np.zeros(3)),
        "kept": lambda x: (x * 2, vars(s).update(out=np.zeros(3)), s.out),
        "kept_in_a_list": lambda x: (x * 2, s.listed.__setitem__(0, np.zeros(2)), s.listed[0]),
        "under_a_tensor": lambda x: (lambda a: (torch.from_numpy(a), a))(zeros()),
        "by_a_tensor": lambda x: written(x, zeros(), lambda a, x: torch.from_numpy(a).copy_(x)),
        "by_out": lambda x: written(x, zeros(), lambda a, x: torch.add(x, x, out=torch.as_tensor(a))),
        "by_copyto": lambda x: written(x, zeros(), lambda a, x: np.copyto(a, x.cpu().numpy())),
        "by_a_view": lambda x: written(x, zeros(), lambda a, x: a.view().put([0, 1], x.cpu().numpy()[:2])),
        "by_flat": lambda x: written(x, zeros(), lambda a, x: a.flat.__setitem__(0, float(x[0]))),
        "of_bytes": lambda x: (x, np.frombuffer(x.cpu().numpy().tobytes(), np.float32)),
        "over_bytes": lambda x: (x, np.frombuffer(bytearray(12), np.float32)),
        "read_only": lambda x: (x, np.broadcast_to(np.zeros(1), (3,))),
        "backwards": lambda x: (x, np.arange(3)[::-1]),
        "of_others": lambda x: (x, np.array(["a"]), np.array([1 + 2j])),
        "of_objects": lambda x: (x, np.array([1, None])),
        "counted": lambda x: (vars(s).update(n=s.n + 1), np.full(2, s.n), x),
    }
    return replayed, others, (table, s)


def arrays_in(value):
    if isinstance(value, np.ndarray):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [array for part in parts for array in arrays_in(part)]


def told(value):
    if isinstance(value, torch.Tensor):
        return value.dtype, value.tolist()
    if isinstance(value, np.ndarray):
        return value.dtype, value.strides, value.flags.writeable, value.tolist()
    if isinstance(value, dict):
        return {key: told(each) for key, each in value.items()}
    return [told(each) for each in value] if isinstance(value, (list, tuple)) else value


def seen_of(step, outside, device):
    """What each call gives, which array is which, and what shares memory; callers write what they get."""
    table, s = outside
    kept, seen = [], []
    torch.manual_seed(0)
    for number in range(CALLS):
        value = step(torch.rand(3, device=device))
        found = arrays_in(value)
        held = [*kept, *found, table, s.a, *s.listed, *([] if s.out is None else [s.out])]
        tensors = [each for each in value if isinstance(each, torch.Tensor)] if type(value) is tuple else []
        held += [each.numpy() for each in tensors if each.device.type == "cpu"]
        same = [[array is each for each in held] for array in found]
        shared = [[np.shares_memory(array, each) for each in held] for array in found]
        seen.append((told(value), same, shared, told([table, s.a, s.listed, s.out])))
        kept = [*kept, *found][-6:]
        for array in found:
            if array.flags.writeable and array.dtype.kind in "fi":
                array[(0,) * array.ndim] += 1
        if number % 9 == 8:
            table[0] += 1
    return seen


NAMES = [*scene()[0], *scene()[1]]


@pytest.mark.parametrize("name", NAMES)
def test_each_call_has_the_arrays_that_it_would(device, name):
    eager, graphed = scene(), scene()
    step = rote.graph({**graphed[0], **graphed[1]}[name])
    expected = seen_of({**eager[0], **eager[1]}[name], eager[2], device)
    assert seen_of(step, graphed[2], device) == expected
    if name in graphed[0]:
        assert step.report().replayed >= CALLS // 3, step.explain()


class Kept:
    array = None


def keeping(place, *, asks):
    """A function that keeps an equal array of its own in each call, and what tells which lies there."""
    kept, listed, table, window, held = SimpleNamespace(array=None), [None], {}, deque(maxlen=2), None
    made = type("Made", (Kept,), {})

    def step(x):
        nonlocal held
        array = np.arange(3)
        if place == "attribute":
            x = x if not asks or kept.array is None else x + float(kept.array[1])
            kept.array = array
        elif place == "item":
            x = x if not asks or listed[0] is None else x + len(listed[0])
            listed[0] = array
        elif place == "key":
            x = x if not asks or "array" not in table else x + 1
            table["array"] = array
        elif place == "tuple":
            x = x if not asks or kept.array is None else x + float(kept.array[0][1])
            kept.array = (array, 1)
        elif place == "window":
            x = x if not asks else x + len(window)
            window.append(array)
        elif place == "filled":
            listed.clear()
            listed.append(array)
        elif place == "class":
            made.array = array
        else:
            x = x if not asks or held is None else x + 1
            held = array
        return x * 2, array, array[1:] if asks else None

    def lies():
        found = {"attribute": kept.array, "item": listed[0], "key": table.get("array"), "class": made.array,
                 "filled": listed[0], "window": window[-1] if window else None, "variable": held}  # fmt: skip
        return kept.array[0] if place == "tuple" and kept.array else found.get(place)

    return step, lies


PLACES = ("attribute", "item", "key", "tuple", "window", "filled", "class", "variable")


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("place", PLACES)
def test_an_equal_array_is_another_one(device, place, asks):
    (eager, of_eager), (step, of_step) = keeping(place, asks=asks), keeping(place, asks=asks)
    graphed, held = rote.graph(step), []
    for number in range(CALLS):
        x = torch.full((2,), float(number), device=device)
        expected, found = eager(x), graphed(x)
        assert told(found) == told(expected), number
        assert (of_step() is found[1]) is (of_eager() is expected[1]), number
        assert not any(of_step() is each for each in held), number
        held.append(of_step())
        if number % 8 == 7:
            of_eager()[0] = of_step()[0] = 9
            assert told(found) == told(expected), number
    if not asks and place not in ("class", "window"):
        assert graphed.report().replayed >= CALLS // 3, graphed.explain()
