"""Random numbers: those of eager, in its order, whatever is observed, recorded or replayed."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from rote.testing import assert_same


def test_the_numbers_of_eager(way, device):
    def fn(x):
        return torch.rand(20, device=x.device) + x

    graphed, x = way(fn), torch.zeros(20, device=device)
    torch.manual_seed(3)
    expected = [fn(x) for _ in range(8)]
    torch.manual_seed(3)
    assert_same([graphed(x) for _ in range(8)], expected)
    assert way.replays()


def test_seeding_again_gives_the_same_again(way, device):
    graphed, x = way(lambda x: torch.randn_like(x)), torch.zeros(5, device=device)
    rounds = []
    for _ in range(4):
        torch.manual_seed(0)
        rounds.append([graphed(x) for _ in range(3)])
    for found in rounds[1:]:
        assert_same(found, rounds[0])
    assert not rounds[0][0].equal(rounds[0][1])


def test_draws_outside_lie_between(way, device):
    graphed, x = way(lambda x: x + torch.rand(4, device=x.device)), torch.zeros(4, device=device)

    def program(fn):
        torch.manual_seed(7)
        return [part for _ in range(8) for part in (fn(x), torch.rand(3, device=device))]

    assert_same(program(graphed), program(lambda x: x + torch.rand(4, device=x.device)))


def test_two_callables_draw_in_turns(way, device):
    def one(x):
        return x + torch.rand_like(x)

    def other(x):
        return x * torch.randn_like(x)

    x = torch.ones(4, device=device)

    def program(first, second):
        torch.manual_seed(5)
        return [part for _ in range(8) for part in (first(x), second(x), first(x))]

    assert_same(program(way(one), way(other)), program(one, other))
    assert way.replays()


def test_dropout_and_its_backward(way, inputs):
    def fn(x):
        return (x * 2).sin() * F.dropout(x, 0.4)

    plain = torch.compile(fn, backend="aot_eager") if way.compiles else fn
    graphed = way(fn)

    def program(call):
        found = []
        for seed, (x,) in enumerate(calls):
            x = x.clone().requires_grad_()
            torch.manual_seed(seed)
            y = call(x)
            y.sum().backward()
            found += [y.detach(), x.grad]
        return found

    calls = inputs()
    assert_same(program(graphed), program(plain))
    assert way.replays() and way.walks()
