"""Calls that ask for gradients of their arguments, or of leaves of their own, and leave what they found.

An argument that is told to require grad does so from then on, and has its gradient: a replay leaves both. A
result that is computed from it goes on to it; one that leads to leaves which nobody has leads nowhere.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import rote
from rote.testing import assert_same

CALLS = 14

pytestmark = pytest.mark.filterwarnings("ignore:Using backward", "ignore:The .grad attribute")


def attacked(s: Any, x: torch.Tensor) -> Any:
    x.requires_grad_(True)
    loss = s.model(x).square().sum()
    s.model.zero_grad()
    loss.backward()
    return torch.clamp(x + 0.1 * x.grad.sign(), -1, 1)


def detached(s: Any, x: torch.Tensor) -> Any:
    x.requires_grad = True
    s.model(x).square().sum().backward()
    s.model.zero_grad()
    return (x + 0.1 * x.grad.data.sign()).detach()


def with_the_loss(s: Any, x: torch.Tensor) -> Any:
    x.requires_grad_()
    loss = s.model(x).square().sum()
    loss.backward()
    return loss, x.grad.abs()


def step_by_step(s: Any, x: torch.Tensor) -> Any:
    first = x.data
    for _ in range(3):
        x.requires_grad = True
        s.model.zero_grad()
        s.model(x).square().sum().backward()
        x = torch.clamp(x + 0.1 * x.grad.sign(), -1, 1).detach_()
        x = torch.clamp(x - first, -0.2, 0.2) + first
    return x


def of_a_copy(s: Any, x: torch.Tensor) -> Any:
    x = x.clone().detach().requires_grad_(True)
    s.model(x).square().sum().backward()
    s.model.zero_grad()
    return x + 0.1 * x.grad.sign()


def of_a_copy_by_name(s: Any, x: torch.Tensor) -> Any:
    x = x.clone().detach().requires_grad_(True)
    slope = torch.autograd.grad(s.model(x).sum(), x)[0]
    return torch.clamp(x + 0.1 * slope.sign(), -1, 1), slope


def the_gradient_itself(s: Any, x: torch.Tensor) -> Any:
    x.requires_grad_()
    s.model(x).square().sum().backward()
    return x.grad, x.grad.data[0], x


def asked_and_left(s: Any, x: torch.Tensor) -> Any:
    x.requires_grad_()
    return torch.autograd.grad(s.model(x).square().sum(), x)[0]


def cleared(s: Any, x: torch.Tensor) -> Any:
    x.requires_grad_()
    s.model(x).sum().backward()
    slope, x.grad = x.grad, None
    return slope * 2


def left_without_flag(s: Any, x: torch.Tensor) -> Any:
    x.requires_grad_()
    s.model(x).sum().backward()
    x.requires_grad_(False)
    return x.grad * 2


def put_by_hand(s: Any, x: torch.Tensor) -> Any:
    x.grad = s.model(x).detach() * 2
    return x + 1


def decided_between(s: Any, x: torch.Tensor) -> Any:
    x.requires_grad_()
    found = s.model(x)
    if found.sum() > 0:
        found.square().sum().backward()
    else:
        found.sum().backward()
    s.model.zero_grad()
    return x - x.grad


def in_turn(s: Any, x: torch.Tensor) -> Any:
    if x.grad is not None:
        x.grad.zero_()
    x.requires_grad_()
    s.model(x).square().sum().backward()
    return x.grad * 1


def asked_before(s: Any, x: torch.Tensor) -> Any:
    x = x if x.requires_grad else x.requires_grad_()
    energy = s.model(x).square().sum()
    return energy.detach(), -torch.autograd.grad(energy, x)[0]


def kept_in_state(s: Any, x: torch.Tensor) -> Any:
    x.requires_grad_()
    s.model(x).square().sum().backward()
    s.last = x.grad
    return x.detach() * 2


REPLAY = [
    attacked,
    detached,
    with_the_loss,
    step_by_step,
    of_a_copy,
    of_a_copy_by_name,
    the_gradient_itself,
    asked_and_left,
    cleared,
    left_without_flag,
    put_by_hand,
    decided_between,
    in_turn,
    asked_before,
    kept_in_state,
]


def the_leaf_as_well(s: Any, x: torch.Tensor) -> Any:
    x = x.clone().requires_grad_()
    s.model(x).square().sum().backward()
    return x * 2, x


def its_gradient_as_well(s: Any, x: torch.Tensor) -> Any:
    x = x.clone().requires_grad_()
    s.model(x).square().sum().backward()
    return x * 2, x.grad


def the_leaf_kept(s: Any, x: torch.Tensor) -> Any:
    s.last = x.clone().requires_grad_()
    s.model(s.last).square().sum().backward()
    return s.last * 2


def hooked(s: Any, x: torch.Tensor) -> Any:
    x = x.clone().requires_grad_()
    x.register_hook(lambda slope: s.log.append(1))
    s.model(x).square().sum().backward()
    return x * 2


def of_state(s: Any, x: torch.Tensor) -> Any:
    (s.model(x + s.weight)).square().sum().backward()
    return x + s.weight


def saves_an_argument(s: Any, x: torch.Tensor) -> Any:
    own = x.clone().requires_grad_()
    s.model(own).square().sum().backward()
    return own * x


def saves_a_result(s: Any, x: torch.Tensor) -> Any:
    own = x.clone().requires_grad_()
    s.model(own).square().sum().backward()
    return own.exp()


def with_a_graph(s: Any, x: torch.Tensor) -> Any:
    x.requires_grad_()
    s.model(x).square().sum().backward(create_graph=True)
    return x.grad.detach() * 2


def of_another(s: Any, x: torch.Tensor) -> Any:
    x.grad = s.last if s.last is not None else None
    s.last = torch.ones_like(x)
    return x + 1


def flagged_in_between(s: Any, x: torch.Tensor) -> Any:
    x.requires_grad_()
    y = x * 2
    s.model(x).sum().backward()
    x.requires_grad_(False)
    return y


def watched(s: Any, x: torch.Tensor) -> Any:
    x.register_hook(lambda slope: s.log.append(1)) if x.requires_grad_() is x else None
    s.model(x).sum().backward()
    return x.grad * 2


def at_times(s: Any, x: torch.Tensor) -> Any:
    found = s.model(x.detach()).detach()
    if found.sum() > 0:
        x.requires_grad_()
        s.model(x).sum().backward()
    return found


OTHERS = [
    the_leaf_as_well,
    its_gradient_as_well,
    the_leaf_kept,
    hooked,
    of_state,
    saves_an_argument,
    saves_a_result,
    with_a_graph,
    of_another,
    flagged_in_between,
    watched,
    at_times,
]


def tensors(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else list(value)


def look(s: Any, x: torch.Tensor) -> Any:
    grads = [each.grad for each in (*s.model.parameters(), s.weight, x)]
    left = [] if s.last is None else [s.last, s.last.requires_grad, s.last is x.grad]
    return x, x.requires_grad, x.is_leaf, [each is not None for each in grads], left, list(s.log), [
        each.clone() for each in grads if each is not None
    ]  # fmt: skip


def after(results: list[torch.Tensor], s: Any, x: torch.Tensor, spoils: bool) -> Any:
    """What a caller may do behind a call: go back from what came of it, twice, with a weight of its own."""
    found: list[Any] = []
    weight = torch.ones_like(x, requires_grad=True)
    if spoils:
        with torch.no_grad():
            x.add_(1)
    for each in results:
        if not each.requires_grad:
            continue
        for _ in range(2):
            try:
                (each * weight.sum()).sum().backward(retain_graph=True)
                found.append(look(s, x))
            except RuntimeError as error:
                found.append(str(error)[:30])
    return found, weight.grad


def play(program: Any, device: Any, way: str = "new", **options: Any) -> Any:
    def made() -> Any:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).to(device)
        weight = nn.Parameter(torch.randn(3, 3, device=device)[:1])
        return SimpleNamespace(model=model, weight=weight, last=None, log=[], given=None)

    ours, theirs = made(), made()
    g = rote.graph(lambda x: program(ours, x), **{"keep": True, **options})
    kept: list[Any] = []
    for number in range(CALLS):
        fresh = torch.randn(2, 3, generator=torch.Generator().manual_seed(number)).to(device)
        found = []
        for call, s in ((g, ours), (lambda x: program(theirs, x), theirs)):
            s.given = s.given if way == "same" and s.given is not None else fresh.clone()
            if way == "asking":
                s.given.requires_grad_(number % 3 == 1)
            if way == "asked":
                s.given.requires_grad_()
            if way == "computed":
                s.given = s.given.requires_grad_() * 1
            if way == "hooked" and number > CALLS // 2:
                s.given.requires_grad_().register_hook(lambda slope, s=s: s.log.append(2))
                s.given.requires_grad_(False)
            if way == "filled" and number % 3 == 1:
                s.given.grad = torch.ones_like(s.given)
            results = tensors(call(s.given))
            told = [
                (each.requires_grad, each.is_leaf, each is s.given, each is s.given.grad) for each in results
            ]
            now = look(s, s.given)
            walked = after(results, s, s.given, way == "spoilt") if way != "only called" else None
            found.append((results, told, now, walked, look(s, s.given)))
            if s is ours:
                kept.append((s.given, s.given.clone(), s.given.grad))
                copies = [None if grad is None else grad.clone() for _, _, grad in kept[-1:]]
                kept[-1] = (*kept[-1], copies[0])
        assert_same(found[0], found[1], f"call {number}")
        if way == "new":
            for x, was, grad, held in kept:
                assert_same((x, grad), (was, held), "what an earlier call has left")
    return g.report()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("program", REPLAY, ids=lambda each: each.__name__)
def test_replays(device, program):
    assert play(program, device).replayed >= CALLS - 6


@pytest.mark.sampled(3)
@pytest.mark.parametrize("way", ["only called", "same", "asking", "asked", "filled", "hooked", "spoilt"])
@pytest.mark.parametrize("program", REPLAY, ids=lambda each: each.__name__)
def test_other_arguments(device, program, way):
    play(program, device, way)


@pytest.mark.parametrize("program", [asked_before, of_a_copy, of_a_copy_by_name])
def test_an_argument_with_a_history(device, program):
    play(program, device, "computed")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("way", ["new", "same", "spoilt"])
@pytest.mark.parametrize("program", OTHERS, ids=lambda each: each.__name__)
def test_what_somebody_sees(device, program, way):
    play(program, device, way)


def _step(s: Any, x: torch.Tensor) -> torch.Tensor:
    x.requires_grad_()
    s.model(x).square().sum().backward()
    s.model.zero_grad()
    return x.grad.sign()


def _halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    both = torch.cat([x, x * 2])
    return both[:2], both[2:]


PLACES = {
    "in a dict": (lambda x: {"x": x}, lambda s, given: _step(s, given["x"]).detach()),
    "in a list": (lambda x: [x, 1], lambda s, given: [given[0], _step(s, given[0])]),
    "twice": (lambda x: (x, x), lambda s, given: _step(s, given[0]) + given[1]),
    "two": (lambda x: (x, x * 2), lambda s, given: _step(s, given[0]) + _step(s, given[1])),
    "of one memory": (_halves, lambda s, given: _step(s, given[0]) + given[1]),
    "a view": (lambda x: _halves(x)[1], lambda s, given: _step(s, given)[0]),
    "an object": (lambda x: SimpleNamespace(x=x), lambda s, given: _step(s, given.x) * 2),
}


@pytest.mark.parametrize("place", PLACES)
def test_where_an_argument_lies(device, place):
    give, program = PLACES[place]

    def made() -> Any:
        torch.manual_seed(0)
        return SimpleNamespace(model=nn.Linear(3, 3).to(device))

    def leaves(given: Any) -> list[torch.Tensor]:
        parts = given.values() if isinstance(given, dict) else given
        parts = [given.x] if isinstance(given, SimpleNamespace) else parts
        return [
            each
            for each in ([parts] if isinstance(parts, torch.Tensor) else parts)
            if type(each) is torch.Tensor
        ]

    ours, theirs = made(), made()
    g = rote.graph(lambda given: program(ours, given), keep=True)
    for number in range(CALLS):
        x = torch.randn(2, 3, generator=torch.Generator().manual_seed(number)).to(device)
        one, other = give(x.clone()), give(x.clone())
        assert_same(g(one), program(theirs, other), f"call {number}")
        seen = [[(each, each.requires_grad, each.grad) for each in leaves(given)] for given in (one, other)]
        assert_same(*seen, f"arguments of call {number}")
    assert g.report().replayed >= CALLS - 6, g.explain()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("program", [attacked, detached, asked_and_left, left_without_flag, put_by_hand])
def test_under_verification(device, program):
    assert play(program, device, verify=2).replayed >= CALLS - 6
