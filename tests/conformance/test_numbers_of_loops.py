"""Loops in Python that compute one number from another: returns, advantages, filters."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest
import torch

import rote


def returns(rewards: Any) -> Any:
    """Discounted returns of an array."""
    found, behind = np.zeros_like(rewards), 0.0
    for t in range(len(rewards) - 1, -1, -1):
        behind = rewards[t] + 0.99 * behind
        found[t] = behind
    return (found - found.mean()) / (found.std() + 1e-8)


def advantages(rewards: Any, values: Any, dones: Any) -> Any:
    """Generalized advantages of arrays."""
    found, last = np.zeros_like(rewards), 0.0
    for t in reversed(range(len(rewards) - 1)):
        delta = rewards[t] + 0.99 * values[t + 1] * (1.0 - dones[t]) - values[t]
        found[t] = last = delta + 0.95 * (1.0 - dones[t]) * last
    return found, found + values


def summed_behind(numbers: Any) -> Any:
    """Discounted returns of a list."""
    found, behind = deque[Any](), 0
    for each in numbers[::-1]:
        behind = each + 0.99 * behind
        found.appendleft(behind)
    return found


def squared(x: Any) -> Any:
    """Each number is used twice by the next: it is computed once."""
    for _ in range(60):
        x = x * 0.5 + x * x * 0.25
    return x


def counted(rewards: Any, values: Any) -> Any:
    """Sums by places that come several times."""
    found, places = np.zeros(5), (values * 5).astype(np.int64)
    np.add.at(found, places, rewards)
    np.maximum.at(found, places[:2], 0.5)
    return found


LOOPS: dict[str, Any] = {
    "returns": lambda x, r, v, d: x * torch.as_tensor(returns(r), device=x.device),
    "advantages": lambda x, r, v, d: [
        x * torch.from_numpy(each).to(x.device) for each in advantages(r, v, d)
    ],
    "of a list": lambda x, r, v, d: x * torch.tensor(summed_behind(r), device=x.device),
    "used twice": lambda x, r, v, d: x * squared(v[0]) + squared(r[1]),
    "counted": lambda x, r, v, d: x.sum() * torch.as_tensor(counted(r, v), device=x.device),
    "kept": lambda x, r, v, d: (x * 2, advantages(r, v, d), squared(v[0])),
}


def shown(value: Any) -> Any:
    """A value to the bit."""
    if isinstance(value, (list, tuple)):
        return [shown(each) for each in value]
    array = value.cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    return type(value), array.dtype, array.tobytes()


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("length", [3, 150])
def test_what_they_compute_is_followed(device, name, length):
    graphed, generator = rote.graph(LOOPS[name], keep=True), np.random.default_rng(0)
    for call in range(12):
        rewards, *others = [generator.random(length) for _ in range(3)]
        rewards = rewards.tolist() if name in ("of a list", "used twice") else rewards
        x = torch.full((length,), call + 0.5, dtype=torch.float64, device=device)
        found, expected = (
            shown(each(x, rewards, *[array.copy() for array in others])) for each in (graphed, LOOPS[name])
        )
        assert found == expected, f"call {call}\n{graphed.explain()}"
    assert graphed.report().replayed >= 4, graphed.explain()


def test_there_is_a_limit(device):
    def summed(x: Any, step: float) -> Any:
        for number in range(3000):
            step = step * 0.999 + number
        return x * step

    graphed = rote.graph(summed, keep=True)
    for call in range(8):
        x = torch.ones(3, device=device)
        assert torch.equal(graphed(x, call / 7), summed(x, call / 7))
