"""Whole training steps: gradients zeroed, forward, backward, optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification

from .place import Place, place


def linear_sgd(small: bool = False, device: str | None = None) -> Any:
    """Linear(1024, 1024) with SGD, batch 64, single precision."""
    at = place(device, small, torch.float32)
    size = 16 if small else 1024
    model = nn.Linear(size, size).to(at.device)
    step = _step(torch.optim.SGD(model.parameters(), lr=0.01), lambda x, y: F.mse_loss(model(x), y))
    return step, (at.randn(64, size), at.randn(64, size)), {}


def transformer(flavour: str = "fused", small: bool = False, device: str | None = None) -> Any:
    """Two layers of width 128 on 8 x 32 tokens with AdamW, ``fused`` or ``foreach``."""
    at = place(device, small, torch.float32)
    width = 16 if small else 128
    layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False).to(at.device)
    step = _step(_adamw(model, flavour, at), lambda x, y: F.mse_loss(model(x), y))
    return step, (at.randn(8, 32, width), at.randn(8, 32, width)), {}


def bert(batch: int = 16, tokens: int = 128, small: bool = False, device: str | None = None) -> Any:
    """BERT-base as a classifier in single precision, dropout on, with AdamW."""
    at = place(device, small, torch.float32)
    sizes: dict[str, int] = {}
    if small:
        batch, tokens = 2, 8
        sizes = dict(
            vocab_size=64, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
        )
    config = BertConfig(**sizes, num_labels=2)
    with at.device:
        model = BertForSequenceClassification(config).train()
    ids = torch.randint(0, config.vocab_size, (batch, tokens)).to(at.device)
    labels = torch.randint(0, 2, (batch,)).to(at.device)
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
    return _step(_adamw(model, "fused", at), lambda **batch: model(**batch).loss), (), given


def _step(optimizer: torch.optim.Optimizer, loss_of: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def step(*args: Any, **kwargs: Any) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(*args, **kwargs)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def _adamw(model: nn.Module, flavour: str, at: Place) -> torch.optim.AdamW:
    """The optimizer; on a GPU with its step count there, as graphs by hand need it."""
    return torch.optim.AdamW(
        model.parameters(), lr=1e-4, capturable=at.device.type == "cuda", **{flavour: True}
    )
