"""A policy type for lerobot, ``rote``: the policy of a checkpoint, graphed. lerobot finds it by name."""

from __future__ import annotations

from .configuration_rote import RoteConfig

__all__ = ["RoteConfig"]
