"""Speech by SpeechBrain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from speechbrain.lobes.features import Fbank
from speechbrain.lobes.models.ECAPA_TDNN import ECAPA_TDNN
from speechbrain.processing.features import InputNormalization

Items = Iterator[Any]


def speaker_embeddings(wrap: Any, device: Any) -> Items:
    """Filter banks, normalization of sentences, ECAPA-TDNN."""
    features, normalize = (
        Fbank(n_mels=16).to(device),
        InputNormalization(norm_type="sentence", std_norm=False).to(device),
    )
    model = (
        ECAPA_TDNN(
            16,
            lin_neurons=16,
            channels=[16, 16, 16, 16, 48],
            kernel_sizes=[5, 3, 3, 3, 1],
            dilations=[1, 2, 3, 4, 1],
            attention_channels=8,
            res2net_scale=2,
            se_channels=8,
        )
        .to(device)
        .eval()
    )
    lengths = torch.ones(1, device=device)

    @wrap
    @torch.no_grad()
    def embed(sound: torch.Tensor) -> torch.Tensor:
        return model(normalize(features(sound), lengths), lengths)

    while True:
        yield embed(torch.randn(1, 8_000).to(device))
