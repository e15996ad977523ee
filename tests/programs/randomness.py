"""Random numbers: of the device, of the host, of Python and of numpy."""

from __future__ import annotations

import random

import numpy
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Made, batches, frozen, mean_square, mlp, normal, program, step_of, trained


@program()
def trained_with_dropout(device: torch.device) -> Made:
    """Training with dropout between two layers."""
    model = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.3), nn.Linear(64, 64)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    return trained(model, batches(device), lambda x: mean_square(model(x)), optimizer)


@program()
def token_drawn(device: torch.device) -> Made:
    """An index is drawn from probabilities."""
    model = mlp(device)
    return Made(frozen(lambda x: torch.multinomial(model(x).softmax(-1), 1)), batches(device))


@program()
def action_of_classes(device: torch.device) -> Made:
    """A policy of classes: action, its logarithm, entropy; with gradients."""
    model = mlp(device)

    def act(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        policy = torch.distributions.Categorical(logits=model(x))
        action = policy.sample()
        return action, policy.log_prob(action), policy.entropy()

    return Made(act, batches(device))


@program()
def action_of_normal_numbers(device: torch.device) -> Made:
    """A policy of normal numbers whose spread is learned."""
    model, spread = mlp(device), nn.Parameter(torch.zeros(64, device=device))

    @torch.no_grad()
    def act(x: Tensor) -> tuple[Tensor, Tensor]:
        policy = torch.distributions.Normal(model(x), spread.exp())
        action = policy.sample()
        return action, policy.log_prob(action).sum(-1)

    return Made(act, batches(device))


@program()
def actions_of_bounded_numbers(device: torch.device) -> Made:
    """A policy of normal numbers under tanh, as a transformed distribution."""
    model = mlp(device)

    @torch.no_grad()
    def act(x: Tensor) -> tuple[Tensor, Tensor]:
        base = torch.distributions.Normal(model(x), 0.5)
        bounded = torch.distributions.TransformedDistribution(
            base, [torch.distributions.TanhTransform(cache_size=1)]
        )
        action = bounded.rsample()
        return action, bounded.log_prob(action).sum(-1)

    return Made(act, batches(device))


@program()
def mixed_batch(device: torch.device) -> Made:
    """Mixup: a share drawn by numpy, an order drawn by the device."""
    model = mlp(device, depth=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def loss_of(x: Tensor) -> Tensor:
        share = numpy.random.beta(0.4, 0.4)
        order = torch.randperm(8, device=device)
        return mean_square(model(share * x + (1 - share) * x[order]))

    return Made(step_of(loss_of, optimizer), batches(device), (model,))


@program(replays=None)
def teacher_now_and_then(device: torch.device) -> Made:
    """A recurrent cell is given the true value or its own, as Python draws."""
    cell = nn.GRUCell(16, 16).to(device)

    @torch.no_grad()
    def forward(x: Tensor) -> Tensor:
        h, given = torch.zeros(4, 16, device=device), x[:, 0]
        for step in range(3):
            h = cell(given, h)
            given = x[:, step] if random.random() < 0.5 else h
        return h

    return Made(forward, batches(device, (4, 3, 16)))


@program()
def many_distributions(device: torch.device) -> Made:
    """Numbers of many distributions, from the device and from the host."""

    def draw(x: Tensor) -> tuple[Tensor, ...]:
        return (
            x + normal(device) + torch.rand(8, 64).to(device),
            torch.randint(0, 9, (4,), device=device),
            torch.bernoulli(x.sigmoid()),
            torch.poisson(x.abs()),
            torch.empty(4, device=device).exponential_(),
            torch.normal(x, 1.0),
        )

    return Made(draw, batches(device))


@program()
def many_layers_that_draw(device: torch.device) -> Made:
    """Dropouts that keep statistics, dropouts of channels, and hard Gumbel samples."""
    model = nn.Sequential(nn.AlphaDropout(0.2), nn.FeatureAlphaDropout(0.2)).to(device).train()

    def forward(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return F.gumbel_softmax(x, hard=True), model(x[None]), F.dropout1d(x[None], 0.3)

    return Made(frozen(forward), batches(device))


@program()
def slopes_drawn(device: torch.device) -> Made:
    """Leaky slopes that are drawn, by an operator that is given memory to write them to."""
    model = nn.RReLU().to(device).train()
    return Made(frozen(model), batches(device))


@program()
def regions_drawn(device: torch.device) -> Made:
    """Pooling over regions that are drawn, and pooling that is undone."""
    drawn = nn.FractionalMaxPool2d(2, output_size=4)
    pool, undo = nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2)

    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        y, indices = pool(x)
        return drawn(x), undo(y, indices)

    return Made(forward, batches(device, (1, 2, 8, 8)))


@program()
def epsilon_greedy(device: torch.device) -> Made:
    """Actions that are random with a chance that falls with each call."""
    model, kept = mlp(device), {"chance": 1.0}

    @torch.no_grad()
    def act(x: Tensor) -> Tensor:
        kept["chance"] = max(0.05, kept["chance"] * 0.9)
        best = model(x).argmax(-1)
        other = torch.randint_like(best, 64)
        return torch.where(torch.rand(8, device=device) < kept["chance"], other, best)

    return Made(act, batches(device), (kept,))


@program()
def crop_drawn_by_the_host(device: torch.device) -> Made:
    """Images are cropped at a place that is drawn as a Python number."""

    def crop(images: Tensor) -> Tensor:
        top, left = random.randint(0, 4), random.randint(0, 4)
        return images[..., top : top + 12, left : left + 12].contiguous().mul(2)

    return Made(crop, batches(device, (2, 3, 16, 16)))
