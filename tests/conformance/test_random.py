"""Random numbers are those of eager, and so is the generator afterwards."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import rote
from rote.testing import compare

WARM = rote.Options().warmup + 1


def test_dropout(device):
    g = compare(lambda x: F.dropout(x, 0.5), [(torch.randn(64, device=device),) for _ in range(8)])
    assert g.report().replayed == 8 - WARM


def test_dropout_on_both_sides_of_an_island(device):
    def fn(x):
        y = F.dropout(x, 0.5)
        n = (y != 0).any().item()
        return F.dropout(y + n, 0.3)

    g = compare(fn, [(torch.ones(64, device=device),) for _ in range(10)])
    (recording,) = g.report().recordings
    assert recording.segments == 2 and recording.replays == 10 - WARM


def test_numbers_drawn_at_an_unseen_value(device):
    def fn(x):
        y = F.dropout(x, 0.5)
        z = torch.rand(4, device=x.device) * int(x.sum().item())
        return y, z + torch.randn(4, device=x.device)

    compare(
        fn, [(torch.full((8,), float(n), device=device),) for n in (0, 0, 0, 0, 1, 0, 1, 1, 2, 1, 0, 2, 2)]
    )


def test_one_stream_of_numbers_across_calls_and_eager_between(device):
    g = rote.graph(lambda x: x + torch.rand(3, device=device))
    x = torch.zeros(3, device=device)

    def run(call):
        torch.manual_seed(11)
        found = []
        for n in range(10):
            found.append(call(x))
            if n % 3 == 0:
                found.append(torch.randn(5, device=device))
        return found

    for _ in range(2):
        for ours, theirs in zip(run(g), run(lambda x: x + torch.rand(3, device=device)), strict=True):
            assert torch.equal(ours, theirs)


OPERATIONS = {
    "rand": lambda d: torch.rand(5, device=d),
    "randn": lambda d: torch.randn(5, device=d),
    "randint": lambda d: torch.randint(0, 100, (5,), device=d),
    "randperm": lambda d: torch.randperm(16, device=d),
    "normal_": lambda d: torch.empty(5, device=d).normal_(),
    "bernoulli": lambda d: torch.full((32,), 0.5, device=d).bernoulli(),
    "multinomial": lambda d: torch.multinomial(torch.ones(8, device=d), 4),
    "exponential_": lambda d: torch.empty(5, device=d).exponential_(),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(device, name):
    compare(lambda: OPERATIONS[name](device), [()] * 7)


def test_a_generator_as_an_argument(device):
    generator = torch.Generator(device=device)

    def fn(x, generator):
        return x + torch.rand(3, device=x.device, generator=generator)

    g, x = rote.graph(fn), torch.zeros(3, device=device)

    def run(call):
        generator.manual_seed(3)
        return [call(x, generator) for _ in range(8)], generator.get_state()

    for ours, theirs in zip(*(sum(([*found],), [state]) for found, state in (run(g), run(fn))), strict=True):
        assert torch.equal(ours, theirs)
    assert g.report().replayed == 8 - WARM


def test_a_generator_in_a_closure(device):
    generator = torch.Generator(device=device)
    g = rote.graph(lambda: torch.randn(3, generator=generator, device=device))

    def run(call):
        generator.manual_seed(3)
        return [call() for _ in range(8)]

    eager = run(lambda: torch.randn(3, generator=generator, device=device))
    for ours, theirs in zip(run(g), eager, strict=True):
        assert torch.equal(ours, theirs)


def test_a_replay_that_draws_nothing_leaves_the_generator_alone(device):
    g, x = rote.graph(lambda x: x * 2), torch.ones(2, device=device)
    torch.manual_seed(4)
    eager = torch.rand(2, device=device)
    torch.manual_seed(4)
    for _ in range(6):
        g(x)
    assert torch.equal(torch.rand(2, device=device), eager)


def test_noise_in_a_training_step(device):
    def make():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.4), nn.Linear(16, 1)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return model, step

    ours, theirs = make(), make()
    g = compare(
        ours[1],
        [(torch.randn(8, 4, device=device),) for _ in range(12)],
        plain=theirs[1],
        states=(lambda: dict(ours[0].named_parameters()), lambda: dict(theirs[0].named_parameters())),
    )
    assert g.report().replayed >= 6


def test_random_numbers_before_a_list_is_read(device):
    """The read is seen above the dispatcher, where replaying the segment before it must not be traced."""

    def fn(x):
        y = x + torch.rand_like(x)
        return y + torch.tensor(y[0].tolist(), device=x.device)

    def run(call):
        torch.manual_seed(4)
        return [call(torch.ones(2, 3, device=device)) for _ in range(8)]

    for wanted, got in zip(run(fn), run(rote.graph(fn)), strict=True):
        assert torch.equal(wanted, got)


class Once:
    """A layer that is made in the first call, or whose first calls are made in another way."""

    def __init__(self):
        self.calls = 0
        self.layer = None

    def seeds(self, x):
        if self.layer is None:
            before = torch.get_rng_state()
            torch.manual_seed(3)
            self.layer = nn.Linear(4, 4, device=x.device)
            torch.set_rng_state(before)
        return self.layer(x).detach()

    def checkpoints(self, x):
        self.layer = self.layer or nn.Linear(4, 4, device=x.device)
        with torch.no_grad():
            self.layer.weight.fill_(0.5)
            self.layer.bias.fill_(0.25)
        self.calls += 1
        return checkpoint(self.layer, x, use_reentrant=False) if self.calls < 3 else self.layer(x)


@pytest.mark.parametrize("how", ["seeds", "checkpoints"])
def test_what_the_first_calls_do_says_nothing_of_later_ones(device, how):
    plain, graphed = Once(), Once()
    g = rote.graph(getattr(graphed, how), keep=True)
    for n in range(20):
        x = torch.full((4,), float(n), device=device)
        torch.manual_seed(n)
        wanted, drawn = getattr(plain, how)(x), torch.rand(2, device=device)
        torch.manual_seed(n)
        assert torch.equal(g(x), wanted) and torch.equal(torch.rand(2, device=device), drawn)
    assert g.report().replayed >= 10, g.explain()


def hooked(layer):
    layer.register_forward_hook(lambda module, given, result: None).remove()


def recomputed(layer):
    weight = layer.weight.detach().requires_grad_()
    checkpoint(lambda each: each * 2, weight, use_reentrant=False).sum().backward()


def drawn_apart(layer):
    generator = torch.Generator(layer.weight.device).manual_seed(1)
    torch.rand(2, generator=generator, device=layer.weight.device)


@pytest.mark.parametrize("act", [hooked, recomputed, drawn_apart])
def test_what_some_calls_do_says_nothing_of_the_numbers_of_others(device, act):
    """What is not understood in one call in six leaves the count of calls a number that is followed."""

    class Counting:
        def __init__(self):
            self.calls = 0
            self.layer = nn.Linear(4, 4, device=device).requires_grad_(False)
            self.layer.weight.fill_(0.5)
            self.layer.bias.fill_(0.25)

        def __call__(self, x):
            self.calls += 1
            if self.calls % 6 == 3:
                act(self.layer)
            return self.layer(x) * self.calls

    plain, graphed = Counting(), Counting()
    g = rote.graph(graphed, keep=True)
    for n in range(36):
        x = torch.full((4,), float(n), device=device)
        assert torch.equal(g(x), plain(x)) and graphed.calls == plain.calls
    assert g.report().replayed >= 18, g.explain()
