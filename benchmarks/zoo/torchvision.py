"""Models and transforms of torchvision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torchvision
from torchvision.transforms import v2

Items = Iterator[Any]


def classification(wrap: Any, device: Any) -> Items:
    """Preprocessing and a MobileNetV3, the five best labels."""
    model = torchvision.models.mobilenet_v3_small(num_classes=20).to(device).eval()
    prepare = v2.Compose(
        [
            v2.Resize(48, antialias=True),
            v2.CenterCrop(40),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    )

    @wrap
    @torch.no_grad()
    def classify(image: torch.Tensor) -> list[torch.Tensor]:
        return list(model(prepare(image)[None]).softmax(-1).topk(5))

    while True:
        yield classify(torch.randint(0, 256, (3, 64, 64), dtype=torch.uint8).to(device))


def detection(wrap: Any, device: Any) -> Items:
    """Faster R-CNN, whose number of boxes depends on the image."""
    model = (
        torchvision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(
            weights=None,
            weights_backbone=None,
            num_classes=5,
            min_size=64,
            max_size=64,
            box_detections_per_img=10,
            rpn_pre_nms_top_n_test=20,
            rpn_post_nms_top_n_test=10,
        )
        .to(device)
        .eval()
    )
    detect = wrap(model)
    with torch.no_grad():
        while True:
            yield detect([torch.rand(3, 64, 64).to(device)])


def optical_flow(wrap: Any, device: Any) -> Items:
    """RAFT on pairs of frames."""
    model = wrap(torchvision.models.optical_flow.raft_small(weights=None).to(device).eval())
    with torch.no_grad():
        while True:
            yield model(*torch.rand(2, 1, 3, 128, 128).to(device), num_flow_updates=2)[-1]


def segmentation_training(wrap: Any, device: Any) -> Items:
    """LR-ASPP with SGD and a polynomial schedule in a LambdaLR."""
    model = torchvision.models.segmentation.lraspp_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=4
    ).to(device)
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (1 - step / 10_000) ** 0.9)

    @wrap
    def step(image: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        loss = torch.nn.functional.cross_entropy(model(image)["out"], target, ignore_index=255)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    while True:
        yield (
            step(torch.randn(2, 3, 64, 64).to(device), torch.randint(4, (2, 64, 64)).to(device)),
            model.classifier,
        )
        schedule.step()


def augmentation(wrap: Any, device: Any) -> Items:
    """Random crops, flips and jitter of a batch: v2 transforms draw from torch's generator on the host."""
    augment = wrap(
        v2.Compose(
            [
                v2.RandomResizedCrop(32, antialias=True),
                v2.RandomHorizontalFlip(),
                v2.ColorJitter(0.4, 0.4, 0.4),
                v2.RandomErasing(p=0.5),
            ]
        )
    )
    while True:
        yield augment(torch.rand(4, 3, 48, 48).to(device))
