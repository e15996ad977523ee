"""Transforms of functions and code that is made of code: vmap, jacobians, scripts, traces, compiled parts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, hessian, jacrev, jvp, stack_module_state, vmap
from torch.nn import functional as F
from torch.nn.attention.flex_attention import flex_attention

import rote

from .program import Made, batches, frozen, mean_square, mlp, normal, program, trained


@program(replays=False, code="RT401")
def gradients_of_samples(device: torch.device) -> Made:
    """The gradient for each sample, by vmap over grad."""
    model = mlp(device)
    members = dict(model.named_parameters())

    def loss_of(parameters: dict[str, Any], x: Tensor) -> Tensor:
        return functional_call(model, parameters, (x,)).square().sum()

    each = vmap(grad(loss_of), (None, 0))
    return Made(lambda x: each(members, x)["0.weight"].sum(0), batches(device))


@program(replays=False, code="RT401")
def directional_derivative(device: torch.device) -> Made:
    """A derivative along a direction, and a jacobian."""
    model = mlp(device, 16, 2)

    def derive(x: Tensor) -> tuple[Tensor, Tensor]:
        return jvp(model, (x,), (torch.ones_like(x),))[1], jacrev(lambda y: model(y).sum())(x)

    return Made(derive, batches(device, (4, 16)))


@program()
def curvature(device: torch.device) -> Made:
    """A Hessian for each sample, of a model that is not trained."""
    model = mlp(device, 8, 2).requires_grad_(False)
    bent = vmap(hessian(lambda x: model(x).square().sum()))
    return Made(lambda x: bent(x), batches(device, (3, 8)))


@program()
def stacked_ensemble(device: torch.device) -> Made:
    """Three models as one, by stacked weights."""
    models = [mlp(device, 16, 2) for _ in range(3)]
    members, buffers = stack_module_state(models)
    base = mlp(device, 16, 2).to("meta")
    run = vmap(lambda p, b, x: functional_call(base, (p, b), (x,)), (0, 0, None))
    return Made(frozen(lambda x: run(members, buffers, x).mean(0)), batches(device, (4, 16)))


@program()
def scripted(device: torch.device) -> Made:
    """A scripted model inside."""
    model = torch.jit.script(mlp(device))
    return Made(frozen(lambda x: model(x) * 2), batches(device))


@program()
def traced(device: torch.device) -> Made:
    """A traced model inside."""
    model = torch.jit.trace(mlp(device), normal(device))
    return Made(frozen(lambda x: model(x) * 2), batches(device))


@program()
def exported(device: torch.device) -> Made:
    """An exported model inside."""
    model = torch.export.export(mlp(device), (normal(device),)).module()
    return Made(frozen(lambda x: model(x) * 2), batches(device))


@program()
def symbolically_traced(device: torch.device) -> Made:
    """A model of torch.fx inside."""
    model = torch.fx.symbolic_trace(mlp(device))
    return Made(frozen(lambda x: model(x) * 2), batches(device))


@program()
def compiled_function_inside(device: torch.device) -> Made:
    """A compiled function before a model."""
    model, prepare = mlp(device), torch.compile(lambda x: (x.sin() * 2 + x.cos()).relu())
    return Made(frozen(lambda x: model(prepare(x))), batches(device))


@program(replays=False, code="RT205", gpu_alone=True)
def compiled_with_graphs_inside(device: torch.device) -> Made:
    """A compiled function with graphs of its own before a model."""
    model = mlp(device)
    prepare = torch.compile(lambda x: (x.sin() + x.cos()).relu(), mode="reduce-overhead")
    return Made(frozen(lambda x: model(prepare(x).clone())), batches(device))


@program()
def compiled_model_trained(device: torch.device) -> Made:
    """A compiled model in a training step."""
    model = mlp(device)
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return trained(model, batches(device), lambda x: mean_square(compiled(x)), optimizer)


@program(replays=False, code="RT601")
def attention_with_a_function(device: torch.device) -> Made:
    """Attention whose scores a function of places changes, not compiled."""

    def later(score: Tensor, _batch: Tensor, _head: Tensor, row: Tensor, column: Tensor) -> Tensor:
        return torch.where(row >= column, score, -1e9)

    attend = frozen(lambda q, k, v: flex_attention(q, k, v, score_mod=later))
    return Made(attend, batches(device, *[(1, 2, 16, 16)] * 3))


@program()
def graphed_models_inside(device: torch.device) -> Made:
    """Two graphed models inside, one after the other."""
    first, second = rote.graph(mlp(device)), rote.graph(mlp(device))
    return Made(frozen(lambda x: second(first(x) * 2) + 1), batches(device))


class Rounded(torch.autograd.Function):
    """Rounds forward, and passes gradients through."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        """The nearest whole numbers."""
        return x.round()

    @staticmethod
    def setup_context(ctx: object, inputs: tuple[Tensor], output: Tensor) -> None:
        """Nothing is kept."""

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        """As if nothing had been done."""
        return gradient


@program()
def straight_through(device: torch.device) -> Made:
    """Weights are rounded in the forward, and trained as if they were not."""
    model = nn.ParameterList([normal(device, 64, 64) * 3])
    return trained(model, batches(device), lambda x: mean_square(x @ Rounded.apply(model[0])))


@program()
def weights_handed_in(device: torch.device) -> Made:
    """A model is called with weights that were calculated from its own."""
    model = mlp(device, depth=2)

    def forward(x: Tensor) -> Tensor:
        scaled = {name: value * 0.5 for name, value in model.named_parameters()}
        return functional_call(model, scaled, (x,))

    return Made(frozen(forward), batches(device))


@program()
def attack_by_one_step(device: torch.device) -> Made:
    """A step along the sign of the gradient of an image, which is asked for it (FGSM)."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).to(device)

    def attack(images: Tensor, labels: Tensor) -> Tensor:
        images.requires_grad = True
        outputs = model(images)
        model.zero_grad()
        F.cross_entropy(outputs, labels).backward()
        assert images.grad is not None
        return torch.clamp(images + 0.03 * images.grad.sign(), 0, 1)

    def inputs() -> tuple[Tensor, Tensor]:
        return torch.rand(4, 1, 8, 8, device=device), torch.randint(0, 10, (4,), device=device)

    return Made(attack, inputs, (model,))


@program()
def attack_by_many_steps(device: torch.device) -> Made:
    """Steps along the sign of gradients, kept within a box (PGD)."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).to(device)

    def attack(images: Tensor, labels: Tensor) -> Tensor:
        first = images.data
        for _ in range(3):
            images.requires_grad = True
            outputs = model(images)
            model.zero_grad()
            F.cross_entropy(outputs, labels).backward()
            assert images.grad is not None
            moved = images + 0.01 * images.grad.sign()
            images = torch.clamp(first + torch.clamp(moved - first, -0.05, 0.05), 0, 1).detach_()
        return images

    def inputs() -> tuple[Tensor, Tensor]:
        return torch.rand(4, 1, 8, 8, device=device), torch.randint(0, 10, (4,), device=device)

    return Made(attack, inputs, (model,))
