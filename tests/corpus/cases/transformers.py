"""Idioms of transformers and of code around it: generation, caches, masks, experts, schedulers."""

import torch
from torch import nn

from ..case import Group
from .models import SIZES, built, tokens, without_gradients
from .values import rand

group = Group()
GENERATION = "transformers/generation/utils.py"
STOPPING = (
    (GENERATION, "return bool(unfinished_sequences.max() == 0)"),
    (
        GENERATION,
        "encoder_input_ids is not None and encoder_input_ids.dim() == 2 "
        "and not (encoder_input_ids < 0).any()",
    ),
    (GENERATION, "return torch.tensor(token, device=device, dtype=torch.long)"),
    (GENERATION, "if eos_token_tensor is not None and torch.isin(eos_token_tensor, pad_token_tensor).any():"),
    (GENERATION, "if eos_token_tensor is not None and ("),
    (GENERATION, "if ("),
)
CACHE = "transformers/cache_utils.py"
MIXTRAL = "transformers/models/mixtral/modeling_mixtral.py"


def llama(device):
    from transformers import LlamaConfig, LlamaForCausalLM

    return built(device, lambda: LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=2)))


@group.library(
    *STOPPING,
)
def tokens_generated(device):
    model = llama(device)

    def fn(ids):
        return model.generate(ids, max_new_tokens=3, do_sample=False, pad_token_id=0)

    return fn, (tokens(device, 1, 8),)


@group.library(
    *STOPPING,
    (CACHE, "self.cumulative_length = self.cumulative_length.to(self.device)"),
)
def tokens_generated_with_a_static_cache(device):
    model = llama(device)

    def fn(ids):
        return model.generate(
            ids, max_new_tokens=3, do_sample=False, pad_token_id=0,
            cache_implementation="static", disable_compile=True,
        )  # fmt: skip

    return fn, (tokens(device, 1, 8),)


@group.library()
def step_with_a_static_cache(device):
    from transformers import StaticCache

    model = llama(device)
    cache = StaticCache(config=model.config, max_cache_len=32)
    with torch.no_grad():
        model(tokens(device, 1, 8), past_key_values=cache)

    def fn(ids, positions):
        with torch.no_grad():
            return model(ids, past_key_values=cache, position_ids=positions).logits

    return fn, (tokens(device, 1, 1), torch.tensor([[8]], device=device))


@group.library(
    wrong=(
        (CACHE, "self.keys = torch.cat([self.keys, key_states], dim=-2)"),
        (CACHE, "self.values = torch.cat([self.values, value_states], dim=-2)"),
        (
            "transformers/models/llama/modeling_llama.py",
            "position_ids = torch.arange(inputs_embeds.shape[1], device=inputs_embeds.device) "
            "+ past_seen_tokens",
        ),
    ),
)
def step_with_a_cache_that_grows(device):
    from transformers import DynamicCache

    model = llama(device)
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model(tokens(device, 1, 8), past_key_values=cache)

    def fn(ids):
        with torch.no_grad():
            return model(ids, past_key_values=cache).logits

    return fn, (tokens(device, 1, 1),)


@group.library()
def decoder_with_a_padding_mask(device):
    model = llama(device)

    def fn(ids, mask):
        with torch.no_grad():
            return model(ids, attention_mask=mask, use_cache=False).logits

    mask = torch.ones(2, 8, dtype=torch.long)
    mask[0, :3] = 0
    return fn, (tokens(device, 2, 8), mask.to(device))


@group.library()
def encoder_with_a_padding_mask(device):
    from transformers import BertConfig, BertModel

    model = built(device, lambda: BertModel(BertConfig(**SIZES)))

    def fn(ids, mask):
        with torch.no_grad():
            return model(ids, attention_mask=mask).last_hidden_state

    mask = torch.ones(2, 8, dtype=torch.long)
    mask[0, 5:] = 0
    return fn, (tokens(device, 2, 8), mask.to(device))


def mixtral(device, experts):
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(**SIZES, num_key_value_heads=2, num_local_experts=4)
    config._experts_implementation = experts
    return built(device, lambda: MixtralForCausalLM(config))


@group.library(
    (MIXTRAL, "expert_hit = torch.greater(expert_mask.sum(dim=(-1, -2)), 0).nonzero()"),
    (MIXTRAL, "if expert_idx == self.num_experts:"),
    (MIXTRAL, "top_k_pos, token_idx = torch.where(expert_mask[expert_idx])"),
    (
        MIXTRAL,
        "gate, up = nn.functional.linear(current_state, self.gate_up_proj[expert_idx]).chunk(2, dim=-1)",
    ),
    (
        MIXTRAL,
        "current_hidden_states = nn.functional.linear(current_hidden_states, self.down_proj[expert_idx])",
    ),
)
def experts_looped_over(device):
    return without_gradients(mixtral(device, "eager"), use_cache=False), (tokens(device, 1, 8),)


@group.library()
def experts_in_batches(device):
    return without_gradients(mixtral(device, "batched_mm"), use_cache=False), (tokens(device, 1, 8),)


@group.library()
def speech_encoder_and_decoder(device):
    from transformers import WhisperConfig, WhisperModel

    config = WhisperConfig(
        vocab_size=64, num_mel_bins=8, d_model=16, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32,
        max_source_positions=16, max_target_positions=16, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1,
    )  # fmt: skip
    model = built(device, lambda: WhisperModel(config))

    def fn(features, ids):
        with torch.no_grad():
            return model(features, decoder_input_ids=ids, use_cache=False).last_hidden_state

    return fn, (rand(device, 1, 8, 32), tokens(device, 1, 4))


@group.library()
def encoder_and_decoder_of_t5(device):
    from transformers import T5Config, T5Model

    config = T5Config(vocab_size=64, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2)
    model = built(device, lambda: T5Model(config))

    def fn(ids, decoded):
        with torch.no_grad():
            return model(ids, decoder_input_ids=decoded, use_cache=False).last_hidden_state

    return fn, (tokens(device, 1, 8), tokens(device, 1, 4))


@group.library()
def text_and_image_towers(device):
    from transformers import CLIPConfig, CLIPModel

    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = {**sizes, "vocab_size": 64, "max_position_embeddings": 16, "projection_dim": 8, "eos_token_id": 63}
    vision = {**sizes, "image_size": 16, "patch_size": 8, "projection_dim": 8}
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)
    model = built(device, lambda: CLIPModel(config))

    def fn(ids, pixels):
        with torch.no_grad():
            return model(input_ids=ids, pixel_values=pixels).logits_per_image

    return fn, (tokens(device, 2, 6), rand(device, 1, 3, 16, 16))


@group.library()
def state_space_model(device):
    from transformers import MambaConfig, MambaModel

    config = MambaConfig(vocab_size=64, hidden_size=16, state_size=4, num_hidden_layers=1)
    model = built(device, lambda: MambaModel(config))
    return without_gradients(model, use_cache=False), (tokens(device, 1, 6),)


@group.library(
    (
        "transformers/models/qwen2_vl/modeling_qwen2_vl.py",
        "torch.split(tensor, lengths.tolist(), dim=2) for tensor in (query_states, key_states, value_states)",
    ),
    (
        "transformers/vision_utils.py",
        "seqlens = torch.repeat_interleave(grid_thw[:, 1] * grid_thw[:, 2], grid_thw[:, 0])",
    ),
    (
        "transformers/vision_utils.py",
        "spatial_merge_size = torch.tensor([spatial_merge_size], device=device).expand(len(grid_thw))",
    ),
    (
        "transformers/vision_utils.py",
        "for (t, h, w), merge_size in zip(grid_thw.tolist(), spatial_merge_size.tolist()):",
    ),
)
def images_of_several_sizes(device):
    from transformers import Qwen2VLConfig
    from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VisionTransformerPretrainedModel

    config = Qwen2VLConfig(
        vision_config={
            "depth": 1, "embed_dim": 16, "hidden_size": 16, "num_heads": 2, "patch_size": 2,
            "spatial_merge_size": 2, "temporal_patch_size": 2, "in_channels": 3,
        }
    ).vision_config  # fmt: skip
    config._attn_implementation = "sdpa"
    model = built(device, lambda: Qwen2VisionTransformerPretrainedModel(config))

    def fn(pixels, grid):
        with torch.no_grad():
            return model(pixels, grid_thw=grid).last_hidden_state

    return fn, (rand(device, 16, 24), torch.tensor([[1, 4, 4]], device=device))


@group
def scheduler_that_counts_its_steps(device):
    class Euler:
        def __init__(self, steps):
            self.timesteps = torch.linspace(999, 0, steps).to(device)
            self.sigmas = torch.linspace(1, 0, steps + 1).square().to(device)
            self.index = None

        def step(self, noise, timestep, sample):
            if self.index is None:
                self.index = (self.timesteps == timestep).nonzero().item()
            sigma, following = self.sigmas[self.index], self.sigmas[self.index + 1]  # wrong
            self.index = (self.index + 1) % len(self.timesteps)  # wrong
            return sample + (following - sigma) * noise

    scheduler = Euler(8)

    def fn(noise, sample):
        return scheduler.step(noise, scheduler.timesteps[0], sample)

    return fn, (rand(device, 1, 4), rand(device, 1, 4, seed=1))


@group
def scheduler_asked_where_it_is(device):
    timesteps = torch.linspace(999, 0, 8).long().to(device)
    sigmas = torch.linspace(1, 0, 9).to(device)

    def fn(noise, timestep, sample):
        index = (timesteps == timestep).nonzero()[0].item()  # stops
        return sample + (sigmas[index + 1] - sigmas[index]) * noise

    return fn, (rand(device, 1, 4), torch.tensor(999, device=device), rand(device, 1, 4, seed=1))


@group
def scheduler_as_arithmetic(device):
    sigmas = torch.linspace(1, 0, 9).to(device)
    position = torch.zeros((), dtype=torch.long, device=device)

    def fn(noise, sample):
        step = (sigmas.index_select(0, position[None] + 1) - sigmas.index_select(0, position[None]))[0]
        position.add_(1).remainder_(8)
        return sample + step * noise

    return fn, (rand(device, 1, 4), rand(device, 1, 4, seed=1))


@group
def thresholds_of_dynamic_thresholding(device):
    def fn(sample):
        flat = sample.flatten(1).abs()
        top = torch.quantile(flat, 0.995, dim=1).clamp(min=1, max=2)[:, None]
        return sample.clamp(-top, top) / top

    return fn, (rand(device, 2, 16),)


@group
def guidance_switched_by_a_number(device):
    model = built(device, lambda: nn.Linear(8, 8))

    def fn(x, guidance):
        with torch.no_grad():
            conditional, unconditional = model(torch.cat([x, x])).chunk(2)
            if guidance > 1:
                return unconditional + guidance * (conditional - unconditional)
            return conditional

    return fn, (rand(device, 1, 8), 7.5)
