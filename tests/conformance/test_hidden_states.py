"""States that one training step leaves to the next: they require grad, and their graph is gone."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

import rote
from rote.testing import assert_same


def losing(loss, parameters):
    loss.backward()


def asking(loss, parameters):
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        parameter.grad = gradient


def keeping(loss, parameters):
    loss.backward(retain_graph=True)


def detached(state):
    return state.detach()


def as_it_is(state):
    return state


def in_place(state):
    return state.detach_()


def only_its_values(state):
    return state * 1.0 if not state.requires_grad else state.data * 1.0


WALKS = [losing, asking, keeping]
CUTS = [detached, in_place, only_its_values, as_it_is]
REFUSED = (asking, as_it_is)
"""Eager raises that the graph is gone; a graphed call has nothing there of which gradients are asked."""


def given(wrap, step, state):
    """The state goes in and comes out."""
    graphed, held = wrap(step), [state]

    def turn(x):
        loss, held[0] = graphed(x, held[0])
        return loss, held[0]

    return turn


def kept(wrap, step, state):
    """The state lies in an attribute."""
    holder = nn.Module()
    holder.state = state

    def whole(x):
        loss, holder.state = step(x, holder.state)
        return loss

    graphed = wrap(whole)
    return lambda x: (graphed(x), holder.state)


def play(wrap, walk, cut, home, device):
    """Everything that a user sees of eight steps; what a further backward of the state says, too."""
    torch.manual_seed(0)
    cell, head = nn.GRUCell(3, 4, device=device), nn.Linear(4, 1, device=device)
    parameters = [*cell.parameters(), *head.parameters()]

    def step(x, state):
        state = cut(state)
        for each in x:
            state = cell(each, state)
        loss = head(state).square().mean()
        walk(loss, parameters)
        with torch.no_grad():
            for parameter in parameters:
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
        return loss.detach(), state

    turn = home(wrap, step, torch.zeros(2, 4, device=device))
    for number in range(8):
        try:
            loss, state = turn(torch.full((2, 2, 3), 0.1 * number, device=device))
        except RuntimeError as error:  # the graph of the step before is walked once more
            yield str(error)[:50]
            return
        if cut is not as_it_is and walk is not keeping:  # the caller may change it, as it is no view
            state.mul_(0.5)
        yield (
            loss,
            state.detach(),
            state.requires_grad,
            state._is_view(),
            [each.detach().clone() for each in parameters],
        )
    if walk is not keeping:
        with pytest.raises(RuntimeError, match="through the graph a second time"):
            state.sum().backward()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "walk, cut, home",
    [each for each in itertools.product(WALKS, CUTS, [given, kept]) if each[:2] != REFUSED],
    ids=lambda each: each.__name__,
)
def test_a_state_goes_from_step_to_step(walk, cut, home, device):
    graphs = []

    def graph(fn):
        graphs.append(rote.graph(fn))
        return graphs[-1]

    plain = list(play(lambda fn: fn, walk, cut, home, device))
    got = list(play(graph, walk, cut, home, device))
    assert_same(got, plain)
    replays = walk is not keeping and cut in (detached, only_its_values)
    assert (sum(each.report().replayed for each in graphs) > 0) == replays


def test_a_backward_that_comes_to_an_older_graph(reason, device):
    """What is behind an argument gets gradients, too, so the call runs plainly."""
    layer, behind = nn.Linear(3, 3, device=device), nn.Linear(3, 3, device=device)
    g = rote.graph(lambda x, state: (layer(x) * state).sum().backward())
    for number in range(6):
        behind.zero_grad()
        g(torch.ones(2, 3, device=device), behind(torch.full((2, 3), float(number), device=device)))
        assert behind.weight.grad is not None
    assert (
        reason(g, "RT403").message == "args[1] requires grad, and a backward inside the call may come to it"
    )
    assert g.report().replayed == 0


def test_the_code_of_a_node_may_walk_back_by_itself(device):
    """A function that runs a backward in its backward comes to an argument that autograd does not show."""

    class Reentrant(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, run):
            ctx.run = run
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            ctx.run()
            return gradient * 2, None

    layer = nn.Linear(3, 3, device=device)

    def play(wrap):
        def step(x, state):
            with torch.enable_grad():
                tripled = (state * 3).sum()
            y = Reentrant.apply(layer(x), tripled.backward)
            layer.zero_grad()
            y.sum().backward()

        graphed = wrap(step)
        for _ in range(6):
            state = torch.ones(3, device=device, requires_grad=True)
            graphed(torch.ones(2, 3, device=device), state)
            yield state.grad, layer.weight.grad.clone()

    assert_same(list(play(rote.graph)), list(play(lambda fn: fn)))
