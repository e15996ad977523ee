"""How code of robot policies, samplers, replay buffers and detectors is written."""

import collections
import random

import numpy
import torch
import torch.nn.functional as F
from torch import nn

from ..case import Group

group = Group()


def rand(device, *shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device)


def whole(device, *shape, most=10, seed=0):
    return torch.randint(0, most, shape, generator=torch.Generator().manual_seed(seed)).to(device)


@group
def statistics_asserted_to_be_finite(device):
    class Normalize(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(4))
            self.register_buffer("std", torch.ones(4))

        def forward(self, batch):
            batch = dict(batch)
            assert not torch.isinf(self.mean).any(), "no statistics"  # stops
            batch["state"] = (batch["state"] - self.mean) / (self.std + 1e-8)
            return batch["state"]

    return Normalize().to(device), ({"state": rand(device, 2, 4)},)


@group
def trajectory_inpainted(device):
    net = nn.Linear(6, 6).to(device)

    def sample(condition, mask):
        x = torch.zeros_like(condition)
        for _ in range(3):
            x[mask] = condition[mask]  # stops
            x = x - 0.1 * net(x)
        return x

    return sample, (rand(device, 2, 6), rand(device, 2, 6, seed=1) > 0)


@group
def flow_integrated_until_a_tensor_ends(device):
    net = nn.Linear(6, 6).to(device)

    def sample(x, steps=5):
        dt = torch.tensor(-1.0 / steps, dtype=torch.float32, device=x.device)  # stops
        time = torch.tensor(1.0, dtype=torch.float32, device=x.device)  # stops
        while time >= -dt / 2:  # stops
            x = x + dt * net(x) * time.expand(x.shape[0])[:, None]
            time = time + dt
        return x

    return sample, (rand(device, 2, 6),)


@group
def flow_integrated_over_a_grid(device):
    net = nn.Linear(6, 6).to(device)

    def sample(x, steps=5):
        times = torch.linspace(0, 1, steps + 1, device=x.device)
        for start, end in zip(times[:-1], times[1:], strict=True):  # noqa: RUF007
            x = x + (end - start) * net(x)
        return x

    return sample, (rand(device, 2, 6),)


@group
def hidden_state_kept_on_self(device):
    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru = nn.Linear(8, 4)
            self.state = torch.zeros(1, 4, device=device)

        @torch.no_grad()
        def forward(self, x):
            self.state = self.gru(torch.cat([x, self.state], 1)).tanh()  # wrong
            return self.state * 2

    return Policy().to(device), (rand(device, 1, 4),)


@group
def actions_smoothed(device):
    class Smooth(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = torch.zeros(3, device=device)

        def forward(self, x):
            action = 0.3 * x + 0.7 * self.last
            self.last = action.detach()  # wrong
            return action + 0

    return Smooth(), (rand(device, 3),)


@group
def frames_stacked(device):
    class Stack(nn.Module):
        def __init__(self):
            super().__init__()
            self.frames = collections.deque([torch.zeros(3, device=device)] * 4, maxlen=4)

        def forward(self, x):
            self.frames.append(x)  # wrong
            return torch.stack(tuple(self.frames)).sum(0)

    return Stack(), (rand(device, 3),)


@group
def action_for_a_simulator(device):
    net = nn.Linear(4, 2).to(device)

    def act(observation):
        with torch.no_grad():
            action = net(observation)
        return action.cpu().numpy()  # stops

    return act, (rand(device, 1, 4),)


@group
def a_scale_drawn_by_python(device):
    net = nn.Linear(4, 4).to(device)

    def act(x):
        scale = random.uniform(2.0, 3.0)  # wrong
        return net(x) * scale  # wrong

    return act, (rand(device, 3, 4),)


@group
def skipped_by_a_number_of_torch_on_the_host(device):
    def fn(x):
        return x * 2 if torch.rand(1).item() < 0.5 else x * 3  # wrong

    return fn, (rand(device, 3, 4),)


@group
def replay_buffer_with_indices_of_the_host(device):
    data = rand(device, 100, 4)

    def fn(x):
        rows = torch.randint(0, 100, (8,))  # wrong
        return data[rows] + x  # stops

    return fn, (rand(device, 4),)


@group
def replay_buffer_with_indices_of_numpy(device):
    data = rand(device, 100, 4)

    def fn(x):
        rows = numpy.random.randint(0, 100, size=8)  # wrong
        return data[rows] + x  # stops

    return fn, (rand(device, 4),)


@group
def rows_in_an_array(device):
    rows = numpy.array([0, 2, 1])

    def fn(x):
        return x[rows] * 2  # stops

    return fn, (rand(device, 4, 4),)


@group
def target_network_followed(device):
    online, target = nn.Linear(3, 3).to(device), nn.Linear(3, 3).to(device)

    @torch.no_grad()
    def fn(x):
        for mine, other in zip(target.parameters(), online.parameters(), strict=True):
            mine.data.lerp_(other.data, 0.01)
        return target(x)

    return fn, (rand(device, 3),)


@group
def policy_updated_until_it_is_far(device):
    net = nn.Linear(4, 4).to(device)

    def fn(x, old):
        for _ in range(3):
            new = net(x).log_softmax(-1)
            x = x * 0.5
            if (old.exp() * (old - new)).sum(-1).mean() > 0.015:  # stops
                break
        return new

    return fn, (rand(device, 3, 4), rand(device, 3, 4, seed=1).log_softmax(-1))


@group
def advantages_by_a_loop(device):
    def fn(rewards, values):
        advantages, last = torch.zeros_like(rewards), 0
        for t in reversed(range(rewards.shape[0] - 1)):
            delta = rewards[t] + 0.99 * values[t + 1] - values[t]
            advantages[t] = last = delta + 0.9 * last
        return (advantages - advantages.mean()) / (advantages.std() + 1e-8)

    return fn, (rand(device, 5, 2), rand(device, 5, 2, seed=1))


@group
def rotation_of_six_numbers(device):
    def fn(x):
        first = F.normalize(x[..., :3], dim=-1)
        second = x[..., 3:] - (first * x[..., 3:]).sum(-1, keepdim=True) * first
        second = F.normalize(second, dim=-1)
        return torch.stack((first, second, torch.linalg.cross(first, second)), dim=-2)

    return fn, (rand(device, 5, 6),)


@group
def patches_masked_for_an_autoencoder(device):
    def fn(x, noise):
        order = noise.argsort(dim=1)
        kept = order[:, : int(x.shape[1] * 0.25)]
        rows = torch.gather(x, 1, kept.unsqueeze(-1).repeat(1, 1, x.shape[2]))
        mask = torch.ones(x.shape[:2], device=x.device)
        mask[:, : kept.shape[1]] = 0
        return rows, torch.gather(mask, 1, order.argsort(dim=1))

    return fn, (rand(device, 2, 8, 4), rand(device, 2, 8, seed=1))


@group
def constants_by_old_constructors(device):
    def fn(x):
        weights = torch.FloatTensor([1.0, 2.0, 3.0]).to(x.device)  # stops
        return x * weights + x.new([1.0, 2.0, 3.0])  # stops

    return fn, (rand(device, 3),)


@group
def timesteps_embedded_on_the_host(device):
    def fn(t):
        rates = torch.exp(-torch.arange(4, dtype=torch.float32)).to(device=t.device)  # stops
        angles = t[:, None] * rates[None]
        return torch.cat([angles.cos(), angles.sin()], -1)

    return fn, (rand(device, 3),)


@group
def logits_cut_at_the_best(device):
    def fn(logits):
        logits = logits.clone()
        values, _ = logits.topk(3)
        logits[logits < values[:, [-1]]] = -float("inf")  # stops
        return logits.softmax(-1)

    return fn, (rand(device, 2, 10),)


@group
def row_chosen_by_a_tensor_without_dimensions(device):
    def fn(x, i):
        row = x[i]  # stops
        return row * 2

    return fn, (rand(device, 5, 3), torch.tensor(2, device=device))


@group
def codebook_that_starts_with_its_first_batch(device):
    class Codebook(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("started", torch.tensor([True]))
            self.register_buffer("codes", torch.linspace(-1, 1, 20).view(5, 4))

        def forward(self, x):
            if not self.started:  # stops
                self.codes.copy_(x[:5])
            nearest = torch.cdist(x, self.codes).argmin(-1)
            return F.embedding(nearest, self.codes), F.one_hot(nearest, 5).sum(0)

    return Codebook().to(device), (rand(device, 6, 4),)


@group
def boxes_above_a_score(device):
    def fn(boxes, scores):
        keep = scores > 0.5
        boxes = boxes[keep]  # stops
        return boxes * 2

    return fn, (rand(device, 6, 4), rand(device, 6, seed=1).abs())


@group
def images_padded_to_one_size(device):
    def fn(images):
        height, width = max(i.shape[-2] for i in images), max(i.shape[-1] for i in images)
        batch = images[0].new_full((len(images), 3, height, width), 0.0)
        for image, place in zip(images, batch, strict=True):
            place[..., : image.shape[-2], : image.shape[-1]].copy_(image)
        return batch

    return fn, ([rand(device, 3, 4, 4), rand(device, 3, 5, 3, seed=1)],)


@group
def batch_norm_that_averages_over_all_batches(device):
    net = nn.BatchNorm1d(4, momentum=None).to(device)

    def fn(x):
        return net(x)  # stops

    return fn, (rand(device, 6, 4),)


@group
def indexed_in_inference_mode(device):
    net = nn.Linear(4, 4).to(device)

    @torch.inference_mode()
    def fn(x):
        return net(x)[..., 0].clone()

    return fn, (rand(device, 8, 4),)
