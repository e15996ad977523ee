"""Groups in one launch: the same numbers as apart, wherever layers are called together, and nothing kept."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import rote
from rote.quant import (
    DuQuantConfig,
    DuQuantLinear,
    calibrate,
    fuse_,
    load_quantized,
    quantize_,
    save_quantized,
    unfuse_,
    warmup,
)
from rote.quant.layer.fusion import Fused

from .models import Attention, Mlp, Tiny, batches

CONFIG = DuQuantConfig(block_size=16, rotation_steps=4, calib_batches=2, sample_rows=32, fuse_groups=False)
GROUPS = [
    ("layers.0.self_attn.q_proj", "layers.0.self_attn.k_proj", "layers.0.self_attn.v_proj"),
    ("layers.0.mlp.gate_proj", "layers.0.mlp.up_proj"),
]


def quantized(config: DuQuantConfig = CONFIG, device: torch.device | str = "cpu") -> Tiny:
    model = Tiny(blocks=1).to(device)
    with calibrate(model, config) as stats, torch.no_grad():
        for batch in batches(2):
            model(batch.to(device))
    quantize_(model, config, stats)
    return model


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many layers each call of a group calculates."""
    from rote.quant.layer import fusion

    seen: list[int] = []
    real = fusion.together

    def counting(layers, x):
        seen.append(len(layers))
        return real(layers, x)

    monkeypatch.setattr(fusion, "together", counting)
    return seen


POLICY = DuQuantConfig.vla(calib_batches=2, sample_rows=32, fuse_groups=False)
VARIANTS = {
    "default": CONFIG,
    "policy": POLICY,
    "policy in integers": POLICY.replace(path="kernel", fold_act_scale=True),
    "static": CONFIG.replace(act_scaling="static", act_granularity="tensor"),
    "folded": CONFIG.replace(act_scaling="static", act_granularity="channel", act_symmetric=True),
    "eight bits": CONFIG.replace(weight_bits=8, weight_symmetric=True),
    "weights only": CONFIG.replace(act_bits=16),
}


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_same_bits_as_apart(name, dtype, device, launches):
    model = quantized(VARIANTS[name], device).to(dtype)
    inputs = [x.to(device, dtype) for x in batches(3, seed=1)]
    with torch.no_grad():
        expected = [model(x) for x in inputs]
        assert fuse_(model) == GROUPS and not launches
        found = [model(x) for x in inputs]
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert launches == [3, 2] * 3
    assert fuse_(model) == GROUPS, "fusing again changes nothing"


@pytest.mark.parametrize("name", ["default", "policy", "policy in integers"])
def test_the_gradient_is_the_sum(name, device, launches):
    model = quantized(VARIANTS[name], device)
    x = batches(1, seed=2)[0].to(device)
    found = []
    for _ in range(2):
        leaf = x.clone().requires_grad_()
        model(leaf).square().sum().backward()
        found.append(leaf.grad)
        fuse_(model)
    assert launches == [3, 2] and torch.allclose(found[0], found[1], atol=1e-5, rtol=1e-4)


def test_modules_stay_what_they_were(launches):
    model = quantized()
    state = model.state_dict()
    attention = model.layers[0].self_attn
    fuse_(model)
    assert isinstance(attention, Attention) and type(attention).__name__ == "Attention"
    assert isinstance(attention.q_proj, DuQuantLinear) and list(model.state_dict()) == list(state)
    x = batches(1)[0]
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(x), model(x)) and isinstance(twin.layers[0].mlp, Fused)
    launches.clear()
    unfuse_(model)
    assert type(attention) is Attention and type(model.layers[0].mlp) is Mlp
    model(x)
    assert not launches and "fused_groups" not in vars(attention)


def test_a_layer_called_with_something_else_is_called_alone(launches):
    class Odd(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.q_proj, self.k_proj = torch.nn.Linear(32, 32), torch.nn.Linear(32, 32)
            self.calls = 0

        def forward(self, x, how="same"):
            self.calls += 1
            y = self.q_proj(x)
            if how == "changed":
                x.mul_(2)
            if how == "other":
                x = x * 2
            return self.finish(x) - y

        def finish(self, x):
            return self.k_proj(x)

    model = Odd()
    config = DuQuantConfig(block_size=16, rotation="hadamard", permutation="none", smooth_alpha=None)
    plain = copy.deepcopy(model)
    quantize_(plain, config.replace(fuse_groups=False))
    report = quantize_(model, config)
    assert report["q_proj"].note == "one launch with k_proj" and "one launch with q_proj" in str(report)
    with torch.no_grad():
        for how, calls in (("same", [2]), ("other", [2, 2]), ("changed", [2, 2])):
            launches.clear()
            x = torch.randn(3, 32)
            assert torch.equal(model(x.clone(), how), plain(x.clone(), how)), how
            assert launches == calls
    assert model.calls == 3, "what the forward sets is set on the module"
    launches.clear()
    model.k_proj.register_forward_hook(lambda module, args, output: output * 0)
    assert torch.equal(model(x), -plain.q_proj(x)) and not launches, "a hook is heard"
    model.q_proj.set_path("fused")
    model(x)
    assert not launches


def test_who_is_left_alone():
    class Base(torch.nn.Module):
        def forward(self, x):
            return self.q_proj(x) + self.k_proj(x)

    class Uses(Base):
        def __init__(self):
            super().__init__()
            self.q_proj, self.k_proj = torch.nn.Linear(32, 32), torch.nn.Linear(32, 32)

        def forward(self, x):
            return super().forward(x)

    class Patched(Base):
        def __init__(self):
            super().__init__()
            self.q_proj, self.k_proj = torch.nn.Linear(32, 32), torch.nn.Linear(32, 32)
            self.forward = lambda x: self.q_proj(x)

    config = DuQuantConfig(block_size=16, rotation="hadamard", permutation="none", smooth_alpha=None)
    bare = torch.nn.ModuleDict({name: torch.nn.Linear(8, 8) for name in ("q_proj", "k_proj")})
    for model in (Uses(), Patched(), bare):
        report = quantize_(model, config)
        assert len(report.quantized) == 2 and not any(row.note for row in report)
        assert not any(isinstance(module, Fused) for module in model.modules())
    grouped = config.replace(weight_granularity="group", weight_group_size=8)
    model = Tiny(blocks=1)
    quantize_(model, grouped)
    assert fuse_(model) == []


def test_transforms_of_their_own_go_by_what_calibration_saw(launches):
    class Across(torch.nn.Module):
        """Keys and values are of something else."""

        def __init__(self):
            super().__init__()
            self.q_proj, self.k_proj, self.v_proj = (torch.nn.Linear(32, 32) for _ in range(3))

        def forward(self, x, y):
            return self.q_proj(x) + self.k_proj(y) * self.v_proj(y)

    inputs = torch.randn(2, 5, 32)
    config = POLICY.replace(path="kernel", fold_act_scale=True, calib_batches=1)
    plain = Across()
    known, named = copy.deepcopy(plain), copy.deepcopy(plain)
    with calibrate(plain, config) as stats, torch.no_grad():
        plain(*inputs)
    for model in (plain, named):
        quantize_(model, config, stats)
    with torch.no_grad():
        expected = plain(*inputs)
        report = quantize_(known, config.replace(fuse_groups=True), stats)
        assert [row.note for row in report] == ["", "one launch with v_proj", "one launch with k_proj"]
        assert torch.equal(known(*inputs), expected) and launches == [2]
        assert fuse_(named) == [("q_proj", "k_proj", "v_proj")], "names are all there is"
        launches.clear()
        assert torch.equal(named(*inputs), expected) and launches == [3], "and nothing is done a third time"


def test_checkpoints(tmp_path):
    model = quantized(CONFIG.replace(fuse_groups=True))
    assert isinstance(model.layers[0].mlp, Fused)
    save_quantized(model, tmp_path / "model.safetensors")
    for fresh in (Tiny(blocks=1), model):
        load_quantized(fresh, tmp_path / "model.safetensors")
        assert isinstance(fresh.layers[0].mlp, Fused)
        x = batches(1, seed=3)[0]
        assert torch.equal(fresh(x), model(x))


@pytest.mark.parametrize("name", ["default", "policy", "policy in integers"])
def test_in_one_graph(name, device):
    model = quantized(VARIANTS[name], device)
    fuse_(model)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for x in batches(2, seed=3):
        leaf, twin = (x.to(device).clone().requires_grad_() for _ in range(2))
        found, expected = compiled(leaf), model(twin)
        assert torch.allclose(found, expected, atol=1e-6)
        found.square().sum().backward()
        expected.square().sum().backward()
        assert torch.allclose(leaf.grad, twin.grad, atol=1e-5)
    torch._dynamo.reset()


class Helped(Attention):
    """Its layers are called by other methods, one of which forgets an attribute."""

    def heads(self, x):
        return self.q_proj(x), self.k_proj(x), self.v_proj(x)

    def forward(self, x):
        self.last = x
        q, k, v = self.heads(x)
        del self.last
        return self.o_proj(torch.sigmoid(q) * torch.cat([k, v], dim=-1))


def test_helpers_of_a_forward(device, launches):
    model = torch.nn.Sequential(Helped(32)).to(device)
    config = CONFIG.replace(calib_batches=1)
    x = batches(1)[0].to(device)
    with calibrate(model, config) as stats, torch.no_grad():
        model(x)
    quantize_(model, config, stats)
    with torch.no_grad():
        expected = model(x)
        fuse_(model)
        assert torch.equal(model(x), expected) and launches == [3]
        torch._dynamo.reset()
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        assert torch.allclose(compiled(x), expected, atol=1e-6)
    assert not hasattr(model[0], "last")
    torch._dynamo.reset()


class Recalculated(Helped):
    def forward(self, x):
        return checkpoint(self.mixed, x, use_reentrant=False)

    def mixed(self, x):
        q, k, v = self.heads(x)
        return self.o_proj(torch.sigmoid(q) * torch.cat([k, v], dim=-1))


def test_checkpoints_of_activations(device, launches):
    model, twin = Recalculated(32).to(device), Helped(32).to(device)
    twin.load_state_dict(model.state_dict())
    x = batches(1)[0].to(device)
    gradients = []
    for each in (model, twin):
        config = CONFIG.replace(calib_batches=1, fuse_groups=True)
        with calibrate(each, config) as stats, torch.no_grad():
            each(x)
        quantize_(each, config, stats)
        leaf = x.clone().requires_grad_()
        loss = each(leaf).square().sum()
        loss.backward(retain_graph=True)
        loss.backward()
        gradients.append(leaf.grad)
    assert torch.equal(*gradients)
    assert launches == [3] * 4, "once forwards and once in each backward; and once without checkpoints"


@pytest.mark.parametrize("name", ["default", "policy", "policy in integers"])
def test_replayed(name, device):
    model = quantized(VARIANTS[name], device).eval()
    fuse_(model)
    warmup(model, [32])
    with torch.no_grad():
        graphed = rote.graph(model)
        for x in batches(8, seed=4):
            assert torch.equal(graphed(x.to(device)), model(x.to(device)))
    report = graphed.report()
    assert report.replayed > 0 and not report.reasons, graphed.explain()


def test_autocast_and_inference_mode(device, launches):
    model = quantized(device=device)
    x = batches(1)[0].to(device)
    with torch.inference_mode(), torch.autocast(device.type, dtype=torch.bfloat16):
        expected = model(x)
        fuse_(model)
        assert torch.equal(model(x), expected)
    assert launches == [3, 2]
