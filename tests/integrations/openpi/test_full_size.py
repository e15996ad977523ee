"""openpi's models at their published sizes, with random weights."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from tests.integrations.openpi.building import build_model, build_policy, noise, observation, seen

from rote.integrations.openpi import graph_policy, graph_training, graphed

pytestmark = [
    pytest.mark.transformers,
    pytest.mark.cuda,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False"),
]
DEVICE = torch.device("cuda")


KINDS = pytest.mark.parametrize("pi05", [False, True], ids=["pi0", "pi05"])


@pytest.fixture(autouse=True)
def _freed() -> Iterator[None]:
    yield
    gc.collect()
    torch.cuda.empty_cache()


def build(pi05: bool) -> Any:
    """3.3 billion parameters, in bfloat16 but for what openpi keeps in float32."""
    return build_model(pi05=pi05, dtype="bfloat16", device=DEVICE, full=True)


@KINDS
def test_chunks_of_actions(pi05):
    model = build(pi05)
    plain = model.sample_actions
    graph_policy(model)
    for number in range(8):
        given = "cuda", observation(number, model, DEVICE), noise(number, model).to(DEVICE)
        assert torch.equal(model.sample_actions(*given), plain(*given))
    assert graphed(model)[0].report().replayed == 5, graphed(model)[0].explain()


@KINDS
def test_a_policy_with_its_own_noise(pi05):
    model = build(pi05)
    plain, policy = (build_policy(model, DEVICE) for _ in range(2))
    graph_policy(policy)
    for number in range(6):
        torch.manual_seed(number)
        wanted = plain.infer(seen(number))["actions"]
        torch.manual_seed(number)
        assert np.array_equal(policy.infer(seen(number))["actions"], wanted)
    assert graphed(policy)[0].report().replayed >= 3, graphed(policy)[0].explain()


@KINDS
def test_losses_and_gradients(pi05):
    model = build(pi05)
    plain = model.train().forward
    graph_training(model)
    names = [name for name, _ in model.named_parameters()]
    for number in range(5):
        given = observation(number, model, DEVICE, batch=2), noise(number, model, batch=2).to(DEVICE)
        results = []
        for forward in (plain, model):
            torch.manual_seed(number)
            model.zero_grad()
            losses = forward(*given)
            losses.mean().backward()
            results.append([losses.detach(), *[each.grad for each in model.parameters()]])
        for name, wanted, found in zip(["losses", *names], *results, strict=True):
            assert (wanted is None) == (found is None), name
            assert wanted is None or torch.equal(wanted, found), name
    report = graphed(model)[0].report()
    assert report.replayed == 3 and report.backwards_replayed >= 2, graphed(model)[0].explain()
