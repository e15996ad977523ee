"""Arrays of numpy that lie in state, and into which calls write: replays write what the call would write."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from tests.conformance.keeping import KeptGraph
from tests.conformance.test_arrays_given import assert_alike

import rote

CALLS = 32
ROW = 6


def state():
    return SimpleNamespace(
        array=numpy.zeros(ROW), other=numpy.arange(3.0), rows=numpy.zeros((4, 2)), turn=0, generator=None,
        weight=torch.ones(4, requires_grad=True), kept=None,
    )  # fmt: skip


def played(make, prepare, change, device, still, wrap):
    """Values change, stay as they are for the calls that are traced, and change again."""
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    own, seen = state(), []
    prepare(own)
    step = wrap(lambda x: make(own, x))
    for n in range(CALLS):
        change(own, n)
        value = n if not still or n < still else max(still, n - 12)
        x = torch.arange(1.0, 5, device=device) * value
        try:
            out = step(x)
        except (ValueError, IndexError, AttributeError) as error:
            out = str(error)
        seen += [out, copy.deepcopy([each for each in vars(own).values() if not callable(each)])]
    seen.append((numpy.random.get_state()[1].tolist(), random.getstate()))
    return seen


def nothing(own, *n):
    pass


def checked(make, device, prepare: Callable[[Any], object] = nothing, change=nothing, still=0):
    wrap = KeptGraph()

    plain = played(make, prepare, change, device, still, lambda step: step)
    assert_alike(played(make, prepare, change, device, still, wrap), plain)
    return wrap.graphed.report()


def ring(own, x):
    own.array[own.turn % ROW] = x.sum().item()
    own.turn += 1
    return x * 2


def ring_that_is_read(own, x):
    ring(own, x)
    return x * float(own.array.mean())


def at_a_drawn_place(own, x):
    place = numpy.random.randint(ROW)
    own.array[place] = own.array[place] * 0.9 + 0.1 * x.mean().item()
    return x * own.array[random.randrange(ROW)]


def bandit(own, x):
    own.turn += 1
    arm = int(numpy.argmax(own.rows[:, 0] + 2 * numpy.sqrt(numpy.log(own.turn) / (own.rows[:, 1] + 1))))
    own.rows[arm, 1] += 1
    own.rows[arm, 0] += (x[arm].item() - own.rows[arm, 0]) / own.rows[arm, 1]
    return x * arm


def running_mean(own, x):
    own.turn += 1
    seen = numpy.array([x.sum().item(), own.turn, 1.0])
    own.other += (seen - own.other) / own.turn
    return x * float(own.other.max())


def shifted(own, x):
    own.array[:] = numpy.roll(own.array, 1)
    own.array[0] = own.turn
    own.turn += 1
    return torch.as_tensor(own.array, dtype=torch.float32).to(x.device)[:4] * x


def at_several_places(own, x):
    own.array[numpy.array([own.turn % ROW, 1])] = [1.0, own.turn]
    own.turn += 1
    return x * float(own.array.sum())


def of_a_tensor(own, x):
    own.array[:4] = x.cpu().numpy()
    return x + 1


def a_copy_is_returned(own, x):
    before = own.array.copy()
    ring(own, x)
    return before, own.array.copy()


def whole_step(own, x):
    loss = (x * own.weight * float(own.array.mean() + 1)).sum()
    loss.backward()
    with torch.no_grad():
        own.weight -= 1e-7 * own.weight.grad
    own.weight.grad = None
    own.array[own.turn % ROW] = 1e-5 * loss.item()
    own.turn += 1
    return loss.detach()


@pytest.mark.parametrize("still", [0, 6])
@pytest.mark.parametrize(
    "step",
    [
        ring, ring_that_is_read, at_a_drawn_place, bandit, running_mean, shifted, at_several_places,
        of_a_tensor, a_copy_is_returned, whole_step,
    ],
)  # fmt: skip
def test_what_is_written_is_written_by_replays(device, step, still):
    if step is whole_step and device.type != "cpu":
        pytest.skip("the weight lies on the host")
    report = checked(step, device, still=still)
    assert report.replayed >= CALLS // 4, report.reasons


def other_numbers(own, n):
    if n % 5 == 3:
        own.array[1] = n


def another(own, n):
    if n in (18, 25):
        own.kept, own.array = own.array, numpy.ones(ROW)


def of_another_type(own, n):
    if n == 20:
        own.array = own.array.astype("float32")


def longer(own, n):
    if n == 20:
        own.array = numpy.ones(ROW + 2)


def of_another_form(own, n):
    if n == 20:
        own.array.shape = (ROW, 1)


def seen_as_integers(own, n):
    if n == 20:
        own.array.dtype = numpy.int64


def read_only(own, n):
    if n in (20, 24):
        own.array.setflags(write=n == 24)


def gone(own, n):
    if n == 20:
        del own.array
    elif n == 24:
        own.array = numpy.ones(ROW)


@pytest.mark.parametrize(
    "change",
    [
        other_numbers, another, of_another_type, longer, of_another_form, seen_as_integers, read_only, gone,
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Setting the")
def test_who_changes_the_array_between_calls(device, change):
    report = checked(ring_that_is_read, device, change=change)
    assert report.replayed >= 8, report.reasons


LOOKS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "the same": (lambda own: own.array, lambda look: look[2]),
    "a view": (lambda own: own.array[2:], lambda look: look[0]),
    "a view in a list": (lambda own: [own.array[2:], numpy.ones(1)], lambda look: numpy.concatenate(look)[0]),
    "memory": (lambda own: memoryview(own.array), lambda look: look[2]),
    "an array over memory": (lambda own: numpy.frombuffer(own.array)[2:], lambda look: look[0]),
    "a tensor": (lambda own: torch.from_numpy(own.array), lambda look: look.sum()),
    "an array of a tensor": (lambda own: torch.from_numpy(own.array).numpy()[2:], lambda look: look[0]),
}


@pytest.mark.parametrize("when", ["before", "behind", "later", "later, and changes"])
@pytest.mark.parametrize("look", LOOKS)
def test_who_else_looks_at_the_memory(device, look, when):
    make, seen = LOOKS[look]
    held = {"look": None}  # what cannot be copied deeply

    def step(own, x):
        first = seen(held["look"]) if when == "before" else 0
        own.array[own.turn % ROW] += own.turn + 1
        own.turn += 1
        return x * float(first if when == "before" else seen(held["look"]))

    def changed(own, n):
        apart = SimpleNamespace(array=numpy.zeros(ROW) + (n if when == "later, and changes" else 0))
        if n == 0 or when.startswith("later"):
            held["look"] = make(apart if when.startswith("later") and n < 20 else own)

    checked(step, device, change=changed)


def a_tensor_made_before(own, x):
    tensor = torch.from_numpy(own.array)
    own.array[2] += own.turn
    own.turn += 1
    return tensor.to(x.device)[2] * x


def a_view_written(own, x):
    part = own.array[2:]
    part[0] = own.turn
    own.turn += 1
    return x * float(own.array[2])


def a_view_read(own, x):
    part = own.array[2:]
    own.array[2] = own.turn
    own.turn += 1
    return x * float(part[0])


def written_by_a_tensor(own, x):
    own.array[0] += own.turn
    own.turn += 1
    torch.from_numpy(own.array).add_(1)
    return x * float(own.array[0])


def filled_by_numpy(own, x):
    own.array[0] += own.turn
    own.array.fill(own.turn)
    own.turn += 1
    return x * float(own.array[1])


def given_to_out(own, x):
    numpy.add(own.array, own.turn, out=own.array)
    own.turn += 1
    return x * float(own.array[1])


def returned(own, x):
    ring(own, x)
    return x, own.array


def a_view_returned(own, x):
    ring(own, x)
    return x, own.array[1:3]


def a_tensor_returned(own, x):
    ring(own, x)
    return torch.from_numpy(own.array)


def kept_as_a_view(own, x):
    own.kept = own.array[1:3]
    ring(own, x)
    return x


def copied_deeply(own, x):
    ring(own, x)
    return x * float(copy.deepcopy(own).array.sum())


def replaced_then(own, x):
    ring(own, x)
    own.kept, own.array = own.array, own.array + 1
    return x * float(own.kept[0])


def out_of_bounds(own, x):
    own.array[own.turn // 4] += x.sum().item()
    own.turn += 1
    return x * float(own.array.sum())


def raises_between(own, x):
    own.turn += 1
    own.array[0] += 1
    if own.turn in (20, 21):
        raise ValueError(own.turn)
    own.array[1] += own.turn
    return x * float(own.array[0])


def behind_a_branch(own, x):
    own.array[2] += 1
    if (x * 2).sum().item() > 200:
        own.array[0] += 1
        x = x * 3
    return x + float(own.array[0])


@pytest.mark.parametrize(
    "step",
    [
        a_tensor_made_before, a_view_written, a_view_read, written_by_a_tensor, filled_by_numpy, given_to_out,
        returned, a_view_returned, a_tensor_returned, kept_as_a_view, copied_deeply, replaced_then,
        out_of_bounds, raises_between, behind_a_branch,
    ],
)  # fmt: skip
@pytest.mark.parametrize("still", [0, 6])
def test_what_else_becomes_of_it(device, step, still):
    def write(own, n):
        own.array += n == 9  # who has it sees that

    checked(step, device, change=write, still=still)


LOOKED_AT = {"a tensor": torch.from_numpy, "a view": lambda array: array[:4], "itself": lambda array: array}


@pytest.mark.parametrize("given", LOOKED_AT)
def test_an_argument_that_looks_at_it(device, given):
    def program(wrap):
        own = state()

        def step(x, array):
            own.array[1] += own.turn
            own.turn += 1
            return x * 2, float(array.sum())

        step = wrap(step)
        for n in range(CALLS):
            array = own.array if n in (14, 15, 22) else numpy.full(ROW, float(n))
            array = (
                torch.from_numpy(array) if given == "a tensor" else array[:4] if given == "a view" else array
            )
            yield step(torch.ones(4, device=device) * n, array), own.array.copy()

    assert_alike([*program(rote.graph)], [*program(lambda step: step)])


@pytest.mark.parametrize("kept", ["in a slot", "in a list"])
def test_a_view_that_is_kept_anew(device, kept):
    """An equal array that lies over other memory is not what the call leaves there."""

    def program(wrap):
        own = SimpleNamespace(array=numpy.arange(6.0), kept=None, held=[None])

        def step(x):
            if kept == "in a slot":
                own.kept = own.array[1:3]
            else:
                own.held[0] = own.array[1:3]
            return x * 2

        step = wrap(step)
        for n in range(20):
            out = step(torch.ones(2, device=device) * n)
            own.array += 1
            found = own.kept if kept == "in a slot" else own.held[0]
            yield out, found.copy()
            own.array -= 1
            if n % 3 == 2:
                own.kept = own.held[0] = numpy.concatenate([found, found])[:2]

    assert_alike([*program(rote.graph)], [*program(lambda step: step)])
