"""The quantized policy of transformers, small, in a closed loop: plainly and through rote."""

from __future__ import annotations

import pytest
import torch

import rote
from rote.quant import DuQuantConfig, calibrate, quantize_

pytest.importorskip("transformers")
from examples.pi0_policy import Tabletop, build_policy, noise_sequence, run_episode

pytestmark = pytest.mark.transformers
CONFIGS = {
    "duquant": DuQuantConfig(block_size=32, rotation_steps=8, calib_batches=2),
    "folded smoothing": DuQuantConfig(block_size=32, rotation_steps=8, calib_batches=2, fold_smoothing=True),
    "policy": DuQuantConfig.vla(calib_batches=2),
    "policy in integers": DuQuantConfig.vla(calib_batches=2, path="kernel"),
}


TYPES = (torch.float32, torch.bfloat16)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "dtype"), [(name, TYPES[place % 2]) for place, name in enumerate(CONFIGS)])
def test_a_quantized_policy_in_a_closed_loop(name, dtype):
    device, config = torch.device("cpu"), CONFIGS[name]
    policy = build_policy("tiny", device, dtype)
    world, noises = Tabletop(policy, 1, 0), noise_sequence(policy, 8, 0)
    with torch.no_grad():
        exact = policy.sample_actions(noise=noises[0], **world.observe())
        with calibrate(policy, config, include="*mlp.*_proj", manual=True) as stats:
            while not stats.done:
                policy.sample_actions(noise=noises[stats.batches], **world.observe())
                stats.end_batch()
        report = quantize_(policy, config, stats, include="*mlp.*_proj")
        assert len(report.quantized) == 12
        found = policy.sample_actions(noise=noises[0], **world.observe())
        error = (found.float() - exact.float()).norm() / exact.float().norm()
        assert 1e-6 < error < 0.02

        plain = run_episode(policy.sample_actions, Tabletop(policy, 1, 0), noises)
        graphed = rote.graph(policy.sample_actions)
        replayed = run_episode(graphed, Tabletop(policy, 1, 0), noises)
    assert all(torch.equal(a, b) for a, b in zip(plain.chunks, replayed.chunks, strict=True))
    assert graphed.report().replayed > 0 and not graphed.report().reasons
