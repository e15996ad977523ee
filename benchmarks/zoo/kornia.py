"""Images by kornia."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import kornia
import kornia.augmentation as K
import torch

Items = Iterator[Any]


def filters(wrap: Any, device: Any) -> Items:
    """Grey, blurred, its edges, and how alike it is to the blurred one."""

    @wrap
    def look(image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        grey = kornia.color.rgb_to_grayscale(image)
        blurred = kornia.filters.gaussian_blur2d(grey, (5, 5), (1.5, 1.5))
        return kornia.filters.sobel(blurred), kornia.metrics.ssim(grey, blurred, 5)

    while True:
        yield look(torch.rand(1, 3, 32, 32).to(device))


def augmentations(wrap: Any, device: Any) -> Items:
    """Random augmentations of a batch and its masks in one sequence."""
    augment = wrap(
        K.AugmentationSequential(
            K.RandomHorizontalFlip(p=0.5),
            K.RandomAffine(degrees=15.0, p=0.8),
            K.ColorJiggle(0.2, 0.2, 0.2, 0.1, p=0.8),
            data_keys=["input", "mask"],
        )
    )
    while True:
        yield augment(torch.rand(2, 3, 32, 32).to(device), torch.rand(2, 1, 32, 32).round().to(device))


def registration(wrap: Any, device: Any) -> Items:
    """A homography fitted by gradients: points warped, SGD with momentum."""
    homography = torch.eye(3, device=device)[None].requires_grad_()
    optimizer = torch.optim.SGD([homography], lr=1e-3, momentum=0.9)

    @wrap
    def step(points: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        found = kornia.geometry.linalg.transform_points(homography, points)
        loss = (found - wanted).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    while True:
        points = torch.rand(1, 12, 2).to(device)
        yield step(points, points * 1.1 + 0.05), homography


def rotated(wrap: Any, device: Any) -> Items:
    """Images rotated by an angle that is a number, compared with what they were."""

    @wrap
    def rotate(image: torch.Tensor, angle: float) -> tuple[torch.Tensor, torch.Tensor]:
        centre, scale = torch.tensor([[8.0, 8.0]], device=device), torch.ones(1, 2, device=device)
        turned = kornia.geometry.get_rotation_matrix2d(centre, torch.tensor([angle], device=device), scale)
        found = kornia.geometry.warp_affine(image, turned, (16, 16))
        return kornia.color.rgb_to_hsv(found), kornia.losses.ssim_loss(found, image, 5)

    while True:
        yield rotate(torch.rand(1, 3, 16, 16).to(device), random.uniform(-30, 30))
