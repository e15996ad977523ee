"""Segmentation by segmentation-models-pytorch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import segmentation_models_pytorch as smp
import torch

Items = Iterator[Any]


def unet_training(wrap: Any, device: Any) -> Items:
    """A U-Net with a MobileNetV2 encoder, Dice loss, Adam, and scores by counts."""
    model = smp.Unet("mobilenet_v2", encoder_weights=None, decoder_channels=(32, 16, 16, 8, 8), classes=1).to(
        device
    )
    model.train()
    criterion = smp.losses.DiceLoss(mode="binary")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    @wrap
    def step(images: torch.Tensor, masks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        optimizer.zero_grad()
        logits = model(images)
        loss = criterion(logits, masks)
        loss.backward()
        optimizer.step()
        counts = smp.metrics.get_stats((logits.sigmoid() > 0.5).long(), masks.long(), mode="binary")
        return loss.detach(), smp.metrics.iou_score(*counts, reduction="micro")

    while True:
        yield (
            step(torch.rand(2, 3, 32, 32).to(device), torch.rand(2, 1, 32, 32).round().to(device)),
            model.segmentation_head,
        )


def inference(wrap: Any, device: Any) -> Items:
    """An FPN in inference, thresholded."""
    model = smp.FPN("mobilenet_v2", encoder_weights=None, classes=3).to(device).eval()

    @wrap
    @torch.inference_mode()
    def segment(images: torch.Tensor) -> torch.Tensor:
        return model(images).sigmoid() > 0.5

    while True:
        yield segment(torch.rand(1, 3, 64, 64).to(device))
