"""Tensors are indexed by arrays of numpy: by those that are given, and those that the call shuffles."""

from __future__ import annotations

import numpy
import pytest
import torch
from tests.conformance.test_arrays_given import checked
from torch import nn

import rote
from rote.testing import assert_same

CALLS = 14
ROWS = 8


def put(x, rows, value):
    made = x.clone()
    made[rows] = value
    return made


def written(x, rows):
    """The array is written behind its use, which no tensor sees."""
    found = x[rows] * 2
    rows[0] = 0
    return found + x[rows]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["int64", "int32", "bool", "uint8"])
@pytest.mark.parametrize("pick", [
    lambda x, rows: x[rows],
    lambda x, rows: x[rows, 1],
    lambda x, rows: x[:, :3][rows] + x[rows[1:] if rows.dtype == numpy.int64 else rows].sum(),
    lambda x, rows: put(x, rows, x[0]),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
def test_an_argument_picks_rows(device, pick, kind):
    x = torch.randn(ROWS, 4, device=device)

    def given(n):
        order = numpy.random.RandomState(n).permutation(ROWS)
        return ((order < 4 if kind in {"bool", "uint8"} else order[:4].copy()).astype(kind),)

    report = checked(lambda: lambda rows: pick(x, rows) + 0, given)
    assert report.replayed > 5, report.reasons


@pytest.mark.parametrize("pick", [
    lambda x, rows: x[rows.reshape(2, 2)],
    lambda x, rows: x[rows[0]],
    lambda x, rows: x[rows[:1].reshape(())],
    lambda x, rows: x[numpy.int64(rows[1])],
    lambda x, rows: x[rows.astype(numpy.float64).astype(numpy.int64)],
    lambda x, rows: x[[rows[0], 1]],
    lambda x, rows: x[torch.arange(1).numpy()] + x[rows].sum(),
    written,
])  # fmt: skip
def test_an_argument_picks_otherwise(device, pick):
    x = torch.randn(ROWS, 4, device=device)
    checked(
        lambda: lambda rows: pick(x, rows), lambda n: (numpy.random.RandomState(n).permutation(ROWS)[:4],)
    )


def shuffled(x, rows, shuffle):
    found = []
    for _ in range(2):
        shuffle(rows)
        found += [x[rows[start : start + 4]].cumsum(0) for start in (0, 4)]
    return found


def epoch(x, shuffle):
    return shuffled(x, numpy.arange(ROWS), shuffle)


def reversed_in_place(rows):
    rows[:] = rows[::-1].copy()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("run", [
    lambda x: epoch(x, numpy.random.shuffle),
    lambda x: epoch(x, reversed_in_place),
    lambda x: shuffled(x, numpy.arange(ROWS, dtype=numpy.int32), numpy.random.shuffle),
    lambda x: [x[rows[:4]] + x[rows[4:]] for rows in [numpy.random.permutation(ROWS)]],
    lambda x: x[numpy.arange(ROWS) % 3 == 1],
])  # fmt: skip
def test_arrays_of_the_call_are_written_behind_their_use(device, run):
    def played(wrap):
        numpy.random.seed(0)
        step, seen = wrap(run), []
        for n in range(CALLS):
            seen.append(step(torch.arange(ROWS * 2.0, device=device).view(ROWS, 2) + n))
        return [seen, numpy.random.rand()]

    graphed = []
    assert_same(
        played(lambda run: graphed.append(rote.graph(run, keep=True)) or graphed[0]), played(lambda run: run)
    )
    assert graphed[0].report().replayed >= CALLS - 6, graphed[0].explain()


def test_an_update_of_ppo_replays(device):
    """As CleanRL writes it: the indices of all samples are shuffled in each epoch."""

    def played(wrap):
        torch.manual_seed(0)
        numpy.random.seed(0)
        net = nn.Linear(3, 2).to(device)
        optimizer = torch.optim.Adam(net.parameters(), 1e-2)

        @wrap
        def update(states, actions):
            rows, losses = numpy.arange(ROWS), []
            for _ in range(2):
                numpy.random.shuffle(rows)
                for start in range(0, ROWS, 4):
                    some = rows[start : start + 4]
                    loss = nn.functional.cross_entropy(net(states[some]), actions.long()[some])
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    losses += [loss.item()]
            return numpy.mean(losses)

        seen = []
        for _ in range(2 * CALLS):
            states = torch.randn(ROWS, 3).to(device)
            seen.append(update(states, (states.sum(1) > 0).int()))
            seen += [each.detach().clone() for each in net.parameters()]
        return seen

    graphed = []
    seen = played(lambda run: graphed.append(rote.graph(run, keep=True)) or graphed[0])
    assert_same(seen, played(lambda run: run))
    assert graphed[0].report().replayed >= CALLS, graphed[0].explain()


@pytest.mark.sampled(1)  # each call shuffles otherwise
@pytest.mark.parametrize("look", [
    lambda view: view[0] > 2,
    lambda view: view.sum() > 8,
    lambda view: 7 not in view,
    lambda view: any(each > 6 for each in view),
    lambda view: view.max() > 6,
    lambda view: memoryview(view)[0] > 2,
    lambda view: float(view.reshape(2, 2)[0, 0]) > 2,
    lambda view: numpy.sort(view)[0] > 1,
    lambda view: torch.from_numpy(view).sum().item() > 8,
])  # fmt: skip
def test_a_view_that_was_made_before_an_array_is_shuffled(device, look):
    def shuffled(x):
        rows = numpy.arange(ROWS)
        view = rows[:4]
        numpy.random.shuffle(rows)
        return x * (2 if look(view) else 3)

    def played(run):
        numpy.random.seed(0)
        return [run(torch.full((2,), float(n), device=device)) for n in range(2 * CALLS)]

    assert_same(played(rote.graph(shuffled, keep=True)), played(shuffled))
