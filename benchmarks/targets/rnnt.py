"""Greedy decoding of an RNN transducer: the host asks after every symbol whether any stream goes on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .place import frozen, place

BLANK = 0
SYMBOLS = 3  # of one frame, at most


def build(batch: int = 1, frames: int = 40, small: bool = False, device: str | None = None) -> Any:
    """From encoded frames of shape ``(batch, frames, width)`` to tokens; silence is 0."""
    at = place(device, small, torch.float16)
    words, width, frames, blank = (32, 16, 6, 2.3) if small else (1024, 640, frames, 3.9)
    model = frozen(Transducer(words, width, blank), at)
    return model, (at.randn(batch, frames, width),), {}


class Transducer(nn.Module):
    """Prediction network of two LSTM cells and a joint network, as in the Conformer transducers.

    Args:
        words: Size of the vocabulary.
        width: Of every layer.
        blank: Bias of silence, such that about every third frame says something.
    """

    def __init__(self, words: int, width: int, blank: float) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.cells = nn.ModuleList([nn.LSTMCell(width, width) for _ in range(2)])
        self.encoded, self.predicted = nn.Linear(width, width), nn.Linear(width, width)
        self.joint = nn.Linear(width, words)
        with torch.no_grad():
            self.joint.weight *= 4
            self.joint.bias[BLANK] = blank

    def predict(self, tokens: Tensor, state: list[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
        """The state after a token."""
        x = self.embed(tokens)
        following: list[tuple[Tensor, Tensor]] = []
        for cell, before in zip(self.cells, state, strict=True):
            after = cell(x, before)
            x = after[0]
            following.append(after)
        return following

    def forward(self, frames: Tensor) -> Tensor:
        """Tokens, ``(batch, frames, SYMBOLS)``."""
        batch = frames.shape[0]
        encoded = self.encoded(frames)
        empty = frames.new_zeros((batch, self.joint.in_features))
        token = torch.full((batch,), BLANK, dtype=torch.long, device=frames.device)
        state = self.predict(token, [(empty, empty) for _ in self.cells])
        said = token.new_full((batch, frames.shape[1], SYMBOLS), BLANK)
        for at, frame in enumerate(encoded.unbind(1)):
            for symbol in range(SYMBOLS):
                token = self.joint((frame + self.predicted(state[-1][0])).tanh()).argmax(-1)
                says = token != BLANK
                if not says.any():
                    break
                said[:, at, symbol] = token
                after = self.predict(token, state)
                state = [
                    (torch.where(says[:, None], new[0], old[0]), torch.where(says[:, None], new[1], old[1]))
                    for new, old in zip(after, state, strict=True)
                ]
        return said
