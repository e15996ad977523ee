"""Quantized layers inside graphs: of rote, of torch.compile, and of CUDA."""

from __future__ import annotations

import pytest
import torch
from tests.conformance.test_exact_tier import soon
from torch import nn

import rote
from rote.quant import DuQuantConfig, DuQuantLinear, calibrate, quantize_
from rote.quant.converting.convert import build_layer

from .models import Mlp, Tiny, batches

CONFIGS = {
    "default": DuQuantConfig(block_size=16, rotation_steps=4, calib_batches=2, sample_rows=32),
    "policy": DuQuantConfig.vla(block_size=8, calib_batches=2, path="kernel"),
    "static": DuQuantConfig(
        block_size=16, rotation_steps=4, act_scaling="static", act_granularity="tensor", calib_batches=2
    ),
}
PATHS = ["reference", "fused", "kernel"]


def quantized(name: str, path: str, device: torch.device, model: nn.Module | None = None) -> nn.Module:
    model = (model or Tiny(blocks=1)).to(device)
    config = CONFIGS[name]
    with calibrate(model, config) as stats, torch.no_grad():
        for batch in batches(2):
            model(batch.to(device))
    quantize_(model, config, stats)
    for module in model.modules():
        if isinstance(module, DuQuantLinear):
            module.set_path(path)
    return model


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("path", PATHS)
def test_replays_are_bitwise_those_of_eager(name, path, device):
    model = quantized(name, path, device).eval()
    inputs = [x.to(device) for x in batches(8, seed=1)]
    with torch.no_grad():
        expected = [model(x) for x in inputs]
        graphed = rote.graph(model)
        found = [graphed(x) for x in inputs]
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    report = graphed.report()
    assert report.replayed > 0 and not report.reasons, graphed.explain()


@pytest.mark.parametrize("path", PATHS)
def test_what_lies_around_quantized_layers_is_shortened(path, device):
    """Their operators run again in the exact tier, which leaves the rest of a loop out."""
    model = quantized("default", path, device).eval()

    def denoise(x):
        total = 0
        for _ in range(3):
            steps = torch.arange(x.shape[-1], device=x.device) * 0.1
            total = total + model(x + steps.cos())
        return total

    graphed = rote.graph(denoise, keep=True)
    inputs = [x.to(device) for x in batches(4, seed=1)]
    with torch.no_grad():
        for number in range(12):
            x = inputs[number % 4]
            if number == 4:
                soon(graphed)
            assert torch.equal(graphed(x), denoise(x)), number
    (recording,) = graphed.report().recordings
    assert recording.tier is not None and recording.tier.used, graphed.explain()
    assert recording.tier.after < recording.tier.before


@pytest.mark.parametrize("replaced", ["path", "act_scale"])
def test_state_of_a_layer_is_noticed(device, replaced):
    """What a quantized layer keeps in Python is read like anything else."""
    model = quantized("static", "kernel", device).eval()
    inputs = [x.to(device) for x in batches(12, seed=3)]
    graphed = rote.graph(model)
    for number, x in enumerate(inputs):
        if number == 6:
            for module in model.modules():
                if isinstance(module, DuQuantLinear) and replaced == "path":
                    module.set_path("reference")
                elif isinstance(module, DuQuantLinear):
                    module.act_scale = module.act_scale * 2
        with torch.no_grad():
            assert torch.equal(graphed(x), model(x))
    assert graphed.report().replayed > 5


@pytest.mark.parametrize("path", PATHS)
def test_gradients_of_the_input_through_a_graph(path, device):
    model = quantized("default", path, device)

    def step(x):
        x = x.detach().requires_grad_()
        model(x).square().sum().backward()
        return x.grad

    inputs = [x.to(device) for x in batches(6, seed=2)]
    expected = [step(x) for x in inputs]
    graphed = rote.graph(step)
    for x, want in zip(inputs, expected, strict=True):
        assert torch.equal(graphed(x), want)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("path", PATHS)
def test_one_graph_without_breaks(name, path, device):
    layer = build_layer(torch.nn.Linear(40, 24).to(device), CONFIGS[name], torch.randn(20, 40).to(device))
    layer.set_path(path)
    for gradients in (False, True):
        torch._dynamo.reset()
        with torch.set_grad_enabled(gradients):
            found = torch._dynamo.explain(layer)(torch.randn(3, 40, device=device, requires_grad=gradients))
        assert found.graph_count == 1 and found.graph_break_count == 0, found.break_reasons


ONCE = {("default", "reference"), ("policy", "kernel"), ("static", "fused")}
"""Each configuration and each path."""


@pytest.mark.parametrize(
    ("name", "path"),
    [
        pytest.param(name, path, marks=[] if (name, path) in ONCE else [pytest.mark.long])
        for name in CONFIGS
        for path in PATHS
    ],
)
def test_compiled_in_one_piece(name, path, device):
    torch._dynamo.reset()
    model = quantized(name, path, device, Mlp(32))  # three layers: each of them is compiled twice
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for x in batches(3, seed=3):
        x = x.to(device)
        with torch.no_grad():
            assert torch.allclose(compiled(x), model(x), atol=1e-6)
        leaf, twin = x.clone().requires_grad_(), x.clone().requires_grad_()
        compiled(leaf).square().sum().backward()
        model(twin).square().sum().backward()
        assert torch.allclose(leaf.grad, twin.grad, atol=1e-5)
    torch._dynamo.reset()


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False")
@pytest.mark.parametrize("path", PATHS)
def test_a_raw_cuda_graph_with_changing_inputs(path):
    device = torch.device("cuda")
    model = quantized("default", path, device)
    static = batches(1)[0].to(device)
    with torch.no_grad():
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            model(static)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = model(static)
        for x in batches(5, seed=4):
            static.copy_(x)
            graph.replay()
            assert torch.equal(out, model(x.to(device)))


def test_a_hundred_steps_of_a_closed_loop(device):
    """Differences would grow from step to step: each input is the last output."""
    model = quantized("default", "kernel", device).eval()
    weights = torch.randn(5, 32, device=device)

    def policy(state):
        return torch.tanh(model(state) @ weights)

    graphed = rote.graph(policy, keep=True)
    eager = replayed = batches(1, seed=5)[0].to(device)
    with torch.no_grad():
        for _ in range(100):
            eager, replayed = policy(eager), graphed(replayed)
            assert torch.equal(eager, replayed)
    assert graphed.report().replayed >= 90
