"""Quantized models under ``torch.compile``: one piece, and one compilation for layers of one kind.

Published layers were compiled anew for each layer or call, since ``forward`` read the layer's name, a counter
of calls or the environment.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo import config as dynamo
from torch._dynamo.testing import CompileCounterWithBackend

from rote.quant import DuQuantConfig, DuQuantLinear, calibrate, fuse_, quantize_, quantize_from_env

WIDTH, HIDDEN = 32, 48
CONFIGS = {
    "default": DuQuantConfig(block_size=16, rotation_steps=1, calib_batches=2, sample_rows=32),
    "policy": DuQuantConfig.vla(block_size=8, calib_batches=2),
    "static": DuQuantConfig(
        block_size=16, rotation_steps=1, act_scaling="static", act_granularity="tensor", calib_batches=2
    ),
}
PATHS = ("reference", "fused", "kernel")
NAMES = ("vision", "expert")


class Part(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(WIDTH, HIDDEN), nn.Linear(WIDTH, HIDDEN)
        self.down_proj = nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down_proj(torch.sigmoid(self.gate_proj(x)) * self.up_proj(x))


class Policy(nn.Module):
    """Six linear layers, no two of one name."""

    def __init__(self) -> None:
        super().__init__()
        for name in NAMES:
            self.add_module(name, Part())

    def forward(self, x: Tensor) -> Tensor:
        for part in self.children():
            x = part(x)
        return x


def batches(count: int, rows: int = 5) -> list[Tensor]:
    return [torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(n)) for n in range(count)]


def quantized(config: DuQuantConfig, path: str) -> Policy:
    torch.manual_seed(0)
    model = Policy().eval()
    with calibrate(model, config) as stats, torch.no_grad():
        for batch in batches(2):
            model(batch)
    quantize_(model, config, stats)
    for layer in layers(model):
        layer.set_path(path)
    return model


def layers(model: nn.Module) -> list[DuQuantLinear]:
    return [module for module in model.modules() if isinstance(module, DuQuantLinear)]


@pytest.fixture(autouse=True)
def _compiles_anew():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("name", "path", "fused"),
    [
        *((name, path, False) for name in CONFIGS for path in PATHS),
        *((name, path, True) for name, path in zip(CONFIGS, PATHS, strict=True)),
    ],
)
def test_a_model_is_one_graph_and_stays_it(name, path, fused):
    config = CONFIGS[name]
    if name == "policy" and path == "kernel":
        config = config.replace(fold_act_scale=True)  # a scale per channel leaves no integer sum
    model = quantized(config, path)
    if fused:
        fuse_(model)
    counting = CompileCounterWithBackend("eager")
    compiled = torch.compile(model, backend=counting, fullgraph=True)
    with torch.no_grad(), dynamo.patch(error_on_recompile=True):
        for x in batches(4):
            torch.testing.assert_close(compiled(x), model(x), rtol=0, atol=1e-6)
    assert counting.frame_count == 1


@pytest.mark.parametrize("fused", [False, True], ids=["apart", "together"])
@pytest.mark.parametrize("name", CONFIGS)
def test_parts_of_one_kind_share_a_compilation_whatever_they_are_called(name, fused):
    model, plain = quantized(CONFIGS[name], "fused"), quantized(CONFIGS[name], "fused")
    if fused:
        fuse_(model)
    counting = CompileCounterWithBackend("eager")
    for part in model.children():
        part.compile(backend=counting, fullgraph=True)
    with torch.no_grad(), dynamo.patch(error_on_recompile=True):
        for x in batches(3):
            torch.testing.assert_close(model(x), plain(x), rtol=0, atol=1e-6)
    assert counting.frame_count == 1


@pytest.mark.parametrize("name", CONFIGS)
def test_layers_compiled_one_by_one_are_compiled_once_a_shape(name):
    model, plain = quantized(CONFIGS[name], "fused"), quantized(CONFIGS[name], "fused")
    assert len(layers(model)) == 6
    counting = CompileCounterWithBackend("eager")
    for layer in layers(model):
        layer.compile(backend=counting, fullgraph=True, dynamic=False)
    with torch.no_grad():
        for x in batches(3):
            assert torch.equal(model(x), plain(x))
    assert counting.frame_count == 2, "gate and up have one shape, down another"


def test_the_environment_decides_when_a_model_is_quantized_and_never_again(monkeypatch):
    monkeypatch.setenv("ROTE_DUQUANT_WBITS_DEFAULT", "4")
    monkeypatch.setenv("ROTE_DUQUANT_BLOCK", "8")
    monkeypatch.setenv("ROTE_DUQUANT_CALIB_STEPS", "2")
    model = Policy().eval()
    report = quantize_from_env(model, batches(2))
    assert report is not None and len(layers(model)) == 6
    counting = CompileCounterWithBackend("eager")
    compiled = torch.compile(model, backend=counting, fullgraph=True)
    with torch.no_grad(), dynamo.patch(error_on_recompile=True):
        for x, bits in zip(batches(4), ("4", "8", "16", "2"), strict=True):
            monkeypatch.setenv("ROTE_DUQUANT_WBITS_DEFAULT", bits)
            monkeypatch.setenv("ROTE_DUQUANT_ABITS", bits)
            monkeypatch.setenv("OPENPI_DUQUANT_ABITS", bits)
            assert torch.equal(compiled(x), model(x))
    assert counting.frame_count == 1


def test_another_number_of_rows_is_the_second_compilation_and_the_last():
    model = quantized(CONFIGS["default"], "fused")
    counting = CompileCounterWithBackend("eager")
    compiled = torch.compile(model, backend=counting, fullgraph=True)
    with torch.no_grad():
        for rows in (5, 7, 9, 20, 33):
            x = batches(1, rows)[0]
            torch.testing.assert_close(compiled(x), model(x), rtol=0, atol=1e-6)
    assert counting.frame_count == 2
