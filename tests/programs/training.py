"""Whole training steps: optimizers, schedules, hooks, several networks, gradients of gradients."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import swa_utils

from .program import Made, batches, mean_square, mlp, program, step_of, trained


def sgd(model: nn.Module, lr: float = 0.01, **options: Any) -> torch.optim.SGD:
    """Plain gradients."""
    return torch.optim.SGD(model.parameters(), lr=lr, **options)


@program()
def five_optimizers(device: torch.device) -> Made:
    """Five kinds of optimizers step one after the other on one model."""
    model = mlp(device)
    kinds = [torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax, torch.optim.Adagrad]
    optimizers = [kind(model.parameters(), lr=1e-3) for kind in [*kinds, torch.optim.RMSprop]]

    def step(x: Tensor) -> Tensor:
        loss = mean_square(x)
        for optimizer in optimizers:
            optimizer.zero_grad()
            loss = mean_square(model(x))
            loss.backward()
            optimizer.step()
        return loss.detach()

    return Made(step, batches(device), (model, *optimizers))


@program()
def adafactor(device: torch.device) -> Made:
    """Training with Adafactor."""
    model = mlp(device)
    optimizer = torch.optim.Adafactor(model.parameters(), lr=1e-3)
    return trained(model, batches(device), lambda x: mean_square(model(x)), optimizer)


@program()
def muon(device: torch.device) -> Made:
    """Training with Muon, which orthogonalizes its steps."""
    weights = nn.ParameterList([nn.Parameter(torch.randn(32, 32, device=device) / 6) for _ in range(2)])
    optimizer = torch.optim.Muon(weights.parameters(), lr=1e-3)
    return trained(
        weights,
        batches(device, (8, 32)),
        lambda x: mean_square((x @ weights[0]).relu() @ weights[1]),
        optimizer,
    )


@program()
def weights_averaged_beside(device: torch.device) -> Made:
    """An average of the weights by AveragedModel, over a model with statistics."""
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64)).to(device)
    average = swa_utils.AveragedModel(model, avg_fn=swa_utils.get_ema_avg_fn(0.99))
    inner = step_of(lambda x: mean_square(model(x)), sgd(model, 0.1))

    def step(x: Tensor) -> Tensor:
        loss = inner(x)
        average.update_parameters(model)
        return loss

    return Made(step, batches(device), (model, average))


@program()
def lists_of_tensors(device: torch.device) -> Made:
    """Operators over lists of tensors update them in place."""
    members = [torch.randn(64, device=device) for _ in range(10)]

    @torch.no_grad()
    def update(x: Tensor) -> Tensor:
        steps = [x[0] * index for index in range(10)]
        torch._foreach_mul_(members, 0.9)
        torch._foreach_add_(members, steps, alpha=0.1)
        return torch.stack(torch._foreach_norm(members))

    return Made(update, batches(device), (members,))


@program()
def recurrent_layer_trained(device: torch.device) -> Made:
    """A GRU over a sequence, trained with Adam."""
    model = nn.GRU(32, 64, batch_first=True).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    return trained(model, batches(device, (4, 10, 32)), lambda x: mean_square(model(x)[0]), optimizer)


@program()
def recurrent_cell_trained(device: torch.device) -> Made:
    """An LSTM cell in a loop, whose losses are added."""
    cell, head = nn.LSTMCell(16, 32).to(device), nn.Linear(32, 4).to(device)

    def loss_of(x: Tensor) -> Tensor:
        h = c = torch.zeros(4, 32, device=device)
        loss: Any = 0
        for step in range(x.shape[1]):
            h, c = cell(x[:, step], (h, c))
            loss = loss + mean_square(head(h))
        return loss

    return trained(nn.ModuleList([cell, head]), batches(device, (4, 6, 16)), loss_of)


@program()
def spectral_norm(device: torch.device) -> Made:
    """A layer whose largest singular value is one, estimated in each step."""
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(64, 64)).to(device)
    return trained(layer, batches(device), lambda x: mean_square(layer(x)))


@program()
def critic_with_penalty(device: torch.device) -> Made:
    """A critic of WGAN-GP: a penalty on the gradient at points in between."""
    critic = mlp(device, depth=2)
    optimizer = torch.optim.Adam(critic.parameters(), 1e-3)

    def loss_of(real: Tensor, fake: Tensor) -> Tensor:
        share = torch.rand(8, 1, device=device)
        between = (share * real + (1 - share) * fake).requires_grad_()
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        penalty = ((slope.norm(2, 1) - 1) ** 2).mean()
        return critic(fake).mean() - critic(real).mean() + 10 * penalty

    return trained(critic, batches(device, (8, 64), (8, 64)), loss_of, optimizer)


@program()
def queue_of_negatives(device: torch.device) -> Made:
    """MoCo: a second encoder follows the first, and its features fill a queue."""
    encoder, follower = mlp(device, depth=1), mlp(device, depth=1)
    kept: dict[str, Any] = {"queue": F.normalize(torch.randn(64, 32, device=device), dim=0), "place": 0}
    optimizer = sgd(encoder, 0.1)

    def step(x: Tensor) -> Tensor:
        with torch.no_grad():
            for mine, other in zip(follower.parameters(), encoder.parameters(), strict=True):
                mine.mul_(0.99).add_(other, alpha=0.01)
            key = F.normalize(follower(x), dim=1)
        query = F.normalize(encoder(x), dim=1)
        alike = [(query * key).sum(1, keepdim=True), query @ kept["queue"].clone()]
        logits = torch.cat(alike, 1) / 0.07
        loss = F.cross_entropy(logits, torch.zeros(8, dtype=torch.long, device=device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        place = kept["place"]
        kept["queue"][:, place : place + 8] = key.T
        kept["place"] = (place + 8) % 32
        return loss.detach()

    return Made(step, batches(device), (encoder, follower, kept))


@program()
def rate_by_hand(device: torch.device) -> Made:
    """A learning rate that warms up and decays, calculated from a counter."""
    model, kept = mlp(device), {"step": 0}
    optimizer = sgd(model, 0.1)
    inner = step_of(lambda x: mean_square(model(x)), optimizer)

    def step(x: Tensor) -> Tensor:
        kept["step"] += 1
        for group in optimizer.param_groups:
            group["lr"] = 0.1 * min(1, kept["step"] / 100) * (0.99 ** kept["step"])
        return inner(x)

    return Made(step, batches(device), (model, optimizer, kept))


@program()
def bad_loss_skipped(device: torch.device) -> Made:
    """The optimizer steps only where the loss is finite."""
    model, kept = mlp(device), {"bad": 0}
    optimizer = sgd(model)

    def step(x: Tensor) -> Tensor:
        loss = mean_square(model(x))
        optimizer.zero_grad()
        loss.backward()
        if not torch.isfinite(loss):
            kept["bad"] += 1
            return loss.detach()
        optimizer.step()
        return loss.detach()

    def inputs() -> tuple[Tensor]:
        x = torch.randn(8, 64, device=device)
        return (x * torch.inf if torch.rand(()) < 0.1 else x,)

    return Made(step, inputs, (model, kept))


@program()
def losses_kept(device: torch.device) -> Made:
    """The last five losses are kept in a list that is cut."""
    model, log = mlp(device), {"losses": list[Tensor]()}

    def forward(x: Tensor) -> Tensor:
        loss = mean_square(model(x))
        log["losses"].append(loss.detach())
        log["losses"] = log["losses"][-5:]
        return loss.detach()

    return Made(forward, batches(device), (log,))


@program()
def hooks_on_modules(device: torch.device) -> Made:
    """Hooks keep the results of layers, one of which is used behind the forward."""
    model, features = mlp(device), dict[int, Tensor]()
    for index, layer in enumerate(model):
        if index % 2 == 0:
            layer.register_forward_hook(lambda *seen, index=index: features.__setitem__(index, seen[-1]))

    @torch.no_grad()
    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        return model(x), features[2].mean()

    return Made(forward, batches(device), (features,))


@program()
def hooks_on_gradients(device: torch.device) -> Made:
    """A hook of a backward, and one that doubles the gradient of a weight."""
    model = mlp(device)
    model[0].register_full_backward_hook(lambda *_: None)
    model[2].weight.register_hook(lambda gradient: gradient * 2)
    return trained(model, batches(device), lambda x: mean_square(model(x)), sgd(model))


@program()
def saved_on_the_host(device: torch.device) -> Made:
    """What the backward needs is kept in the host's memory."""
    model = mlp(device)

    def loss_of(x: Tensor) -> Tensor:
        with torch.autograd.graph.save_on_cpu():
            return mean_square(model(x))

    return trained(model, batches(device), loss_of, sgd(model))


@program()
def anomalies_detected(device: torch.device) -> Made:
    """A training step while anomalies are looked for."""
    model = mlp(device)
    inner = step_of(lambda x: mean_square(model(x)), sgd(model))

    def step(x: Tensor) -> Tensor:
        with torch.autograd.set_detect_anomaly(True):
            return inner(x)

    return Made(step, batches(device), (model,))


@program()
def second_order_by_products(device: torch.device) -> Made:
    """A Gauss-Newton-like step by a product with the Hessian."""
    model = mlp(device, 16, 2)
    members = list(model.parameters())

    def step(x: Tensor) -> Tensor:
        gradients = torch.autograd.grad(mean_square(model(x)), members, create_graph=True)
        turned = torch.autograd.grad(gradients, members, [g.detach() for g in gradients])
        with torch.no_grad():
            for member, gradient, bent in zip(members, gradients, turned, strict=True):
                member -= 0.01 * gradient / (1 + bent.abs())
        return torch.stack([bent.norm() for bent in turned])

    return Made(step, batches(device, (4, 16)), (model,))


@program(replays=False, code="RT201")
def layers_frozen_in_turn(device: torch.device) -> Made:
    """Each call trains another half of the layers."""
    model, kept = mlp(device, depth=2), {"step": 0}
    optimizer = sgd(model)

    def step(x: Tensor) -> Tensor:
        for index, layer in enumerate((model[0], model[2])):
            layer.requires_grad_(index == kept["step"] % 2)
        kept["step"] += 1
        optimizer.zero_grad()
        loss = mean_square(model(x))
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Made(step, batches(device), (model, kept))


@program()
def losses_weighted_by_uncertainty(device: torch.device) -> Made:
    """Two tasks, whose weights are learned with the model, and clipped by their norm."""
    trunk, heads = mlp(device), nn.ModuleList([nn.Linear(64, 1), nn.Linear(64, 5)]).to(device)
    weights = nn.Parameter(torch.zeros(2, device=device))
    everything = nn.ModuleList([trunk, heads, nn.ParameterList([weights])])
    optimizer = torch.optim.AdamW(everything.parameters(), lr=1e-3)

    def loss_of(x: Tensor, label: Tensor) -> Tensor:
        shared = trunk(x)
        losses = torch.stack([mean_square(heads[0](shared)), F.cross_entropy(heads[1](shared), label)])
        return (losses * (-weights).exp() + weights).sum()

    step = step_of(loss_of, optimizer, between=lambda: nn.utils.clip_grad_norm_(everything.parameters(), 1.0))
    inputs = lambda: (torch.randn(8, 64, device=device), torch.randint(0, 5, (8,), device=device))  # noqa: E731
    return Made(step, inputs, (everything, optimizer))
