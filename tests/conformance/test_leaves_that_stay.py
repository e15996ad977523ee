"""Arguments that require grad and come again with their gradient: what an attack moves, or what is fitted."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import rote

CALLS, EVENT = 26, 17

pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute"),
    pytest.mark.parametrize("device", ["cpu"], indirect=True),
]


def cleared(net: Any, x: Tensor) -> Any:
    if x.grad is not None:
        x.grad.zero_()
    net(x).square().sum().backward()
    net.zero_grad()
    return (x + 0.03 * x.grad.sign()).clamp(-1, 1).detach()


def added_up(net: Any, x: Tensor) -> Any:
    loss = net(x).square().sum()
    loss.backward()
    return loss.detach(), x.grad.norm()


def dropped(net: Any, x: Tensor) -> Any:
    x.grad = None
    net(x).square().sum().backward()
    return x.grad * 2


def moved(net: Any, x: Tensor) -> Any:
    net(x).square().sum().backward()
    with torch.no_grad():
        x -= 0.01 * x.grad
        x.grad.zero_()
    return x.detach().sum()


def asked_for(net: Any, x: Tensor) -> Any:
    (found,) = torch.autograd.grad(net(x).square().sum(), x)
    return found if x.grad is None else found + x.grad


PROGRAMS = [cleared, added_up, dropped, moved, asked_for]


def _another(s: Any) -> None:
    s.x = torch.full((3, 4), 0.3, requires_grad=True)
    s.x.grad = torch.ones(3, 4)


def _fresh(s: Any) -> None:
    s.x = torch.full((3, 4), 0.3, requires_grad=True)


def _cleared(s: Any) -> None:
    s.x.grad = None


def _rebound(s: Any) -> None:
    s.x.data = torch.full((3, 4), 0.7)


def _written(s: Any) -> None:
    with torch.no_grad():
        s.x.mul_(0.5)
        if s.x.grad is not None:
            s.x.grad.add_(1.0)


def _frozen(s: Any) -> None:
    s.x.requires_grad_(False)


def _shared(s: Any) -> None:
    s.x.data = s.net[0].weight.data[:3]


def _kept(s: Any) -> None:
    s.seen.append(s.x.grad)


def _with_a_history(s: Any) -> None:
    s.x = s.x * 1.5
    s.x.retain_grad()


def _parameter(s: Any) -> None:
    s.x = nn.Parameter(s.x.detach().clone())


def _hooked(s: Any) -> None:
    s.x.register_hook(lambda gradient: gradient * 2)


EVENTS: list[Callable[[Any], None]] = [
    _another, _fresh, _cleared, _rebound, _written, _frozen, _shared, _kept, _with_a_history, _parameter,
    _hooked,
]  # fmt: skip


def _play(program: Any, event: Any, wrap: Any, *, back: bool) -> list[Any]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    s = SimpleNamespace(net=net, x=torch.rand(3, 4).requires_grad_(), seen=[])
    first, act, found = s.x, wrap(lambda x: program(net, x)), []
    for call in range(CALLS):
        if call == EVENT:
            event(s)
        if call == EVENT + 4 and back:
            s.x = first
        try:
            given: Any = act(s.x)
        except (RuntimeError, TypeError) as error:
            given = str(error)
        shown = [*(given if isinstance(given, tuple) else (given,)), s.x.grad, *s.seen, s.x.detach()]
        shown += [each.grad for each in net.parameters()]
        found.append([each.tolist() if isinstance(each, Tensor) else each for each in shown])
        found[-1].append((s.x.requires_grad, s.x.is_leaf, s.x.grad is not None and s.x.grad.requires_grad))
    return found


@pytest.mark.sampled(8)
@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_comes_in_its_place(device: Any, program: Any, event: Any, back: bool) -> None:
    plain = _play(program, event, lambda act: act, back=back)
    assert _play(program, event, lambda act: rote.graph(act, keep=True), back=back) == plain


@pytest.mark.parametrize("program", [cleared, added_up, moved, asked_for])
def test_replays(device: Any, program: Any) -> None:
    graphs: list[Any] = []
    _play(
        program,
        lambda s: None,
        lambda act: graphs.append(rote.graph(act, keep=True)) or graphs[0],
        back=False,
    )
    assert graphs[0].report().replayed >= CALLS - 6, graphs[0].explain()
