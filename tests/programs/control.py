"""Robots and reinforcement learning: policies, filters, planners, buffers, normalization."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Made, batches, frozen, mlp, normal, program


@program(replays=False, code="RT308")
def actions_in_a_queue(device: torch.device) -> Made:
    """A policy that is asked when no action is left; each call takes one."""
    model, queue = mlp(device), deque[Tensor](maxlen=4)

    @torch.no_grad()
    def act(x: Tensor) -> Tensor:
        if not queue:
            queue.extend(model(x).view(8, 4, 16).transpose(0, 1))
        return queue.popleft()

    return Made(act, batches(device), (queue,))


@program()
def actions_averaged_over_time(device: torch.device) -> Made:
    """ACT's ensemble: predictions of the last calls for this step, weighted by their age."""
    model = mlp(device)
    kept: dict[str, Any] = {"time": 0, "table": torch.zeros(30, 40, 16, device=device)}

    @torch.no_grad()
    def act(x: Tensor) -> Tensor:
        time, table = kept["time"] % 30, kept["table"]
        table[time, time : time + 8] = model(x).view(-1, 16)[:8]
        kept["time"] += 1
        column = table[:, time]
        known = column.abs().sum(-1) > 0
        weights = torch.exp(-0.1 * torch.arange(30, device=device)) * known
        return (column * weights[:, None]).sum(0) / weights.sum()

    return Made(act, batches(device), (kept,))


class Normalizer(nn.Module):
    """Running statistics, whose count is a number of Python's."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(64))
        self.register_buffer("variance", torch.ones(64))
        self.count = 1e-4

    def forward(self, x: Tensor) -> Tensor:
        """Take the batch in, and normalize it."""
        mean, variance, count = x.mean(0), x.var(0, unbiased=False), x.shape[0]
        delta, total = mean - self.mean, self.count + count
        self.mean = self.mean + delta * count / total
        spread = self.variance * self.count + variance * count + delta**2 * self.count * count / total
        self.variance = spread / total
        self.count = total
        return (x - self.mean) / (self.variance + 1e-8).sqrt()


@program()
def observations_normalized(device: torch.device) -> Made:
    """Running statistics that are replaced in each call, with a count in Python."""
    model = Normalizer().to(device)
    return Made(frozen(model), batches(device), (model, lambda: model.count))


@program()
def observation_in_a_dict(device: torch.device) -> Made:
    """Image and state come in a dict, and so does what is returned."""
    model = nn.ModuleDict({"image": nn.Conv2d(3, 4, 3), "state": nn.Linear(8, 4)}).to(device)

    @torch.no_grad()
    def act(seen: dict[str, Tensor]) -> dict[str, Tensor]:
        image = model["image"](seen["image"].float() / 255).mean((2, 3))
        return {"action": image + model["state"](seen["state"]), "norm": seen["state"].norm()}

    def inputs() -> tuple[dict[str, Tensor]]:
        image = torch.randint(0, 255, (2, 3, 16, 16), device=device, dtype=torch.uint8)
        return ({"image": image, "state": normal(device, 2, 8)},)

    return Made(act, inputs)


class SmoothPolicy(nn.Module):
    """A policy whose actions are mixed with the last ones."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device, self.encoder, self.head = device, mlp(device), nn.Linear(64, 7).to(device)
        self.register_buffer("mean", torch.zeros(64, device=device))
        self.steps = 0
        self.last: Tensor | None = None

    @torch.no_grad()
    def act(self, seen: dict[str, Any]) -> Any:
        """Arrays in, an array out."""
        x = torch.from_numpy(seen["state"]).to(self.device).float() - self.mean
        action = self.head(self.encoder(x)).tanh()
        if self.last is not None:
            action = 0.7 * action + 0.3 * self.last
        self.last = action
        self.steps += 1
        return action.cpu().numpy()


@program()
def policy_that_smooths(device: torch.device) -> Made:
    """A policy of arrays that mixes each action with the last one, and counts."""
    policy = SmoothPolicy(device)
    return Made(
        policy.act,
        lambda: ({"state": numpy.random.randn(8, 64).astype(numpy.float32)},),
        (lambda: (policy.steps, policy.last),),
    )


@program()
def replay_buffer_on_the_device(device: torch.device) -> Made:
    """DQN with a buffer on the device: filled at a step, sampled, and a target that is loaded each tenth."""
    online, target = mlp(device, depth=2), mlp(device, depth=2)
    optimizer = torch.optim.Adam(online.parameters())
    buffer, kept = torch.zeros(100, 64, device=device), {"step": 0}

    def step(seen: Tensor) -> Tensor:
        place = kept["step"] % 12
        buffer[place * 8 : (place + 1) * 8] = seen
        kept["step"] += 1
        batch = buffer[torch.randint(0, 96, (16,), device=device)]
        with torch.no_grad():
            wanted = target(batch).amax(-1)
        loss = F.smooth_l1_loss(online(batch).amax(-1), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if kept["step"] % 10 == 0:
            target.load_state_dict(online.state_dict())
        return loss.detach()

    return Made(step, batches(device), (online, target, buffer, kept))


@program()
def clipped_policy_update(device: torch.device) -> Made:
    """PPO: an epoch of minibatches in an order that is drawn, in one call."""
    policy, value = mlp(device, depth=2), mlp(device, depth=2)
    members = [*policy.parameters(), *value.parameters()]
    optimizer = torch.optim.Adam(members, lr=3e-4, eps=1e-5)

    def loss_of(seen: Tensor, action: Tensor, before: Tensor, gain: Tensor, wanted: Tensor) -> Tensor:
        chosen = torch.distributions.Normal(policy(seen), 1.0)
        ratio = (chosen.log_prob(action).sum(-1) - before).exp()
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        surrogate = torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
        error = (value(seen).mean(-1) - wanted).square().mean()
        return -surrogate + 0.5 * error - 0.01 * chosen.entropy().mean()

    def update(*batch: Tensor) -> Tensor:
        order = torch.randperm(32, device=device)
        loss = batch[-1].sum()
        for start in range(0, 32, 8):
            rows = order[start : start + 8]
            loss = loss_of(*[part[rows] for part in batch])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            optimizer.step()
        return loss.detach()

    return Made(update, batches(device, (32, 64), (32, 64), (32,), (32,), (32,)), (policy, value, optimizer))


@program()
def clouds_aligned(device: torch.device) -> Made:
    """ICP: nearest points, and the rotation between them by singular values."""

    @torch.no_grad()
    def align(cloud: Tensor, wanted: Tensor) -> Tensor:
        for _ in range(3):
            nearest = wanted[torch.cdist(cloud, wanted).argmin(-1)]
            centre, other = cloud.mean(0), nearest.mean(0)
            u, _, v = torch.linalg.svd((cloud - centre).T @ (nearest - other))
            cloud = (cloud - centre) @ (v.T @ u.T).T + other
        return cloud

    return Made(align, batches(device, (40, 3), (50, 3)))


@program()
def kalman_filter(device: torch.device) -> Made:
    """A Kalman filter over ten measurements."""
    move = torch.eye(4, device=device) + 0.1 * torch.diag(torch.ones(2, device=device), 2)
    look, drift = torch.eye(2, 4, device=device), 0.01 * torch.eye(4, device=device)
    noise = 0.1 * torch.eye(2, device=device)

    @torch.no_grad()
    def follow(measured: Tensor) -> Tensor:
        x, spread, found = torch.zeros(4, device=device), torch.eye(4, device=device), list[Tensor]()
        for step in range(measured.shape[0]):
            x, spread = move @ x, move @ spread @ move.T + drift
            gain = spread @ look.T @ torch.linalg.inv(look @ spread @ look.T + noise)
            x = x + gain @ (measured[step] - look @ x)
            spread = (torch.eye(4, device=device) - gain @ look) @ spread
            found.append(x)
        return torch.stack(found)

    return Made(follow, batches(device, (10, 2)))


@program()
def plan_by_samples(device: torch.device) -> Made:
    """MPPI: trajectories are drawn around a plan, which is kept and shifted."""
    model, kept = nn.Linear(6, 4).to(device), {"plan": torch.zeros(8, 2, device=device)}

    @torch.no_grad()
    def command(start: Tensor) -> Tensor:
        plan, noise = kept["plan"], normal(device, 64, 8, 2) * 0.3
        x, cost = start.expand(64, 4), torch.zeros(64, device=device)
        for step in range(8):
            x = x + 0.1 * model(torch.cat([x, plan[step] + noise[:, step]], -1)).tanh()
            cost = cost + x.square().sum(-1)
        weights = torch.softmax(-(cost - cost.min()), 0)
        plan = plan + (weights[:, None, None] * noise).sum(0)
        kept["plan"] = torch.roll(plan, -1, 0)
        return plan[0]

    return Made(command, batches(device, (1, 4)), (kept,))


@program()
def joints_for_a_place(device: torch.device) -> Made:
    """Inverse kinematics by damped least squares, with jacobians of autograd."""
    lengths = torch.tensor([1.0, 0.8, 0.5], device=device)

    def place_of(joints: Tensor) -> Tensor:
        angles = joints.cumsum(-1)
        return torch.stack([(lengths * angles.cos()).sum(-1), (lengths * angles.sin()).sum(-1)], -1)

    def solve(joints: Tensor, wanted: Tensor) -> Tensor:
        for _ in range(3):
            J = torch.autograd.functional.jacobian(place_of, joints)
            damped = J @ J.T + 0.01 * torch.eye(2, device=device)
            joints = joints + J.T @ torch.linalg.solve(damped, wanted - place_of(joints))
        return joints

    return Made(solve, lambda: (normal(device, 3), normal(device, 2) * 0.5))


@program()
def curve_fitted(device: torch.device) -> Made:
    """A step of Levenberg and Marquardt."""

    def residual(p: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return p[0] * torch.exp(-p[1] * x) - y

    def fit(p: Tensor, x: Tensor, y: Tensor) -> Tensor:
        J, r = torch.func.jacfwd(residual)(p, x, y), residual(p, x, y)
        H = J.T @ J
        return p - torch.linalg.solve(H + 0.1 * torch.diag(H.diag()), J.T @ r)

    return Made(fit, lambda: (normal(device, 2).abs(), normal(device, 20).abs(), normal(device, 20)))


@program()
def vectors_rotated(device: torch.device) -> Made:
    """Vectors are rotated by quaternions, and by the exponential of a matrix."""

    def rotate(q: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        q = F.normalize(q, dim=-1)
        axis, scalar = q[..., 1:], q[..., :1]
        t = 2 * torch.linalg.cross(axis, v)
        generator = torch.einsum("bi,ijk->bjk", v, torch.ones(3, 3, 3, device=device)) * 0.1
        return v + scalar * t + torch.linalg.cross(axis, t), torch.linalg.matrix_exp(generator)

    return Made(rotate, batches(device, (8, 4), (8, 3)))


@program()
def steps_in_a_trust_region(device: torch.device) -> Made:
    """TRPO: the natural gradient by conjugate gradients, and a search along it by vectors of parameters."""
    policy = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).to(device)
    members = list(policy.parameters())

    def flat(gradients: tuple[Tensor, ...]) -> Tensor:
        return torch.cat([each.reshape(-1) for each in gradients])

    def update(observations: Tensor, advantages: Tensor) -> Tensor:
        now = policy(observations).log_softmax(-1)
        before = now.detach()
        gain = (now[:, 0] * advantages).mean()
        slope = flat(torch.autograd.grad(gain, members, retain_graph=True))
        apart = (before.exp() * (before - now)).sum(-1).mean()
        bend = flat(torch.autograd.grad(apart, members, create_graph=True))

        def product(vector: Tensor) -> Tensor:
            return flat(torch.autograd.grad(bend @ vector, members, retain_graph=True)) + 0.1 * vector

        step, rest = torch.zeros_like(slope), slope.clone()
        along, size = rest.clone(), rest @ rest
        for _ in range(4):
            moved = product(along)
            share = size / (along @ moved)
            step, rest = step + share * along, rest - share * moved
            along, size = rest + (rest @ rest) / size * along, rest @ rest
        start = nn.utils.parameters_to_vector(members).detach()
        for part in (1.0, 0.5, 0.25):
            nn.utils.vector_to_parameters(start + part * step, members)
            with torch.no_grad():
                found = policy(observations).log_softmax(-1)
            if (before.exp() * (before - found)).sum() < 1000.0:
                break
        return gain.detach()

    return Made(update, batches(device, (16, 8), (16,)), (policy,))
