"""A denoising step of the U-Net of Stable Diffusion 1.5, with classifier-free guidance and a DDIM update."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .place import frozen, place

WORDS, CONTEXT = 77, 768
LAYERS = 2  # residual blocks of a level on the way down; one more on the way up


def build(small: bool = False, device: str | None = None) -> Any:
    """A step from a latent of shape ``(1, 4, 64, 64)`` at one time to the next, guided by words."""
    at = place(device, small, torch.float16)
    channels, heads, side = ((32, 64), 4, 8) if small else ((320, 640, 1280, 1280), 8, 64)
    with at.device:
        unet = frozen(UNet(channels, heads), at)

    def denoise(latent: Tensor, time: Tensor, alphas: Tensor, context: Tensor, guidance: Tensor) -> Tensor:
        noise = unet(torch.cat([latent, latent]), time.expand(2), context)
        without, with_words = noise.chunk(2)
        noise = without + guidance * (with_words - without)
        now, following = alphas.unbind()
        clean = (latent - (1 - now).sqrt() * noise) / now.sqrt()
        return following.sqrt() * clean + (1 - following).sqrt() * noise

    scalars = [torch.tensor(value, device=at.device, dtype=at.dtype) for value in ([0.25, 0.27], 7.5)]
    time = torch.tensor(481, device=at.device)
    args = (at.randn(1, 4, side, side), time, scalars[0], at.randn(2, WORDS, CONTEXT), scalars[1])
    return denoise, args, {}


class Residual(nn.Module):
    """Two convolutions, the time added between them."""

    def __init__(self, channels: int, out: int, time: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(32, channels), nn.GroupNorm(32, out)])
        self.convolutions = nn.ModuleList([nn.Conv2d(channels, out, 3, 1, 1), nn.Conv2d(out, out, 3, 1, 1)])
        self.time = nn.Linear(time, out)
        self.shortcut = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        hidden = self.convolutions[0](F.silu(self.norms[0](x)))
        hidden = hidden + self.time(F.silu(time))[:, :, None, None]
        return self.convolutions[1](F.silu(self.norms[1](hidden))) + self.shortcut(x)


class Attention(nn.Module):
    """Over the pixels themselves, or from the pixels to the words."""

    def __init__(self, width: int, context: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.key, self.value = (nn.Linear(context, width, bias=False) for _ in range(2))
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        split = (-1, self.heads, x.shape[-1] // self.heads)
        projected = (self.query(x), self.key(context), self.value(context))
        q, k, v = (part.unflatten(-1, split[1:]).transpose(1, 2) for part in projected)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    """Self-attention, attention to the words, a gated feed-forward layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(32, width, eps=1e-6)
        self.into, self.out = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3)])
        self.pixels, self.words = Attention(width, width, heads), Attention(width, CONTEXT, heads)
        self.gated, self.project = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, image: Tensor, context: Tensor) -> Tensor:
        x = self.into(self.norm(image)).flatten(2).transpose(1, 2)
        normal = self.norms[0](x)
        x = x + self.pixels(normal, normal)
        x = x + self.words(self.norms[1](x), context)
        value, gate = self.gated(self.norms[2](x)).chunk(2, dim=-1)
        x = x + self.project(value * F.gelu(gate))
        return image + self.out(x.transpose(1, 2).reshape(image.shape))


class Block(nn.Module):
    """A residual block and, except on the lowest level, a transformer."""

    def __init__(self, channels: int, out: int, time: int, heads: int) -> None:
        super().__init__()
        self.residual = Residual(channels, out, time)
        self.transformer = Transformer(out, heads) if heads else None

    def forward(self, x: Tensor, time: Tensor, context: Tensor) -> Tensor:
        x = self.residual(x, time)
        return x if self.transformer is None else self.transformer(x, context)


class UNet(nn.Module):
    """Levels down, the middle, levels up with what the way down has kept; 860 million parameters."""

    def __init__(self, channels: tuple[int, ...], heads: int) -> None:
        super().__init__()
        first, time = channels[0], 4 * channels[0]
        self.time = nn.Sequential(nn.Linear(first, time), nn.SiLU(), nn.Linear(time, time))
        self.into = nn.Conv2d(4, first, 3, 1, 1)
        self.down, self.smaller = nn.ModuleList(), nn.ModuleList()
        width, kept = first, [first]
        for level, out in enumerate(channels):
            lowest = level == len(channels) - 1
            for _ in range(LAYERS):
                self.down.append(Block(width, out, time, 0 if lowest else heads))
                width = out
                kept.append(out)
            if not lowest:
                self.smaller.append(nn.Conv2d(out, out, 3, 2, 1))
                kept.append(out)
        self.middle = nn.ModuleList([Block(width, width, time, heads), Block(width, width, time, 0)])
        self.up, self.larger = nn.ModuleList(), nn.ModuleList()
        for level, out in reversed(list(enumerate(channels))):
            for _ in range(LAYERS + 1):
                lowest = level == len(channels) - 1
                self.up.append(Block(width + kept.pop(), out, time, 0 if lowest else heads))
                width = out
            if level:
                self.larger.append(nn.Conv2d(out, out, 3, 1, 1))
        self.norm, self.out = nn.GroupNorm(32, first), nn.Conv2d(first, 4, 3, 1, 1)

    def forward(self, x: Tensor, when: Tensor, context: Tensor) -> Tensor:
        half = self.time[0].in_features // 2
        steps = torch.arange(half, device=x.device, dtype=torch.float32)
        angles = when[:, None].float() * torch.exp(-math.log(10_000) * steps / half)
        time = self.time(torch.cat([angles.cos(), angles.sin()], dim=-1).to(x.dtype))
        x = self.into(x)
        kept = [x]
        for at, block in enumerate(self.down):
            x = block(x, time, context)
            kept.append(x)
            level, last = divmod(at, LAYERS)
            if last == LAYERS - 1 and level < len(self.smaller):
                x = self.smaller[level](x)
                kept.append(x)
        for block in self.middle:
            x = block(x, time, context)
        for at, block in enumerate(self.up):
            x = block(torch.cat([x, kept.pop()], dim=1), time, context)
            level, last = divmod(at, LAYERS + 1)
            if last == LAYERS and level < len(self.larger):
                x = self.larger[level](F.interpolate(x, scale_factor=2.0, mode="nearest"))
        return self.out(F.silu(self.norm(x)))
