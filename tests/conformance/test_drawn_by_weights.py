"""Draws that are given arrays and lists which change: weights, means, priorities."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy
import pytest
import torch
from tests.conformance.keeping import KeptGraph
from tests.conformance.test_arrays_given import assert_alike

CALLS = 30


def by_weights(own, x, turn):
    own.weights[turn % 6] += 1
    return x * float(own.weights[numpy.random.choice(6, p=own.weights / own.weights.sum())])


def by_a_list(own, x, turn):
    rate = 1 / (turn + 2)
    return x * int(numpy.random.choice(3, p=[1 - rate, rate / 2, rate / 2]))


def around_means(own, x, turn):
    return x * float(numpy.random.normal([turn, 0.0], turn + 1).sum())


def of_an_array(own, x, turn):
    return x * int(numpy.random.choice(numpy.array([turn, 1, 2]), 2).sum())


def in_another_order(own, x, turn):
    return x * int(numpy.random.permutation(numpy.array([turn, 1, 2]))[0])


def by_what_was_drawn(own, x, turn):
    counts = numpy.random.randint(0, turn + 2, 3) + 1
    return x * int(numpy.random.choice(3, p=counts / counts.sum()))


def of_python(own, x, turn):
    return x * sum(random.choices([0, 1, turn], [turn + 1, 1, 2], k=2))


def by_priority(own, x, turn):
    chance = own.weights / own.weights.sum()
    rows = numpy.random.choice(6, 4, p=chance)
    weights = (6 * chance[rows]) ** -0.4
    weights /= weights.max()
    error = (own.data[rows] @ x - turn).abs()
    own.weights[rows] = error.cpu().numpy() + 1e-3
    return (error * torch.as_tensor(weights, dtype=torch.float32).to(x.device)).mean()


def that_are_shuffled(own, x, turn):
    own.weights[0] = turn
    numpy.random.shuffle(own.weights)
    return x * float(own.weights[1])


def that_are_undefined(own, x, turn):
    weights = numpy.array([turn, 1.0, 1.0]) / numpy.float64(turn + 2 if turn < 22 else -1)
    return x * int(numpy.random.choice(3, p=weights))


def by_what_was_read(own, x, turn):
    value = x.sum().item() + 1
    return x * int(numpy.random.choice(3, p=numpy.array([value, 1.0, 1.0]) / (value + 2)))


FOLLOWED = [
    by_weights, by_a_list, around_means, of_an_array, in_another_order, by_what_was_drawn, of_python,
    by_priority,
]  # fmt: skip


@pytest.mark.parametrize("still", [0, 4, 6])
@pytest.mark.parametrize("step", [*FOLLOWED, that_are_shuffled, that_are_undefined, by_what_was_read])
def test_what_is_drawn_with_is_computed(device, step, still):
    def played(wrap):
        random.seed(0)
        numpy.random.seed(0)
        own = SimpleNamespace(
            weights=numpy.ones(6), turn=0, data=torch.arange(24.0, device=device).reshape(6, 4)
        )

        def counted(x):
            own.turn = own.turn + (1 if own.turn < still or not still or own.turn >= 50 else 0)
            return step(own, x, own.turn)

        call, seen = wrap(counted), []
        for n in range(CALLS):
            if still and n == 20:
                own.turn = 50
            try:
                out = call(torch.arange(1.0, 5, device=device) * n)
            except ValueError as error:
                out = str(error)
            seen.append((out, own.weights.copy(), numpy.random.get_state()[1].tolist(), random.getstate()))
        return seen

    wrap = KeptGraph()

    plain = played(lambda call: call)
    assert_alike(played(wrap), plain)
    assert wrap.graphed.report().replayed >= 6 or step not in FOLLOWED, wrap.graphed.report().reasons
