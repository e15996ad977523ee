"""Medical images by MONAI."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from monai.inferers import sliding_window_inference
from monai.losses import DiceCELoss
from monai.metrics import DiceMetric
from monai.networks.nets import UNet

Items = Iterator[Any]


def network(device: Any) -> Any:
    return UNet(2, in_channels=1, out_channels=2, channels=(8, 16), strides=(2,), num_res_units=1).to(device)


def segmentation_training(wrap: Any, device: Any) -> Items:
    """A U-Net with Dice and cross-entropy, Adam with amsgrad."""
    model, criterion = network(device).train(), DiceCELoss(to_onehot_y=True, softmax=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, amsgrad=True)

    @wrap
    def step(image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = criterion(model(image), label)
        loss.backward()
        optimizer.step()
        return loss.detach()

    while True:
        yield step(torch.rand(2, 1, 32, 32).to(device), torch.randint(2, (2, 1, 32, 32)).to(device)), model


def sliding_windows(wrap: Any, device: Any) -> Items:
    """Inference by sliding windows over a larger image, and its Dice score."""
    model, score = network(device).eval(), DiceMetric(include_background=False)

    @wrap
    @torch.no_grad()
    def segment(image: torch.Tensor) -> torch.Tensor:
        return sliding_window_inference(image, (32, 32), 2, model, overlap=0.25)

    while True:
        found = segment(torch.rand(1, 1, 56, 56).to(device))
        onehot = torch.nn.functional.one_hot(found.argmax(1), 2).movedim(-1, 1)
        yield found, score(onehot, torch.ones_like(onehot))
