"""Each kind of operation, captured once and replayed on new inputs, is bitwise what eager computes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

Case = Callable[..., Any]
CALLS = 3


class Straight(torch.autograd.Function):
    """Rounds, and lets the gradient through."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 2


def grads(loss: Tensor, *leaves: Tensor) -> tuple[Tensor, ...]:
    return (loss.detach(), *torch.autograd.grad(loss, leaves))


def module_case(module: nn.Module, *size: int, **state: Any) -> Case:
    """Forward and backward of a module; gradients, outputs and buffers are compared."""

    def case(x: Tensor) -> Any:
        module.zero_grad(set_to_none=True)
        x = x.detach().requires_grad_()
        out = module(x)
        out = out[0] if isinstance(out, tuple) else out
        out.square().mean().backward()
        return out.detach(), x.grad, [p.grad for p in module.parameters()], list(module.buffers())

    case.module, case.size = module, size  # type: ignore[attr-defined]
    return case


def attention(x: Tensor) -> Tensor:
    q, k = x.view(2, 4, 6, 8), x.view(2, 4, 6, 8)[:, :2]
    mask = torch.ones(6, 6, dtype=torch.bool).tril()
    return F.scaled_dot_product_attention(q, k, k * 2, attn_mask=mask, enable_gqa=True)


def through_views(x: Tensor) -> Tensor:
    y = x.clone()
    y[1:3].t().mul_(2)
    y.view(-1)[::3].add_(1)
    y[0].unsqueeze_(0).copy_(y[1:2])
    y.diagonal().zero_()
    return y


def literal_accumulator(x: Tensor) -> Tensor:
    total = torch.tensor(0.5)
    scale = torch.tensor([2.0])
    for row in x:
        total += (row * scale).sum()
    return total


def autocast_step(x: Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        w = x.detach().requires_grad_()
        loss = F.gelu(w @ w.t()).float().sum()
    return grads(loss, w)


def foreach(x: Tensor) -> Any:
    rows = list(x.clone().unbind())
    torch._foreach_add_(rows, 1.0)
    more = torch._foreach_mul(rows, 3.0)
    return more, torch._foreach_norm(more), torch.stack(rows)


def resized(x: Tensor) -> Any:
    out = torch.empty(0)
    torch.add(x, 1, out=out)
    other = x * 2
    other.resize_(12, 8)
    other[8:].fill_(3.0)
    moved = x + 5
    moved.set_(other)
    moved.mul_(2)
    return out, other, moved


def metadata(x: Tensor) -> Any:
    y = x * 2
    y.t_()
    y.add_(x.t())
    y.unsqueeze_(0).squeeze_(0).transpose_(0, 1)
    return y.mul_(3), y + x


def lists(x: Tensor) -> Any:
    parts = torch.split_copy(x, 2)
    return (
        torch.cat([p * n for n, p in enumerate(parts)]),
        x.chunk(2, 1),
        torch.meshgrid(x[0], x[1], indexing="ij"),
    )


def spectrum(x: Tensor) -> Any:
    f = torch.fft.rfft(x)
    g = f.conj() * f
    return g, g.conj().imag + 1, torch.fft.irfft(f), torch.view_as_real(f.conj().resolve_conj())


def double_backward(x: Tensor) -> Any:
    x = x.detach().requires_grad_()
    (g,) = torch.autograd.grad(x.pow(3).sum(), x, create_graph=True)
    return grads(g.square().sum(), x)


def checkpointed(x: Tensor) -> Any:
    x = x.detach().requires_grad_()
    y = torch.utils.checkpoint.checkpoint(lambda z: torch.sin(z).cos(), x, use_reentrant=False)
    return grads(y.sum(), x)


def hooked(x: Tensor) -> Any:
    x = x.detach().requires_grad_()
    y = x * 2
    y.register_hook(lambda g: g * 3)
    return grads(y.sum(), x)


def embedding(x: Tensor) -> Any:
    table = x.detach().requires_grad_()
    ids = torch.arange(6).view(2, 3) % 4
    return grads(F.embedding(ids, table).square().sum(), table)


def cross_entropy(x: Tensor) -> Any:
    x = x.detach().requires_grad_()
    target = torch.arange(8) % 3
    return grads(F.cross_entropy(x, target, label_smoothing=0.1), x)


def dropped_reference(x: Tensor) -> Tensor:
    big = x.repeat(4, 1)
    view = big[:3].expand(2, 3, 8)
    del big
    return (view + 1).sum(0) * x[:3]


FUNCTIONS: dict[str, Case] = {
    "attention_gqa_masked": attention,
    "autocast_bf16": autocast_step,
    "bernoulli_dropout": lambda x: F.dropout(x, 0.4),
    "bool_logic": lambda x: ((x > 0) & (x < 1)).any(1).logical_not(),
    "checkpoint": checkpointed,
    "cholesky_inverse_solve": lambda x: (
        torch.linalg.cholesky_ex(x @ x.t() + 9 * torch.eye(8)).L,
        torch.linalg.inv_ex(x + 9 * torch.eye(8)).inverse,
        torch.linalg.solve_ex(x + 9 * torch.eye(8), x).result,
    ),
    "constants": lambda x: (
        x * torch.tensor(2.0) + torch.tensor([1.0] * 8) + torch.arange(8) * torch.linspace(0, 1, 8)
    ),
    "cross_entropy": cross_entropy,
    "cumulative": lambda x: (x.cumsum(0), x.median(1), x.nanmedian(), x.logcumsumexp(1)),
    "custom_function": lambda x: grads(Straight.apply(y := x.detach().requires_grad_()).sum() + y.sum(), y),
    "double_backward": double_backward,
    "dtype_changes": lambda x: (
        x.double().float() + x.half(),
        x.int() // 2,
        x.to(torch.bfloat16).to(torch.complex64),
    ),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "embedding": embedding,
    "expanded_reference": dropped_reference,
    "fft": spectrum,
    "foreach": foreach,
    "fills": lambda x: (
        torch.zeros_like(x).add_(x),
        torch.ones(3),
        torch.full((2,), 7),
        x.new_full((2, 2), 1.5),
    ),
    "fresh_expand": lambda x: torch.repeat_interleave(x, 3, 1) + torch.tril(x).repeat(1, 3),
    "hooks": hooked,
    "index": lambda x: (x[torch.tensor([2, 0])], x[:, torch.arange(3)], x.index_select(0, torch.tensor([1]))),
    "index_put": lambda x: x.clone().index_put_((torch.tensor([0, 0, 2]),), x[:3], accumulate=True),
    "int_mm": lambda x: torch._int_mm((x * 9).to(torch.int8), (x * 7).to(torch.int8)),
    "interpolate_pad_roll": lambda x: (
        F.interpolate(x.view(1, 2, 4, 8), scale_factor=2.0, mode="bilinear"),
        F.pad(x, (1, 2), mode="constant", value=3.0),
        x.roll(2, 0),
    ),
    "lists": lists,
    "literal_written_in_place": literal_accumulator,
    "losses": lambda x: (
        F.mse_loss(x, x.t()),
        F.mse_loss(x, x.t(), reduction="none"),
        F.smooth_l1_loss(x, x.t()),
        F.huber_loss(x, x.t()),
        F.l1_loss(x, x.t()),
        F.binary_cross_entropy(x.sigmoid(), x.t().sigmoid()),
        F.soft_margin_loss(x, x.t()),
    ),
    "masked_fill": lambda x: x.masked_fill(x > 0.5, -1.0).masked_fill_(x < -0.5, 2.0),
    "metadata_in_place": metadata,
    "no_grad_inside": lambda x: (torch.no_grad()(lambda: x.relu() * 2)(), x.exp()),
    "norms": lambda x: (
        F.layer_norm(x, (8,)),
        F.group_norm(x.view(1, 4, 16), 2),
        x.norm(),
        F.rms_norm(x, (8,)),
    ),
    "permutations": lambda x: (torch.randperm(9), x.sigmoid().multinomial(2)),
    "random": lambda x: (
        torch.rand(3, 3) + torch.randn(3, 3),
        torch.randint(0, 9, (4,)),
        torch.normal(x, 2.0),
    ),
    "reductions": lambda x: (
        x.sum(),
        x.sum(1),
        x.mean(),
        x.mean((0, 1), keepdim=True),
        x.prod(),
        x.amax(0),
        x.std(1),
    ),
    "relu_kinds": lambda x: (
        x.relu(),
        x.clone().relu_(),
        (x * 4).int().relu(),
        F.silu(x),
        F.gelu(x),
        F.softplus(x),
    ),
    "resize_and_set": resized,
    "scatter": lambda x: (
        x.scatter(0, torch.zeros(1, 8, dtype=torch.long), 5.0),
        torch.zeros(4, 8).scatter_add_(0, torch.ones(2, 8, dtype=torch.long), x[:2]),
        x.gather(1, torch.ones(8, 2, dtype=torch.long)),
    ),
    "softmax": lambda x: (x.softmax(-1), x.log_softmax(0), x.logsumexp(1)),
    "topk_sort": lambda x: (
        x.topk(3),
        x.sort(0, descending=True),
        x.argsort(),
        x.argmax(1),
        x.max(0),
        x.kthvalue(2),
    ),
    "views_in_place": through_views,
    "vmap_grad": lambda x: torch.func.vmap(torch.func.grad(lambda r: r.sin().sum()))(x),
    "where": lambda x: torch.where(x > 0, x, x.t()) + torch.where(x > 0, 1.0, 0.0),
}

NEEDS_GRAD = frozenset(
    {
        "autocast_bf16",
        "checkpoint",
        "cross_entropy",
        "custom_function",
        "double_backward",
        "embedding",
        "hooks",
    }
)

MODULES: dict[str, Callable[[], Case]] = {
    "conv_bn_pool": lambda: module_case(
        nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.AvgPool2d(2)),
        3,
        2,
        12,
        12,
    ),
    "conv_transpose_1d": lambda: module_case(
        nn.Sequential(nn.Conv1d(2, 4, 3), nn.ConvTranspose1d(4, 2, 3)), 3, 2, 9
    ),
    "gru": lambda: module_case(nn.GRU(6, 5, num_layers=2, batch_first=True), 2, 4, 6),
    "lstm": lambda: module_case(nn.LSTM(6, 5, num_layers=2, bidirectional=True), 4, 2, 6),
    "mha": lambda: module_case(Attending(), 2, 5, 8),
    "encoder_dropout": lambda: module_case(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2), 5, 2, 8),
    "embedding_bag_like": lambda: module_case(
        nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.LayerNorm(8)), 4, 8
    ),
    "instance_norm_eval": lambda: module_case(nn.BatchNorm1d(6).eval(), 4, 6),
}


class Attending(nn.Module):
    """Attention over itself, weights included."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        out, weights = self.inner(x, x, x)
        return out + weights.sum()


def flat(value: Any) -> list[Tensor]:
    leaves = torch.utils._pytree.tree_leaves(value)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]


def assert_bitwise(got: Any, wanted: Any, label: str) -> None:
    got, wanted = flat(got), flat(wanted)
    assert len(got) == len(wanted), label
    for n, (a, b) in enumerate(zip(got, wanted, strict=True)):
        assert a.shape == b.shape and a.dtype == b.dtype and a.stride() == b.stride(), (label, n)
        same = torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(), b.nan_to_num())
        assert same, f"{label}: result {n} differs by {(a - b).abs().max()}"


def compare(
    record: Any, captured: Case, eager: Case, size: tuple[int, ...], modes: Callable[[], Any]
) -> None:
    x = torch.empty(size)
    values = [torch.randn(size, generator=torch.Generator().manual_seed(7 + n)) for n in range(CALLS + 1)]
    x.copy_(values[0])
    torch.manual_seed(50)
    with modes():
        recording = record(captured, x)
    state = torch.get_rng_state()
    torch.manual_seed(50)
    with modes():
        wanted = eager(values[0])
    assert_bitwise(recording.output, wanted, "at capture")
    for n in range(1, CALLS + 1):
        x.copy_(values[n])
        torch.set_rng_state(state)
        recording.replay()
        after = torch.get_rng_state()
        torch.set_rng_state(state)
        with modes():
            wanted = eager(values[n])
        assert_bitwise(recording.output, wanted, f"replay {n}")
        assert torch.equal(after, torch.get_rng_state()), "random numbers drawn"
        state = after


@pytest.mark.parametrize(
    ("name", "grad"),
    [(name, torch.enable_grad) for name in FUNCTIONS]
    + [(name, torch.inference_mode) for name in FUNCTIONS if name not in NEEDS_GRAD],
)
def test_function(record: Any, name: str, grad: Callable[[], Any]) -> None:
    compare(
        record,
        FUNCTIONS[name],
        FUNCTIONS[name],
        (8, 8) if name != "attention_gqa_masked" else (2, 4, 48),
        grad,
    )


@pytest.mark.parametrize("name", MODULES)
def test_module(record: Any, name: str) -> None:
    torch.manual_seed(3)
    captured = MODULES[name]()
    module: nn.Module = captured.module  # type: ignore[attr-defined]
    eager = module_case(copy.deepcopy(module))
    compare(record, captured, eager, captured.size, torch.enable_grad)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["conv_bn_pool", "lstm", "mha", "encoder_dropout"])
def test_module_in_inference_mode(record: Any, name: str) -> None:
    torch.manual_seed(3)
    module: nn.Module = MODULES[name]().module.eval()  # type: ignore[attr-defined]
    size = MODULES[name]().size  # type: ignore[attr-defined]
    compare(record, module, module, size, torch.inference_mode)
