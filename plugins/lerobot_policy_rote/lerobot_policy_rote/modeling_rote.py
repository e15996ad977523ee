"""The policy behind ``--policy.type=rote``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lerobot.policies.factory import get_policy_class
from lerobot.policies.pretrained import PreTrainedPolicy
from torch import Tensor

from rote.integrations.lerobot import graph_policy

from .configuration_rote import RoteConfig


class RotePolicy(PreTrainedPolicy):
    """Hands everything on to the policy of the checkpoint, which is graphed.

    Args:
        config: Names the checkpoint.
        **others: What lerobot hands to every policy.
    """

    config_class = RoteConfig
    name = "rote"

    def __init__(self, config: RoteConfig, **others: Any) -> None:
        super().__init__(config)
        kind = get_policy_class(config.graphed.type)
        found = kind.from_pretrained(config.checkpoint, config=config.graphed)
        self.policy = graph_policy(found, strict=config.strict, verify=config.verify)

    def get_optim_params(self) -> Any:
        """Parameters, as the policy groups them."""
        return self.policy.get_optim_params()

    def reset(self) -> None:
        """Forget the episode."""
        self.policy.reset()

    def forward(self, batch: dict[str, Tensor], **others: Any) -> Any:
        """The loss of a batch, and what is logged."""
        return self.policy.forward(batch, **others)

    def predict_action_chunk(self, batch: dict[str, Tensor], **others: Any) -> Tensor:
        """A chunk of actions, ``[batch, steps, action]``."""
        return self.policy.predict_action_chunk(batch, **others)

    def select_action(self, batch: dict[str, Tensor], **others: Any) -> Tensor:
        """The next action, ``[batch, action]``."""
        return self.policy.select_action(batch, **others)

    def _save_pretrained(self, save_directory: Path) -> None:
        """Write a checkpoint of the policy itself, which needs no rote."""
        self.policy._save_pretrained(save_directory)
