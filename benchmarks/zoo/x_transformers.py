"""Transformers of x-transformers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from x_transformers import AutoregressiveWrapper, Decoder, Encoder, TransformerWrapper, ViTransformerWrapper

Items = Iterator[Any]


def language_model(device: Any) -> Any:
    layers = Decoder(dim=32, depth=2, heads=4, rotary_pos_emb=True, attn_qk_norm=True, ff_glu=True)
    model = TransformerWrapper(num_tokens=64, max_seq_len=32, attn_layers=layers)
    return AutoregressiveWrapper(model).to(device)


def language_training(wrap: Any, device: Any) -> Items:
    """A language model's loss, graphed, with Adam outside."""
    model = language_model(device).train()
    loss_of = wrap(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    while True:
        loss = loss_of(torch.randint(64, (2, 17)).to(device))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        yield loss.detach(), model.net.to_logits


def generation(wrap: Any, device: Any) -> Items:
    """Sampling with the library's own cache; the network is graphed."""
    model = language_model(device).eval()
    model.net.forward = wrap(model.net.forward)
    while True:
        yield model.generate(torch.randint(64, (1, 4)).to(device), 8, temperature=0.9, cache_kv=True)


def image_encoder(wrap: Any, device: Any) -> Items:
    """A vision transformer with alibi, memories and a gate."""
    encoder = Encoder(dim=32, depth=2, heads=4, attn_num_mem_kv=2, attn_gate_values=True, use_rmsnorm=True)
    model = (
        ViTransformerWrapper(image_size=32, patch_size=8, num_classes=5, attn_layers=encoder)
        .to(device)
        .eval()
    )
    forward = wrap(model)
    with torch.no_grad():
        while True:
            yield forward(torch.randn(1, 3, 32, 32).to(device))
