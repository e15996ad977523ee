"""Small models of transformers, with random weights."""

from __future__ import annotations

from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, PreTrainedConfig, PreTrainedModel
from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLVisionConfig
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VisionTransformerPretrainedModel

SIZES = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "vocab_size": 64, "max_position_embeddings": 64, "pad_token_id": 0,
}  # fmt: skip


def tiny() -> LlamaForCausalLM:
    """A decoder of one layer."""
    return LlamaForCausalLM(LlamaConfig(**SIZES)).eval()


def tiny_experts() -> PreTrainedConfig:
    """The configuration of a decoder with four experts."""
    return MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2)


def tiny_tower() -> PreTrainedModel:
    """A vision tower that takes patches and the grid they lie in."""
    config = Qwen2VLVisionConfig(
        depth=1, embed_dim=32, hidden_size=32, num_heads=2, mlp_ratio=2, patch_size=4
    )
    return Qwen2VisionTransformerPretrainedModel(config).eval()
