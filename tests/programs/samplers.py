"""Generative models and other iterations: diffusion, flows, codebooks, beams, transport."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Made, batches, frozen, mlp, normal, program, trained


@program()
def noise_predicted(device: torch.device) -> Made:
    """DDPM: training on noise at steps that are drawn."""
    model, kept = mlp(device), torch.linspace(0.99, 0.01, 100, device=device)

    def loss_of(x: Tensor) -> Tensor:
        step, noise = torch.randint(0, 100, (x.shape[0],), device=device), torch.randn_like(x)
        share = kept[step][:, None]
        return F.mse_loss(model(share.sqrt() * x + (1 - share).sqrt() * noise), noise)

    return trained(model, batches(device), loss_of)


@program()
def guided_steps(device: torch.device) -> Made:
    """DDIM with guidance: seven steps in a call."""
    model, kept = mlp(device), torch.linspace(0.99, 0.01, 20, device=device)

    @torch.no_grad()
    def sample(x: Tensor) -> Tensor:
        for step in reversed(range(1, 20, 3)):
            given, free = model(torch.cat([x, x * 0])).chunk(2)
            noise = free + 3.0 * (given - free)
            clean = (x - (1 - kept[step]).sqrt() * noise) / kept[step].sqrt()
            x = kept[step - 1].sqrt() * clean.clamp(-1, 1) + (1 - kept[step - 1]).sqrt() * noise
        return x

    return Made(sample, batches(device))


@program()
def flow_by_euler(device: torch.device) -> Made:
    """Flow matching: a loop over a time that is a Python number."""
    model = mlp(device)

    @torch.no_grad()
    def sample(x: Tensor) -> Tensor:
        step, time = 1 / 8, 0.0
        while time < 1 - 1e-6:
            x = x + step * model(x * torch.full((x.shape[0], 1), 1 + time, device=device))
            time += step
        return x

    return Made(sample, batches(device))


@program()
def steps_with_noise(device: torch.device) -> Made:
    """Langevin dynamics: gradients of an energy, and noise."""
    energy = mlp(device, 16, 2)

    def sample(x: Tensor) -> Tensor:
        for _ in range(4):
            x = x.detach().requires_grad_()
            (slope,) = torch.autograd.grad(energy(x).square().sum(), x)
            x = x - 0.05 * slope + 0.1 * torch.randn_like(x)
        return x.detach()

    return Made(sample, batches(device, (8, 16)))


@program()
def codebook_by_averages(device: torch.device) -> Made:
    """VQ-VAE: codes are averages of what chose them."""
    codes = normal(device, 16, 8)
    counts, sums = torch.ones(16, device=device), codes.clone()

    @torch.no_grad()
    def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.view(-1, 8)
        chosen = torch.cdist(x, codes).argmin(1)
        marks = F.one_hot(chosen, 16).float()
        counts.mul_(0.9).add_(marks.sum(0), alpha=0.1)
        sums.mul_(0.9).add_(marks.T @ x, alpha=0.1)
        codes.copy_(sums / (counts + 1e-5)[:, None])
        return codes[chosen], chosen

    return Made(quantize, batches(device), (codes, counts, sums))


@program()
def coupled_layers(device: torch.device) -> Made:
    """RealNVP: halves change each other, with a determinant."""
    networks = nn.ModuleList([mlp(device, 32, 1) for _ in range(4)])

    @torch.no_grad()
    def flow(x: Tensor) -> tuple[Tensor, Tensor]:
        volume = torch.zeros(8, device=device)
        for index, network in enumerate(networks):
            first, second = x.chunk(2, -1)
            if index % 2 == 0:
                first, second = second, first
            scale = network(first).tanh()
            second = second * scale.exp() + network(first)
            volume = volume + scale.sum(-1)
            x = torch.cat([first, second], -1)
        return x, volume

    return Made(flow, batches(device))


@program()
def three_beams(device: torch.device) -> Made:
    """A beam search over four steps."""
    head, table = nn.Linear(16, 20).to(device), nn.Embedding(20, 16).to(device)

    @torch.no_grad()
    def search(x: Tensor) -> tuple[Tensor, Tensor]:
        scores = torch.zeros(3, device=device)
        found = torch.zeros(3, 1, dtype=torch.long, device=device)
        for _ in range(4):
            more = head(table(found[:, -1]) + x).log_softmax(-1)
            scores, where = (scores[:, None] + more).flatten().topk(3)
            found = torch.cat([found[where // 20], (where % 20)[:, None]], 1)
        return found, scores

    return Made(search, batches(device, (16,)))


@program()
def best_path(device: torch.device) -> Made:
    """Viterbi: the best path through scores, found from its end."""
    moves = normal(device, 5, 5)

    @torch.no_grad()
    def decode(scores: Tensor) -> Tensor:
        best, came = scores[:, 0], list[Tensor]()
        for step in range(1, scores.shape[1]):
            best, source = (best[:, :, None] + moves).max(1)
            best = best + scores[:, step]
            came.append(source)
        path = [best.argmax(-1)]
        for source in reversed(came):
            path.append(source.gather(1, path[-1][:, None])[:, 0])
        return torch.stack(path[::-1], 1)

    return Made(decode, batches(device, (4, 6, 5)))


@program()
def field_of_labels(device: torch.device) -> Made:
    """A linear-chain CRF: its loss, and the gradient of its moves."""
    moves = nn.Parameter(normal(device, 5, 5))

    def loss_of(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor | None]:
        sums = scores[:, 0]
        for step in range(1, scores.shape[1]):
            sums = torch.logsumexp(sums[:, :, None] + moves[None], 1) + scores[:, step]
        told = scores.gather(2, labels[..., None]).sum((1, 2))
        loss = (torch.logsumexp(sums, 1) - told).mean()
        moves.grad = None
        loss.backward()
        return loss.detach(), moves.grad.clone() if moves.grad is not None else None

    return Made(
        loss_of, lambda: (normal(device, 4, 6, 5), torch.randint(0, 5, (4, 6), device=device)), (moves,)
    )


@program()
def transport(device: torch.device) -> Made:
    """Sinkhorn: twenty iterations towards a plan of transport."""

    @torch.no_grad()
    def plan(a: Tensor, b: Tensor) -> Tensor:
        K = (-(torch.cdist(a, b) ** 2) / 0.5).exp()
        u = v = torch.ones(20, device=device) / 20
        for _ in range(20):
            v = (1 / 20) / (K.T @ u)
            u = (1 / 20) / (K @ v)
        return u[:, None] * K * v

    return Made(plan, batches(device, (20, 3), (20, 3)))


@program()
def fixed_point(device: torch.device) -> Made:
    """A deep equilibrium: as many steps as it takes until little changes."""
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(16, 16)).to(device).eval()

    @torch.no_grad()
    def settle(x: Tensor) -> tuple[Tensor, int]:
        z, steps = torch.zeros_like(x), 0
        while steps < 12:
            new = (0.5 * layer(z) + x).tanh()
            steps += 1
            if (new - z).abs().max() < 1e-2:
                return new, steps
            z = new
        return z, steps

    return Made(settle, batches(device, (4, 16)))


@program()
def draft_and_check(device: torch.device) -> Made:
    """Speculative decoding: a small model proposes four tokens, a large one accepts some."""
    small, large = nn.Embedding(30, 30).to(device), mlp(device, 30, 2)
    table = nn.Embedding(30, 30).to(device)
    models = frozen(lambda token: (small(token), large(table(token))))

    def decode(token: Tensor) -> tuple[Tensor, Any]:
        proposed = [token]
        for _ in range(4):
            proposed.append(models(proposed[-1])[0].argmax(-1))
        checked = [models(each)[1].argmax(-1) for each in proposed[:-1]]
        equal = torch.stack([a == b for a, b in zip(proposed[1:], checked, strict=True)])
        accepted = int(equal.long().cumprod(0).sum())
        return checked[min(accepted, 3)], accepted

    return Made(decode, lambda: (torch.randint(0, 30, (1,), device=device),))
