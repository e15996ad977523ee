"""Smoothing folded into the layers of transformers' models: gates of MLPs, values of grouped attention."""

from __future__ import annotations

import pytest
import torch

from rote.quant import DuQuantConfig, calibrate, quantize_

pytest.importorskip("transformers")
import transformers
from examples.pi0_policy import Tabletop, build_policy, noise_sequence

from rote.quant import huggingface

pytestmark = pytest.mark.transformers
CONFIG = DuQuantConfig(
    block_size=16, rotation_steps=4, calib_batches=2, fold_smoothing=True, weight_bits=8, sample_rows=64
)
SIZES = dict(
    hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    vocab_size=128, head_dim=16,
)  # fmt: skip
FOLDED = [
    f"model.layers.{i}.{name}" for i in (0, 1) for name in (
        "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
        "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
    )
]  # fmt: skip


def language_model(kind, attention):
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**SIZES, attn_implementation=attention)
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    with torch.no_grad():
        for layer in model.model.layers:
            layer.mlp.up_proj.weight[5] *= 20
            layer.self_attn.v_proj.weight[3] *= 20
    return model, [torch.randint(0, 128, (2, 12)) for _ in range(3)]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", ["Llama", "Gemma"])
def test_a_language_model(kind, attention):
    model, (first, second, third) = language_model(kind, attention)
    with torch.no_grad():
        expected = model(third, use_cache=False).logits
        with calibrate(model, CONFIG) as stats:
            model(first, use_cache=False)
            model(second, use_cache=False)
        report = quantize_(model, CONFIG, stats, exclude="lm_head")
        assert [row.name for row in report.quantized if "smoothed when called" not in row.note] == FOLDED
        error = (model(third, use_cache=False).logits - expected).norm() / expected.norm()
        assert error < 0.02
        generated = model(third[:, :-1], use_cache=True)
        last = model(third[:, -1:], past_key_values=generated.past_key_values).logits
        assert (last[:, 0] - expected[:, -1]).norm() / expected[:, -1].norm() < 0.02


def test_a_cache_that_calibration_hands_out():
    model, (first, second, _) = language_model("Llama", "sdpa")
    with torch.no_grad():
        with calibrate(model, CONFIG) as stats:
            model(first, use_cache=True)
            model(second, use_cache=True)
        report = quantize_(model, CONFIG, stats, exclude="lm_head")
    name = "model.layers.0.self_attn"
    kept = f"'{name}.v_proj', which feeds it, is also read by what keeps it when the call is over (a cache"
    assert kept in report[f"{name}.o_proj"].note
    assert "smoothed when called" not in report["model.layers.0.mlp.down_proj"].note


def test_folders_hold_layers_of_both_kinds(tmp_path):
    model, (first, second, third) = language_model("Llama", "sdpa")
    with torch.no_grad():
        with calibrate(model, CONFIG) as stats:
            model(first, use_cache=True)  # so that nothing is folded into the values
            model(second, use_cache=True)
        quantize_(model, CONFIG, stats, exclude="lm_head")
        huggingface.attach(model)
        model.save_pretrained(tmp_path)
        loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
        assert torch.equal(loaded(third).logits, model(third).logits)
    attention = loaded.model.layers[0].self_attn
    assert attention.q_proj.transform.smooth is None and attention.o_proj.transform.smooth is not None


def test_generation_with_a_cache_of_its_own():
    model, (first, second, third) = language_model("Llama", "sdpa")
    with torch.no_grad():
        expected = model(third, use_cache=False).logits
        with calibrate(model, CONFIG, manual=True) as stats:
            for prompt in (first, second):
                model.generate(prompt, max_new_tokens=4, do_sample=False, pad_token_id=0)
                stats.end_batch()
        report = quantize_(model, CONFIG, stats, exclude="lm_head")
        error = (model(third, use_cache=False).logits - expected).norm() / expected.norm()
    assert "smoothed when called" not in report["model.layers.1.self_attn.o_proj"].note
    assert error < 0.02


def test_a_policy():
    policy = build_policy("tiny", torch.device("cpu"), torch.float32)
    world, noises = Tabletop(policy, 1, 0), noise_sequence(policy, 3, 0)
    with torch.no_grad():
        exact = policy.sample_actions(noise=noises[2], **world.observe())
        with calibrate(policy, CONFIG, manual=True) as stats:
            for noise in noises[:2]:
                policy.sample_actions(noise=noise, **world.observe())
                stats.end_batch()
        report = quantize_(policy, CONFIG, stats)
        found = policy.sample_actions(noise=noises[2], **world.observe())
    assert (found - exact).norm() / exact.norm() < 0.02
    downs = [row for row in report.quantized if row.name.endswith("down_proj")]
    assert len(downs) == 4 and not any("smoothed when called" in row.note for row in downs)
    # Both models' values are in one cache, which the expert reads.
    for row in report.quantized:
        if row.name.endswith("self_attn.o_proj") and "language" in row.name:
            assert "smoothed when called" in row.note
