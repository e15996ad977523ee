"""Arguments and state that lie in each other, at other places from call to call: both are only read."""

from __future__ import annotations

import pytest
import torch

import rote


class Sampler:
    """It goes through steps, keeps the last one, and asks numbers of both; steps are parts of one tensor."""

    def __init__(self, device):
        self.device, self.last, self.steps = device, None, None

    def begin(self):
        self.steps, self.last = torch.arange(9, -1, -1, device=self.device), None

    def step(self, x, now):
        if self.last is not None and self.last >= 5:
            x = x * 2
        for place in range(2):  # ways that come up late
            if x[place] > 1:
                x = x + 1 + place
        self.last = now
        if self.last >= 3:
            x = x + self.steps[0]
        return x * self.steps.sum()


@pytest.mark.parametrize("seed", [0, 1])
def test_ways_that_come_up_late(device, seed):
    sampler, plain = Sampler(device), Sampler(device)
    step = rote.graph(sampler.step, keep=True)
    draws = torch.Generator().manual_seed(seed)
    for _ in range(12):
        sampler.begin()
        plain.begin()
        for now, other in zip(sampler.steps, plain.steps, strict=True):
            x = torch.randn(3, generator=draws).to(device)
            assert torch.equal(step(x, now), plain.step(x, other))
    assert step.report().replayed >= 40
