"""Random sequences of what users do to a wrapper between calls."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import rote

pytest.importorskip("hypothesis")

import hypothesis.strategies as st
from hypothesis import given, settings

ACTIONS = st.lists(
    st.sampled_from(
        ["call"] * 6
        + ["other shape", "write", "rebind", "replace", "scale", "mode", "reset", "hold", "fail", "back"]
    ),
    min_size=8,
    max_size=40,
)


class Model(nn.Module):
    """Reads parameters, a plain value and a buffer; writes the buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.scale = 1.0
        self.register_buffer("seen", torch.zeros(()))
        self.requires_grad_(False)

    def forward(self, x: torch.Tensor, fail: bool = False) -> torch.Tensor:
        self.seen += 1
        y = self.layer(x) * self.scale
        if fail:
            raise ValueError("asked to")
        return y + self.seen if self.training else y


@settings(max_examples=120, deadline=None, derandomize=True)
@given(ACTIONS)
def test_whatever_happens_between_calls(actions):
    torch.manual_seed(0)
    ours, theirs = Model(), Model()
    theirs.load_state_dict(ours.state_dict())
    g = rote.graph(ours, max_recordings=3)
    held, kept, value = [], [], 0.0

    def both(act):
        for model in (ours, theirs):
            act(model)

    for action in actions:
        value += 1
        if action == "write":
            both(lambda m, v=value: m.layer.weight.fill_(v / 10))
        elif action == "rebind":
            kept.append(ours.layer.weight.data)
            both(lambda m, v=value: setattr(m.layer.weight, "data", torch.full((4, 4), v / 7)))
        elif action == "back" and kept:
            both(lambda m: setattr(m.layer.weight, "data", kept[0]))
        elif action == "replace":
            both(lambda m, v=value: setattr(m.layer, "bias", nn.Parameter(torch.full((4,), v), False)))
        elif action == "scale":
            both(lambda m, v=value: setattr(m, "scale", v % 3))
        elif action == "mode":
            both(lambda m: m.train(not m.training))
        elif action == "reset":
            g.reset()
        elif action == "fail":
            for call in (g, theirs):
                try:
                    call(torch.ones(2, 4), fail=True)
                except ValueError as error:
                    assert str(error) == "asked to"
        else:
            x = torch.full((3 if action == "other shape" else 2, 4), value)
            out, expected = g(x), theirs(x)
            assert torch.equal(out, expected), (action, actions)
            if action == "hold":
                held.append((out, expected.clone()))
        assert ours.seen.item() == theirs.seen.item()
    for out, expected in held:
        assert torch.equal(out, expected)
    g.reset()
