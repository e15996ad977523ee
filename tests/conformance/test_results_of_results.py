"""Results that other results are computed from, views with a backward of their own, and separate graphs."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import rote
from rote.testing import assert_same

CALLS = 5


class Feature(nn.Module):
    """A feature and what is computed from it."""

    def __init__(self, device):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4, device=device), nn.Linear(4, 2, device=device)
        self.skip = nn.Parameter(torch.linspace(-1, 1, 2, device=device))

    def forward(self, x):
        feature = self.first(x).tanh()
        return feature, self.second(feature) * self.skip


def both(make, use, device, replayed=CALLS - 3, calls=CALLS):
    """Run ``use`` after each call of a fresh module, plain and graphed, and compare what it says."""
    plain = make(device)
    other = make(device)
    other.load_state_dict(plain.state_dict())
    g = rote.graph(other)
    for n in range(calls):
        x = torch.linspace(-1, n + 1, 6, device=device).view(2, 3)
        expected, got = use(plain(x), plain), use(g(x), other)
        assert_same(got, expected, f"call {n}")
    assert g.report().replayed >= replayed, g.explain()
    return g


def gradients(module):
    found = [parameter.grad for parameter in module.parameters()]
    for parameter in module.parameters():
        parameter.grad = None
    return found


def hooked(results, module):
    feature, score = results
    seen = []
    feature.register_hook(lambda gradient: seen.append(gradient) or gradient * 0.5)
    score.sum().backward()
    return seen, gradients(module)


def hooked_and_gone(results, module):
    feature, score = results
    feature.register_hook(lambda gradient: gradient * 0)
    del feature, results
    score.sum().backward()
    return gradients(module)


def retained(results, module):
    feature, score = results
    feature.retain_grad()
    (score.sum() + feature.square().sum()).backward()
    return feature.grad, gradients(module)


def asked_for(results, module):
    feature, score = results
    return torch.autograd.grad(score.sum(), feature), gradients(module)


def asked_for_both(results, module):
    feature, score = results
    return torch.autograd.grad(score.sum(), [feature, module.first.weight, module.skip])


def asked_for_unused(results, module):
    feature, score = results
    return torch.autograd.grad(score.sum(), [feature, module.first.bias], allow_unused=True)


def into_inputs(results, module):
    feature, score = results
    feature.retain_grad()
    score.sum().backward(inputs=[feature])
    return feature.grad, gradients(module)


def twice(results, module):
    feature, score = results
    found = torch.autograd.grad(score[:, 0].sum(), feature, retain_graph=True)
    score[:, 1].sum().backward()
    return found, gradients(module)


def one_after_the_other(results, module):
    feature, score = results
    (first,) = torch.autograd.grad(score.sum(), feature)
    feature.backward(first)
    return gradients(module)


def on_its_way(results, module):
    feature, score = results
    (found,) = torch.autograd.grad(score.sum(), feature)
    with pytest.raises(RuntimeError, match="second time"):
        score.sum().backward()
    return found, gradients(module)


def plainly(results, module):
    feature, score = results
    (score.sum() + feature.mean()).backward()
    return gradients(module)


def later_hooks(results, module):
    feature, score = results
    handle = feature.register_hook(lambda gradient: gradient * 2)
    handle.remove()
    score.sum().backward()
    return gradients(module)


USES = (
    hooked, hooked_and_gone, retained, asked_for, asked_for_both, asked_for_unused, into_inputs, twice,
    one_after_the_other, on_its_way, plainly, later_hooks,
)  # fmt: skip


@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
def test_a_result_computed_from_another(use, device):
    both(Feature, use, device)


class Chain(Feature):
    def forward(self, x):
        feature, score = super().forward(x)
        loss = F.mse_loss(score, torch.ones_like(score)) + self.first.bias.square().sum()
        return {"loss": loss, "score": score, "feature": feature}


@pytest.mark.parametrize("name", ["score", "feature"])
@pytest.mark.parametrize("way", ["hook", "retain", "ask"])
def test_a_chain_of_results(name, way, device):
    def use(results, module):
        seen = []
        if way == "hook":
            results[name].register_hook(seen.append)
        elif way == "retain":
            results[name].retain_grad()
        else:
            return torch.autograd.grad(results["loss"], [results["feature"], results["score"]])
        results["loss"].backward()
        return seen, results[name].grad if way == "retain" else None, gradients(module)

    both(Chain, use, device)


class Kept(Feature):
    """The feature is kept, as hooks and attributes keep it."""

    def forward(self, x):
        self.kept, score = super().forward(x)
        return score


@pytest.mark.parametrize("way", ["hook", "ask"])
def test_a_feature_that_is_kept(way, device):
    def use(score, module):
        seen = []
        if way == "ask":
            return torch.autograd.grad(score.sum(), module.kept)
        module.kept.register_hook(seen.append)
        score.sum().backward()
        return seen, gradients(module)

    both(Kept, use, device, replayed=1)  # a graph that is kept until the next call keeps its recording


@pytest.mark.parametrize("unused", [False, True])
def test_a_gradient_of_the_gradient_of_a_feature(unused, device):
    def use(results, module):
        feature, score = results
        wanted = [feature, module.first.bias] if unused else [feature]
        found = torch.autograd.grad(score.square().sum(), wanted, create_graph=True)
        found[0].square().sum().backward()
        return found[0].detach(), gradients(module)

    both(Feature, use, device, replayed=0)


class Networks(nn.Module):
    """An actor and a critic, which have nothing in common."""

    def __init__(self, device):
        super().__init__()
        self.actor, self.critic = nn.Linear(3, 2, device=device), nn.Linear(3, 1, device=device)

    def forward(self, x):
        return self.actor(x).tanh(), self.critic(x).sigmoid()


@pytest.mark.parametrize("turned", [False, True])
def test_a_backward_for_each_of_two_networks(turned, device):
    def use(results, module):
        for result in reversed(results) if turned else results:
            result.sum().backward()
        return gradients(module)

    both(Networks, use, device)


def test_one_of_two_networks_may_wait(device):
    """What it needs is kept: the memory is free only when both have had their backward."""
    module = Networks(device)
    g, x = rote.graph(module), torch.ones(2, 3, device=device)
    for _ in range(4):
        [result.sum().backward() for result in g(x)]
    actor, critic = g(x)
    actor.sum().backward()
    gradients(module)
    for _ in range(3):
        g(x * 5)
    critic.sum().backward()
    found = gradients(module)
    module(x)[1].sum().backward()
    assert_same(found, gradients(module))
    with pytest.raises(RuntimeError, match="second time"):
        actor.sum().backward()


class Trunk(Networks):
    def __init__(self, device):
        super().__init__(device)
        self.trunk = nn.Linear(3, 3, device=device)

    def forward(self, x):
        return super().forward(self.trunk(x).tanh())


def test_two_heads_of_one_trunk_are_freed_together(device):
    def use(results, module):
        actor, critic = results
        actor.sum().backward()
        with pytest.raises(RuntimeError, match="second time"):
            critic.sum().backward()
        return [parameter.grad for parameter in module.trunk.parameters()], gradients(module) and None

    both(Trunk, use, device)


# ------------------------------------------------------------------ views


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


def reversed_view(x):
    return Reverse.apply(x)


def reversed_part(x):
    return Reverse.apply(x)[:1]


def reversed_among_others(x):
    return Reverse.apply(x), x * 2


def hooked_view(x):
    y = x.view(-1)
    y.register_hook(lambda gradient: gradient * 3)
    return y


def hooked_module():
    module = nn.Identity()
    module.register_full_backward_hook(lambda module, given, got: (got[0] * 5,))
    return module


VIEWS = {
    "function": lambda: reversed_view,
    "part": lambda: reversed_part,
    "beside": lambda: reversed_among_others,
    "hook": lambda: hooked_view,
    "module": hooked_module,
    "flatten": lambda: nn.Sequential(nn.Flatten(0), hooked_module()),
}


@pytest.mark.parametrize("leaf", [False, True])
@pytest.mark.parametrize("make", VIEWS.values(), ids=VIEWS)
def test_a_view_with_a_backward_of_its_own(make, leaf, device):
    plain, g = make(), rote.graph(make())
    for _ in range(CALLS):
        found = []
        for call in (plain, g):
            x = torch.ones(2, device=device, requires_grad=True)
            result = call(x if leaf else x * 1)
            results = result if isinstance(result, tuple) else (result,)
            sum([each.sum() for each in results]).backward()
            found.append(x.grad)
        assert_same(found[1], found[0])


def test_a_view_of_a_parameter_with_a_backward_of_its_own(device):
    weight = torch.ones(2, device=device, requires_grad=True)
    g = rote.graph(lambda x: (Reverse.apply(weight), x * 2))
    for _ in range(CALLS):
        weight.grad = None
        g(torch.ones(2, device=device))[0].sum().backward()
        assert_same(weight.grad, torch.full_like(weight, -1))


@pytest.mark.parametrize("use", [lambda x: x.view(-1), lambda x: x.t()[0], lambda x: x.expand(2, 2, 2)])
def test_plain_views_go_on_replaying(use, device):
    g = rote.graph(lambda x: (use(x), x.sin().sum()))
    for _ in range(CALLS):
        x = torch.ones(2, 2, device=device, requires_grad=True)
        view, total = g(x)
        (view.sum() + total).backward()
        assert_same(x.grad, x.detach().cos() + torch.autograd.grad(use(x).sum(), x)[0])
    assert g.report().replayed >= CALLS - 2, g.explain()


def test_a_result_computed_from_a_view_that_is_a_result(device):
    g = rote.graph(lambda x: (lambda view: (view, view * 2))(x.view(-1)))
    for _ in range(CALLS):
        x = torch.ones(2, 2, device=device, requires_grad=True)
        view, double = g(x)
        view.register_hook(lambda gradient: gradient * 0)
        double.sum().backward()
        assert_same(x.grad, torch.zeros_like(x))


@pytest.mark.parametrize(
    "make",
    [
        lambda y: (y.transpose(0, 1), y.sum()),
        lambda y: (y.transpose(0, 1), y.transpose(0, 1) * 2),
        lambda y: (y.transpose(0, 1).mT, (y * 2).transpose(0, 1), y.mean()),
    ],
)
def test_strides_where_there_is_one_element(device, make):
    weight = torch.ones(3, 4, device=device, requires_grad=True)

    def fn(x):
        return make((x @ weight) * 2)

    g = rote.graph(fn)
    for n in range(6):
        x = torch.full((2, 1, 3), float(n), device=device)
        assert [each.stride() for each in g(x)] == [each.stride() for each in fn(x)]
    assert g.report().replayed >= 3, g.explain()
