"""Quantizers of vector-quantize-pytorch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from vector_quantize_pytorch import FSQ, ResidualVQ, VectorQuantize

Items = Iterator[Any]


def codebook_training(wrap: Any, device: Any) -> Items:
    """A codebook that follows by moving averages while it trains, dead codes replaced."""
    quantizer = (
        VectorQuantize(dim=16, codebook_size=32, decay=0.9, threshold_ema_dead_code=1).to(device).train()
    )
    quantize = wrap(quantizer)
    while True:
        found, codes, loss = quantize(torch.randn(2, 8, 16).to(device))
        yield found, codes, loss, quantizer


def residual_codes(wrap: Any, device: Any) -> Items:
    """Residual quantization in inference, codes turned back."""
    quantizer = ResidualVQ(dim=16, num_quantizers=3, codebook_size=16).to(device).eval()

    @wrap
    @torch.no_grad()
    def there_and_back(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        _, codes, _ = quantizer(x)
        return codes, quantizer.get_output_from_indices(codes)

    while True:
        yield there_and_back(torch.randn(1, 8, 16).to(device))


def autoencoder(wrap: Any, device: Any) -> Items:
    """Finite scalar quantization between an encoder and a decoder, SGD."""
    encoder, decoder = torch.nn.Linear(16, 4).to(device), torch.nn.Linear(4, 16).to(device)
    quantizer = FSQ([8, 5, 5, 5]).to(device)
    optimizer = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.01)

    @wrap
    def step(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z, codes = quantizer(encoder(x))
        loss = (decoder(z) - x).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach(), codes

    while True:
        yield step(torch.randn(2, 8, 16).to(device)), encoder
