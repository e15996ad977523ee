"""Image models of timm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import timm
import torch
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import ModelEmaV3

Items = Iterator[Any]


def vision_transformer(wrap: Any, device: Any) -> Items:
    """Inference of a small vision transformer: logits and features."""
    model = timm.create_model("test_vit", num_classes=10).to(device).eval()

    @wrap
    @torch.inference_mode()
    def classify(images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = model.forward_features(images)
        return model.forward_head(features).softmax(-1), features

    size = model.patch_embed.img_size
    while True:
        yield classify(torch.randn(1, 3, *size).to(device))


def efficient_network(wrap: Any, device: Any) -> Items:
    """Inference of a small EfficientNet, batches of two sizes."""
    model = wrap(timm.create_model("test_efficientnet", num_classes=10).to(device).eval())
    with torch.no_grad():
        while True:
            for batch in (4, 4, 4, 1):
                yield model(torch.randn(batch, 3, 64, 64).to(device))


def training_recipe(wrap: Any, device: Any) -> Items:
    """timm's recipe: mixup, soft targets, stochastic depth, AdamW, cosine schedule, averaged weights."""
    model = timm.create_model("test_resnet", num_classes=10, drop_path_rate=0.1).to(device).train()
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    schedule = CosineLRScheduler(optimizer, t_initial=5_000, warmup_t=100, t_in_epochs=False)
    average = ModelEmaV3(model, decay=0.99, use_warmup=True)
    mixup = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=10)
    criterion, updates = SoftTargetCrossEntropy(), 0

    @wrap
    def step(images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = criterion(model(images), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    while True:
        images, targets = mixup(torch.randn(4, 3, 32, 32).to(device), torch.randint(10, (4,)).to(device))
        loss = step(images, targets)
        updates += 1
        average.update(model, step=updates)
        schedule.step_update(num_updates=updates)
        yield loss, model.fc if hasattr(model, "fc") else model, optimizer.param_groups[0]["lr"]
