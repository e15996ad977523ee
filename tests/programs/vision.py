"""Models and operators of torchvision and timm."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .program import Made, batches, frozen, normal, program, trained

NEEDED = ("torchvision", "timm")


def labelled(device: torch.device, classes: int, *shape: int) -> tuple[Tensor, Tensor]:
    """Images and classes of them."""
    return normal(device, *shape), torch.randint(0, classes, shape[:1], device=device)


@program(needs=NEEDED)
def resnet_trained(device: torch.device) -> Made:
    """A ResNet with SGD and momentum."""
    from torchvision.models import ResNet
    from torchvision.models.resnet import BasicBlock

    model = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=10).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return trained(
        model,
        lambda: labelled(device, 10, 4, 3, 32, 32),
        lambda x, y: F.cross_entropy(model(x), y),
        optimizer,
    )


@program(needs=NEEDED)
def mobile_network(device: torch.device) -> Made:
    """The scores of a MobileNet."""
    from torchvision.models import mobilenet_v3_small

    return Made(frozen(mobilenet_v3_small().to(device).eval()), batches(device, (2, 3, 64, 64)))


@program(needs=NEEDED)
def swin(device: torch.device) -> Made:
    """A Swin transformer, whose windows are shifted."""
    from torchvision.models import SwinTransformer

    model = SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=5).to(device).eval()
    return Made(frozen(model), batches(device, (1, 3, 64, 64)))


@program(needs=NEEDED, replays=None)
def regions_of_boxes(device: torch.device) -> Made:
    """Boxes that do not overlap, and what an image shows in them."""
    from torchvision import ops

    @torch.no_grad()
    def regions(x: Tensor, boxes: Tensor, scores: Tensor) -> Tensor:
        boxes = torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:].abs() + 1], 1)
        kept = ops.nms(boxes, scores, 0.5)[:5]
        return ops.roi_align(x, [boxes[kept]], 4)

    return Made(
        regions,
        lambda: (normal(device, 1, 3, 32, 32), torch.rand(30, 4, device=device) * 20, normal(device, 30)),
    )


@program(needs=NEEDED, replays=False, code="RT132", gpu_alone=True)
def deformed_convolution(device: torch.device) -> Made:
    """A convolution whose places are moved; a build for the host need not have it."""
    from torchvision import ops

    weight = normal(device, 4, 3, 3, 3)
    return Made(
        frozen(lambda x, offset: ops.deform_conv2d(x, offset, weight)),
        batches(device, (1, 3, 10, 10), (1, 18, 8, 8)),
    )


@program(needs=NEEDED, replays=False, code="RT307")
def augmented(device: torch.device) -> Made:
    """Images are flipped and coloured at random."""
    from torchvision.transforms import v2

    augment = v2.Compose(
        [v2.RandomHorizontalFlip(), v2.ColorJitter(0.2, 0.2), v2.Normalize([0.5] * 3, [0.5] * 3)]
    )
    return Made(frozen(augment), lambda: (torch.rand(2, 3, 16, 16, device=device),))


@program(needs=NEEDED, tolerance=1e-2)
def vision_transformer_trained(device: torch.device) -> Made:
    """A vision transformer of timm with AdamW."""
    import timm

    model = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2, num_classes=5)
    model = model.to(device)
    return trained(
        model, lambda: labelled(device, 5, 2, 3, 32, 32), lambda x, y: F.cross_entropy(model(x), y)
    )


@program(needs=NEEDED)
def images_of_two_sizes(device: torch.device) -> Made:
    """A ConvNeXt of timm that is given images of two sizes in turn."""
    from timm.models.convnext import ConvNeXt

    model = ConvNeXt(depths=(1, 1, 1, 1), dims=(8, 8, 16, 16), num_classes=5)
    model, kept = model.to(device).eval(), {"calls": 0}

    def inputs() -> tuple[Tensor]:
        kept["calls"] += 1
        side = 32 if kept["calls"] % 2 else 48
        return (normal(device, 1, 3, side, side),)

    return Made(frozen(model), inputs)
