"""Further libraries, and kernels of Triton, numba and cupy that work on the tensors of a call."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from .program import Made, batches, frozen, mean_square, mlp, normal, program, trained

LIGER, FLA = ("liger_kernel",), ("fla",)


@program(needs=("scipy",), replays=False, code="RT218")
def pairs_by_the_hungarian_method(device: torch.device) -> Made:
    """Costs go to scipy, which pairs rows and columns."""
    from scipy.optimize import linear_sum_assignment

    layer = nn.Linear(8, 8).to(device)

    @torch.no_grad()
    def match(x: Tensor) -> Tensor:
        costs = torch.cdist(layer(x), x)
        rows, columns = linear_sum_assignment(costs.cpu().numpy())
        return costs[torch.as_tensor(rows, device=device), torch.as_tensor(columns, device=device)].sum()

    return Made(match, batches(device, (6, 8)))


@program(needs=("scipy",), replays=False, code="RT218")
def actions_smoothed_by_scipy(device: torch.device) -> Made:
    """Actions are smoothed over time by a filter of scipy."""
    from scipy.ndimage import gaussian_filter1d

    model = mlp(device)

    @torch.no_grad()
    def act(x: Tensor) -> Tensor:
        return torch.from_numpy(gaussian_filter1d(model(x).cpu().numpy(), 1.0, axis=0)).to(device)

    return Made(act, batches(device))


@program(needs=("torchmetrics",))
def metric_of_images(device: torch.device) -> Made:
    """How alike images are, added up over all calls."""
    import torchmetrics

    metric = torchmetrics.image.StructuralSimilarityIndexMeasure(data_range=1.0).to(device)

    def measure(a: Tensor, b: Tensor) -> Tensor:
        metric.update(a, b)
        return metric.compute()

    image = (1, 3, 16, 16)
    return Made(measure, lambda: (torch.rand(image, device=device), torch.rand(image, device=device)))


@program(needs=("torchaudio",), on_gpu=False)
def sound_filtered(device: torch.device) -> Made:
    """A filter over sound, and another rate."""
    from torchaudio import functional

    @torch.no_grad()
    def change(x: Tensor) -> tuple[Tensor, Tensor]:
        back, forth = torch.tensor([1.0, 0.2], device=device), torch.tensor([0.5, 0.3], device=device)
        return functional.lfilter(x, back, forth, clamp=False), functional.resample(x, 16000, 8000)

    return Made(change, batches(device, (1, 800)))


@program(needs=("numba",), gpu_alone=True)
def kernel_of_numba(device: torch.device) -> Made:
    """A kernel of numba fills a tensor that PyTorch has made."""
    if not hasattr(numpy, "row_stack"):
        raise ModuleNotFoundError("a numba for this numpy, which has no row_stack")
    from numba import cuda

    @cuda.jit
    def doubled(x: Any, y: Any) -> None:
        at = cuda.grid(1)
        if at < x.shape[0]:
            y[at] = x[at] * 2 + 1

    def forward(x: Tensor) -> Tensor:
        flat = (x * 3).flatten()
        out = torch.empty_like(flat)
        doubled[4, 128](cuda.as_cuda_array(flat), cuda.as_cuda_array(out))
        return out + 1

    return Made(forward, batches(device))


@program(needs=("cupy",), replays=False, code="RT218", gpu_alone=True)
def functions_of_cupy(device: torch.device) -> Made:
    """A tensor goes to cupy and comes back, both by DLPack."""
    import cupy

    def forward(x: Tensor) -> Tensor:
        array = cupy.from_dlpack((x * 2).detach())
        return torch.from_dlpack(cupy.tanh(array) + 1) * 3

    return Made(forward, batches(device))


@program(needs=("cupy",), replays=False, code="RT218", gpu_alone=True)
def raw_kernel_of_cupy(device: torch.device) -> Made:
    """A kernel in C, launched by cupy with the address of a tensor."""
    import cupy

    text = """extern "C" __global__ void doubled(float* x, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) x[i] = x[i] * 2;
    }"""
    kernel = cupy.RawKernel(text, "doubled")

    def forward(x: Tensor) -> Tensor:
        y = x * 2
        kernel((4,), (128,), (y.data_ptr(), y.numel()))
        return y + 1

    return Made(forward, batches(device))


def kernels_of_a_block() -> tuple[Any, Any]:
    """Kernels of Triton: a norm of rows, and a gate."""
    import triton
    import triton.language as tl

    @triton.jit
    def norm(x, weight, out, n, block: tl.constexpr):
        at = tl.arange(0, block)
        inside = at < n
        row = tl.load(x + tl.program_id(0) * n + at, inside, other=0.0).to(tl.float32)
        scaled = row * tl.rsqrt(tl.sum(row * row, 0) / n + 1e-6) * tl.load(weight + at, inside)
        tl.store(out + tl.program_id(0) * n + at, scaled.to(out.dtype.element_ty), inside)

    @triton.jit
    def gate(a, b, out, n, block: tl.constexpr):
        at = tl.program_id(0) * block + tl.arange(0, block)
        inside = at < n
        x = tl.load(a + at, inside).to(tl.float32)
        y = tl.load(b + at, inside).to(tl.float32)
        tl.store(out + at, (x * tl.sigmoid(x) * y).to(out.dtype.element_ty), inside)

    return norm, gate


class KernelBlock(nn.Module):
    """A gated network behind a norm, both by kernels of its own."""

    def __init__(self, width: int, wide: int) -> None:
        super().__init__()
        self.kernels = kernels_of_a_block()
        self.weight = nn.Parameter(torch.ones(width))
        self.up, self.gate, self.down = (
            nn.Linear(*sizes, bias=False) for sizes in ((width, wide), (width, wide), (wide, width))
        )

    def forward(self, x: Tensor) -> Tensor:
        """The block."""
        norm, gate = self.kernels
        normed = torch.empty_like(x)
        norm[(x.shape[0],)](x, self.weight, normed, x.shape[1], block=256)
        a, b = self.gate(normed), self.up(normed)
        gated = torch.empty_like(a)
        gate[lambda meta: (-(-a.numel() // meta["block"]),)](a, b, gated, a.numel(), block=1024)
        return x + self.down(gated)


@program(needs=("triton",), gpu_alone=True)
def blocks_of_triton(device: torch.device) -> Made:
    """Six blocks whose norms and gates are kernels of Triton, between products of PyTorch."""
    model = nn.Sequential(*[KernelBlock(256, 704) for _ in range(6)]).to(device).bfloat16()
    return Made(frozen(model), lambda: (normal(device, 4, 256).bfloat16(),))


class LigerBlock(nn.Module):
    """Norms and a gated network of liger's kernels."""

    def __init__(self) -> None:
        super().__init__()
        from liger_kernel.transformers import LigerLayerNorm, LigerRMSNorm, LigerSwiGLUMLP

        sizes = SimpleNamespace(hidden_size=256, intermediate_size=512, hidden_act="silu")
        self.before, self.gated, self.after = LigerRMSNorm(256), LigerSwiGLUMLP(sizes), LigerLayerNorm(256)

    def forward(self, x: Tensor) -> Tensor:
        """The block."""
        return self.after(x + self.gated(self.before(x)))


@program(needs=LIGER, gpu_alone=True)
def liger_blocks(device: torch.device) -> Made:
    """Six blocks of liger's kernels in halves."""
    model = nn.Sequential(*[LigerBlock() for _ in range(6)]).to(device).bfloat16()
    return Made(frozen(model), lambda: (normal(device, 2, 16, 256).bfloat16(),))


def sentences(device: torch.device, classes: int) -> tuple[Tensor, Tensor]:
    """Features of tokens, and the tokens that come next."""
    return normal(device, 2, 16, 256), torch.randint(0, classes, (2, 16), device=device)


@program(needs=LIGER, gpu_alone=True)
def liger_trained(device: torch.device) -> Made:
    """Blocks and the loss of liger, trained."""
    from liger_kernel.transformers import LigerCrossEntropyLoss

    model = nn.Sequential(*[LigerBlock() for _ in range(3)], nn.Linear(256, 100)).to(device)
    loss = LigerCrossEntropyLoss()
    return trained(
        model, lambda: sentences(device, 100), lambda x, y: loss(model(x).view(-1, 100), y.view(-1))
    )


@program(needs=LIGER, gpu_alone=True)
def liger_loss_with_its_layer(device: torch.device) -> Made:
    """The loss of liger that multiplies with the last layer itself."""
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    block, head = LigerBlock().to(device), nn.Linear(256, 1000, bias=False, device=device)
    model, loss = nn.ModuleList([block, head]), LigerFusedLinearCrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    return trained(
        model,
        lambda: sentences(device, 1000),
        lambda x, y: loss(head.weight, block(x).view(-1, 256), y.view(-1)),
        optimizer,
    )


@program(needs=LIGER, gpu_alone=True)
def liger_positions(device: torch.device) -> Made:
    """Liger rotates queries and keys in place."""
    from liger_kernel.transformers.rope import liger_rotary_pos_emb

    return Made(
        lambda q, k, cosine, sine: liger_rotary_pos_emb(q.clone(), k.clone(), cosine, sine),
        batches(device, (1, 4, 16, 64), (1, 2, 16, 64), (1, 16, 64), (1, 16, 64)),
    )


def linear_attention(device: torch.device, name: str, **sizes: int) -> nn.Module:
    """A layer of fla by its name."""
    from fla import layers

    return getattr(layers, name)(hidden_size=256, **sizes).to(device).bfloat16()


def linear_attention_answers(device: torch.device, name: str, **sizes: int) -> Made:
    """A layer of fla in inference."""
    layer = linear_attention(device, name, **sizes).eval()
    return Made(frozen(lambda x: layer(x)[0]), lambda: (normal(device, 2, 64, 256).bfloat16(),))


@program(needs=FLA, gpu_alone=True)
def gated_delta_rule(device: torch.device) -> Made:
    """The gated delta rule of fla."""
    return linear_attention_answers(device, "GatedDeltaNet", num_heads=2, head_dim=64)


@program(needs=FLA, gpu_alone=True)
def delta_rule_trained(device: torch.device) -> Made:
    """The delta rule of fla, trained."""
    layer = linear_attention(device, "DeltaNet", num_heads=4)
    return trained(
        layer,
        lambda: (normal(device, 2, 64, 256).bfloat16(),),
        lambda x: mean_square(layer(x)[0].float()),
        torch.optim.SGD(layer.parameters(), lr=1e-2),
    )


@program(needs=("torchrl", "tensordict"))
def values_of_actions_by_torchrl(device: torch.device) -> Made:
    """DQN of torchrl: the loss writes what it finds into the batch."""
    tensordict = importlib.import_module("tensordict")
    objectives = importlib.import_module("torchrl.objectives")
    modules = importlib.import_module("torchrl.modules")
    network = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(device)
    actor = modules.QValueActor(network, in_keys=["observation"], action_space="categorical")
    loss = objectives.DQNLoss(actor, action_space="categorical", delay_value=True)
    loss.make_value_estimator(gamma=0.99)
    optimizer = torch.optim.Adam(loss.parameters(), 1e-3)
    target = objectives.SoftUpdate(loss, tau=0.01)

    def step(batch: Any) -> tuple[Tensor, Any]:
        found = loss(batch)["loss"]
        found.backward()
        optimizer.step()
        optimizer.zero_grad()
        target.step()
        return found.detach(), batch["td_error"]

    def inputs() -> tuple[Any]:
        done = torch.zeros(8, 1, dtype=torch.bool, device=device)
        then = {"observation": normal(device, 8, 8), "reward": normal(device, 8, 1), "done": done}
        now = {
            "observation": normal(device, 8, 8),
            "action": torch.randint(0, 4, (8,), device=device),
            "next": tensordict.TensorDict({**then, "terminated": done.clone()}, [8]),
        }
        return (tensordict.TensorDict(now, [8]),)

    return Made(step, inputs, (loss, optimizer))
