"""Training steps of lerobot's policies: the same losses, gradients and weights, to the bit."""

from __future__ import annotations

import pytest
import torch
from tests.integrations.lerobot.building import KINDS, demonstration, explained, pair, replays

from rote.integrations.lerobot import graphed

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_equal_to_the_bit(kind, tmp_path, device):
    plain, ours = pair(kind, tmp_path, device)
    optimizers = []
    for policy in (plain, ours):
        policy.train()
        optimizers.append(torch.optim.AdamW(policy.get_optim_params(), lr=1e-3))
    for number in range(7):
        losses, told = [], []
        for policy, optimizer in zip((plain, ours), optimizers, strict=True):
            torch.manual_seed(number)
            loss, log = policy.forward(demonstration(kind, number, device))
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(policy.parameters(), 10.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append((loss.detach(), norm))
            told.append(log)
        assert torch.equal(losses[0][0], losses[1][0]) and torch.equal(losses[0][1], losses[1][1]), number
        assert told[0] == told[1]
    for name, value in plain.state_dict().items():
        assert torch.equal(value, ours.state_dict()[name]), name
    assert replays(ours) >= 4, explained(ours)
    assert "passes" in "".join(each.explain() for each in graphed(ours) if each.report().calls)


def test_training_and_acting_in_turn(tmp_path, device):
    plain, ours = pair("act", tmp_path, device)
    for number in range(6):
        found = []
        for policy in (plain, ours):
            policy.train()
            torch.manual_seed(number)
            policy.forward(demonstration("act", number, device))[0].backward()
            policy.zero_grad()
            found.append(policy.predict_action_chunk(demonstration("act", number, device, 1)))
        assert torch.equal(*found)
    assert replays(ours) >= 6, explained(ours)
