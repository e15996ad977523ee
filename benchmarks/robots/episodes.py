"""Whole episodes: a policy acts until the world says that it is over, and everything it does is kept."""

from __future__ import annotations

import hashlib
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ..common import now
from .policies import Brain
from .worlds import Moment, Picture, World

PICTURES = 100
"""Pictures of an episode that are kept, at most."""


@dataclass(frozen=True)
class Episode:
    """What one episode gave.

    Attributes:
        seed: Chooses how the world begins, and what the policy draws.
        actions: As they were carried out, ``[steps, action]``.
        seconds: Of each ``select_action``, with the transfer of the action to the host.
        wall: Of the episode, simulator and transforms included.
        rewards: Of each step.
        success: The task was done.
        pictures: What the first camera saw, some of it.
    """

    seed: int
    actions: np.ndarray[Any, np.dtype[np.float32]]
    seconds: list[float]
    wall: float
    rewards: list[float]
    success: bool
    pictures: list[Picture] = field(default_factory=list[Picture], repr=False)

    def row(self, task: str) -> dict[str, Any]:
        """The episode in a file of results."""
        digest = hashlib.sha256(np.ascontiguousarray(self.actions).tobytes()).hexdigest()
        return {
            "task": task,
            "seed": self.seed,
            "success": self.success,
            "steps": len(self.actions),
            "max_reward": max(self.rewards),
            "policy_s": sum(self.seconds),
            "wall_s": self.wall,
            "latency_ms": latencies(self.seconds),
            "actions_sha256": digest,
        }


def latencies(seconds: list[float]) -> dict[str, float]:
    """Milliseconds: the first, and what the distribution is like."""
    values = np.array(seconds) * 1e3
    middle, late = np.percentile(values, [50, 99])
    return {"first": values[0], "mean": values.mean(), "p50": middle, "p99": late, "max": values.max()}


def play(
    brain: Brain,
    world: World,
    seed: int,
    device: torch.device,
    *,
    bf16: bool,
    steps: int | None,
    filmed: bool = False,
) -> Episode:
    """Run one episode.

    Args:
        brain: The policy with its transforms.
        world: The simulator.
        seed: Of the world, and of what the policy draws.
        device: Where the policy runs.
        bf16: Under autocast, as lerobot's evaluation with ``use_amp``.
        steps: Fewer of them than the world's episodes have.
        filmed: Keep pictures.
    """
    from lerobot.envs.utils import preprocess_observation

    brain.policy.reset()
    torch.manual_seed(seed)
    horizon = min(world.horizon, steps or world.horizon)
    moment, actions, seconds, rewards, success = world.reset(seed), [], [], [], False
    pictures, every = list[Picture](), max(1, horizon // PICTURES)
    began = time.perf_counter()
    while len(actions) < horizon and not moment.done:
        if filmed and len(actions) % every == 0:
            pictures.append(moment.picture)
        given = preprocess_observation(batched(moment)) | {"task": [world.task]}
        given = brain.before(given)
        start = now(device)
        with torch.inference_mode(), autocast(device, bf16):
            action = brain.policy.select_action(given)
        action = action.to("cpu", torch.float32)
        seconds.append(now(device) - start)
        carried_out = brain.after(action)[0].numpy()
        number = len(actions) + 1
        looked_at = looks(brain.policy.config, number) or (filmed and number % every == 0)
        moment = world.step(carried_out, looked_at=looked_at)
        actions.append(carried_out)
        rewards.append(moment.reward)
        success |= moment.success
    wall = time.perf_counter() - began
    return Episode(seed, np.stack(actions).astype(np.float32), seconds, wall, rewards, success, pictures)


def looks(config: Any, step: int) -> bool:
    """Whether the policy calculates with what it sees before that step: otherwise it takes from its queue."""
    return -step % config.n_action_steps < config.n_obs_steps


def batched(moment: Moment) -> dict[str, Any]:
    """An observation as a batch of one."""
    pixels = moment.observation["pixels"]
    seen = (
        pixels[None]
        if isinstance(pixels, np.ndarray)
        else {name: each[None] for name, each in pixels.items()}
    )
    return {"pixels": seen, "agent_pos": moment.observation["agent_pos"][None]}


def autocast(device: torch.device, bf16: bool) -> AbstractContextManager[Any]:
    """Matrix products in 16 bits, where that is asked for."""
    return torch.autocast(device.type, dtype=torch.bfloat16) if bf16 else nullcontext()
