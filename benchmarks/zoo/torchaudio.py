"""Sound by torchaudio."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torchaudio.transforms as T
from torch import nn
from torchaudio.models import Conformer

Items = Iterator[Any]


def spectrograms(wrap: Any, device: Any) -> Items:
    """Mel spectrograms in decibels, with masks of time and frequency as augmentation."""
    features = nn.Sequential(
        T.MelSpectrogram(8_000, n_fft=256, n_mels=16),
        T.AmplitudeToDB(),
        T.FrequencyMasking(4),
        T.TimeMasking(4),
    ).to(device)
    look = wrap(features)
    while True:
        yield look(torch.randn(2, 2_000).to(device))


def conformer(wrap: Any, device: Any) -> Items:
    """A Conformer over features of one length."""
    model = wrap(Conformer(16, 4, 32, 2, 7).to(device).eval())
    lengths = torch.tensor([20, 16], device=device)
    with torch.no_grad():
        while True:
            yield model(torch.randn(2, 20, 16).to(device), lengths)


def griffin_lim(wrap: Any, device: Any) -> Items:
    """Sound from a spectrogram by Griffin and Lim, from a random phase."""
    restore = wrap(T.GriffinLim(n_fft=128, n_iter=8).to(device))
    while True:
        yield restore(torch.rand(1, 65, 30).to(device))
