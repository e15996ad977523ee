"""Models, layers and optimizers of timm, from their configurations with random weights."""

import torch

from ..case import Group
from .models import built, without_gradients
from .values import rand

group = Group()


def model_of(device, name, **options):
    import timm

    return built(device, lambda: timm.create_model(name, pretrained=False, num_classes=5, **options))


SMALL = {"embed_dim": 16, "depth": 2, "num_heads": 2}


@group.library(needs="timm")
def vit_of_timm(device):
    model = model_of(device, "vit_tiny_patch16_224", img_size=32, patch_size=8, **SMALL)
    return without_gradients(model), (rand(device, 1, 3, 32, 32),)


@group.library(needs="timm")
def vit_of_dynamic_image_size(device):
    model = model_of(
        device, "vit_tiny_patch16_224", img_size=32, patch_size=8, dynamic_img_size=True, **SMALL
    )
    return without_gradients(model), (rand(device, 1, 3, 48, 40),)


@group.library(needs="timm")
def vit_that_drops_patches(device):
    from timm.models import VisionTransformer

    torch.manual_seed(0)
    model = VisionTransformer(32, 8, num_classes=5, patch_drop_rate=0.5, drop_path_rate=0.2, **SMALL)
    return model.to(device).train(), (rand(device, 2, 3, 32, 32),)


@group.library(needs="timm")
def swin_of_timm(device):
    from timm.models import SwinTransformer

    def make():
        return SwinTransformer(
            32, 4, num_classes=5, embed_dim=16, depths=(2, 1), num_heads=(2, 4), window_size=4
        )

    return without_gradients(built(device, make)), (rand(device, 1, 3, 32, 32),)


@group.library(needs="timm")
def swin_second_version_of_timm(device):
    from timm.models import SwinTransformerV2

    def make():
        return SwinTransformerV2(
            32, 4, num_classes=5, embed_dim=16, depths=(2, 1), num_heads=(2, 4), window_size=4
        )

    return without_gradients(built(device, make)), (rand(device, 1, 3, 32, 32),)


@group.library(needs="timm")
def convnext_of_timm(device):
    model = model_of(device, "convnext_atto", depths=(1, 1, 1, 1), dims=(8, 8, 16, 16))
    return without_gradients(model), (rand(device, 1, 3, 64, 64),)


@group.library(needs="timm")
def efficientnet_of_timm(device):
    return without_gradients(model_of(device, "efficientnet_lite0")), (rand(device, 1, 3, 32, 32),)


@group.library(needs="timm")
def network_without_normalisation(device):
    return without_gradients(model_of(device, "nf_regnet_b0")), (rand(device, 1, 3, 32, 32),)


@group.library(needs="timm")
def resnet_with_drop_path(device):
    import timm

    torch.manual_seed(0)
    model = timm.create_model("resnet10t", num_classes=5, drop_path_rate=0.2, drop_rate=0.1)
    return model.to(device).train(), (rand(device, 2, 3, 32, 32),)


@group.library(needs="timm")
def beit_with_relative_positions(device):
    from timm.models import Beit

    def make():
        return Beit(32, 8, num_classes=5, use_abs_pos_emb=False, use_rel_pos_bias=True, **SMALL)

    return without_gradients(built(device, make)), (rand(device, 1, 3, 32, 32),)


@group.library(needs="timm")
def levit_with_cached_biases(device):
    return without_gradients(model_of(device, "levit_128s")), (rand(device, 1, 3, 224, 224),)


@group.library(needs="timm")
def eva_with_rotary_positions(device):
    from timm.models import Eva

    def make():
        return Eva(32, 8, num_classes=5, use_rot_pos_emb=True, **SMALL)

    return without_gradients(built(device, make)), (rand(device, 1, 3, 32, 32),)


@group.library(needs="timm")
def eva_of_dynamic_image_size(device):
    from timm.models import Eva

    def make():
        return Eva(32, 8, num_classes=5, use_rot_pos_emb=True, dynamic_img_size=True, **SMALL)

    return without_gradients(built(device, make)), (rand(device, 1, 3, 48, 40),)


@group.library(needs="timm")
def maxvit_of_timm(device):
    from timm.models.maxxvit import MaxxVit, MaxxVitCfg, MaxxVitTransformerCfg

    def make():
        config = MaxxVitCfg((8, 16), (1, 1), ("M", "M"), 8, transformer_cfg=MaxxVitTransformerCfg(8))
        return MaxxVit(config, (64, 64), num_classes=5)

    return without_gradients(built(device, make)), (rand(device, 1, 3, 64, 64),)


@group.library(needs="timm")
def xcit_of_timm(device):
    from timm.models import Xcit

    def make():
        return Xcit(32, 8, num_classes=5, **SMALL)

    return without_gradients(built(device, make)), (rand(device, 1, 3, 32, 32),)


@group.library(needs="timm")
def naflexvit_of_timm(device):
    from timm.models.naflexvit import NaFlexVit, NaFlexVitCfg

    def make():
        return NaFlexVit(NaFlexVitCfg(patch_size=8, **SMALL), num_classes=5)

    return without_gradients(built(device, make)), (rand(device, 1, 3, 32, 32),)


@group.library(
    wrong=(
        ("timm/data/mixup.py", "if self.mixup_enabled and np.random.rand() < self.mix_prob:"),
        ("timm/data/mixup.py", "lam_mix = np.random.beta(self.mixup_alpha, self.mixup_alpha)"),
        ("timm/data/mixup.py", "x_flipped = x.flip(0).mul_(1. - lam)"),
        ("timm/data/mixup.py", "x.mul_(lam).add_(x_flipped)"),
        ("timm/data/mixup.py", "return y1 * lam + y2 * (1. - lam)"),
    ),
    needs="timm",
)
def mixed_batch(device):
    from timm.data import Mixup

    mixup = Mixup(mixup_alpha=0.8, num_classes=5)

    def fn(x, target):
        return mixup(x, target)

    return fn, (rand(device, 4, 3, 8, 8), torch.tensor([0, 1, 2, 3], device=device))


@group.library(
    wrong=(
        ("timm/data/random_erasing.py", "img[:, top:top + h, left:left + w] = _get_pixels("),
        (
            "timm/data/random_erasing.py",
            "return torch.empty(patch_size, dtype=dtype, device=device).normal_()",
        ),
        ("timm/data/random_erasing.py", "if random.random() > self.probability:"),
        (
            "timm/data/random_erasing.py",
            "target_area = random.uniform(self.min_area, self.max_area) * area / count",
        ),
        ("timm/data/random_erasing.py", "aspect_ratio = math.exp(random.uniform(*self.log_aspect_ratio))"),
        ("timm/data/random_erasing.py", "top = random.randint(0, img_h - h)"),
        ("timm/data/random_erasing.py", "left = random.randint(0, img_w - w)"),
    ),
    needs="timm",
)
def pixels_erased_at_random(device):
    from timm.data.random_erasing import RandomErasing

    erase = RandomErasing(probability=1.0, mode="pixel", device=torch.device(device))
    return lambda x: erase(x.clone()), (rand(device, 2, 3, 16, 16),)


@group.library(needs="timm")
def average_of_a_model(device):
    from timm.utils import ModelEmaV3

    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4).to(device)
    average = ModelEmaV3(model, decay=0.9)

    def fn(x):
        with torch.no_grad():
            model.weight.mul_(0.99)
            average.update(model)
            return average.module(x)

    return fn, (rand(device, 2, 4),)


@group.library(
    wrong=(
        ("timm/optim/lamb.py", "group['step'].add_(1)"),
        ("timm/optim/lamb.py", "update = (exp_avg / bias_correction1).div_(denom)"),
        ("timm/optim/lamb.py", "denom = (exp_avg_sq.sqrt() / (bias_correction2 ** 0.5)).add_(eps)"),
    ),
    needs="timm",
)
def step_of_lamb(device):
    from timm.optim import Lamb

    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4).to(device)
    optimizer = Lamb(model.parameters(), lr=0.1)

    def fn(x):
        optimizer.zero_grad(set_to_none=False)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach(), model.weight * 1

    return fn, (rand(device, 8, 4),)


@group.library(needs="timm")
def gradients_clipped_adaptively(device):
    from timm.utils import adaptive_clip_grad

    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4).to(device)

    def fn(x):
        model.zero_grad(set_to_none=False)
        loss = model(x).square().mean()
        loss.backward()
        adaptive_clip_grad(model.parameters(), 0.01)
        return loss.detach(), model.weight.grad * 1

    return fn, (rand(device, 8, 4),)


@group.library(needs="timm")
def accuracy_of_timm(device):
    from timm.utils import accuracy

    def fn(logits, target):
        return accuracy(logits, target, topk=(1, 2))

    return fn, (rand(device, 4, 5), torch.tensor([0, 1, 2, 3], device=device))
