"""What ``--policy.type=rote`` takes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lerobot.configs.policies import PreTrainedConfig


@PreTrainedConfig.register_subclass("rote")
@dataclass
class RoteConfig(PreTrainedConfig):
    """A policy of a checkpoint, graphed.

    Attributes:
        checkpoint: A folder that lerobot has written, or a repository of the hub.
        strict: Raise where a call would not be replayed wholly from graphs.
        verify: Compare every Nth replay with a plain call; 0 for none.
    """

    checkpoint: str = ""
    strict: bool = False
    verify: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.checkpoint:
            raise ValueError(
                "--policy.type=rote needs --policy.checkpoint, a folder that lerobot has written"
            )
        self.input_features, self.output_features = self.graphed.input_features, self.graphed.output_features
        self.n_obs_steps = self.graphed.n_obs_steps

    @cached_property
    def graphed(self) -> Any:
        """The configuration of the checkpoint."""
        found = PreTrainedConfig.from_pretrained(self.checkpoint)
        found.device = self.device
        return found

    @property
    def observation_delta_indices(self) -> Any:
        """As the checkpoint has them."""
        return self.graphed.observation_delta_indices

    @property
    def action_delta_indices(self) -> Any:
        """As the checkpoint has them."""
        return self.graphed.action_delta_indices

    @property
    def reward_delta_indices(self) -> Any:
        """As the checkpoint has them."""
        return self.graphed.reward_delta_indices

    def get_optimizer_preset(self) -> Any:
        """As the checkpoint has it."""
        return self.graphed.get_optimizer_preset()

    def get_scheduler_preset(self) -> Any:
        """As the checkpoint has it."""
        return self.graphed.get_scheduler_preset()

    def validate_features(self) -> None:
        """As the checkpoint does."""
        self.graphed.validate_features()
