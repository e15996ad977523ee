"""Image classification at batch 1: ResNet-50 and MobileNetV2, layer by layer as published."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .place import frozen, place


def resnet50(small: bool = False, device: str | None = None) -> Any:
    """One image of 224 x 224 pixels through ResNet-50."""
    return _classify(ResNet, small, device)


def mobilenet(small: bool = False, device: str | None = None) -> Any:
    """One image of 224 x 224 pixels through MobileNetV2."""
    return _classify(mobilenet_v2, small, device)


def _classify(make: Callable[[], nn.Module], small: bool, device: str | None) -> Any:
    at = place(device, small, torch.float16)
    model = make()
    side = 64 if small else 224
    image = at.randn(1, 3, side, side).to(memory_format=torch.channels_last)
    return frozen(model, at).to(memory_format=torch.channels_last), (image,), {}


def convolution(channels: int, out: int, size: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """A convolution without bias and its normalisation."""
    layer = nn.Conv2d(channels, out, size, stride, size // 2, groups=groups, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return [layer, nn.BatchNorm2d(out)]


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3, 1 x 1, with a shortcut; the stride in the middle, as in torchvision."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(
            *convolution(channels, width, 1),
            nn.ReLU(inplace=True),
            *convolution(width, width, 3, stride),
            nn.ReLU(inplace=True),
            *convolution(width, out, 1),
        )
        changes = stride != 1 or channels != out
        self.shortcut = nn.Sequential(*convolution(channels, out, 1, stride)) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return (self.body(x) + self.shortcut(x)).relu_()


class Trunk(nn.Module):
    """ResNet-50 up to its last feature map; gives those of all four stages."""

    def __init__(self) -> None:
        super().__init__()
        stem = [*convolution(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        self.stem = nn.Sequential(*stem)
        stages: list[nn.Module] = []
        channels = 64
        for stage, blocks in enumerate((3, 4, 6, 3)):
            layers: list[nn.Module] = []
            for block in range(blocks):
                stride = 2 if stage and not block else 1
                layers.append(Bottleneck(channels, 64 << stage, stride))
                channels = 256 << stage
            stages.append(nn.Sequential(*layers))
        self.stages = nn.ModuleList(stages)

    def forward(self, x: Tensor) -> list[Tensor]:
        x = self.stem(x)
        return [x := stage(x) for stage in self.stages]


class ResNet(nn.Module):
    """ResNet-50, 25.6 million parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = Trunk()
        self.classify = nn.Linear(2048, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.trunk(x)[-1].mean((2, 3)))


class Inverted(nn.Module):
    """MobileNetV2's block: expand, filter each channel, project."""

    def __init__(self, channels: int, out: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = channels * expand
        first = [*convolution(channels, hidden, 1), nn.ReLU6(inplace=True)] if expand != 1 else []
        middle = [*convolution(hidden, hidden, 3, stride, groups=hidden), nn.ReLU6(inplace=True)]
        self.body = nn.Sequential(*first, *middle, *convolution(hidden, out, 1))
        self.adds = stride == 1 and channels == out

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.adds else self.body(x)


def mobilenet_v2() -> nn.Module:
    """MobileNetV2, 3.5 million parameters."""
    layers: list[nn.Module] = [*convolution(3, 32, 3, 2), nn.ReLU6(inplace=True)]
    channels = 32
    stages = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    for expand, out, blocks, stride in stages:
        for block in range(blocks):
            layers.append(Inverted(channels, out, 1 if block else stride, expand))
            channels = out
    last = [*convolution(channels, 1280, 1), nn.ReLU6(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, *last, nn.Dropout(0.2), nn.Linear(1280, 1000))
