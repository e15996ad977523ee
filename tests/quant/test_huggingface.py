"""Saving and loading through transformers."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from rote import MisuseError
from rote.quant import DuQuantConfig, DuQuantLinear, calibrate, quantize_

transformers = pytest.importorskip("transformers")
huggingface = pytest.importorskip("rote.quant.huggingface")
pytestmark = [
    pytest.mark.transformers,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

PLAIN = DuQuantConfig(block_size=16, rotation="hadamard", permutation="none", smooth_alpha=None)


def gemma(dtype: torch.dtype = torch.float32):
    config = transformers.GemmaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


def logits(model):
    with torch.no_grad():
        return model(torch.arange(20)[None]).logits


@pytest.mark.parametrize("path", ["reference", "fused", "kernel"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_save_and_load(path, dtype, tmp_path):
    model = gemma(dtype)
    config = DuQuantConfig(block_size=16, rotation_steps=4, calib_batches=1, path=path)
    with calibrate(model, config) as stats:
        logits(model)
    report = quantize_(model, config, stats)
    assert report["lm_head"].reason.startswith("shares its weight with")
    huggingface.attach(model)
    model.save_pretrained(tmp_path)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=dtype)
    assert torch.equal(logits(loaded), logits(model))
    attention = loaded.model.layers[0].self_attn
    assert isinstance(attention.q_proj, DuQuantLinear) and attention.q_proj.path == path
    assert attention.q_proj.transform is attention.k_proj.transform
    assert attention.q_proj.weight_scale.dtype == torch.float32
    settings = json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    assert settings["quant_method"] == "rote_duquant" and len(settings["layers"]) == 14


def test_dense_checkpoints_are_quantized_while_they_load(tmp_path):
    model = gemma()
    model.save_pretrained(tmp_path / "dense")
    settings = huggingface.RoteDuQuantConfig.of(PLAIN, exclude=["*.o_proj"])
    loaded = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "dense", quantization_config=settings
    )
    quantize_(model, PLAIN, exclude="*.o_proj")
    assert torch.equal(logits(loaded), logits(model))
    assert type(loaded.model.layers[0].self_attn.o_proj) is torch.nn.Linear
    loaded.save_pretrained(tmp_path / "quantized")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "quantized")
    assert torch.equal(logits(again), logits(model))


def test_what_cannot_be(tmp_path):
    with pytest.raises(MisuseError, match="needs calibration cannot be applied while loading"):
        huggingface.RoteDuQuantConfig.of(DuQuantConfig())
    with pytest.raises(MisuseError, match="attach: no layer of the model is quantized"):
        huggingface.attach(gemma())
    model = gemma()
    quantize_(model, PLAIN)
    huggingface.attach(model)
    settings = model.config.quantization_config
    settings.layers[0]["in_features"] = 64
    with pytest.raises(MisuseError, match=r"q_proj' is 32x64, and 32x32 in the model"):
        huggingface.build_skeleton(gemma(), settings)
    settings.layers[0]["name"] = "nothing"
    settings.layers[0]["transform"] = "nothing"
    with pytest.raises(MisuseError, match="'nothing' is quantized, and the model has no such linear layer"):
        huggingface.build_skeleton(
            gemma(), huggingface.RoteDuQuantConfig(settings.configs, settings.layers[:1])
        )


def test_a_checkpoint_that_lacks_tensors_is_an_error(tmp_path):
    model = gemma()
    quantize_(model, PLAIN.replace(permutation="energy"), exclude="lm_head")
    huggingface.attach(model)
    model.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = {name: value for name, value in load_file(file).items() if ".transform." not in name}
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(MisuseError, match=r"transform\..*: the checkpoint lacks it, or was changed"):
        transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
