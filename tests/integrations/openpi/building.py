"""Models of openpi with random weights, policies of them, and what they are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tests.integrations.openpi.model.config import Pi0Config
from tests.integrations.openpi.model.observation import Observation
from tests.integrations.openpi.model.pi0_pytorch import PI0Pytorch
from tests.integrations.openpi.model.policy import (
    Cameras,
    InjectDefaultPrompt,
    Normalize,
    Policy,
    TokenizePrompt,
    Unnormalize,
)

CAMERAS = ("base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb")
JOINTS = 7
SMALL: dict[str, Any] = dict(
    paligemma_variant="dummy", action_expert_variant="dummy", vision_variant="dummy", vocab_size=512,
    action_dim=8, action_horizon=6, max_token_len=12,
)  # fmt: skip


def build_model(
    *,
    pi05: bool = False,
    dtype: str = "float32",
    device: torch.device | str = "cpu",
    compiled: str | None = None,
    full: bool = False,
    seed: int = 0,
) -> Any:
    """A model; the seed decides its weights. Adaptive norms begin at zero, so they get some, too.

    openpi sets the precision of products for the process; here it stays what it was.
    """
    torch.manual_seed(seed)
    config = Pi0Config(
        dtype=dtype, pi05=pi05, pytorch_compile_mode=compiled, **({} if full else SMALL)
    )  # fmt: skip
    precision = torch.get_float32_matmul_precision()
    with torch.device(device):
        model = PI0Pytorch(config)
    torch.set_float32_matmul_precision(precision)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "layernorm" in name or "norm.dense" in name:
                parameter.add_(torch.randn_like(parameter) * 0.02)
    return model.eval()


def build_policy(model: Any, device: torch.device | str = "cpu", **kwargs: Any) -> Policy:
    """A policy of it with numpy transforms, as ``create_trained_policy`` makes one."""
    config = model.config
    stats = {
        "state": (np.linspace(-1, 1, JOINTS), np.linspace(0.5, 2, JOINTS)),
        "actions": (np.linspace(-0.1, 0.1, JOINTS), np.linspace(0.2, 0.4, JOINTS)),
    }
    inputs = [
        InjectDefaultPrompt("do something"),
        Cameras(),
        Normalize(stats, config.action_dim),
        TokenizePrompt(config.max_token_len, config.vocab_size),
    ]
    return Policy(
        model, transforms=inputs, output_transforms=[Unnormalize(stats)], is_pytorch=True,
        pytorch_device=str(device), **kwargs,
    )  # fmt: skip


def seen(number: int, size: int = 224) -> dict[str, Any]:
    """What a robot sees in one step."""
    rng = np.random.default_rng(number)
    views = ("cam_high", "cam_left_wrist")
    images = {view: rng.integers(0, 256, (size, size, 3), dtype=np.uint8) for view in views}
    prompt = ("fold the towel", "open the drawer and look", "uncap the pen")[number % 3]
    return {"images": images, "state": rng.normal(size=JOINTS), "prompt": prompt}


def observation(
    number: int, model: Any, device: torch.device | str = "cpu", batch: int = 1, size: int = 224
) -> Observation:
    """What a model is given in one step."""
    config, rng = model.config, torch.Generator().manual_seed(number)
    images = {name: torch.rand(batch, 3, size, size, generator=rng) * 2 - 1 for name in CAMERAS}
    masks = {name: torch.rand(batch, generator=rng) < 0.8 for name in CAMERAS}
    tokens = torch.randint(0, config.vocab_size, (batch, config.max_token_len), generator=rng)
    lengths = torch.randint(1, config.max_token_len + 1, (batch, 1), generator=rng)
    return Observation(
        images={name: each.to(device) for name, each in images.items()},
        image_masks={name: each.to(device) for name, each in masks.items()},
        state=torch.randn(batch, config.action_dim, generator=rng).to(device),
        tokenized_prompt=tokens.to(device),
        tokenized_prompt_mask=(torch.arange(config.max_token_len) < lengths).to(device),
    )


def noise(number: int, model: Any, batch: int = 1) -> torch.Tensor:
    """Noise for one chunk of actions."""
    config = model.config
    shape = (batch, config.action_horizon, config.action_dim)
    return torch.randn(shape, generator=torch.Generator().manual_seed(1000 + number))
