"""Losses and modules of torchrl, with tensordicts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.modules import ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

Items = Iterator[Any]


def actor_and_critic(device: Any) -> tuple[Any, Any]:
    actor = ProbabilisticActor(
        TensorDictModule(
            nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 3)), ["observation"], ["logits"]
        ),
        in_keys=["logits"],
        distribution_class=torch.distributions.Categorical,
        return_log_prob=True,
    )
    critic = ValueOperator(
        nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1)), in_keys=["observation"]
    )
    return actor.to(device), critic.to(device)


def batch(device: Any, *sizes: int) -> TensorDict:
    following = {
        "observation": torch.randn(*sizes, 4),
        "reward": torch.randn(*sizes, 1),
        "done": torch.zeros(*sizes, 1, dtype=torch.bool),
        "terminated": torch.zeros(*sizes, 1, dtype=torch.bool),
    }
    return TensorDict({"observation": torch.randn(*sizes, 4), "next": following}, batch_size=sizes).to(device)


def acting(wrap: Any, device: Any) -> Items:
    """A probabilistic actor on a tensordict for each step."""
    actor, _ = actor_and_critic(device)
    act = wrap(actor)
    with torch.no_grad():
        while True:
            out = act(TensorDict({"observation": torch.randn(2, 4)}, batch_size=[2]).to(device))
            yield out["action"], out["action_log_prob"]


def advantages(wrap: Any, device: Any) -> Items:
    """Generalized advantages of a rollout."""
    _, critic = actor_and_critic(device)
    estimate = wrap(GAE(gamma=0.99, lmbda=0.95, value_network=critic))
    with torch.no_grad():
        while True:
            yield estimate(batch(device, 2, 12))["advantage"]


def clipped_loss(wrap: Any, device: Any) -> Items:
    """The clipped loss of PPO, its parts added, SGD outside."""
    actor, critic = actor_and_critic(device)
    criterion = ClipPPOLoss(actor, critic)
    loss_of = wrap(criterion)
    optimizer = torch.optim.SGD(criterion.parameters(), lr=0.01)
    while True:
        data = batch(device, 16)
        with torch.no_grad():
            data = actor(data)
        data["advantage"], data["value_target"] = torch.randn(2, 16, 1).to(device)
        losses = loss_of(data)
        loss = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.detach(), actor
