"""A robot policy: transformers' own PI0 at batch 1, a chunk of actions from one, two or three cameras."""

from __future__ import annotations

from typing import Any

from examples.pi0_policy import Tabletop, build_policy, noise_sequence

from .place import place


def build(views: int = 2, small: bool = False, device: str | None = None) -> Any:
    """One call of ``sample_actions``, starting noise among the arguments."""
    at = place(device, small)
    policy = build_policy("small" if small else "full", at.device, at.dtype).requires_grad_(False)
    noise = noise_sequence(policy, 1, seed=views)[0]
    observation = Tabletop(policy, views, seed=views).observe()
    return policy.sample_actions, (), {**observation, "noise": noise}
