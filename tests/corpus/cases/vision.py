"""Operators, models and transforms of torchvision, from their configurations with random weights."""

import torch

from ..case import Group
from .models import built, without_gradients
from .values import rand

group = Group()
CLASSES = {"weights": None, "weights_backbone": None, "num_classes": 5}

BOXES, DETECTION = "torchvision/ops/boxes.py", "torchvision/models/detection/"
RAFT = "torchvision/models/optical_flow/raft.py"
SUPPRESSED = (BOXES, "return torch.ops.torchvision.nms(boxes, scores, iou_threshold)")
BY_CLASS = (
    SUPPRESSED,
    (BOXES, "offsets = idxs.to(boxes) * (max_coordinate + torch.tensor(1).to(boxes))"),
)
RESIZED = (
    (DETECTION + "transform.py", "mean = torch.as_tensor(self.image_mean, dtype=dtype, device=device)"),
    (DETECTION + "transform.py", "std = torch.as_tensor(self.image_std, dtype=dtype, device=device)"),
    (DETECTION + "transform.py", "torch.tensor(s, dtype=torch.float32, device=boxes.device)"),
    (DETECTION + "transform.py", "/ torch.tensor(s_orig, dtype=torch.float32, device=boxes.device)"),
)
DECODED = (
    (
        DETECTION + "_utils.py",
        "c_to_c_h = torch.tensor(0.5, dtype=pred_ctr_y.dtype, device=pred_h.device) * pred_h",
    ),
    (
        DETECTION + "_utils.py",
        "c_to_c_w = torch.tensor(0.5, dtype=pred_ctr_x.dtype, device=pred_w.device) * pred_w",
    ),
)


def boxes(device, count=12):
    corners = rand("cpu", count, 2).abs() * 20
    return torch.cat([corners, corners + 8], 1).to(device)


def scene(device):
    return [rand(device, 3, 48, 64).sigmoid()]


@group.library(needs="torchvision")
def resnet_of_torchvision(device):
    from torchvision.models import resnet18

    return without_gradients(built(device, lambda: resnet18(num_classes=5))), (rand(device, 1, 3, 32, 32),)


@group.library(needs="torchvision")
def resnet_trained(device):
    from torchvision.models.resnet import BasicBlock, ResNet

    torch.manual_seed(0)
    model = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=5).to(device).train()
    target = torch.tensor([1, 3], device=device)

    def fn(x):
        for parameter in model.parameters():
            parameter.grad = None
        loss = torch.nn.functional.cross_entropy(model(x), target)
        loss.backward()
        return loss.detach(), model.fc.weight.grad

    return fn, (rand(device, 2, 3, 32, 32),)


@group.library(needs="torchvision")
def mobilenet_in_training(device):
    from torchvision.models import mobilenet_v3_small

    torch.manual_seed(0)
    return mobilenet_v3_small(num_classes=5).to(device).train(), (rand(device, 2, 3, 64, 64),)


@group.library(needs="torchvision")
def stochastic_depth_of_torchvision(device):
    from torchvision.ops import StochasticDepth

    depth = StochasticDepth(0.5, "row").train()
    return lambda x: x + depth(x * 2), (rand(device, 8, 4),)


@group.library(needs="torchvision")
def swin_of_torchvision(device):
    from torchvision.models.swin_transformer import SwinTransformer

    def make():
        return SwinTransformer([4, 4], 16, [1, 1], [2, 4], [4, 4], num_classes=5)

    return without_gradients(built(device, make)), (rand(device, 1, 3, 64, 64),)


@group.library(needs="torchvision")
def swin_second_version(device):
    from torchvision.models.swin_transformer import PatchMergingV2, SwinTransformer, SwinTransformerBlockV2

    def make():
        return SwinTransformer(
            [4, 4], 16, [2, 1], [2, 4], [4, 4], num_classes=5,
            block=SwinTransformerBlockV2, downsample_layer=PatchMergingV2,
        )  # fmt: skip

    return without_gradients(built(device, make)), (rand(device, 1, 3, 64, 64),)


@group.library(needs="torchvision")
def vision_transformer_of_torchvision(device):
    from torchvision.models import VisionTransformer

    def make():
        return VisionTransformer(32, 8, 2, 2, 16, 32, num_classes=5)

    return without_gradients(built(device, make)), (rand(device, 1, 3, 32, 32),)


@group.library(needs="torchvision")
def maxvit_of_torchvision(device):
    from torchvision.models import MaxVit

    def make():
        return MaxVit((64, 64), 8, 4, [8, 16], [1, 1], 8, 0.1, num_classes=5)

    return without_gradients(built(device, make)), (rand(device, 1, 3, 64, 64),)


@group.library(needs="torchvision")
def segmentation_of_torchvision(device):
    from torchvision.models.segmentation import lraspp_mobilenet_v3_large

    model = built(device, lambda: lraspp_mobilenet_v3_large(**CLASSES))
    return without_gradients(model), (rand(device, 1, 3, 64, 64),)


@group.library(
    (RAFT, "coords0 = make_coords_grid(batch_size, h // 8, w // 8).to(fmap1.device)"),
    (RAFT, "coords1 = make_coords_grid(batch_size, h // 8, w // 8).to(fmap1.device)"),
    (
        RAFT,
        'delta = torch.stack(torch.meshgrid(di, dj, indexing="ij"), dim=-1).to(centroids_coords.device)',
    ),
    needs="torchvision",
)
def optical_flow(device):
    from torchvision.models.optical_flow import raft_small

    model = built(device, raft_small)

    def fn(first, second):
        with torch.no_grad():
            return model(first, second, num_flow_updates=2)[-1]

    return fn, (rand(device, 1, 3, 128, 128), rand(device, 1, 3, 128, 128, seed=1))


@group.library(needs="torchvision")
def video_network(device):
    from torchvision.models.video import r3d_18

    model = built(device, lambda: r3d_18(num_classes=5))
    return without_gradients(model), (rand(device, 1, 3, 4, 32, 32),)


@group.library(
    SUPPRESSED,
    needs="torchvision",
)
def boxes_suppressed(device):
    from torchvision.ops import nms

    def fn(boxes, scores):
        keep = nms(boxes, scores, 0.5)
        return boxes[keep].sum(0)

    return fn, (boxes(device), rand(device, 12, seed=1).sigmoid())


@group.library(
    *BY_CLASS,
    needs="torchvision",
)
def boxes_suppressed_by_class(device):
    from torchvision.ops import batched_nms

    def fn(boxes, scores, labels):
        return batched_nms(boxes, scores, labels, 0.5)

    labels = torch.arange(12, device=device) % 3
    return fn, (boxes(device), rand(device, 12, seed=1).sigmoid(), labels)


@group.library(
    (BOXES, "keep = torch.where(keep)[0]"),
    needs="torchvision",
)
def small_boxes_removed(device):
    from torchvision.ops import remove_small_boxes

    def fn(boxes):
        return remove_small_boxes(boxes, 1.0).shape[0] * boxes

    return fn, (boxes(device),)


@group.library(needs="torchvision")
def regions_pooled(device):
    from torchvision.ops import roi_align

    def fn(features, boxes):
        return roi_align(features, [boxes], 2, spatial_scale=0.25)

    return fn, (rand(device, 1, 4, 16, 16), boxes(device))


@group.library(
    (
        "torchvision/ops/_utils.py",
        "intsctk[mask] = (xkis2[mask] - xkis1[mask]) * (ykis2[mask] - ykis1[mask])",
    ),
    needs="torchvision",
)
def boxes_compared(device):
    from torchvision.ops import clip_boxes_to_image, generalized_box_iou_loss, sigmoid_focal_loss

    def fn(boxes, logits):
        target = clip_boxes_to_image(boxes, (24, 24))
        return generalized_box_iou_loss(boxes, target).sum(), sigmoid_focal_loss(logits, logits.sigmoid())

    return fn, (boxes(device), rand(device, 12))


@group.library(needs="torchvision")
def boxes_around_masks(device):
    from torchvision.ops import masks_to_boxes

    return lambda masks: masks_to_boxes(masks > 0), (rand(device, 3, 8, 8),)


@group.library(
    *BY_CLASS,
    *RESIZED,
    *DECODED,
    (BOXES, "keep = torch.where(keep)[0]"),
    (DETECTION + "rpn.py", "keep = torch.where(scores >= self.score_thresh)[0]"),
    (DETECTION + "roi_heads.py", "inds = torch.where(scores > self.score_thresh)[0]"),
    ("torchvision/ops/poolers.py", "idx_in_level = torch.where(levels == level)[0]"),
    needs="torchvision",
)
def detection_by_regions(device):
    from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn

    model = built(device, lambda: fasterrcnn_mobilenet_v3_large_320_fpn(**CLASSES, min_size=64, max_size=96))
    return without_gradients(model), (scene(device),)


@group.library(
    *BY_CLASS,
    *RESIZED,
    *DECODED,
    (DETECTION + "anchor_utils.py", "default_boxes = default_boxes.to(device)"),
    (
        DETECTION + "anchor_utils.py",
        "x_y_size = torch.tensor([image_size[1], image_size[0]], device=default_boxes.device)",
    ),
    (DETECTION + "ssd.py", "score = score[keep_idxs]"),
    (DETECTION + "ssd.py", "box = boxes[keep_idxs]"),
    needs="torchvision",
)
def detection_of_one_stage(device):
    from torchvision.models.detection import ssdlite320_mobilenet_v3_large

    model = built(device, lambda: ssdlite320_mobilenet_v3_large(**CLASSES))
    return without_gradients(model), (scene(device),)


@group.library(
    *BY_CLASS,
    *RESIZED,
    *DECODED,
    (DETECTION + "retinanet.py", "scores_per_level = scores_per_level[keep_idxs]"),
    (DETECTION + "retinanet.py", "topk_idxs = torch.where(keep_idxs)[0]"),
    needs="torchvision",
)
def detection_with_focal_loss(device):
    from torchvision.models.detection import RetinaNet
    from torchvision.models.detection.anchor_utils import AnchorGenerator

    def make():
        backbone = torch.nn.Conv2d(3, 16, 3, 8, 1)
        backbone.out_channels = 16
        anchors = AnchorGenerator(((8, 16),), ((1.0,),))
        return RetinaNet(backbone, 5, min_size=64, max_size=96, anchor_generator=anchors, score_thresh=0.0)

    return without_gradients(built(device, make)), (scene(device),)


@group.library(
    (
        "torchvision/transforms/v2/functional/_misc.py",
        "mean = torch.as_tensor(mean, dtype=dtype, device=device)",
    ),
    (
        "torchvision/transforms/v2/functional/_misc.py",
        "std = torch.as_tensor(std, dtype=dtype, device=device)",
    ),
    needs="torchvision",
)
def images_normalised(device):
    from torchvision.transforms import v2

    change = v2.Compose([v2.Resize([16, 16]), v2.Normalize([0.5] * 3, [0.5] * 3)])
    return lambda x: change(x), (rand(device, 2, 3, 32, 32),)


@group.library(
    wrong=(
        (
            "torchvision/transforms/v2/functional/_geometry.py",
            "return image[..., top:bottom, left:right]",
        ),
        (
            "torchvision/transforms/v2/_geometry.py",
            "(True, int(torch.randint(0, padded_height - cropped_height + 1, size=())))",
        ),
        (
            "torchvision/transforms/v2/_geometry.py",
            "(True, int(torch.randint(0, padded_width - cropped_width + 1, size=())))",
        ),
    ),
    needs="torchvision",
)
def images_cropped_at_random(device):
    from torchvision.transforms import v2

    crop = v2.RandomCrop(16)
    return lambda x: crop(x), (rand(device, 2, 3, 32, 32),)


@group.library(
    wrong=(
        ("torchvision/transforms/v2/functional/_geometry.py", "return image.flip(-1)"),
        ("torchvision/transforms/v2/_transform.py", "if torch.rand(1) >= self.p:"),
    ),
    needs="torchvision",
)
def images_flipped_at_random(device):
    from torchvision.transforms import v2

    flip = v2.RandomHorizontalFlip(0.5)
    return lambda x: flip(x), (rand(device, 2, 3, 32, 32),)
