"""Arrays that are unpacked into variables, and states of numpy's scalars: environments that a call steps."""

from __future__ import annotations

from types import SimpleNamespace

import numpy
import pytest
import torch
from tests.conformance.keeping import KeptGraph
from tests.conformance.test_arrays_given import assert_alike

CALLS = 30


def pendulum(own, x):
    angle, speed = own.array
    push = numpy.clip((own.net * x).sum(0, keepdim=True).tanh().cpu().numpy(), -2, 2)[0]
    cost = angle**2 + 0.1 * speed**2 + 0.001 * push**2
    speed = numpy.clip(speed + (15 * numpy.sin(angle) + 3 * push) * 0.05, -8, 8)
    own.array = numpy.array([angle + speed * 0.05, speed])
    return numpy.array([numpy.cos(angle), numpy.sin(angle), speed], dtype=numpy.float32), -cost


def cart(own, x):
    place, speed, angle, turn = own.state
    force = 10.0 if x[1].item() > 3 else -10.0
    cos, sin = numpy.cos(angle), numpy.sin(angle)
    pull = (force + 0.05 * turn**2 * sin) / 1.1
    bend = (9.8 * sin - cos * pull) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
    own.state = (place + 0.02 * speed, speed + 0.02 * pull, angle + 0.02 * turn, turn + 0.02 * bend)
    return torch.from_numpy(numpy.array(own.state, dtype=numpy.float32)).to(x.device) * x


def in_place(own, x):
    angle, speed = own.array
    own.array[0] = angle + speed * 0.05
    own.array[1] = speed + 0.1 * numpy.sin(angle)
    return x * float(own.array[0] + speed)


def with_a_star(own, x):
    first, *others = own.array
    own.array = own.array * 0.99
    return x * float(first + others[-1])


def nested(own, x):
    (angle, speed), turn = own.array, own.turn
    own.turn += 1
    own.array = numpy.array([speed, angle + turn])
    return x * speed


def in_a_dict(own, x):
    own.state = {"mean": numpy.float32(own.state["mean"] * 0.9 + 1), "count": own.state["count"] + 1}
    return x * own.state["mean"] / int(own.state["count"])


def too_many(own, x):
    own.array = own.array + 1
    try:
        first, second, third = own.array
    except ValueError as error:
        return x, str(error)
    return x * (first + second + third)


def too_few(own, x):
    own.array = own.array + 1
    try:
        (first,) = own.array
    except ValueError as error:
        return x, str(error)
    return x * first


def rows(own, x):
    first, second = own.table
    own.table = own.table + 1
    return x * float(first[0] + second[1])


def of_other_types(own, x):
    place, speed = own.state
    own.turn += 1
    own.state = (place + speed, numpy.float32(speed) if own.turn == 18 else speed * 1.01)
    return x * float(own.state[0])


def unpacked_twice(own, x):
    first, second = own.array
    own.array[0] = second + own.turn
    own.turn += 1
    third, _ = own.array
    return x * float(first + third)


REPLAY = [pendulum, cart, in_place, with_a_star, nested, in_a_dict, unpacked_twice]


@pytest.mark.parametrize("still", [0, 6])
@pytest.mark.parametrize("step", [*REPLAY, too_many, too_few, rows, of_other_types])
def test_what_is_unpacked_is_followed(device, step, still):
    def played(wrap):
        own = SimpleNamespace(
            array=numpy.array([0.5, 0.1]), state=(0.01, 0.02, 0.03, 0.04), turn=0,
            table=numpy.arange(4.0).reshape(2, 2), net=torch.ones(4, device=device) / 7,
        )  # fmt: skip
        if step is in_a_dict:
            own.state = {"mean": numpy.float32(1), "count": numpy.int64(0)}
        elif step is of_other_types:
            own.state = (numpy.float64(1), numpy.float64(0.5))
        call, seen = wrap(lambda x: step(own, x)), []
        for n in range(CALLS):
            if n == 20:
                own.array = numpy.array([0.25, 0.75])  # another episode
            value = n if not still else max(still, n - 10)
            out = call(torch.arange(1.0, 5, device=device) * (value % 5))
            state = [*own.state.values()] if isinstance(own.state, dict) else [*own.state]
            seen.append((out, own.array.copy(), numpy.array(state), [type(each).__name__ for each in state]))
        return seen

    wrap = KeptGraph()

    plain = played(lambda call: call)
    assert_alike(played(wrap), plain)
    assert wrap.graphed.report().replayed >= 8 or step not in REPLAY, wrap.graphed.report().reasons
