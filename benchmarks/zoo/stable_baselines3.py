"""Reinforcement learning by Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy
import stable_baselines3 as sb3
import torch

Items = Iterator[Any]


class Drift(gymnasium.Env):
    """Four numbers that drift, and actions that push them."""

    observation_space = gymnasium.spaces.Box(-10, 10, (4,), numpy.float32)

    def __init__(self, continuous: bool) -> None:
        self.action_space = (
            gymnasium.spaces.Box(-1, 1, (2,), numpy.float32) if continuous else gymnasium.spaces.Discrete(3)
        )
        self.at = numpy.zeros(4, numpy.float32)
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.at, self.steps = numpy.zeros(4, numpy.float32), 0
        return self.at, {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.at = numpy.clip(self.at * 0.9 + numpy.float32(numpy.sum(action)) * 0.1, -10, 10).astype(
            numpy.float32
        )
        return self.at, float(-abs(self.at).sum()), False, self.steps >= 50, {}


def acting(wrap: Any, device: Any) -> Items:
    """PPO's policy predicts actions for observations in numpy."""
    model = sb3.PPO("MlpPolicy", Drift(False), n_steps=16, batch_size=16, device=str(device), seed=0)
    model.policy.forward = wrap(model.policy.forward)
    observation = numpy.zeros((1, 4), numpy.float32)
    while True:
        with torch.no_grad():
            actions, values, log_probability = model.policy.forward(
                torch.as_tensor(observation, device=device)
            )
        observation = numpy.clip(observation * 0.9 + actions.cpu().numpy() * 0.1, -1, 1).astype(numpy.float32)
        yield actions, values, log_probability


def ppo_training(wrap: Any, device: Any) -> Items:
    """PPO's ``evaluate_actions`` graphed within its own ``train``."""
    model = sb3.PPO(
        "MlpPolicy", Drift(False), n_steps=32, batch_size=16, n_epochs=2, device=str(device), seed=0
    )
    model.policy.evaluate_actions = wrap(model.policy.evaluate_actions)
    while True:
        model.learn(32, reset_num_timesteps=False)
        yield model.policy


def sac_training(wrap: Any, device: Any) -> Items:
    """SAC: a gradient step as a whole, which samples from the replay buffer by numpy."""
    model = sb3.SAC(
        "MlpPolicy",
        Drift(True),
        batch_size=16,
        learning_starts=10,
        buffer_size=200,
        device=str(device),
        seed=0,
    )
    model.learn(20)
    train = wrap(model.train)
    while True:
        train(gradient_steps=1, batch_size=16)
        yield model.actor, model.critic_target, model._n_updates


def dqn_training(wrap: Any, device: Any) -> Items:
    """DQN learns four steps at a time, its networks graphed."""
    model = sb3.DQN(
        "MlpPolicy",
        Drift(False),
        batch_size=16,
        learning_starts=4,
        buffer_size=200,
        train_freq=4,
        device=str(device),
        seed=0,
    )
    model.q_net.forward, model.q_net_target.forward = (
        wrap(model.q_net.forward),
        wrap(model.q_net_target.forward),
    )
    model.learn(8)
    while True:
        model.learn(4, reset_num_timesteps=False)
        yield model.q_net, model.exploration_rate
