"""Random generators that a call makes, or that Python hands to its operations."""

from __future__ import annotations

import gc

import numpy
import pytest
import torch

import rote
from rote.testing import compare

WARM = rote.Options().warmup + 1
CALLS = 8


def signs(device, pattern=(9, 9, 9, -9, 9, -9, 9, 9, -9, -9)):
    return [(torch.full((3,), float(sign), device=device),) for sign in pattern]


def _seeded(x: torch.Tensor) -> torch.Tensor:
    return x.cpu() + torch.randn(3, generator=torch.Generator().manual_seed(3))


def _default(x: torch.Tensor) -> torch.Tensor:
    return x.cpu() + torch.empty(3).uniform_(generator=torch.Generator())


def _set(x: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator()
    generator.set_state(torch.Generator().manual_seed(5).get_state())
    return x.cpu() + torch.randn(3, generator=generator)


def _seeded_twice(x: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    first = torch.randn(3, generator=generator) + torch.randn(3, generator=generator)
    return x.cpu() + first - torch.randn(3, generator=generator.manual_seed(4))


def _several(x: torch.Tensor) -> torch.Tensor:
    for seed in range(5):
        x = x.cpu() * torch.rand(3, generator=torch.Generator().manual_seed(seed))
    return x


def _by_sequence(x: torch.Tensor) -> torch.Tensor:
    sequence = numpy.random.SeedSequence(entropy=7)
    seed = int(sequence.generate_state(1)[0])
    return x.cpu() + torch.randn(3, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("fn", [_seeded, _default, _set, _seeded_twice, _several, _by_sequence])
def test_a_generator_made_inside_that_is_seeded_alike(device, fn):
    g = compare(fn, signs(device, range(CALLS)))
    assert g.report().replayed == CALLS - WARM, g.explain()


def test_a_generator_made_inside_on_several_ways(device):
    def fn(x):
        generator = torch.Generator().manual_seed(3)
        y = x.cpu() + torch.randn(3, generator=generator)
        if y.sum() > 0:
            return y + torch.randn(3, generator=generator)
        y = y * torch.rand(3, generator=torch.Generator().manual_seed(1))
        if y.sum() < -20:
            return y - torch.randn(3, generator=generator.manual_seed(9))
        return y

    g = compare(fn, signs(device, [9, 9, 9, -9, 9, -9, 9, -40, -9, -40, -40, 9, -40, -9]))
    assert g.report().replayed >= 5, g.explain()


def test_a_seed_that_is_another_in_every_call(device):
    count = [0]

    def fn(x, seed):
        return x.cpu() + torch.randn(3, generator=torch.Generator().manual_seed(count[0] * seed))

    plain, g = [], rote.graph(fn)
    for graphed in (False, True):
        for count[0] in range(CALLS):
            x = torch.full((3,), float(count[0]), device=device)
            if graphed:
                assert g(x, 3).equal(plain[count[0]])
            else:
                plain.append(fn(x, 3))


def test_a_seed_of_the_data(device):
    def fn(x):
        seed = int(x.sum().item()) % 3
        return x.cpu() + torch.randn(3, generator=torch.Generator().manual_seed(seed))

    g = compare(fn, signs(device, [n % 3 / 3 for n in range(15)]))
    assert g.report().replayed >= 6, g.explain()


def test_a_generator_made_outside(device):
    generator, twin = (torch.Generator(device).manual_seed(3) for _ in range(2))
    g = rote.graph(lambda x: x + torch.randn(3, generator=generator, device=device))
    for (x,) in signs(device):
        gc.collect()
        assert g(x).equal(x + torch.randn(3, generator=twin, device=device))
    assert g.report().replayed == 10 - WARM


def test_a_generator_made_outside_that_is_seeded_inside(device):
    generator, twin = (torch.Generator().manual_seed(3) for _ in range(2))

    def draw(x, generator):
        y = torch.randn(3, generator=generator.manual_seed(5))
        return x.cpu() + y * torch.randn(3, generator=generator)

    g = rote.graph(lambda x: draw(x, generator))
    for (x,) in signs(device):
        assert g(x).equal(draw(x, twin))
        assert generator.get_state().equal(twin.get_state())
    assert g.report().replayed == 10 - WARM


def test_a_generator_of_the_device_made_outside_that_is_seeded_inside(device):
    generator, twin = (torch.Generator(device).manual_seed(3) for _ in range(2))

    def draw(x, generator):
        y = torch.randn(3, generator=generator.manual_seed(5), device=x.device)
        return x + y * torch.randn(3, generator=generator, device=x.device)

    g = rote.graph(lambda x: draw(x, generator))
    for (x,) in signs(device):
        assert g(x).equal(draw(x, twin))
    assert g.report().replayed == (0 if device.type == "cuda" else 10 - WARM)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False")
def test_a_generator_of_the_device_made_inside(reason):
    def fn(x):
        generator = torch.Generator("cuda").manual_seed(3)
        y = x + torch.randn(3, generator=generator, device="cuda")
        return torch.linalg.inv(y[:, None] * y + torch.eye(3, device="cuda"))  # which a capture refuses

    g = compare(fn, signs("cuda"))
    assert g.report().replayed == 0
    assert "a generator on cuda" in reason(g, "RT221").message


# ---------------------------------------------------------------------- states that are put back


SAVED: list[torch.Tensor] = []


def checkpoints(x, between=lambda x: x, noise=0.0):
    """A gradient through a checkpoint, which puts the random state back to what it was."""
    weight = torch.ones(4, device=x.device, requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(lambda w: between(w * x).relu(), weight, use_reentrant=False)
    return torch.autograd.grad((y + noise * torch.ones_like(y)).sum(), weight)[0]


PUT_BACK = {
    "checkpoint": (checkpoints, True),
    "checkpoint that draws": (lambda x: checkpoints(x, torch.nn.functional.dropout), False),
    "checkpoint beside a draw": (lambda x: checkpoints(x) + torch.randn_like(x), False),
    "seeded": (lambda x: (torch.manual_seed(3), x * 2)[1], False),
    "set to what is kept": (lambda x: (torch.set_rng_state(SAVED[0]), x * 2)[1], False),
}


@pytest.mark.parametrize("name", PUT_BACK)
def test_a_state_that_is_put_back_while_nothing_is_drawn(device, name):
    fn, replays = PUT_BACK[name]
    found = []
    for wrap in (lambda fn: fn, rote.graph):
        torch.manual_seed(0)
        SAVED[:] = [torch.get_rng_state()]
        made, results = wrap(fn), []
        for number in range(14):
            if number in (8, 11):  # the next call finds another state
                torch.rand(3), torch.rand(3, device=device)
            results.append(made(torch.full((4,), float(number), device=device)))
            results.append(torch.rand(2, device=device) if number % 4 == 3 else torch.get_rng_state())
        found.append(results)
    assert all(one.equal(other) for one, other in zip(*found, strict=True))
    assert bool(made.report().replayed) == replays, made.explain()
