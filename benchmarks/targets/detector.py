"""Mask R-CNN with a ResNet-50 pyramid: proposals, non-maximum suppression, boxes, masks.

How many proposals and detections survive depends on the pixels: shapes change from image to image, and the
host reads how many there are. Layers and numbers are those of torchvision's ``maskrcnn_resnet50_fpn``;
suppression and alignment are written in plain PyTorch.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .place import frozen, place
from .vision import Trunk

WIDTH, CLASSES = 256, 91
SIZES, RATIOS = (32, 64, 128, 256, 512), (0.5, 1.0, 2.0)
LONGEST = math.log(1000 / 16)  # a box grows by no more than this


def build(small: bool = False, device: str | None = None) -> Any:
    """One image of 800 x 800 pixels; boxes, scores, classes and masks of what is found."""
    at = place(device, small, torch.float32)
    model = frozen(Detector(proposals=30 if small else 1000, most=10 if small else 100), at)
    side = 128 if small else 800
    return model, (at.randn(1, 3, side, side),), {}


class Pyramid(nn.Module):
    """The trunk's four maps at one width, each with what the coarser ones say, and a fifth."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = Trunk()
        self.inner = nn.ModuleList([nn.Conv2d(256 << level, WIDTH, 1) for level in range(4)])
        self.outer = nn.ModuleList([nn.Conv2d(WIDTH, WIDTH, 3, 1, 1) for _ in range(4)])

    def forward(self, image: Tensor) -> list[Tensor]:
        maps = [layer(x) for layer, x in zip(self.inner, self.trunk(image), strict=True)]
        for level in (2, 1, 0):
            above = F.interpolate(maps[level + 1], size=maps[level].shape[-2:], mode="nearest")
            maps[level] = maps[level] + above
        maps = [layer(x) for layer, x in zip(self.outer, maps, strict=True)]
        return [*maps, F.max_pool2d(maps[-1], 1, 2)]


class Detector(nn.Module):
    """The two stages.

    Args:
        proposals: How many go into the second stage at most.
        most: How many detections come out at most.
    """

    def __init__(self, proposals: int, most: int) -> None:
        super().__init__()
        self.proposals, self.most = proposals, most
        self.pyramid = Pyramid()
        self.look = nn.Conv2d(WIDTH, WIDTH, 3, 1, 1)
        self.objectness = nn.Conv2d(WIDTH, len(RATIOS), 1)
        self.offsets = nn.Conv2d(WIDTH, 4 * len(RATIOS), 1)
        self.head = nn.Sequential(nn.Linear(WIDTH * 49, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU())
        self.classes, self.boxes = nn.Linear(1024, CLASSES), nn.Linear(1024, 4 * CLASSES)
        convolutions = [layer for _ in range(4) for layer in (nn.Conv2d(WIDTH, WIDTH, 3, 1, 1), nn.ReLU())]
        grow = [nn.ConvTranspose2d(WIDTH, WIDTH, 2, 2), nn.ReLU(), nn.Conv2d(WIDTH, CLASSES, 1)]
        self.masks = nn.Sequential(*convolutions, *grow)

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        """Detections in an image of shape ``(1, 3, height, width)``."""
        size = image.shape[-1]
        maps = self.pyramid(image)
        boxes = self._propose(maps, size)
        hidden = self.head(align(maps[:4], boxes, size, 7).flatten(1))
        scores = self.classes(hidden).softmax(-1)[:, 1:]
        offsets = self.boxes(hidden).unflatten(1, (CLASSES, 4))[:, 1:] / boxes.new_tensor((10, 10, 5, 5))
        moved = decode(boxes[:, None], offsets)
        which, label = (scores > 0.05).nonzero(as_tuple=True)
        boxes, scores = moved[which, label].clamp(0, size), scores[which, label]
        best = suppress(
            boxes + label[:, None] * (2.0 * size), scores, 0.5, self.most
        )  # each class for itself
        boxes, scores, label = boxes[best], scores[best], label[best]
        masks = self.masks(align(maps[:4], boxes, size, 14))
        chosen = masks[torch.arange(len(label), device=label.device), label + 1].sigmoid()
        return {"boxes": boxes, "scores": scores, "labels": label + 1, "masks": chosen}

    def _propose(self, maps: list[Tensor], size: int) -> Tensor:
        """Boxes that may hold something, from every level; boxes of different levels do not meet."""
        found: list[Tensor] = []
        rated: list[Tensor] = []
        shifts: list[Tensor] = []
        for level, (x, anchor) in enumerate(zip(maps, SIZES, strict=True)):
            hidden = self.look(x).relu()
            scores = self.objectness(hidden).permute(0, 2, 3, 1).flatten()
            offsets = (
                self.offsets(hidden).unflatten(1, (len(RATIOS), 4)).permute(0, 3, 4, 1, 2).reshape(-1, 4)
            )
            scores, best = scores.topk(min(self.proposals, len(scores)))
            boxes = decode(anchors(x, anchor, size)[best], offsets[best]).clamp(0, size)
            large = ((boxes[:, 2:] - boxes[:, :2]) >= 1e-3).all(-1).nonzero().squeeze(1)
            found.append(boxes[large])
            rated.append(scores[large])
            shifts.append(torch.full_like(rated[-1], level * 2.0 * size))
        boxes = torch.cat(found)
        apart = boxes + torch.cat(shifts)[:, None]
        return boxes[suppress(apart, torch.cat(rated), 0.7, self.proposals)]


def anchors(x: Tensor, size: int, image: int) -> Tensor:
    """The boxes that a map's cells stand for, ``(cells * 3, 4)``."""
    height, width = x.shape[-2:]
    shapes = torch.tensor([(size / r**0.5 / 2, size * r**0.5 / 2) for r in RATIOS], device=x.device)
    corners = torch.cat([-shapes, shapes], dim=1)
    rows = torch.arange(height, device=x.device) * (image / height)
    columns = torch.arange(width, device=x.device) * (image / width)
    y, x = torch.meshgrid(rows, columns, indexing="ij")
    return (torch.stack([x, y, x, y], dim=-1)[:, :, None] + corners).reshape(-1, 4)


def decode(boxes: Tensor, offsets: Tensor) -> Tensor:
    """Boxes moved and scaled by what a layer says of them."""
    sizes = boxes[..., 2:] - boxes[..., :2]
    centres = boxes[..., :2] + sizes / 2 + offsets[..., :2] * sizes
    half = sizes * offsets[..., 2:].clamp(max=LONGEST).exp() / 2
    return torch.cat([centres - half, centres + half], dim=-1)


def suppress(boxes: Tensor, scores: Tensor, threshold: float, most: int) -> Tensor:
    """Greedy non-maximum suppression: which boxes stay, the best first.

    All boxes at once, again and again until nothing changes: the fixed point is what one box after the other
    gives, and the host reads whether it is reached.
    """
    scores, order = scores.sort(descending=True, stable=True)
    boxes = boxes[order]
    over = (overlaps(boxes) > threshold).triu(1)
    keep = torch.ones_like(scores, dtype=torch.bool)
    while True:
        following = ~(over & keep[:, None]).any(0)
        if torch.equal(following, keep):
            return order[keep][:most]
        keep = following


def overlaps(boxes: Tensor) -> Tensor:
    """Intersection over union of every box with every other."""
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
    inner = torch.minimum(boxes[:, None, 2:], boxes[:, 2:]) - torch.maximum(boxes[:, None, :2], boxes[:, :2])
    shared = inner.clamp(min=0).prod(-1)
    return shared / (areas[:, None] + areas - shared).clamp(min=1e-6)


def align(maps: list[Tensor], boxes: Tensor, image: int, cells: int) -> Tensor:
    """What the maps have in each box, ``(boxes, channels, cells, cells)``; large boxes from coarse maps."""
    sides = (boxes[:, 2:] - boxes[:, :2]).prod(-1).clamp(min=1e-6).sqrt()
    levels = (4 + torch.log2(sides / 224 + 1e-6)).floor().clamp(2, 5).long() - 2
    result = boxes.new_zeros((len(boxes), maps[0].shape[1], cells, cells))
    steps = (torch.arange(2 * cells, device=boxes.device) + 0.5) / (2 * cells)  # 2 x 2 samples in a cell
    for level, x in enumerate(maps):
        mine = (levels == level).nonzero().squeeze(1)
        at = boxes[mine] / image * 2 - 1
        columns = at[:, None, 0] + (at[:, 2] - at[:, 0])[:, None] * steps
        rows = at[:, None, 1] + (at[:, 3] - at[:, 1])[:, None] * steps
        shape = (len(mine), 2 * cells, 2 * cells)
        grid = torch.stack([columns[:, None].expand(shape), rows[:, :, None].expand(shape)], dim=-1)
        sampled = F.grid_sample(x, grid.reshape(1, -1, 2 * cells, 2), align_corners=False)
        inside = sampled.reshape(x.shape[1], *shape).transpose(0, 1)
        result[mine] = F.avg_pool2d(inside, 2)
    return result
