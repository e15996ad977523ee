"""One decoding step of a Llama of a billion parameters with a static cache, greedy.

Each call decodes at the same position of the cache, so any number of calls can be made.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

from .place import frozen, place

BILLION = dict(
    vocab_size=128_256,
    hidden_size=2048,
    intermediate_size=8192,
    num_hidden_layers=16,
    num_attention_heads=32,
    num_key_value_heads=8,
    tie_word_embeddings=True,
)
SMALL = dict(
    vocab_size=128,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    tie_word_embeddings=True,
)


def build(
    batch: int = 1, prompt: int = 128, cache: int = 1024, small: bool = False, device: str | None = None
) -> Any:
    """A step from tokens of shape ``(batch, 1)`` to the next ones."""
    at = place(device, small)
    prompt, cache = (8, 32) if small else (prompt, cache)
    config = LlamaConfig(
        **(SMALL if small else BILLION), max_position_embeddings=cache, attn_implementation="sdpa"
    )
    with at.device:  # a billion random numbers take a processor half a minute
        model = frozen(LlamaForCausalLM(config), at)
    memory = StaticCache(config=config, max_cache_len=cache)
    words = torch.randint(0, config.vocab_size, (batch, prompt + 1)).to(at.device)
    positions = torch.arange(prompt + 1, device=at.device)
    takes_position = "cache_position" in inspect.signature(model.model.forward).parameters

    def decode(ids: Tensor, position: Tensor) -> Tensor:
        given = {"cache_position": position} if takes_position else {}
        rows = position.expand(ids.shape[0], -1)
        out = model(ids, past_key_values=memory, position_ids=rows, use_cache=True, logits_to_keep=1, **given)
        return out.logits[:, -1].argmax(-1, keepdim=True)

    decode(words[:, :prompt], positions[:prompt])
    lengths = [layer.cumulative_length for layer in memory.layers if hasattr(layer, "cumulative_length")]

    def step(ids: Tensor, position: Tensor) -> Tensor:
        """One step; the cache's own count of its tokens, where it has one, is put back."""
        following = decode(ids, position)
        if lengths:
            torch._foreach_add_(lengths, -1)
        return following

    return step, (words[:, prompt:], positions[prompt:]), {}
