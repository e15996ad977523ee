"""State that changes, random numbers, gradients, streams."""

import torch
import torch.nn.functional as F
from torch import nn

from ..case import Group
from .values import rand

group = Group()


def linear(device, *sizes):
    torch.manual_seed(0)
    return nn.Linear(*sizes).to(device)


@group
def scale_stored_on_the_layer(device):
    class Quantised(nn.Module):
        def __init__(self):
            super().__init__()
            self._act_scale = torch.ones((), device=device)
            self.weight = nn.Parameter(torch.ones(4, 4))

        def forward(self, x):
            self._act_scale = 0.9 * self._act_scale + 0.1 * x.abs().max() / 127  # wrong
            return F.linear((x / self._act_scale).round() * self._act_scale, self.weight)

    return Quantised().to(device), (rand(device, 8, 4),)


@group
def running_maximum_as_attribute(device):
    class Observer(nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = torch.zeros((), device=device)

        def forward(self, x):
            self.seen = torch.maximum(self.seen, x.abs().max() + self.seen / 2)  # wrong
            return x / self.seen

    return Observer().to(device), (rand(device, 8, 4),)


@group
def a_python_counter(device):
    class Annealed(nn.Module):
        def __init__(self):
            super().__init__()
            self.steps = 0

        def forward(self, x):
            self.steps += 1  # wrong
            return x / self.steps  # wrong

    return Annealed().to(device), (rand(device, 8, 4),)


@group
def cache_that_grows(device):
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.keys = []

        def forward(self, x):
            self.keys.append(x * 2)  # wrong
            return torch.cat(self.keys).sum(0)  # wrong

    return Cache().to(device), (rand(device, 1, 4),)


@group
def cache_concatenated(device):
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.keys = torch.zeros(0, 4)

        def forward(self, x):
            self.keys = torch.cat([self.keys.to(x.device), x])  # wrong
            return self.keys.mean(0)

    return Cache().to(device), (rand(device, 1, 4),)


@group
def alternating_paths(device):
    class PingPong(nn.Module):
        def __init__(self):
            super().__init__()
            self.flip = False

        def forward(self, x):
            self.flip = not self.flip  # wrong
            return x * 2 if self.flip else x * 3  # wrong

    return PingPong().to(device), (rand(device, 8),)


@group
def last_input_kept(device):
    class Difference(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = None

        def forward(self, x):
            y = x if self.last is None else x - self.last
            self.last = x.clone()  # wrong
            return y

    return Difference().to(device), (rand(device, 8),)


@group
def global_list(device):
    history = []

    def fn(x):
        history.append(float(len(history)))  # wrong
        return x + history[-1]  # wrong

    return fn, (rand(device, 8),)


@group
def mutable_default(device):
    def fn(x, seen=[]):  # noqa: B006
        seen.append(1)  # wrong
        return x * len(seen)  # wrong

    return fn, (rand(device, 8),)


@group
def learning_rate_from_python(device):
    model = linear(device, 4, 4)
    schedule = iter(0.1 / (1 + n) for n in range(10_000))

    def fn(x):
        with torch.no_grad():
            rate = next(schedule)  # wrong
            return model(x) * rate  # wrong

    return fn, (rand(device, 8, 4),)


@group
def gradients_dropped_every_step(device):
    model = linear(device, 4, 4)

    def fn(x):
        model.weight.grad = None
        model.bias.grad = None
        loss = model(x).square().mean()
        loss.backward()
        return loss.detach(), model.weight.grad * 1

    return fn, (rand(device, 8, 4),)


@group
def parameter_rebound(device):
    model = linear(device, 4, 4)

    def fn(x):
        y = model(x)
        with torch.no_grad():
            model.weight.data = model.weight.data * 0.5  # wrong
        return y.detach()

    return fn, (rand(device, 8, 4),)


@group
def synchronised(device):
    def fn(x):
        y = x * 2
        if y.is_cuda:
            torch.cuda.synchronize()  # stops
        return y + 1

    return fn, (rand(device, 8),)


@group
def timed_by_events(device):
    def fn(x):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        y = x @ x
        end.record()
        end.synchronize()  # stops
        return y

    return fn, (rand(device, 8, 8),)


@group
def a_manual_seed_inside(device):
    def fn(x):
        torch.manual_seed(0)  # wrong
        return x + torch.rand_like(x)

    return fn, (rand(device, 8),)


@group
def a_host_generator(device):
    generator = torch.Generator()

    def fn(x):
        return x + torch.randn(8, generator=generator).to(x.device)  # stops

    return fn, (rand(device, 8),)


@group
def memory_emptied(device):
    def fn(x):
        y = x * 2
        torch.cuda.empty_cache()
        return y + 1

    return fn, (rand(device, 8),)


@group
def running_buffer_in_place(device):
    class Observer(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x):
            self.seen.copy_(torch.maximum(self.seen, x.abs().max()))
            return x / self.seen.clamp(min=1e-6)

    return Observer().to(device), (rand(device, 8, 4),)


@group
def static_cache_in_place(device):
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("keys", torch.zeros(16, 4))
            self.register_buffer("position", torch.zeros(1, dtype=torch.long))

        def forward(self, x):
            self.keys.index_copy_(0, self.position, x)
            self.position.add_(1).remainder_(16)
            return self.keys.mean(0)

    return Cache().to(device), (rand(device, 1, 4),)


@group
def counter_on_the_device(device):
    steps = torch.zeros((), device=device)

    def fn(x):
        steps.add_(1)
        return x / steps

    return fn, (rand(device, 8),)


@group
def dropout_of_the_device(device):
    def fn(x):
        return F.dropout(x, 0.5) + torch.rand_like(x) * 0

    return fn, (rand(device, 8),)


@group
def batch_norm_in_training(device):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8, track_running_stats=True), nn.ReLU())
    return model.to(device), (rand(device, 8, 4),)


@group
def dynamic_scale(device):
    class Quantised(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4, 4))

        def forward(self, x):
            scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-5) / 127
            return F.linear((x / scale).round() * scale, self.weight)

    return Quantised().to(device), (rand(device, 8, 4),)


@group
def step_of_sgd(device):
    model = linear(device, 4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def fn(x):
        optimizer.zero_grad(set_to_none=False)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return fn, (rand(device, 8, 4),)


@group
def python_settings_read(device):
    settings = {"scale": 0.5, "act": "gelu"}

    def fn(x):
        act = getattr(F, settings["act"])
        return act(x) * settings["scale"]

    return fn, (rand(device, 8),)
