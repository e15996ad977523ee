"""Types of numbers: mixed precision, halves, eight bits, and the settings of products."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right

from .program import Made, batches, frozen, mean_square, mlp, normal, program, step_of, trained


@program()
def autocast_forward(device: torch.device) -> Made:
    """A forward in mixed precision."""
    model = mlp(device)

    @torch.no_grad()
    def forward(x: Tensor) -> Tensor:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            return model(x)

    return Made(forward, batches(device))


def scaled_product(device: torch.device) -> type[torch.autograd.Function]:
    """A product that is calculated in full precision, whatever is around it."""

    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type=device.type, cast_inputs=torch.float32)
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        @torch.amp.custom_bwd(device_type=device.type)
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, w = ctx.saved_tensors
            return grad @ w.T, x.T @ grad

    return Product


@program()
def function_with_casts(device: torch.device) -> Made:
    """A function of one's own says its precision, in a training step of another one."""
    product, weight = scaled_product(device), nn.Parameter(normal(device, 64, 64))
    optimizer = torch.optim.SGD([weight], lr=1e-6)

    def loss_of(x: Tensor) -> Tensor:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            return mean_square((product.apply(x, weight) @ weight).float())

    return Made(step_of(loss_of, optimizer), batches(device), (weight, optimizer))


@program()
def trained_in_halves(device: torch.device) -> Made:
    """A model of bfloat16, trained with gradients that are clipped by value."""
    model = mlp(device).bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = step_of(
        lambda x: mean_square(model(x.bfloat16()).float()),
        optimizer,
        between=lambda: nn.utils.clip_grad_value_(model.parameters(), 0.1),
    )
    return Made(step, batches(device), (model, optimizer))


@program()
def volumes_in_halves(device: torch.device) -> Made:
    """Convolutions of volumes in half precision, with statistics that are kept."""
    model = nn.Sequential(nn.Conv3d(2, 4, 3), nn.BatchNorm3d(4), nn.MaxPool3d(2)).to(device).half()
    return Made(lambda x: model(x.half()).float().detach(), batches(device, (2, 2, 8, 8, 8)), (model,))


@program(gpu_alone=True)
def product_of_eight_bit_floats(device: torch.device) -> Made:
    """A scaled product of float8."""
    weight = normal(device, 64, 64).to(torch.float8_e4m3fn).t()
    one = torch.ones((), device=device)

    def product(x: Tensor) -> Tensor:
        small = x.to(torch.float8_e4m3fn)
        return torch._scaled_mm(small, weight, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

    return Made(product, batches(device, (16, 64)))


@program()
def product_of_eight_bit_integers(device: torch.device) -> Made:
    """A product of int8."""
    weight = torch.randint(-128, 127, (64, 64), device=device, dtype=torch.int8)
    return Made(lambda x: torch._int_mm((x * 10).to(torch.int8), weight), batches(device, (32, 64)))


@program()
def two_values_in_a_byte(device: torch.device) -> Made:
    """Values of four bits are packed, two in a byte, and unpacked."""

    def pack(x: Tensor) -> tuple[Tensor, Tensor]:
        small = ((x.clamp(-1, 1) + 1) * 7.5).to(torch.uint8)
        packed = small[:, ::2] | (small[:, 1::2] << 4)
        return packed, (packed & 15).float() / 7.5 - 1

    return Made(pack, batches(device))


@program(gpu_alone=True)
def tensor_cores_allowed(device: torch.device) -> Made:
    """The call allows TF32 and puts the setting back."""
    model, settings = mlp(device), torch.backends.cuda.matmul

    @torch.no_grad()
    def forward(x: Tensor) -> Tensor:
        before, settings.allow_tf32 = settings.allow_tf32, True
        try:
            return model(x)
        finally:
            settings.allow_tf32 = before

    return Made(forward, batches(device))


@program()
def flags_of_cudnn(device: torch.device) -> Made:
    """A convolution within flags of cuDNN."""
    layer = nn.Conv2d(3, 16, 3).to(device)

    @torch.no_grad()
    def forward(x: Tensor) -> Tensor:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
            return layer(x)

    return Made(forward, batches(device, (4, 3, 32, 32)))


def heads(device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values."""
    query, key, value = (torch.randn(2, 4, 64, 64, device=device, dtype=dtype) for _ in range(3))
    return query, key, value


@program()
def attention_by_flash(device: torch.device) -> Made:
    """Attention by a backend that is named."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    return Made(attend, lambda: heads(device, torch.bfloat16))


@program()
def attention_by_one_of_two(device: torch.device) -> Made:
    """Attention by one of two backends that are named."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel([SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION]):
            return F.scaled_dot_product_attention(q, k, v)

    return Made(attend, lambda: heads(device, torch.float32))


@program()
def attention_of_groups(device: torch.device) -> Made:
    """Attention whose queries share keys, and attention with a bias that is an object."""

    @torch.no_grad()
    def attend(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        grouped = F.scaled_dot_product_attention(q, k, k, enable_gqa=True)
        mask = causal_lower_right(q.shape[2], k.shape[2])
        return grouped, F.scaled_dot_product_attention(q[:, :2], k, k, attn_mask=mask)

    def inputs() -> tuple[Tensor, Tensor]:
        q, k = normal(device, 1, 4, 8, 16), normal(device, 1, 2, 16, 16)
        return q.bfloat16(), k.bfloat16()

    return Made(attend, inputs)


@program()
def channels_last(device: torch.device) -> Made:
    """Convolutions over images whose channels come last in memory."""
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3))
    model = model.to(device).to(memory_format=torch.channels_last).eval()
    return Made(
        frozen(lambda x: model(x.to(memory_format=torch.channels_last)).mean((2, 3))),
        batches(device, (4, 3, 32, 32)),
    )


@program()
def frames_of_bytes(device: torch.device) -> Made:
    """Frames of bytes are scaled to another size and to small numbers."""

    def prepare(frames: Tensor) -> Tensor:
        x = frames.float().div_(255).permute(0, 3, 1, 2)
        return F.interpolate(x, (32, 32), mode="bilinear", antialias=True).sub_(0.5)

    return Made(prepare, lambda: (torch.randint(0, 255, (2, 64, 64, 3), device=device, dtype=torch.uint8),))


@program()
def doubles_in_the_middle(device: torch.device) -> Made:
    """A model whose head calculates in double precision, trained with plain gradients."""
    model, head = mlp(device), nn.Linear(64, 1, dtype=torch.float64, device=device)
    both = nn.ModuleList([model, head])
    return trained(both, batches(device), lambda x: mean_square(head(model(x).double())).float())
