"""Arrays of numpy that are made of numbers which change, and parts of arrays at places which do."""

from __future__ import annotations

from types import SimpleNamespace

import numpy
import pytest
import torch
from tests.conformance.keeping import KeptGraph
from tests.conformance.test_arrays_given import assert_alike

CALLS = 34


def played(step, device, still, wrap):
    own = SimpleNamespace(rows=numpy.arange(80.0).reshape(20, 4), sums=numpy.zeros((20, 4)), kept=None)
    call, seen = wrap(lambda *given: step(own, *given)), []
    for n in range(CALLS):
        turn = n if not still else min(n, still) if n < 24 else n
        out = call(torch.ones(4, device=device) * n, turn, numpy.arange(60.0) + n)
        seen.append((out, own.sums.copy(), own.rows.copy()))
        own.rows += n % 4 == 3  # who has a part of it sees that
    return [seen, [out for out, *_ in seen]]


def checked(step, device, still):
    wrap = KeptGraph()

    plain = played(step, device, still, lambda step: step)
    assert_alike(played(step, device, still, wrap), plain)
    return wrap.graphed.report()


def made(make, x):
    return torch.from_numpy(make.astype(numpy.float32)).to(x.device) * x


FOLLOWED = {
    "full": lambda own, x, turn, given: made(numpy.full(4, turn), x),
    "linspace": lambda own, x, turn, given: made(numpy.linspace(0, turn + 1, 4), x),
    "arange": lambda own, x, turn, given: made(numpy.arange(turn, turn + 4), x),
    "append": lambda own, x, turn, given: made(numpy.append(own.sums[0, :3], turn), x),
    "where": lambda own, x, turn, given: made(numpy.where(own.sums[0] > 0, 1, turn), x),
    "clip": lambda own, x, turn, given: made(numpy.clip(given[:4], 0, turn / 10), x),
    "a row": lambda own, x, turn, given: made(own.rows[turn % 20], x),
    "a row as it lies": lambda own, x, turn, given: torch.from_numpy(own.rows[turn % 20]).to(x.device) * x,
    "a slice": lambda own, x, turn, given: made(own.rows[turn % 20 : turn % 20 + 1], x),
    "a slice of what is given": lambda own, x, turn, given: x * float(given[turn : turn + 2].sum()),
    "an item": lambda own, x, turn, given: x * float(own.rows[turn % 20, 1]),
}


@pytest.mark.parametrize("still", [0, 4, 5, 6])
@pytest.mark.parametrize("name", FOLLOWED)
def test_what_is_made_of_numbers_is_followed(device, name, still):
    report = checked(FOLLOWED[name], device, still)
    assert report.replayed >= 8, report.reasons


def stored_at_a_slice(own, x, turn, given):
    found = given * 1
    found[turn : turn + 2] = 7
    return x * float(found.sum())


def summed_in_a_row(own, x, turn, given):
    own.sums[turn % 20] += numpy.array([turn, 1.0, 2.0, 0.5])
    return x * float(own.sums.max())


def summed_in_a_slice(own, x, turn, given):
    own.sums[turn % 20 : turn % 20 + 2, 1] += turn
    return x * float(own.sums.max())


def summed_in_a_view(own, x, turn, given):
    row = own.sums[turn % 20]
    row += 1
    row[0] = turn
    return x * float(own.sums.sum() + row.sum())


@pytest.mark.parametrize("still", [0, 4, 5, 6])
@pytest.mark.parametrize("step", [stored_at_a_slice, summed_in_a_row, summed_in_a_slice, summed_in_a_view])
def test_what_is_written_at_a_place_is_followed(device, step, still):
    report = checked(step, device, still)
    assert report.replayed >= 8, report.reasons


def seen_in_another_view(own, x, turn, given):
    row, column = own.sums[turn % 20], own.sums[:, 0]
    row += turn
    return x * float(column.sum())


def written_through_two_views(own, x, turn, given):
    rows = own.sums[1:]
    row = rows[0]
    row += turn
    return x * float(rows.sum())


def a_row_is_returned(own, x, turn, given):
    return torch.from_numpy(own.rows[turn % 20])


def a_row_is_returned_as_it_is(own, x, turn, given):
    return own.rows[turn % 20], x * 2


def a_row_is_kept(own, x, turn, given):
    own.kept = own.rows[turn % 20]
    return x * 2


def a_row_is_written_by_a_tensor(own, x, turn, given):
    row = torch.from_numpy(own.rows[turn % 20])
    row += 1
    return row.to(x.device) * x


def given_to_write_to(own, x, turn, given):
    found = given * 1
    numpy.add(found, turn, found)
    return x * float(found.sum())


def a_method_is_given_what_to_write_to(own, x, turn, given):
    found = given * 1
    found.clip(0, turn, found)
    return x * float(found.sum())


@pytest.mark.parametrize("still", [0, 4, 5, 6])
@pytest.mark.parametrize(
    "step",
    [
        seen_in_another_view, written_through_two_views, a_row_is_returned, a_row_is_returned_as_it_is,
        a_row_is_kept, a_row_is_written_by_a_tensor, given_to_write_to, a_method_is_given_what_to_write_to,
    ],
)  # fmt: skip
def test_what_else_becomes_of_a_part(device, step, still):
    checked(step, device, still)
