"""The layer: its three paths, its state, its moves between types and devices, and its gradients."""

from __future__ import annotations

import copy

import pytest
import torch

from rote import MisuseError, OptionError
from rote.quant import DuQuantConfig
from rote.quant.converting.convert import build_layer
from rote.quant.layer.linear import DuQuantLinear

VARIANTS = {
    "default": DuQuantConfig(block_size=16, rotation_steps=8),
    "smooth, clipped": DuQuantConfig(block_size=16, rotation_steps=4, act_clip=0.9, weight_clip=0.8,
                                     weight_range="minmax"),
    "per block": DuQuantConfig(block_size=8, shared_rotation=False, rotation_steps=4, smooth_alpha=None),
    "three rotations": DuQuantConfig(block_size=16, permutation_rounds=2, rotation_steps=3),
    "hadamard": DuQuantConfig(block_size=16, rotation="hadamard", permutation="none"),
    "nothing": DuQuantConfig(block_size=16, rotation="none", permutation="none", smooth_alpha=None),
    "bfloat16 rotations": DuQuantConfig(block_size=16, transform_dtype="bfloat16", rotation_steps=4),
    "groups": DuQuantConfig(block_size=16, weight_granularity="group", weight_group_size=8, rotation_steps=2),
    "one scale": DuQuantConfig(block_size=16, weight_granularity="tensor", weight_symmetric=True,
                               rotation_steps=2),
    "static": DuQuantConfig(block_size=16, act_scaling="static", act_granularity="tensor", rotation_steps=2),
    "static per channel": DuQuantConfig(
        block_size=16, act_scaling="static", act_granularity="channel", act_symmetric=True, rotation_steps=2
    ),
    "weights only": DuQuantConfig(block_size=16, act_bits=16, rotation_steps=2),
    "eight bits": DuQuantConfig(block_size=16, weight_bits=8, rotation_steps=2),
    "policy": DuQuantConfig.vla(block_size=8),
    "policy, folded": DuQuantConfig.vla(block_size=8, path="kernel"),
}  # fmt: skip


def dense_layer(width: int = 40, out: int = 24, bias: bool = True, dtype: torch.dtype = torch.float32):
    return torch.nn.Linear(width, out, bias=bias).to(dtype)


def quantized(config: DuQuantConfig, linear: torch.nn.Linear, rows: int = 64) -> DuQuantLinear:
    return build_layer(linear, config, inputs(rows, linear.in_features).to(linear.weight.device))


def inputs(rows: int, width: int) -> torch.Tensor:
    x = torch.randn(rows, width)
    x[:, width // 2] *= 20
    return x


def paths(config: DuQuantConfig) -> list[str]:
    folded = config.fold_act_scale or config.act_granularity != "channel"
    return ["reference", "fused", *(["kernel"] if folded else [])]


def grain(dtype: torch.dtype) -> float:
    """Of the layer's type, relative to the product of the lengths of input and weight row."""
    return {torch.float32: 1e-6, torch.float16: 2**-8, torch.bfloat16: 2**-7}[dtype]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize(("width", "out"), [(40, 24), (16, 7), (3, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_path_gives_the_numbers_of_the_reference(name, width, out, dtype, device):
    config = VARIANTS[name]
    linear = dense_layer(width, out, dtype=dtype).to(device)
    layer = quantized(config, linear)
    for shape in [(5, width), (1, width), (0, width), (2, 3, width), (width,)]:
        x = torch.randn(shape).to(device, dtype)
        layer.set_path("reference")
        expected = layer(x)
        size = (1 + x.double().norm(dim=-1)) * linear.weight.double().norm(dim=1).max()
        assert expected.shape == (*shape[:-1], out) and expected.dtype == dtype
        for path in paths(config):
            if path == "kernel" and device.type == "cuda":
                continue  # what Triton calculates may have a code more or less: tests/quant_kernels
            layer.set_path(path)
            found = layer(x)
            assert found.shape == expected.shape and found.dtype == dtype
            assert (found.double() - expected.double()).abs().amax(-1).le(grain(dtype) * size).all(), path


@pytest.mark.parametrize("name", VARIANTS)
def test_the_error_is_that_of_quantization(name):
    linear = dense_layer(64, 32)
    layer = quantized(VARIANTS[name], linear)
    x = inputs(50, 64)
    error = (layer(x) - linear(x)).norm() / linear(x).norm()
    assert 1e-4 < error < 0.35


@pytest.mark.parametrize("config", [c for c in VARIANTS.values()], ids=list(VARIANTS))
def test_without_quantization_the_transform_is_exact(config):
    config = config.replace(weight_bits=16, act_bits=16, path="reference", weight_range="minmax")
    linear = dense_layer(40, 24, dtype=torch.float64)
    x = torch.randn(9, 40, dtype=torch.float64)
    layer = quantized(config, linear)
    assert torch.allclose(layer(x), linear(x), rtol=1e-6, atol=1e-6), "scales and rotations are float32"


@pytest.mark.parametrize("config", [c for c in VARIANTS.values()], ids=list(VARIANTS))
def test_fresh_and_calibrated_layers_have_the_same_state(config):
    linear = dense_layer()
    layer = quantized(config, linear)
    fresh = DuQuantLinear(40, 24, config)
    assert {k: (v.shape, v.dtype) for k, v in fresh.state_dict().items()} == {
        k: (v.shape, v.dtype) for k, v in layer.state_dict().items()
    }
    x = torch.randn(6, 40)
    assert fresh(x).shape == (6, 24), "a fresh layer runs"
    fresh.load_state_dict(layer.state_dict(), strict=True)
    assert torch.equal(fresh(x), layer(x))
    before = {k: v.clone() for k, v in layer.state_dict().items()}
    layer(x)
    assert all(torch.equal(v, before[k]) for k, v in layer.state_dict().items()), "a call changes nothing"


@pytest.mark.parametrize("path", ["reference", "fused", "kernel"])
def test_casting_the_model_keeps_scales_and_rotations(path):
    layer = quantized(VARIANTS["static"].replace(path=path), dense_layer())
    exact = {k: v.clone() for k, v in layer.state_dict().items() if k != "bias"}
    x = torch.randn(5, 40)
    expected = layer(x)
    model = torch.nn.Sequential(layer).to(torch.bfloat16)
    assert all(torch.equal(layer.state_dict()[k], v) for k, v in exact.items())
    assert layer.bias is not None and layer.bias.dtype == torch.bfloat16
    assert torch.allclose(model(x.bfloat16()).float(), expected, atol=0.1)
    assert torch.allclose(model.float()(x), expected, atol=0.01), "and back"


def test_copies_and_meta_devices():
    layer = quantized(VARIANTS["default"].replace(path="fused"), dense_layer())
    x = torch.randn(5, 40)
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))
    with torch.device("meta"):
        empty = DuQuantLinear(40, 24, layer.config)
    for path in ("reference", "fused", "kernel"):
        empty.set_path(path)
        assert empty(torch.empty(2, 5, 40, device="meta")).shape == (2, 5, 24)
    empty.set_path("fused")
    loaded = empty.to_empty(device="cpu")
    loaded.load_state_dict(layer.state_dict())
    assert torch.equal(loaded(x), layer(x))


def test_the_default_type_of_torch_does_not_matter():
    linear, rows, x = dense_layer(), inputs(64, 40), torch.randn(5, 40)
    for name in ("default", "static", "policy", "groups"):
        expected = build_layer(linear, VARIANTS[name], rows)
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        try:
            found = build_layer(linear, VARIANTS[name], rows)
            y = found(x)
        finally:
            torch.set_default_dtype(before)
        assert torch.equal(y, expected(x))
        assert [t.dtype for t in found.buffers()] == [t.dtype for t in expected.buffers()]


def test_the_weight_answers_for_its_type_and_holds_no_numbers():
    layer = quantized(VARIANTS["default"], dense_layer(dtype=torch.bfloat16))
    assert layer.weight.shape == (24, 40) and layer.weight.dtype == torch.bfloat16
    assert layer.weight.untyped_storage().nbytes() == 2 and bool(layer.weight.isnan().all())
    assert layer.to(torch.float32).weight.dtype == torch.float32
    assert "weight" not in layer.state_dict() and not list(layer.parameters())


@pytest.mark.parametrize("name", ["default", "policy", "three rotations", "groups"])
def test_the_effective_weight_is_the_layer_without_rounded_activations(name):
    config = VARIANTS[name].replace(act_bits=16)
    layer = quantized(config, dense_layer())
    x = torch.randn(5, 40)
    assert torch.allclose(x @ layer.effective_weight().T + layer.bias, layer(x), atol=1e-5)


def test_rounded_rotations_cost_bytes_and_no_accuracy():
    linear, rows, x = dense_layer(512, 512), inputs(32, 512), inputs(32, 512)
    errors, sizes = [], []
    for kind in ("float32", "bfloat16"):
        layer = build_layer(linear, DuQuantConfig.vla(transform_dtype=kind), rows)
        errors.append((layer(x) - linear(x)).norm() / linear(x).norm())
        layer.set_path("reference")
        sizes.append(sum(t.numel() * t.element_size() for t in layer.buffers()))
    assert errors[1] < errors[0] * 1.02
    assert sizes[0] - sizes[1] == 2 * 2 * 512 * 16


def weight_bytes(layer: DuQuantLinear) -> int:
    return sum(
        t.numel() * t.element_size() for name, t in layer.named_buffers() if not name.startswith("transform")
    )


def test_bytes_of_each_path():
    """Not three copies: codes alone, or codes and the dense weight of the fused path."""
    linear = dense_layer(1024, 1024, dtype=torch.bfloat16)
    dense = linear.weight.numel() * 2
    config = VARIANTS["hadamard"].replace(block_size=128)
    layer = build_layer(linear, config, torch.randn(8, 1024))
    everything = sum(t.numel() * t.element_size() for t in layer.buffers())
    assert everything < 0.29 * dense + 128 * 128 * 4
    layer.set_path("fused")
    assert 1.25 * dense < weight_bytes(layer) < 1.28 * dense
    layer.set_path("reference")
    assert weight_bytes(layer) < 0.26 * dense


@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")  # autograd's thread has no context yet
def test_gradients_agree_between_the_paths(device):
    for name in (
        "default",
        "three rotations",
        "static",
        "static per channel",
        "policy, folded",
        "weights only",
    ):
        layer = quantized(VARIANTS[name], dense_layer()).to(device)
        up, x = torch.randn(6, 24, device=device), torch.randn(6, 40, device=device) * 1.5
        found = []
        for path in ("reference", "fused", "kernel"):  # on every device through torch
            layer.set_path(path)
            leaf = x.clone().requires_grad_()
            layer(leaf).backward(up)
            found.append(leaf.grad)
        assert torch.allclose(found[0], found[1], atol=1e-4), name
        assert torch.allclose(found[0], found[2], atol=1e-4), name
        assert found[0].abs().max() > 0


def test_autocast(device):
    layer = quantized(VARIANTS["default"], dense_layer()).to(device)
    x = torch.randn(5, 40, device=device)
    for path in ("reference", "fused", "kernel"):
        layer.set_path(path)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            inside = layer(x)
        assert inside.dtype == torch.bfloat16
        assert torch.equal(inside, layer(x.bfloat16()))


def test_what_cannot_be():
    layer = quantized(VARIANTS["default"], dense_layer())
    with pytest.raises(MisuseError, match="the input has 41 features, this layer takes 40"):
        layer(torch.randn(2, 41))
    for kind in (torch.int32, torch.bool, torch.complex64):
        with pytest.raises(MisuseError, match=f"the input is {kind}, this layer takes real floating"):
            layer(torch.zeros(2, 40, dtype=kind))
    for name, sizes in (("in_features=0", (0, 8)), ("out_features=2.5", (8, 2.5))):
        with pytest.raises(OptionError, match=f"^{name} must be a whole number of at least 1"):
            DuQuantLinear(*sizes, DuQuantConfig())
    for bits in (9, 0, "4"):
        with pytest.raises(OptionError, match=f"^weight_bits={bits!r} must be 2 to 8, or 16"):
            DuQuantLinear(8, 8, DuQuantConfig(), weight_bits=bits)
    with pytest.raises(OptionError, match="path='triton' must be one of"):
        layer.set_path("triton")
    with pytest.raises(OptionError, match=r"^fold_act_scale"):
        quantized(VARIANTS["policy"], dense_layer()).set_path("kernel")
    kept = DuQuantLinear(8, 8, DuQuantConfig(block_size=8, weight_bits=16))
    with pytest.raises(OptionError, match="path='kernel' needs a quantized weight"):
        kept.set_path("kernel")
    assert layer.path == "kernel" and "W4A8" in repr(layer)
