"""openpi's expert, quantized as the variables of its forks say, then graphed."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from tests.integrations.openpi.building import build_model, build_policy, noise, observation, seen

from rote.integrations.openpi import graph_policy, graphed
from rote.quant import DuQuantLinear, quantize_from_env

pytest.importorskip("safetensors")
pytestmark = pytest.mark.transformers
EXPERT = "paligemma_with_expert.gemma_expert.model."
STEPS = 3


@pytest.fixture
def env(monkeypatch):
    """The variables as scripts for forks of openpi set them."""
    for name in [*os.environ]:
        if "_DUQUANT_" in name:
            monkeypatch.delenv(name)
    values = {"WBITS_DEFAULT": 4, "ABITS": 8, "CALIB_STEPS": 2, "SCOPE": EXPERT, "INCLUDE": r"mlp\."}
    for name, value in values.items():
        monkeypatch.setenv(f"OPENPI_DUQUANT_{name}", str(value))
    return monkeypatch


@pytest.mark.parametrize(("pi05", "path"), [(False, "kernel"), (True, "fused")], ids=["pi0", "pi05"])
def test_a_model_is_quantized_by_its_sampling_and_replays(pi05, path, env, device):
    plain = build_model(pi05=pi05, dtype="bfloat16", device=device)
    models = [build_model(pi05=pi05, dtype="bfloat16", device=device) for _ in range(2)]
    given = [(str(device), observation(number, plain, device), noise(number, plain)) for number in range(7)]
    given = [(where, what, start.to(device), STEPS) for where, what, start in given]
    for model in models:
        report = quantize_from_env(model, given, call=model.sample_actions, path=path)
        assert report is not None and len(report.quantized) == 2 * 3
        assert {row.weight_bits for row in report.quantized} == {4}
        names = [name for name, each in model.named_modules() if isinstance(each, DuQuantLinear)]
        assert len(names) == 6 and all(name.startswith(EXPERT) and ".mlp." in name for name in names)
    reference, model = models
    graph_policy(model)
    for arguments in given:
        wanted = reference.sample_actions(*arguments)
        assert torch.equal(model.sample_actions(*arguments), wanted)
        dense = plain.sample_actions(*arguments)
        assert 1e-4 < (wanted - dense).norm() / dense.norm() < 0.2
    (found,) = graphed(model)
    assert found.report().replayed >= 4, found.explain()


def test_a_policy_is_quantized_by_its_own_observations(env, tmp_path, device):
    env.setenv("OPENPI_DUQUANT_PACKDIR", str(tmp_path))
    policies = [
        build_policy(build_model(device=device), device, sample_kwargs={"num_steps": STEPS}) for _ in range(3)
    ]
    first = policies[0]
    quantize_from_env(first._model, [(seen(number),) for number in range(2)], call=first.infer)
    for other in policies[1:]:
        assert quantize_from_env(other._model) is not None  # from the folder, without batches
    graph_policy(policies[2])
    for number in range(5):
        start = noise(number, first._model).numpy()
        wanted = policies[1].infer(seen(number), noise=start)["actions"]
        assert np.array_equal(policies[2].infer(seen(number), noise=start)["actions"], wanted)
        assert np.array_equal(first.infer(seen(number), noise=start)["actions"], wanted)
    assert graphed(policies[2])[0].report().replayed > 0
