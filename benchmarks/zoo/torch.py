"""Plain PyTorch, as single-file repositories write it."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap

Items = Iterator[Any]


class Attention(nn.Module):
    """Self-attention with a cache of fixed size, written at a position."""

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("keys", torch.zeros(1, heads, length, width // heads))
        self.register_buffer("values", torch.zeros(1, heads, length, width // heads))

    def forward(self, x: Tensor, position: int) -> Tensor:
        q, k, v = self.qkv(x).view(1, 1, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        self.keys[:, :, position : position + 1] = k
        self.values[:, :, position : position + 1] = v
        keys, values = self.keys[:, :, : position + 1], self.values[:, :, : position + 1]
        y = F.scaled_dot_product_attention(q, keys, values)
        return self.out(y.transpose(1, 2).reshape(1, 1, -1))


class Decoder(nn.Module):
    """A small GPT that is given one token and its position."""

    def __init__(self, vocabulary: int = 64, width: int = 32, length: int = 32) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Attention(width, 4, length) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, token: Tensor, position: int) -> Tensor:
        x = self.tokens(token) + self.places.weight[position]
        for block in self.blocks:
            x = x + block(x, position)
        return self.head(self.norm(x))


def decode_with_a_position(wrap: Any, device: Any) -> Items:
    """Greedy decoding with a static cache and a position that is a Python number."""
    model = Decoder().to(device).eval()
    step = wrap(torch.no_grad()(model))
    while True:
        token = torch.randint(64, (1, 1)).to(device)
        for position in range(32):
            logits = step(token, position)
            token = logits.argmax(-1)
            yield logits, token


def decode_with_sampling(wrap: Any, device: Any) -> Items:
    """Decoding with temperature, top-k and top-p, and a list of tokens that grows."""
    model = Decoder().to(device).eval()

    @torch.no_grad()
    def sample(token: Tensor, position: int, temperature: float = 0.8, k: int = 20, p: float = 0.9) -> Tensor:
        logits = model(token, position)[:, -1] / temperature
        best, _ = logits.topk(k)
        logits = logits.masked_fill(logits < best[:, -1:], -math.inf)
        ordered, where = logits.sort(descending=True)
        beyond = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1) > p
        logits = logits.masked_fill(beyond.scatter(1, where, beyond), -math.inf)
        return torch.multinomial(logits.softmax(-1), 1)

    sample = wrap(sample)
    while True:
        tokens = [torch.zeros(1, 1, dtype=torch.long, device=device)]
        for position in range(24):
            tokens.append(sample(tokens[-1], position))
            yield torch.cat(tokens, 1)


def adam_step(wrap: Any, device: Any) -> Items:
    """A classifier with default Adam; the whole step is one function."""
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = [(torch.randn(16, 32).to(device), torch.randint(10, (16,)).to(device)) for _ in range(8)]

    @wrap
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    while True:
        for x, y in data:
            yield step(x, y), model, optimizer


def adamw_one_cycle(wrap: Any, device: Any) -> Items:
    """AdamW with warm-up by OneCycleLR and clipped gradients."""
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=5_000)
    data = [(torch.randn(16, 32).to(device), torch.randn(16, 1).to(device)) for _ in range(8)]

    @wrap
    def step(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        return loss.detach(), norm

    while True:
        for x, y in data:
            yield step(x, y), model, schedule.get_last_lr()


def sgd_with_momentum(wrap: Any, device: Any) -> Items:
    """SGD with momentum on convolutions with batch norm; the learning rate falls each epoch."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 10),
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)
    data = [(torch.randn(8, 3, 16, 16).to(device), torch.randint(10, (8,)).to(device)) for _ in range(25)]

    @wrap
    def step(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        optimizer.zero_grad()
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        loss.backward()
        optimizer.step()
        return loss.detach(), (logits.argmax(1) == y).sum()

    while True:
        for x, y in data:
            yield step(x, y), model
        schedule.step()


def scaled_gradients(wrap: Any, device: Any) -> Items:
    """Mixed precision with autocast and a GradScaler, forward graphed and the rest outside."""
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler(torch.device(device).type, init_scale=1024.0, growth_interval=50)
    forward = wrap(model)
    data = [torch.randn(16, 32).to(device) for _ in range(8)]
    while True:
        for x in data:
            optimizer.zero_grad()
            with torch.autocast(torch.device(device).type, dtype=torch.bfloat16):
                loss = F.mse_loss(forward(x).float(), x)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            yield loss.detach(), model, scaler.get_scale()


def scaled_step(wrap: Any, device: Any) -> Items:
    """The same with the whole step in one function."""
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler(torch.device(device).type, init_scale=1024.0, growth_interval=50)
    data = [torch.randn(16, 32).to(device) for _ in range(8)]

    @wrap
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        with torch.autocast(torch.device(device).type, dtype=torch.bfloat16):
            loss = F.mse_loss(model(x).float(), x)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    while True:
        for x in data:
            yield step(x), model


def averaged_weights(wrap: Any, device: Any) -> Items:
    """An exponential moving average of the weights beside SGD, by AveragedModel."""
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
    averaged = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = [(torch.randn(16, 16).to(device), torch.randn(16, 4).to(device)) for _ in range(8)]

    @wrap
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        averaged.update_parameters(model)
        return loss.detach()

    while True:
        for x, y in data:
            yield step(x, y), averaged


class Agent(nn.Module):
    """CleanRL's actor and critic."""

    def __init__(self, observations: int = 8, actions: int = 4) -> None:
        super().__init__()
        self.critic = nn.Sequential(self.layer(observations, 64), nn.Tanh(), self.layer(64, 1, 1.0))
        self.actor = nn.Sequential(self.layer(observations, 64), nn.Tanh(), self.layer(64, actions, 0.01))

    @staticmethod
    def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
        layer = nn.Linear(inputs, outputs)
        nn.init.orthogonal_(layer.weight, gain)
        nn.init.constant_(layer.bias, 0.0)
        return layer

    def act(self, x: Tensor, action: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        probabilities = torch.distributions.Categorical(logits=self.actor(x))
        if action is None:
            action = probabilities.sample()
        return action, probabilities.log_prob(action), probabilities.entropy(), self.critic(x)


def ppo_rollout(wrap: Any, device: Any) -> Items:
    """CleanRL's PPO: the policy acts, and values fill the storage at a step."""
    agent = Agent().to(device)
    act = wrap(torch.no_grad()(agent.act))
    stored = torch.zeros(16, 4, 8, device=device)
    values = torch.zeros(16, 4, device=device)
    while True:
        observation = torch.randn(4, 8).to(device)
        for step in range(16):
            action, log_probability, _, value = act(observation)
            stored[step], values[step] = observation, value.flatten()
            observation = torch.tanh(observation + action[:, None] * 0.1 + torch.randn(4, 8).to(device) * 0.1)
            yield action, log_probability, values


def ppo_update(wrap: Any, device: Any) -> Items:
    """CleanRL's PPO update on a minibatch, with Adam, annealed learning rate and clipped losses."""
    agent = Agent().to(device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)

    @wrap
    def update(x: Tensor, actions: Tensor, old: Tensor, advantages: Tensor, returns: Tensor) -> list[Tensor]:
        _, new, entropy, value = agent.act(x, actions)
        ratio = (new - old).exp()
        with torch.no_grad():
            kl = ((ratio - 1) - (new - old)).mean()
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        losses = torch.max(-advantages * ratio, -advantages * torch.clamp(ratio, 0.8, 1.2))
        loss = losses.mean() - 0.01 * entropy.mean() + 0.5 * F.mse_loss(value.view(-1), returns)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()
        return [loss.detach(), kl]

    for iteration in range(1, 10_000):
        optimizer.param_groups[0]["lr"] = 2.5e-4 * (1 - iteration / 10_000)
        for _ in range(4):
            rows = [torch.randn(32, 8), torch.randint(4, (32,)), *torch.randn(3, 32)]
            yield update(*[row.to(device) for row in rows]), agent


def sac_update(wrap: Any, device: Any) -> Items:
    """CleanRL's SAC: two critics, a target network, and a temperature that is tuned and read as a number."""
    critics = nn.ModuleList(
        nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1)) for _ in range(2)
    ).to(device)
    targets = copy.deepcopy(critics)
    actor = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
    log_alpha = torch.zeros(1, requires_grad=True, device=device)
    critic_optimizer = torch.optim.Adam(critics.parameters(), lr=1e-3)
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=3e-4)
    alpha_optimizer = torch.optim.Adam([log_alpha], lr=1e-3)

    def act(x: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = actor(x).chunk(2, -1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
        raw = normal.rsample()
        action = torch.tanh(raw)
        return action, (normal.log_prob(raw) - torch.log(1 - action.pow(2) + 1e-6)).sum(1, keepdim=True)

    @wrap
    def update(x: Tensor, action: Tensor, reward: Tensor, following: Tensor) -> list[float]:
        alpha = log_alpha.exp().item()
        with torch.no_grad():
            next_action, log_probability = act(following)
            both = torch.cat([following, next_action], 1)
            wanted = reward + 0.99 * (
                torch.min(*[target(both) for target in targets]) - alpha * log_probability
            )
        loss = sum(F.mse_loss(critic(torch.cat([x, action], 1)), wanted) for critic in critics)
        critic_optimizer.zero_grad()
        loss.backward()
        critic_optimizer.step()
        made, log_probability = act(x)
        value = torch.min(*[critic(torch.cat([x, made], 1)) for critic in critics])
        actor_loss = (alpha * log_probability - value).mean()
        actor_optimizer.zero_grad()
        actor_loss.backward()
        actor_optimizer.step()
        alpha_loss = (-log_alpha.exp() * (log_probability.detach() - 2)).mean()
        alpha_optimizer.zero_grad()
        alpha_loss.backward()
        alpha_optimizer.step()
        for mine, other in zip(critics.parameters(), targets.parameters(), strict=True):
            other.data.copy_(0.005 * mine.data + 0.995 * other.data)
        return [loss.item(), actor_loss.item()]

    while True:
        rows = torch.randn(16, 4), torch.rand(16, 2), torch.randn(16, 1), torch.randn(16, 4)
        yield update(*[row.to(device) for row in rows]), actor, targets, log_alpha


def dqn_with_target(wrap: Any, device: Any) -> Items:
    """DQN with epsilon-greedy acting by Python's random numbers, and a target that is copied now and then."""
    import random

    network = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3)).to(device)
    target = copy.deepcopy(network)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)

    @wrap
    def train(x: Tensor, action: Tensor, reward: Tensor, following: Tensor, done: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = reward + 0.99 * target(following).max(1).values * (1 - done)
        loss = F.smooth_l1_loss(network(x).gather(1, action[:, None]).squeeze(1), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    for step in range(10**9):
        x = torch.randn(16, 4).to(device)
        with torch.no_grad():
            greedy = int(network(x[:1]).argmax())
        chosen = random.randrange(3) if random.random() < max(0.05, 1 - step / 100) else greedy
        action = torch.full((16,), chosen, device=device)
        loss = train(
            x, action, *[row.to(device) for row in (torch.randn(16), torch.randn(16, 4), torch.zeros(16))]
        )
        if step % 20 == 0:
            target.load_state_dict(network.state_dict())
        yield loss, chosen, network, target


def maml(wrap: Any, device: Any) -> Items:
    """MAML by torch.func: an inner step of gradients, through which the outer step differentiates."""
    model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1)).to(device)
    parameters = {name: value.detach().clone() for name, value in model.named_parameters()}

    def loss_of(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(functional_call(model, weights, (x,)), y)

    def adapted(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        gradients = grad(loss_of)(weights, x[:8], y[:8])
        fast = {name: value - 0.1 * gradients[name] for name, value in weights.items()}
        return loss_of(fast, x[8:], y[8:])

    @wrap
    def step(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> dict[str, Tensor]:
        def outer(weights: dict[str, Tensor]) -> Tensor:
            return vmap(adapted, in_dims=(None, 0, 0))(weights, x, y).mean()

        gradients = grad(outer)(weights)
        return {name: value - 0.01 * gradients[name] for name, value in weights.items()}

    while True:
        x = torch.rand(4, 16, 1).to(device) * 6
        parameters = step(parameters, x, torch.sin(x + torch.rand(4, 1, 1).to(device)))
        yield parameters


def maml_with_autograd(wrap: Any, device: Any) -> Items:
    """MAML as before torch.func: ``create_graph`` in the inner loop, two steps of it."""
    weights = [torch.randn(32, 1), torch.zeros(32), torch.randn(1, 32) * 0.1, torch.zeros(1)]
    weights = [weight.to(device).requires_grad_() for weight in weights]
    optimizer = torch.optim.SGD(weights, lr=0.01)

    def forward(w: list[Tensor], x: Tensor) -> Tensor:
        return F.linear(torch.tanh(F.linear(x, w[0], w[1])), w[2], w[3])

    @wrap
    def step(x: Tensor, y: Tensor) -> Tensor:
        fast = weights
        for _ in range(2):
            loss = F.mse_loss(forward(fast, x[:8]), y[:8])
            gradients = torch.autograd.grad(loss, fast, create_graph=True)
            fast = [value - 0.1 * slope for value, slope in zip(fast, gradients, strict=True)]
        outer = F.mse_loss(forward(fast, x[8:]), y[8:])
        optimizer.zero_grad()
        outer.backward()
        optimizer.step()
        return outer.detach()

    while True:
        x = torch.rand(16, 1).to(device) * 6
        yield step(x, torch.sin(x)), weights


def ensemble(wrap: Any, device: Any) -> Items:
    """An ensemble of models by stacked weights and vmap."""
    models = [nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)).to(device) for _ in range(4)]
    parameters, buffers = stack_module_state(models)
    base = copy.deepcopy(models[0]).to("meta")

    def one(p: Any, b: Any, x: Tensor) -> Tensor:
        return functional_call(base, (p, b), (x,))

    @wrap
    def predict(x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            found = vmap(one, in_dims=(0, 0, None))(parameters, buffers, x)
        return found.mean(0), found.std(0)

    while True:
        yield predict(torch.randn(16, 8).to(device))


def nerf(wrap: Any, device: Any) -> Items:
    """NeRF: rays sampled at random depths, positional encoding, volume rendering, Adam with decay by hand."""
    network = nn.Sequential(nn.Linear(27, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)).to(
        device
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-4)

    def encode(x: Tensor, levels: int = 4) -> Tensor:
        parts = [x]
        for level in range(levels):
            parts += [torch.sin(2.0**level * x), torch.cos(2.0**level * x)]
        return torch.cat(parts, -1)

    def render(origins: Tensor, directions: Tensor, samples: int = 16) -> Tensor:
        depths = torch.linspace(2.0, 6.0, samples, device=origins.device).expand(len(origins), samples)
        middle = 0.5 * (depths[:, 1:] + depths[:, :-1])
        upper, lower = torch.cat([middle, depths[:, -1:]], -1), torch.cat([depths[:, :1], middle], -1)
        depths = lower + (upper - lower) * torch.rand(depths.shape, device=origins.device)
        points = origins[:, None] + directions[:, None] * depths[..., None]
        raw = network(encode(points))
        distances = torch.cat([depths[:, 1:] - depths[:, :-1], torch.full_like(depths[:, :1], 1e10)], -1)
        alpha = 1 - torch.exp(-F.relu(raw[..., 3]) * distances)
        seen = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1), -1)[:, :-1]
        return ((alpha * seen)[..., None] * torch.sigmoid(raw[..., :3])).sum(1)

    @wrap
    def step(origins: Tensor, directions: Tensor, wanted: Tensor) -> Tensor:
        loss = F.mse_loss(render(origins, directions), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    for iteration in range(10**9):
        rays = torch.randn(32, 3).to(device), F.normalize(torch.randn(32, 3), dim=-1).to(device)
        yield step(*rays, torch.rand(32, 3).to(device)), network
        for group in optimizer.param_groups:
            group["lr"] = 5e-4 * 0.1 ** (iteration / 250_000)


class Mamba(nn.Module):
    """A selective state space layer in plain PyTorch, with the scan as a loop."""

    def __init__(self, width: int = 16, states: int = 8) -> None:
        super().__init__()
        self.inside = nn.Linear(width, 4 * width)
        self.conv = nn.Conv1d(2 * width, 2 * width, 4, padding=3, groups=2 * width)
        self.chosen, self.steps = nn.Linear(2 * width, 2 * states + 1), nn.Linear(1, 2 * width)
        self.log_a = nn.Parameter(torch.log(torch.arange(1.0, states + 1)).repeat(2 * width, 1))
        self.skip, self.outside = nn.Parameter(torch.ones(2 * width)), nn.Linear(2 * width, width)
        self.states = states

    def forward(self, x: Tensor) -> Tensor:
        x, gate = self.inside(x).chunk(2, -1)
        x = F.silu(self.conv(x.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        step, b, c = self.chosen(x).split([1, self.states, self.states], -1)
        step = F.softplus(self.steps(step))
        a = torch.exp(step[..., None] * -torch.exp(self.log_a))
        bx = step[..., None] * b[:, :, None] * x[..., None]
        h, found = torch.zeros_like(a[:, 0]), []
        for t in range(x.shape[1]):
            h = a[:, t] * h + bx[:, t]
            found.append((h * c[:, t, None]).sum(-1))
        return self.outside((torch.stack(found, 1) + self.skip * x) * F.silu(gate))


def mamba(wrap: Any, device: Any) -> Items:
    """Inference of a Mamba layer, sequences of one length."""
    model = wrap(Mamba().to(device).eval())
    with torch.no_grad():
        while True:
            yield model(torch.randn(2, 12, 16).to(device))


def recurrent_with_states(wrap: Any, device: Any) -> Items:
    """An LSTM cell whose states are kept in a list on the module, and which is reset now and then."""

    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = nn.ModuleList([nn.LSTMCell(8, 16), nn.LSTMCell(16, 16)])
            self.head = nn.Linear(16, 4)
            self.states: list[Any] = [None, None]

        def reset(self) -> None:
            self.states = [None, None]

        def forward(self, x: Tensor) -> Tensor:
            for number, cell in enumerate(self.cells):
                self.states[number] = cell(x, self.states[number])
                x = self.states[number][0]
            return self.head(x)

    policy = Policy().to(device).eval()
    act = wrap(policy)
    with torch.no_grad():
        while True:
            policy.reset()
            for _ in range(20):
                yield act(torch.randn(1, 8).to(device)), policy.states


def gan(wrap: Any, device: Any) -> Items:
    """A GAN: two optimizers, labels filled with numbers, losses read with ``.item()``."""
    generator = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16), nn.Tanh()).to(device)
    critic = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1), nn.Sigmoid()).to(device)
    of_critic = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
    of_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    criterion = nn.BCELoss()

    @wrap
    def step(real: Tensor) -> tuple[float, float, float]:
        critic.zero_grad()
        label = torch.full((len(real),), 1.0, device=real.device)
        found = critic(real).view(-1)
        of_real = criterion(found, label)
        of_real.backward()
        fake = generator(torch.randn(len(real), 8, device=real.device))
        label.fill_(0.0)
        of_fake = criterion(critic(fake.detach()).view(-1), label)
        of_fake.backward()
        of_critic.step()
        generator.zero_grad()
        label.fill_(1.0)
        fooled = criterion(critic(fake).view(-1), label)
        fooled.backward()
        of_generator.step()
        return (of_real + of_fake).item(), fooled.item(), found.mean().item()

    while True:
        yield step(torch.rand(16, 16).to(device) * 2 - 1), generator, critic


def variational_autoencoder(wrap: Any, device: Any) -> Items:
    """A VAE whose weight on the divergence grows with a counter on the module."""

    class VAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = nn.Linear(16, 16), nn.Linear(8, 16)
            self.step = 0

        def forward(self, x: Tensor) -> Tensor:
            self.step += 1
            mean, log_variance = self.encoder(x).chunk(2, -1)
            z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
            divergence = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum(-1).mean()
            return F.mse_loss(self.decoder(z), x) + min(1.0, self.step / 100) * divergence

    model = VAE().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    forward = wrap(model)
    while True:
        loss = forward(torch.randn(8, 16).to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.detach(), model, model.step


def running_log(wrap: Any, device: Any) -> Items:
    """A training step that logs: a running loss in a Python number, and a line each tenth step."""
    model = nn.Linear(16, 4).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    log: list[str] = []
    running = {"loss": 0.0, "steps": 0}

    @wrap
    def step(x: Tensor, y: Tensor) -> None:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        running["loss"] += loss.item()
        running["steps"] += 1
        if running["steps"] % 10 == 0:
            log.append(f"{running['steps']}: {running['loss'] / 10:.4f}")
            running["loss"] = 0.0

    while True:
        step(torch.randn(8, 16).to(device), torch.randint(4, (8,)).to(device))
        yield dict(running), log[-1:], model


def sharpness_aware(wrap: Any, device: Any) -> Items:
    """SAM: two passes, and weights that are moved and moved back."""
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    @wrap
    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        with torch.no_grad():
            norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
            moved = [p.grad * (0.05 / (norm + 1e-12)) for p in model.parameters()]
            torch._foreach_add_(list(model.parameters()), moved)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            torch._foreach_sub_(list(model.parameters()), moved)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    while True:
        yield step(torch.randn(8, 16).to(device), torch.randint(4, (8,)).to(device)), model


def generator_first(wrap: Any, device: Any) -> Items:
    """A GAN whose generator goes first: its backward adds to gradients that the critic has left."""
    generator = nn.Sequential(nn.Linear(8, 32), nn.LeakyReLU(0.2, inplace=True), nn.Linear(32, 16), nn.Tanh())
    critic = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2, inplace=True), nn.Linear(32, 1), nn.Sigmoid())
    generator, critic, criterion = generator.to(device), critic.to(device), nn.BCELoss()
    of_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    of_critic = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))

    @wrap
    def step(real: Tensor) -> tuple[float, float]:
        valid = torch.Tensor(len(real), 1).fill_(1.0).to(real.device)
        fake = torch.Tensor(len(real), 1).fill_(0.0).to(real.device)
        of_generator.zero_grad()
        noise = torch.Tensor(np.random.normal(0, 1, (len(real), 8))).to(real.device)
        made = generator(noise)
        fooled = criterion(critic(made), valid)
        fooled.backward()
        of_generator.step()
        of_critic.zero_grad()
        loss = (criterion(critic(real), valid) + criterion(critic(made.detach()), fake)) / 2
        loss.backward()
        of_critic.step()
        return loss.item(), fooled.item()

    while True:
        yield step(torch.rand(16, 16).to(device) * 2 - 1), generator, critic


def every_fourth_step(wrap: Any, device: Any) -> Items:
    """Gradients accumulated by the number of the step: clipped, stepped and scheduled in each fourth call."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda count: min(1.0, (count + 1) / 10))

    @wrap
    def step(number: int, x: Tensor, y: Tensor) -> float:
        loss = F.cross_entropy(model(x), y) / 4
        loss.backward()
        if (number + 1) % 4 == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        return loss.item()

    for number in range(10**9):
        yield step(number, torch.randn(8, 8).to(device), torch.randint(4, (8,)).to(device)), model


def bootstrapped(wrap: Any, device: Any) -> Items:
    """BYOL: the target's weights are bound anew by ``.data``, with a momentum that depends on the step."""
    online = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8)).to(device)
    predictor, target = nn.Linear(8, 8).to(device), copy.deepcopy(online).requires_grad_(False)
    optimizer = torch.optim.SGD([*online.parameters(), *predictor.parameters()], lr=0.05, momentum=0.9)
    state = {"step": 0}

    @wrap
    def step(one: Tensor, other: Tensor) -> Tensor:
        momentum = 1 - 0.01 * (math.cos(math.pi * state["step"] / 1000) + 1) / 2
        state["step"] += 1
        with torch.no_grad():
            wanted = target(other)
        loss = 2 - 2 * F.cosine_similarity(predictor(online(one)), wanted).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for mine, theirs in zip(online.parameters(), target.parameters(), strict=True):
            theirs.data = theirs.data * momentum + mine.data * (1 - momentum)
        return loss.detach()

    while True:
        yield step(torch.randn(8, 16).to(device), torch.randn(8, 16).to(device)), online, target


def coarse_and_fine(wrap: Any, device: Any) -> Items:
    """NeRF's two networks: the fine one is asked where the weights of the coarse one lie."""
    coarse = nn.Sequential(nn.Linear(9, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
    fine = copy.deepcopy(coarse)
    optimizer = torch.optim.Adam([*coarse.parameters(), *fine.parameters()], lr=5e-4)
    state = {"step": 0}

    def render(network: nn.Module, rays: Tensor, depths: Tensor) -> tuple[Tensor, Tensor]:
        points = rays[:, None, :3] + rays[:, None, 3:] * depths[..., None]
        raw = network(torch.cat([points, points.sin(), points.cos()], -1))
        last = torch.Tensor([1e10]).to(rays.device).expand(depths[..., :1].shape)
        alpha = 1 - torch.exp(
            -F.relu(raw[..., 3]) * torch.cat([depths[..., 1:] - depths[..., :-1], last], -1)
        )
        clear = torch.cumprod(torch.cat([torch.ones_like(last), 1 - alpha + 1e-10], -1), -1)[:, :-1]
        return ((alpha * clear)[..., None] * torch.sigmoid(raw[..., :3])).sum(-2), alpha * clear

    @wrap
    def step(rays: Tensor, wanted: Tensor) -> tuple[float, float]:
        depths = torch.linspace(2.0, 6.0, 8, device=rays.device).expand(len(rays), 8)
        seen, weights = render(coarse, rays, depths)
        share = torch.cumsum(F.normalize(weights[..., 1:-1] + 1e-5, p=1, dim=-1), -1)
        at = torch.searchsorted(share, torch.rand(len(rays), 6, device=rays.device), right=True)
        more = torch.gather(depths, 1, at.clamp(max=7)).detach()
        colours, _ = render(fine, rays, torch.sort(torch.cat([depths, more], -1), -1).values)
        error = F.mse_loss(colours, wanted)
        optimizer.zero_grad()
        (error + F.mse_loss(seen, wanted)).backward()
        optimizer.step()
        state["step"] += 1
        for group in optimizer.param_groups:
            group["lr"] = 5e-4 * 0.1 ** (state["step"] / 250_000)
        return error.item(), (-10.0 * torch.log(error) / torch.log(torch.Tensor([10.0]).to(error))).item()

    while True:
        yield step(torch.randn(8, 6).to(device), torch.rand(8, 3).to(device)), coarse, fine
