"""Results that wait for their backward while later calls write what they saved: as in eager, an error."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import rote

WARM = 6


class Writes(nn.Module):
    """Writes a part of an argument, or of its state, and then saves it for the gradient of a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("state", torch.ones(3, 4))

    def forward(self, x, given=None):
        saved = self.state if given is None else given
        saved[0].mul_(0.5)
        return self.layer(saved) + x


class WritesSometimes(Writes):
    """The same, where the host reads whether to write."""

    def forward(self, x, given=None):
        saved = self.state if given is None else given
        if x.sum() > 0:
            saved.mul_(0.5)
        return self.layer(saved) + x


class Statistics(Writes):
    """Batch norm writes its statistics without a change of version."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x, given=None):
        return self.norm(self.layer(x)).square()


def outcomes(module, call, device, kind, signs, between):
    """What every backward says, the gradients, and what was written."""
    torch.manual_seed(3)
    shared = torch.randn(3, 4, device=device)
    x = torch.rand(3, 4, device=device)
    for number in range(2 * WARM):
        given = {"state": (), "same": (shared,), "fresh": (torch.randn(3, 4, device=device),)}[kind]
        call(x if number % 2 else x * signs[0], *given).sum().backward()
    given = () if kind == "state" else (shared,)
    results = []
    for sign in signs:
        results.append(call(x * sign, *given).sum())
        if between:
            with torch.no_grad():
                (shared if given else module.state).add_(1)
    said = []
    for result in results:
        try:
            result.backward()
            said.append("right")
        except RuntimeError as error:
            said.append(str(error)[:84])
    return said, [*[parameter.grad for parameter in module.parameters()], shared, *module.buffers()]


def compare(build, device, kind, signs=(1, 1, 1), between=False):
    found = []
    for wrap in (lambda module: module, rote.graph):
        torch.manual_seed(7)
        module = build().to(device)
        call = wrap(module)
        found.append(outcomes(module, call, device, kind, signs, between))
    (said, wanted), (says, got) = found
    assert says == said
    for number, (a, b) in enumerate(zip(wanted, got, strict=True)):
        assert (a is None and b is None) or torch.equal(a, b), f"value {number}: {a} and {b}"
    assert call.report().replayed >= WARM
    return said


@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("kind", ["same", "fresh", "state"])
def test_a_later_call_writes_what_an_earlier_one_saved(device, kind, between):
    said = compare(Writes, device, kind, between=between)
    modified = "one of the variables needed for gradient computation has been modified by an inplace"
    assert said == [modified] * (3 if between else 2) + ["right"] * (not between)


@pytest.mark.parametrize("kind", ["same", "fresh", "state"])
def test_the_later_call_takes_the_way_that_writes_nothing(device, kind):
    assert compare(WritesSometimes, device, kind, (-1, -1, -1)) == ["right"] * 3


@pytest.mark.parametrize("kind", ["same", "fresh", "state"])
def test_the_later_call_takes_the_way_that_writes(device, kind):
    said = compare(WritesSometimes, device, kind, (-1, 1, -1, -1))
    assert [each == "right" for each in said] == [False, True, True, True]


def test_statistics_that_are_written_without_a_version(device):
    assert compare(Statistics, device, "state") == ["right"] * 3


class GivenStatistics(Writes):
    """The same, of statistics that are arguments."""

    def forward(self, x, mean, var):
        return functional.batch_norm(self.layer(x), mean, var, training=True).square()


def rounds(module, call, arguments, device, patterns):
    """Several results at once, again and again."""
    x, found = torch.rand(3, 4, device=device), []
    for signs in patterns * WARM:
        results = [call(x * sign, *arguments).sum() for sign in signs]
        for result in results:
            try:
                result.backward()
                found.append("right")
            except RuntimeError as error:
                found.append(str(error)[:84])
    return found, [*[parameter.grad for parameter in module.parameters()], *arguments, *module.buffers()]


@pytest.mark.parametrize(
    ("build", "count"), [(WritesSometimes, 0), (WritesSometimes, 1), (Statistics, 0), (GivenStatistics, 2)]
)
def test_many_rounds_by_several_ways(device, build, count):
    """Recordings that know both ways through the call count versions of what one way writes, and no more."""
    patterns = [(-1, -1, -1), (1, 1, 1), (1, -1, 1, -1), (-1, -1), (1, -1, -1)]
    outcomes = []
    for wrap in (lambda module: module, rote.graph):
        torch.manual_seed(7)
        module = build().to(device)
        arguments = [torch.ones((3, 4) if count == 1 else 4, device=device) for _ in range(count)]
        call = wrap(module)
        outcomes.append(rounds(module, call, arguments, device, patterns))
    (said, wanted), (says, got) = outcomes
    assert says == said
    for number, (a, b) in enumerate(zip(wanted, got, strict=True)):
        assert (a is None and b is None) or torch.allclose(a, b), f"value {number}: {a} and {b}"
    assert call.report().replayed >= WARM


def test_versions_of_statistics(device):
    """Eager changes that of the count alone."""
    norm = nn.BatchNorm1d(4).to(device)
    mean, var = torch.zeros(4, device=device), torch.ones(4, device=device)
    g, given = rote.graph(norm), rote.graph(functional.batch_norm)
    with torch.no_grad():
        for _ in range(WARM):
            before = [tensor._version for tensor in (norm.num_batches_tracked, norm.running_mean, mean)]
            g(torch.randn(5, 4, device=device))
            given(torch.randn(5, 4, device=device), mean, var, training=True)
            after = [tensor._version for tensor in (norm.num_batches_tracked, norm.running_mean, mean)]
            assert after[0] > before[0] and after[1:] == before[1:]
    assert g.report().replayed == given.report().replayed == WARM - 2
    assert mean.any() and norm.running_mean.any()
