"""Gradient slots that nobody touched are not asked one by one; whatever is done to one of them is noticed."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import rote
from rote.runtime.autograd import gradient_words
from rote.runtime.fingerprint.layout import find_owners
from rote.runtime.recording import gradients as slots

WARM = rote.Options().warmup + 1


def hook(gradient):
    return gradient * 2


def post_hook(parameter):
    parameter.grad.mul_(2)


ACTIONS = {
    "nothing": lambda p, held: None,
    "held": lambda p, held: held.append(p.grad),
    "its values held": lambda p, held: held.append(p.grad.data),
    "a view held": lambda p, held: held.append(p.grad.view(-1)[:1]),
    "held from C++": lambda p, held: held.append(holder_of(p.grad)),
    "cleared": lambda p, held: setattr(p, "grad", None),
    "replaced": lambda p, held: setattr(p, "grad", torch.ones_like(p)),
    "held and replaced": lambda p, held: held.append(p.grad) or setattr(p, "grad", torch.ones_like(p)),
    "held and cleared": lambda p, held: held.append(p.grad) or setattr(p, "grad", None),
    "given other memory": lambda p, held: setattr(p.grad, "data", torch.ones_like(p)),
    "given other memory, its own held": lambda p, held: (
        held.append(p.grad.data) or setattr(p.grad, "data", torch.ones_like(p))
    ),
    "turned": lambda p, held: p.grad.t_(),
    "made to require a gradient": lambda p, held: p.grad.requires_grad_(),
    "changed": lambda p, held: p.grad.mul_(3),
    "hooked": lambda p, held: p.register_hook(hook),
    "hooked afterwards": lambda p, held: p.register_post_accumulate_grad_hook(post_hook),
    "frozen": lambda p, held: p.requires_grad_(False),
    "the parameter moved": lambda p, held: setattr(p, "data", p.data.clone()),
}


def holder_of(gradient):
    other = torch.zeros_like(gradient, requires_grad=True)
    other.grad = gradient
    return other


def make(device):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Linear(4, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.5)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return model, step


def values(held):
    return [item.grad.clone() if item.is_leaf and item.requires_grad else item.clone() for item in held]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("times", [1, 3])
def test_what_is_done_to_a_slot_is_noticed(device, action, times):
    (model, step), (twin, plain) = make(device), make(device)
    g, ours, theirs = rote.graph(step), [], []
    for turn in range(WARM + 8):
        x = torch.randn(3, 4, device=device)
        assert torch.equal(g(x), plain(x)), turn
        for mine, other in zip(model.parameters(), twin.parameters(), strict=True):
            assert torch.equal(mine, other) and (mine.grad is None) == (other.grad is None)
            assert mine.grad is None or torch.equal(mine.grad, other.grad)
        assert all(map(torch.equal, values(ours), values(theirs))), turn
        if WARM + 2 <= turn < WARM + 2 + times:
            ACTIONS[action](model[2].weight, ours)
            ACTIONS[action](twin[2].weight, theirs)
    assert g.report().replayed >= 2
    g.reset()


def test_untouched_slots_are_not_asked_one_by_one(device, monkeypatch):
    model, step = make(device)
    g, x = rote.graph(step), torch.randn(3, 4, device=device)
    for _ in range(WARM + 3):
        g(x)
    assert find_owners() is not None
    monkeypatch.setattr(slots, "slot_of", lambda *given: pytest.fail("a slot was asked"))
    monkeypatch.setattr(
        "rote.runtime.program.gradients.storage_owners", lambda found: pytest.fail("an owner was asked")
    )
    for _ in range(3):
        g(x)
    assert g.report().replayed >= 5 and model[0].weight.grad is not None


def test_slots_that_are_always_touched_are_not_noted_for_ever(device, monkeypatch):
    notes = []
    monkeypatch.setattr(slots, "note_gradients", lambda *given: notes.append(given))
    _, step = make(device)
    g, x = rote.graph(step), torch.randn(3, 4, device=device)
    for _ in range(WARM + 2 * slots.NOTES):
        g(x)
    assert len(notes) == slots.NOTES


def test_without_the_words_all_slots_are_asked(device, monkeypatch):
    monkeypatch.setattr(gradient_words, "find_owners", lambda: None)
    monkeypatch.setattr(gradient_words, "NotedWords", lambda *given: pytest.fail("words were noted"))
    (model, step), (twin, plain) = make(device), make(device)
    g = rote.graph(step)
    for _ in range(WARM + 4):
        x = torch.randn(3, 4, device=device)
        assert torch.equal(g(x), plain(x))
    assert g.report().replayed >= 3
    assert all(map(torch.equal, model.parameters(), copy.copy(list(twin.parameters()))))
