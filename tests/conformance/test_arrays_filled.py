"""Arrays of numpy that a call makes and writes to: what it returns of them, and computes with them."""

from __future__ import annotations

from itertools import cycle

import numpy
import pytest
import torch
from tests.conformance.keeping import KeptGraph
from tests.conformance.test_arrays_given import assert_alike

CALLS = 20
SIZE = 4


def played(make, device, wrap, still):
    """For ``still`` calls the arguments stay as they are."""
    step, seen = wrap(make()), []
    for n in range(CALLS):
        value = float(max(n - still, 0))
        x = torch.arange(1.0, SIZE + 1, device=device) * value
        seen.append(step(x, numpy.linspace(-1, 1, SIZE, dtype="float32") * value))
    return seen


def checked(make, device, still=0):
    wrap = KeptGraph()

    plain = played(make, device, lambda step: step, still)
    assert_alike(played(make, device, wrap, still), plain)
    return wrap.graphed.report()


def frames(x, given):
    """As an action chunk is filled step by step."""
    found = numpy.zeros((3, SIZE), dtype=numpy.float32)
    for step in range(3):
        found[step] = (x * step + 1).cpu().numpy()
    return found


def part_of_it(x, given):
    found = numpy.ones(2 * SIZE)
    found[SIZE:] = x.cpu().numpy()
    found[1] = 5
    return found, found[SIZE - 1 : SIZE + 1].copy()


def normalized(x, given):
    found = given.copy()
    found -= found.mean()
    found /= found.std() + 1
    found *= 2
    return torch.from_numpy(found).to(x.device) + x


def clipped(x, given):
    found = given + 1
    found[found > 2] = 2
    return torch.tensor(found, device=x.device) * x


def of_numbers(x, given):
    found = numpy.zeros(2)
    found[0] = x.sum().item()
    found[1] = found[0] * 2
    return found


@pytest.mark.parametrize("still", [0, 6])
@pytest.mark.parametrize("step", [frames, normalized, clipped])
def test_what_is_written_is_followed(device, step, still):
    report = checked(lambda: step, device, still)
    assert report.replayed >= CALLS // 3, report.reasons


def viewed_before(x, given):
    found = given.copy()
    view = found[:2]
    found += 1
    return x * (2 if view[0] > 1 else 3)


def viewed_behind(x, given):
    found = given.copy()
    found += 1
    view = found[:2]
    found[0] = 7
    return x * (2 if view[0] > 1 else 3) + float(view[1])


def written_through_a_view(x, given):
    found = given.copy()
    found[0] = 1
    found[:2][1] = 0.5
    return torch.from_numpy(found).to(x.device) + x


def seen_by_a_tensor(x, given):
    found = given.copy()
    tensor = torch.from_numpy(found)
    found += 1
    return x + tensor.to(x.device)


def written_by_a_tensor(x, given):
    found = given.copy()
    found += 1
    torch.from_numpy(found).mul_(x.cpu())
    return found


def held_twice(x, given):
    found = other = given.copy()
    found += 1
    other[1] = x.cpu().numpy()[1]
    return found, x * float(other.sum())


def written_in_steps(x, given):
    found = given + 1
    found[::2] += 1
    return torch.tensor(found, device=x.device) * x


def cast(x, given):
    found = numpy.zeros(SIZE, dtype=numpy.int64)
    found[:] = given * 3
    return found


def raised(x, given):
    found = numpy.zeros(SIZE, dtype=numpy.int64)
    try:
        found += given
    except TypeError:
        found += 1
    return found


def written_otherwise(x, given):
    found = given.copy()
    found[0] = 0
    numpy.copyto(found, given * 2)
    found.fill(float(given[1]))
    numpy.add.at(found, [0, 1], 1)
    found.sort()
    return x + float(found[0])


WRITES = [
    lambda found, array: found.__setitem__(slice(None), array),
    lambda found, array: numpy.copyto(found, array),
    lambda found, array: found.flat.__setitem__(slice(None), array),
    lambda found, array: numpy.add(found, array, out=found),
    lambda found, array: numpy.add.at(found, [0, 1], array[:2]),
    lambda found, array: found.put([0, 1], array[:2]),
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("step", "still"), [*zip([
    part_of_it, viewed_before, viewed_behind, written_through_a_view, seen_by_a_tensor, written_by_a_tensor,
    of_numbers, held_twice, written_in_steps, cast, raised, written_otherwise,
], cycle([0, 6]), strict=False)])  # fmt: skip
def test_what_is_written_in_other_ways(device, step, still):
    checked(lambda: step, device, still)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("write", WRITES)
def test_what_c_takes_of_a_tensor_is_no_constant(device, write):
    """It stays as it is for some calls, so that they agree."""

    def step(x, given):
        found = numpy.zeros(SIZE, dtype=numpy.float32)
        write(found, x.cpu().numpy())
        return torch.from_numpy(found) * 2

    checked(lambda: step, device, still=8)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("still", [0, 6])
def test_a_store_of_a_slice_takes_what_a_tensor_has(device, still):
    def step(x, given):
        found = numpy.zeros(SIZE, dtype=numpy.float32)
        found[:] = x.cpu().numpy()
        return torch.from_numpy(found) * 2

    checked(lambda: step, device, still)


def test_an_array_outside_that_is_written(device):
    def make():
        kept = numpy.zeros(SIZE, dtype=numpy.float32)

        def step(x, given):
            kept[:] = x.cpu().numpy()
            kept[0] += 1
            return kept.copy()

        return step

    checked(make, device)


def masked_spans(x, given):
    """As SpecAugment masks spans of time, whose starts are drawn."""
    spans = 1 + int(2 * SIZE / 8 + numpy.random.rand(1).item())
    rows = [numpy.random.choice(numpy.arange(6), spans, replace=False) for _ in range(2)]
    places = numpy.broadcast_to(numpy.array(rows)[:, :, None], (2, spans, 3)).reshape(2, spans * 3)
    places = places + numpy.broadcast_to(numpy.arange(3)[None, None], (2, spans, 3)).reshape(2, spans * 3)
    if places.max() > 6:
        places[places > 6] = 6
    mask = numpy.zeros((2, 7), dtype=bool)
    numpy.put_along_axis(mask, places, 1, -1)
    return torch.tensor(mask, device=x.device) * x[0], mask


def broadcast(x, given):
    """It cannot be written."""
    return numpy.broadcast_to(given, (2, SIZE)), x * 2


def put_into_an_argument(x, given):
    numpy.put_along_axis(given, numpy.array([1, 2]), given[:2] * 2, 0)
    return torch.from_numpy(given) * 2


@pytest.mark.parametrize("step", [masked_spans, broadcast, put_into_an_argument])
def test_what_is_put_along_an_axis(device, step):
    numpy.random.seed(3)
    state = numpy.random.get_state()
    plain = played(lambda: step, device, lambda each: each, 0)
    numpy.random.set_state(state)

    wrap = KeptGraph()

    for found, expected in zip(played(lambda: step, device, wrap, 0), plain, strict=True):
        assert_alike(found, expected)
        flags = [
            [each.flags.writeable for each in some if isinstance(each, numpy.ndarray)]
            for some in (found, expected)
            if isinstance(some, tuple)
        ]
        assert flags[:1] == flags[1:]
    assert step is not masked_spans or wrap.graphed.report().replayed >= 8, wrap.graphed.explain()
