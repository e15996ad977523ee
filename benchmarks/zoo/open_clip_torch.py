"""OpenCLIP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import open_clip
import torch

Items = Iterator[Any]


def model_of(device: Any) -> Any:
    vision = {"image_size": 32, "layers": 2, "width": 32, "patch_size": 8, "head_width": 8}
    text = {"context_length": 16, "vocab_size": 99, "width": 32, "heads": 4, "layers": 2}
    return open_clip.CLIP(embed_dim=16, vision_cfg=vision, text_cfg=text).to(device)


def zero_shot(wrap: Any, device: Any) -> Items:
    """Images against texts whose features are computed once."""
    model = model_of(device).eval()
    with torch.no_grad():
        texts = model.encode_text(torch.randint(1, 99, (5, 16)).to(device), normalize=True)

    @wrap
    @torch.no_grad()
    def classify(image: torch.Tensor) -> torch.Tensor:
        return (100.0 * model.encode_image(image, normalize=True) @ texts.T).softmax(-1)

    while True:
        yield classify(torch.randn(1, 3, 32, 32).to(device))


def contrastive_training(wrap: Any, device: Any) -> Items:
    """The contrastive loss, SGD, the scale kept within bounds."""
    model, criterion = model_of(device).train(), open_clip.ClipLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    @wrap
    def step(images: torch.Tensor, texts: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = criterion(*model(images, texts))
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, 4.6)
        return loss.detach()

    while True:
        yield (
            step(torch.randn(4, 3, 32, 32).to(device), torch.randint(1, 99, (4, 16)).to(device)),
            model.logit_scale,
        )
