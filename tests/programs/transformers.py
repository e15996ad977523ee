"""Models of the transformers library: forwards, generation and training, small and with random weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .program import Made, batches, frozen, program

NEEDED = ("transformers",)
CLIP = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 32, "intermediate_size": 32}
DECODER = {
    "vocab_size": 100, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
}  # fmt: skip
ENDLESS = {"pad_token_id": 0, "eos_token_id": None}


def built(device: torch.device, model: str, config: str, **sizes: Any) -> Any:
    """A model by its name, with random weights."""
    import transformers

    return getattr(transformers, model)(getattr(transformers, config)(**sizes)).to(device).eval()


def tokens(device: torch.device, rows: int = 2, length: int = 16) -> tuple[Tensor]:
    """Random tokens."""
    return (torch.randint(5, 100, (rows, length), device=device),)


@program(needs=NEEDED)
def gpt2(device: torch.device) -> Made:
    """The logits of GPT-2."""
    model = built(
        device, "GPT2LMHeadModel", "GPT2Config", vocab_size=100, n_embd=32, n_layer=2, n_head=2,
        n_positions=64, bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    return Made(frozen(lambda x: model(x).logits), lambda: tokens(device))


@program(needs=NEEDED)
def llama_trained(device: torch.device) -> Made:
    """A small Llama with AdamW, clipped gradients and a warm-up by LambdaLR."""
    model = built(device, "LlamaForCausalLM", "LlamaConfig", **DECODER).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 1000))

    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        loss = model(x, labels=x).loss
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        return loss.detach(), norm

    return Made(step, lambda: tokens(device), (model, optimizer))


@program(needs=NEEDED)
def mixtral(device: torch.device) -> Made:
    """Experts, two of four for each token."""
    sizes = {"num_local_experts": 4, "num_experts_per_tok": 2, **DECODER}
    model = built(device, "MixtralForCausalLM", "MixtralConfig", **sizes)
    return Made(frozen(lambda x: model(x).logits), lambda: tokens(device))


@program(needs=NEEDED)
def qwen2_decodes(device: torch.device) -> Made:
    """Greedy decoding by hand with a cache that grows, all in one call."""
    model = built(device, "Qwen2ForCausalLM", "Qwen2Config", **DECODER)

    @torch.no_grad()
    def decode(x: Tensor) -> Tensor:
        out = model(x, use_cache=True)
        found = [out.logits[:, -1:].argmax(-1)]
        for _ in range(5):
            out = model(found[-1], past_key_values=out.past_key_values, use_cache=True)
            found.append(out.logits[:, -1:].argmax(-1))
        return torch.cat(found, 1)

    return Made(decode, lambda: tokens(device))


@program(needs=NEEDED)
def mamba(device: torch.device) -> Made:
    """The logits of Mamba, by its slow path."""
    model = built(
        device, "MambaForCausalLM", "MambaConfig", vocab_size=100, hidden_size=32, state_size=8,
        num_hidden_layers=2,
    )  # fmt: skip
    return Made(frozen(lambda x: model(x).logits), lambda: tokens(device, 1, 8))


@program(needs=NEEDED, on_gpu=False)
def gemma_generates(device: torch.device) -> Made:
    """Greedy generation with a static cache."""
    model = built(device, "GemmaForCausalLM", "GemmaConfig", head_dim=8, **DECODER)
    options = {"max_new_tokens": 6, "do_sample": False, "cache_implementation": "static", **ENDLESS}
    return Made(frozen(lambda x: model.generate(x, **options)), lambda: tokens(device, 1, 8))


@program(needs=NEEDED)
def segformer(device: torch.device) -> Made:
    """Segments of an image."""
    model = built(
        device, "SegformerForSemanticSegmentation", "SegformerConfig", num_encoder_blocks=2, depths=[1, 1],
        hidden_sizes=[16, 32], num_attention_heads=[1, 2], sr_ratios=[2, 1], patch_sizes=[7, 3],
        strides=[4, 2], mlp_ratios=[2, 2], decoder_hidden_size=16, num_labels=3,
    )  # fmt: skip
    return Made(frozen(lambda x: model(x).logits), batches(device, (1, 3, 32, 32)))


@program(needs=NEEDED)
def detr(device: torch.device) -> Made:
    """Boxes by a transformer over the features of a small ResNet."""
    import transformers

    backbone = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], out_features=["stage2"], layer_type="basic"
    )
    model = built(
        device, "DetrForObjectDetection", "DetrConfig", use_timm_backbone=False,
        use_pretrained_backbone=False, backbone=None, backbone_config=backbone, d_model=32,
        encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=32, decoder_ffn_dim=32, num_queries=5,
    )  # fmt: skip
    return Made(frozen(lambda x: model(x).pred_boxes), batches(device, (1, 3, 32, 32)))


@program(needs=NEEDED)
def t5(device: torch.device) -> Made:
    """The loss of T5, whose buckets of distances are made inside."""
    model = built(
        device, "T5ForConditionalGeneration", "T5Config", vocab_size=100, d_model=32, d_kv=8, d_ff=64,
        num_layers=2, num_heads=4, decoder_start_token_id=0,
    )  # fmt: skip
    return Made(
        frozen(lambda x, y: model(input_ids=x, labels=y).loss), lambda: (*tokens(device), *tokens(device))
    )


@program(needs=NEEDED, on_gpu=False)  # its scripts are compiled there, which no operation shows
def deberta(device: torch.device) -> Made:
    """DeBERTa, whose scale is a number that a script makes of the size of a head."""
    model = built(
        device, "DebertaV2ForSequenceClassification", "DebertaV2Config", vocab_size=100, hidden_size=32,
        num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, relative_attention=True,
        position_buckets=8, pos_att_type=["p2c", "c2p"], max_position_embeddings=64,
    )  # fmt: skip
    return Made(frozen(lambda x: model(x).logits), lambda: tokens(device))
