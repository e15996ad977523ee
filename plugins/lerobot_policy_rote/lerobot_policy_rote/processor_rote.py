"""Transforms around the policy: those of its checkpoint."""

from __future__ import annotations

from typing import Any

from lerobot.policies.factory import make_pre_post_processors

from .configuration_rote import RoteConfig


def make_rote_pre_post_processors(config: RoteConfig, dataset_stats: Any = None, **others: Any) -> Any:
    """From observations to the policy, and from its actions to the robot.

    Args:
        config: Names the checkpoint.
        dataset_stats: Not used: the checkpoint has those that it was trained with.
        **others: What lerobot hands to every such function.
    """
    return make_pre_post_processors(
        config.graphed,
        pretrained_path=config.checkpoint,
        preprocessor_overrides={"device_processor": {"device": str(config.device)}},
    )
