"""Copies made by segments, on a device that has them and says no at will: the text of the hot path."""

from __future__ import annotations

import ctypes
from functools import partial

import numpy
import pytest
import torch

import rote
from rote.runtime.arguments.key import bind
from rote.runtime.backends.host.segment import HostSegment
from rote.runtime.engine.specialization import Specialization


class Segment:
    """A segment of the host's with copies, that knows two sets of addresses at a time."""

    def __init__(self, device, segment, inputs, outputs):
        self.inputs = len(inputs)
        self.outputs = [partial(torch.empty_strided, t.shape, t.stride(), dtype=t.dtype) for t in outputs]
        self._filled, self._read = inputs, outputs
        self.known = {} if inputs or outputs else {(): partial(self.launch, ())}
        self._device, self._segment = device, segment

    def aim(self, addresses):
        self._device.moves += 1
        if self._device.refuses_moves:
            return None
        if len(self.known) > 1:
            self.known.pop(next(iter(self.known)))
        self.known[addresses] = partial(self.launch, addresses)
        return self.known[addresses]

    def launch(self, addresses, stream):
        assert stream == 0
        if self._device.refuses_launches:
            return 201
        self._device.launches += 1
        count = len(self._filled)
        for mine, address in zip(self._filled, addresses[:count], strict=True):
            ctypes.memmove(mine.data_ptr(), address, mine.nbytes)
        self._segment.replay()
        for mine, address in zip(self._read, addresses[count:], strict=True):
            ctypes.memmove(address, mine.data_ptr(), mine.nbytes)
        return 0


class Device:
    """What the segments were asked for, and whether they do it."""

    def __init__(self):
        self.moves = self.launches = 0
        self.refuses_moves = self.refuses_launches = False
        self.asked = []

    def with_copies(self, segment, inputs, outputs):
        self.asked.append((len(inputs), len(outputs)))
        return Segment(self, segment, inputs, outputs)


@pytest.fixture
def copying(monkeypatch):
    found = Device()
    monkeypatch.setattr(
        HostSegment, "with_copies", lambda segment, *tensors: found.with_copies(segment, *tensors)
    )
    return found


@pytest.fixture
def alone(monkeypatch):
    """From now on only hot paths may answer."""
    return lambda: monkeypatch.setattr(
        Specialization, "run", lambda *_: pytest.fail("the general path was taken")
    )


def warmed(fn, *args, **options):
    g = rote.graph(fn, **options)
    for _ in range(6):
        g(*args)
    return g


def test_addresses_are_set_when_they_change(copying, alone):
    g = warmed(lambda x: x * 2, torch.ones(3))
    alone()
    first, second = torch.full((3,), 5.0), torch.full((3,), 7.0)
    held = [g(first)]
    moves = copying.moves
    held.append(g(first))
    assert copying.moves == moves + 1  # the result lies elsewhere
    held.append(g(second))
    assert [y.tolist() for y in held] == [[10.0] * 3, [10.0] * 3, [14.0] * 3]
    assert copying.launches == g.report().replayed - 1  # the first replay is that of the general path
    assert all(y._version == 0 for y in held)


def test_addresses_that_come_in_turn_are_not_set_anew(copying, alone):
    total = torch.zeros(3)

    def add(x):
        total.add_(x)

    g = warmed(add, torch.ones(3))
    alone()
    places = torch.full((3,), 5.0), torch.full((3,), 7.0)
    for x in places:
        g(x)
    moves = copying.moves
    total.zero_()
    for n in range(8):
        places[n % 2].fill_(n)
        g(places[n % 2])
    assert copying.moves == moves and total.tolist() == [28.0] * 3


def test_a_refused_address_leaves_the_call_to_the_general_path(copying):
    g = warmed(lambda x: x * 2, torch.ones(3))
    before, launches = g.report(), copying.launches
    copying.refuses_moves = True
    assert g(torch.full((3,), 5.0)).tolist() == [10.0] * 3
    after = g.report()
    assert (after.calls, after.replayed) == (before.calls + 1, before.replayed + 1)
    assert copying.launches == launches
    copying.refuses_moves = False
    assert g(torch.full((3,), 6.0)).tolist() == [12.0] * 3
    assert copying.launches == launches + 1


def test_a_refused_launch_is_made_up_for(copying, alone):
    def fn(x):
        y = x * 2
        y[x > 0.5] = x.max()
        return y * 3, x + 1

    g = warmed(fn, torch.rand(3, 3))
    before = g.report()
    alone()
    for refuses in (True, False, True):
        copying.refuses_launches = refuses
        x = torch.rand(3, 3)
        assert all(torch.equal(a, b) for a, b in zip(g(x), fn(x), strict=True))
    after = g.report()
    assert (after.calls, after.replayed) == (before.calls + 3, before.replayed + 3)


def test_the_first_segment_takes_and_the_last_one_gives(copying, alone):
    def fn(x, y):
        z = x * y
        z[x > 0.5] = y.max()
        return z * 3

    g = warmed(fn, torch.rand(3, 3), torch.rand(3, 3))
    assert sorted(copying.asked) == [(0, 1), (2, 0)]
    alone()
    x, y = torch.rand(3, 3), torch.rand(3, 3)
    assert torch.equal(g(x, y), fn(x, y))


def test_what_is_no_run_of_bytes_is_copied_as_ever(copying, alone):
    wide = torch.rand(4, 6)

    def fn(dense, gaps, empty):
        return dense + 1, (gaps + 1).as_strided((2, 2), (3, 1)), empty * 2

    arguments = (wide.clone().t(), wide[:, ::2], torch.rand(0, 3))
    g = warmed(fn, *arguments)
    assert copying.asked == [(1, 1)]
    alone()
    arguments = ((wide + 1).t(), (wide + 1)[:, ::2], torch.rand(0, 3))
    for mine, right in zip(g(*arguments), fn(*arguments), strict=True):
        assert torch.equal(mine, right) and mine.stride() == right.stride()


def test_a_lazy_conjugate_is_no_run_of_bytes(copying, alone):
    z = torch.rand(3, dtype=torch.complex64).conj()
    g = warmed(lambda z: z * 2, z)
    assert copying.asked == [(0, 1)]
    alone()
    assert torch.equal(g(z), z * 2)


def test_an_argument_that_is_written_is_copied_before(copying):
    def fn(x, y):
        x += y
        return x * 2

    g = rote.graph(fn)
    for _ in range(6):
        g(torch.ones(3), torch.ones(3))
    assert all(inputs == 0 for inputs, _ in copying.asked)
    x = torch.ones(3)
    assert g(x, torch.ones(3)).tolist() == [4.0] * 3 and x.tolist() == [2.0] * 3


def test_arguments_that_come_to_share_memory_where_they_are_taken(copying):
    """How they share memory is asked where they come from new addresses."""

    def fn(x, y):
        return x * 2 + y, x is y

    base = torch.rand(8)
    apart = torch.rand(4), torch.rand(4)
    g = warmed(fn, *apart)
    assert (2, 1) in copying.asked
    forms = [apart, (base[:4], base[2:6]), (base[:4], base[:4]), (apart[0], apart[0])]
    for given in (*forms, *forms, *reversed(forms)):
        mine, right = g(*given), fn(*given)
        assert torch.equal(mine[0], right[0]) and mine[1] == right[1]
    launches = copying.launches
    g(*apart)
    assert copying.launches == launches + 1


def test_memory_of_two_storages_that_becomes_that_of_one(copying, alone):
    """Whoever gives the same addresses again may have another kind of memory there."""
    memory = numpy.arange(8, dtype=numpy.float32)

    def two():
        return torch.from_numpy(memory)[:4], torch.from_numpy(memory)[2:6]

    def one():
        whole = torch.from_numpy(memory)
        return whole[:4], whole[2:6]

    def fn(x, y):
        z = x * 2 + y
        z[x > 3] = y.max()  # the segment before it takes the arguments, and gives no result
        return z + 1

    g = warmed(fn, *two())
    for _ in range(6):
        g(*one())
    for make in (two, one, two, one, two, two, one):
        x, y = make()
        entries = g._keys.entries
        calls = entries[bind((x, y), {}).key].calls
        assert torch.equal(g(x, y), fn(x, y))
        assert entries[bind((x, y), {}).key].calls == calls + 1


def test_arguments_from_new_addresses_need_no_general_path(copying, alone):
    g = warmed(lambda x, y, z: x * 2 + y - z, *[torch.rand(4) for _ in range(3)])
    alone()
    for _ in range(20):
        given = [torch.rand(4) for _ in range(3)]
        assert torch.equal(g(*given), given[0] * 2 + given[1] - given[2])
