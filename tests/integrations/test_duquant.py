"""Quantized layers with what the integration offers for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tests.conformance.test_exact_tier import tier
from tests.conformance.test_fused import hurry
from tests.quant.test_meets_runtime import CONFIGS, quantized

import rote
from rote.integrations.duquant import offer_alternatives
from rote.runtime.optimize import ALTERNATIVES


def withdraw() -> None:
    offer_alternatives.cache_clear()
    for operator in ("rote_quant::linear", "rote_quant::linear_forward"):
        for each in ALTERNATIVES.of(operator):
            ALTERNATIVES.withdraw(each)


@pytest.fixture(autouse=True)
def _offered() -> Iterator[None]:
    withdraw()
    offer_alternatives()
    offer_alternatives()  # once is enough, and twice is no error
    yield
    withdraw()


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("numerics", ["exact", "near", "probed"])
def test_replays_have_the_bits_of_eager(name, numerics, device):
    model = quantized(name, "kernel", device).eval()
    g = rote.graph(model, keep=True, numerics=numerics)
    rows = 96 if device.type == "cuda" else 4
    with torch.no_grad():
        for number in range(200):
            if number > 8 and g.wait_until_optimized(timeout_s=60):
                break
            if number >= 3:
                hurry(g)
            x = torch.randn(2, rows // 2, 32, device=device)
            found, expected = g(x), model(x)
            if device.type == "cuda" and numerics == "near":  # codes of near ties may differ by one
                torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)
            else:
                assert torch.equal(found, expected), f"call {number}"
    report = tier(g)
    used = {each.alternative for each in report.near} if report is not None else set()
    if numerics == "exact":
        assert not used
    elif device.type == "cpu":  # on a GPU layers of one input are one operator, which nothing stands for
        assert used == {"integer products by PyTorch"}, g.explain()
