"""A wrapper that finds what another one has learned, on each device."""

from __future__ import annotations

import pytest
import torch

import rote


def calls_until_replayed(function, arguments, path, **options):
    """How many calls were not replayed before the first one that was."""
    graphed = rote.graph(function, plans=path, **options)
    for number in range(16):
        given = arguments(number)
        expected = function(*given)
        assert torch.equal(graphed(*given), expected)
        if graphed.report().replayed:
            return number
    return None


def test_the_warm_up(device, tmp_path):
    model = torch.nn.Linear(4, 4, device=device)
    found = [
        calls_until_replayed(model, lambda _: (torch.randn(2, 4, device=device),), tmp_path, warmup=4)
        for _ in range(2)
    ]
    assert found == [5, 2]


def test_numbers_among_the_arguments(device, tmp_path):
    found = [
        calls_until_replayed(
            lambda x, n: x * n - 1, lambda number: (torch.ones(3, device=device), number + 2.0), tmp_path
        )
        for _ in range(2)
    ]
    assert found == [6, 3]


def test_weights_of_another_shape(device, tmp_path):
    for width, note in ((4, None), (6, "stale")):
        model = torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.Linear(width, 4)).to(device)
        graphed = rote.graph(model, plans=tmp_path)
        for _ in range(3):
            x = torch.randn(2, 4, device=device)
            assert torch.equal(graphed(x), model(x))
        notes = graphed.report().plan.notes
        assert notes == () if note is None else note in notes[0]


@pytest.mark.parametrize("reads", [True, False])
def test_host_reads(device, tmp_path, reads):
    def branch(x):
        return x + 1 if not reads or x.sum() > 0 else x - 1

    found = [
        calls_until_replayed(branch, lambda _: (torch.ones(3, device=device),), tmp_path) for _ in range(2)
    ]
    assert found == [2, 2]


def test_a_training_step(device, tmp_path):
    results = []
    for _ in range(2):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 4, device=device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        graphed = rote.graph(step, plans=tmp_path)
        results.append([float(graphed(torch.full((2, 4), 1.0, device=device))) for _ in range(7)])
        assert graphed.report().replayed
    assert results[0] == results[1]
