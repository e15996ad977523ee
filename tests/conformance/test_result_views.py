"""Results that lie in one memory: what a caller writes to them, or differentiates, is as in eager."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import rote

CALLS = 9


class Net(nn.Module):
    """A body, and a last line that is tried in many ways."""

    def __init__(self, ending) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 6))
        self.value = nn.Linear(6, 1)
        self.ending = ending

    def forward(self, x):
        return self.ending(self, self.body(x))


ENDINGS = {
    "chunk": lambda net, y: y.chunk(2, -1),
    "split": lambda net, y: y.split([2, 4], -1),
    "unbind": lambda net, y: y.unbind(-1),
    "three": lambda net, y: torch.chunk(y, 3, 0),
    "slices": lambda net, y: (y[..., :3], y[..., 3:]),
    "with value": lambda net, y: (*y.chunk(2, -1), net.value(y)),
    "slices with value": lambda net, y: {"mean": y[..., :3], "std": y[..., 3:], "value": net.value(y)},
    "whole and row": lambda net, y: (y, y[0]),
    "whole and rows": lambda net, y: (y, y[0], y[2:], y[:, 1]),
    "through a view": lambda net, y: (y.view(-1, 2, 3)[:, 0], y.view(-1, 2, 3)[:, 1]),
    "detached": lambda net, y: (y, y.detach()),
    "half detached": lambda net, y: (y[..., :3], y[..., 3:].detach()),
    "parts of parts": lambda net, y: [part.chunk(3, -1)[0] for part in y.chunk(2, -1)],
    "one part twice": lambda net, y: (lambda a, b: (a, b, a))(*y.chunk(2, -1)),
    "apart": lambda net, y: (y.chunk(2, -1)[0], y.chunk(2, -1)[1].exp()),
}


def tensors(value):
    return list(value.values()) if isinstance(value, dict) else list(value)


def attempt(action):
    """What an action gives, or that it raised; the texts name other nodes."""
    try:
        return action()
    except RuntimeError as error:
        return f"{type(error).__name__} {'view' in str(error)} {'modified by an inplace' in str(error)}"


def both(device, ending, use, **options):
    """A caller's use of the results, plainly and graphed, call by call."""
    torch.manual_seed(11)
    plain = Net(ending).to(device)
    model = copy.deepcopy(plain)
    graphed = rote.graph(model, **options)
    found = []
    for number in range(CALLS):
        x = torch.randn(6, 4, device=device)
        rows = []
        for net, call in ((plain, plain), (model, graphed)):
            net.zero_grad()
            leaf = x.clone().requires_grad_()
            results = call(leaf)
            shown = use(tensors(results), number)
            given = [parameter.grad for parameter in net.parameters()]
            rows.append([*shown, leaf.grad, *given, *tensors(results)])
        found.append(rows)
        for place, (wanted, got) in enumerate(zip(*rows, strict=True)):
            name = f"call {number}, value {place}: {wanted} and {got}"
            if isinstance(wanted, torch.Tensor):
                assert isinstance(got, torch.Tensor) and torch.equal(wanted, got), name
                assert wanted.requires_grad == got.requires_grad, name
            else:
                assert wanted == got, name
    return graphed


def replays(graphed, *, backward=True):
    report = graphed.report()
    assert report.replayed >= CALLS - 2, graphed.explain()
    assert not backward or report.backwards_replayed >= CALLS - 3, graphed.explain()


def every(parts, number):
    loss = sum(((part * (place + 1)).sin() * part).sum() for place, part in enumerate(parts))
    loss.backward()
    return [loss]


@pytest.mark.parametrize("name", ENDINGS)
def test_all_of_them_differentiated(device, name):
    replays(both(device, ENDINGS[name], every))


@pytest.mark.parametrize("name", ["chunk", "slices", "whole and row", "unbind"])
def test_some_of_them_differentiated(device, name):
    def use(parts, number):
        parts[number % 2].square().sum().backward()
        return []

    both(device, ENDINGS[name], use)


def test_a_gaussian_policy(device):
    def use(parts, number):
        mean, std = parts[0], parts[1].clamp(-2, 2).exp()
        policy = torch.distributions.Normal(mean, std)
        loss = -(policy.log_prob(torch.ones_like(mean)) * 0.5).mean() - policy.entropy().mean()
        loss.backward()
        return [loss]

    replays(both(device, ENDINGS["chunk"], use))


@pytest.mark.parametrize("name", ["chunk", "unbind", "slices", "whole and row", "detached", "half detached"])
def test_written_with_gradients_on(device, name):
    """Parts of one operation must not be written; a write to a view reaches its base, and the reverse."""

    def use(parts, number):
        def write():
            parts[number % 2].mul_(2)
            return sum((part * (place + 1)).sum() for place, part in enumerate(parts))

        shown = attempt(write)
        if isinstance(shown, torch.Tensor):
            shown = attempt(lambda: (shown.backward(), shown)[1])
        return [shown]

    both(device, ENDINGS[name], use)


@pytest.mark.parametrize("name", ENDINGS)
def test_written_with_gradients_off(device, name):
    """The write shows in the others, and a gradient that needs what was there before is refused."""

    def use(parts, number):
        early = [part.square().sum() for part in parts if part.requires_grad]
        with torch.no_grad():
            parts[-1].clamp_(0)
        first = attempt(lambda: (sum(early).backward(), 1)[1])
        return [first, attempt(lambda: [part.grad_fn is None for part in parts])]

    both(device, ENDINGS[name], use)


@pytest.mark.parametrize("name", ["whole and row", "slices", "chunk", "detached"])
def test_without_gradients_the_caller_writes_with_them(device, name):
    """A view follows its base into the graph of the caller's own tensors, and one version counts for both."""

    def ending(net, y):
        with torch.no_grad():
            return ENDINGS[name](net, y.clone())

    def frozen(net, y):
        return ENDINGS[name](net, y.detach())

    def use(parts, number):
        weight = torch.full((), 3.0, device=parts[0].device, requires_grad=True)
        early = (weight * parts[1]).sum()
        if number % 2:
            shown = attempt(lambda: (parts[0].mul_(weight), parts[1].requires_grad)[1])
        else:
            parts[0].zero_()
            shown = None
        return [shown, attempt(lambda: (early.backward(), weight.grad)[1])]

    for each in (ending, frozen):
        replays(both(device, each, use), backward=False)


def test_detached_results_that_share_memory(device):
    def ending(net, y):
        y = y.detach()
        return y, y[0], y[..., 3:]

    g = both(device, ending, lambda parts, number: [])
    assert g.report().replayed >= CALLS - 2


def test_gradients_of_gradients(device):
    def use(parts, number):
        return [parts[0].sum() + parts[1].square().sum()]

    for name in ("chunk", "slices"):
        torch.manual_seed(11)
        plain = Net(ENDINGS[name]).to(device)
        model = copy.deepcopy(plain)
        g = rote.graph(model)
        for _ in range(5):
            x = torch.randn(6, 4, device=device)
            seconds = []
            for call in (plain, g):
                leaf = x.clone().requires_grad_()
                loss = use(tensors(call(leaf)), 0)[0]
                (first,) = torch.autograd.grad(loss, leaf, create_graph=True)
                (second,) = torch.autograd.grad(first.square().sum(), leaf)
                seconds += [first, second]
            assert torch.equal(seconds[0], seconds[2]) and torch.allclose(seconds[1], seconds[3])


def test_views_that_cannot_be_told_apart_run_plainly(device, reason):
    """Of a sum of many gradients, the order decides about the last bit."""
    for ending, other in (
        (lambda net, y: (y, *y.chunk(2, -1)), 1),
        (lambda net, y: (y, y.t()), 1),
        (lambda net, y: (net.value(y), y, y[0], y[0][2:]), 2),
        (lambda net, y: (y, net.value(y), y[0]), 2),
    ):
        g = both(device, ending, every)
        assert g.report().replayed == 0
        assert reason(g, "RT407").message.endswith(f"and result[{other}] share memory"), reason(g, "RT407")


def test_a_view_of_which_autograd_tells_nothing(device, reason):
    """Made without gradients, and its base is written in place since: who asks what made it is refused."""
    weight = torch.nn.Parameter(torch.ones(4, device=device))

    def fn(x):
        view = weight.expand(x.shape)
        with torch.no_grad():
            weight.mul_(0.5)
        return view, x + 1

    g, x = rote.graph(fn), torch.ones(3, 4, device=device)
    with torch.no_grad():
        for number in range(4):
            view, other = g(x)
            assert view.detach()[0, 0] == 0.5 ** (number + 1) and other[0, 0] == 2
    assert "was made without gradients" in reason(g, "RT401").message
