"""A call in which the callable runs gives the containers and objects that it has returned, no others."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

import rote

CALLS = 5


@dataclasses.dataclass
class Kept:
    ys: list[Any]


@dataclasses.dataclass(frozen=True)
class Frozen:
    ys: list[Any]


class Made:
    def __init__(self, ys: list[Any]) -> None:
        self.ys = ys


class Policy:
    """Keeps a list, and returns it in many ways."""

    def __init__(self, device: torch.device, ending: Any) -> None:
        self.kept: list[Any] = []
        self.weight = nn.Parameter(torch.ones(2, device=device))
        self.ending = ending

    def step(self, x: torch.Tensor) -> Any:
        self.kept.append(x * 2)
        return self.ending(self, x)


def consumed(policy: Policy, x: torch.Tensor) -> Any:
    """A loss whose graph is gone, beside the list."""
    loss = (policy.weight * x).sum()
    loss.backward()
    policy.weight.grad = None
    return loss, policy.kept


ENDINGS = {
    "alone": (lambda policy, x: policy.kept, lambda result: result),
    "in a pair": (lambda policy, x: (x + 1, policy.kept), lambda result: result[1]),
    "in a dict": (lambda policy, x: {"y": x + 1, "ys": policy.kept}, lambda result: result["ys"]),
    "in a dataclass": (lambda policy, x: Kept(policy.kept), lambda result: result.ys),
    "in a frozen one": (lambda policy, x: Frozen(policy.kept), lambda result: result.ys),
    "in an object": (lambda policy, x: Made(policy.kept), lambda result: result.ys),
    "beside a loss": (consumed, lambda result: result[1]),
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("cleared", range(3))
def test_a_list_that_is_kept_is_the_one_that_is_returned(device, ending, cleared):
    make, find = ENDINGS[ending]
    plain, own = Policy(device, make), Policy(device, make)
    graphed = rote.graph(own.step)
    for call in range(CALLS):
        x = torch.full((2,), call + 1.0, device=device)
        expected, got = find(plain.step(x)), find(graphed(x))
        assert got is own.kept
        torch.testing.assert_close(got, expected, rtol=0, atol=0)
        if call == cleared:
            expected.clear()
            got.clear()


def test_a_default_is_the_list_that_is_returned(device):
    def step(x, found=[]):  # noqa: B006
        found.append(x * 2)
        return found

    graphed = rote.graph(step)
    for _ in range(CALLS):
        graphed(torch.ones(2, device=device)).clear()
        assert not step.__defaults__[0]


def test_results_are_kept_where_nothing_is_recorded(device):
    policy = Policy(device, ENDINGS["alone"][0])
    graphed = rote.graph(policy.step)
    for call in range(CALLS):
        graphed(torch.full((2,), call + 1.0, device=device))
    assert [each[0].item() for each in policy.kept] == [2.0 * (call + 1) for call in range(CALLS)]


def test_a_default_that_is_only_returned_is_the_one_there_is(device):
    def step(x, found=[1, [2]]):  # noqa: B006
        return x * 2, found, found[1]

    graphed, kept = rote.graph(step), step.__defaults__[0]
    for _ in range(CALLS):
        _, found, inner = graphed(torch.ones(2, device=device))
        assert found is kept and inner is kept[1]
