"""Short programs as users write them, with what changes in between: policies, samplers, caches, loops."""

from __future__ import annotations

import asyncio
import collections
import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from tests.differential.harness import check
from torch import nn
from torch.nn import functional

CALLS = 12


def rows(*shape):
    return torch.randn(*shape)


def weights(module):
    return [parameter.detach().clone() for parameter in module.parameters()]


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 16), nn.Tanh())
        self.policy, self.value = nn.Linear(16, 4), nn.Linear(16, 1)

    def forward(self, x):
        h = self.body(x)
        mean, log_std = self.policy(h).chunk(2, -1)
        return mean, log_std, self.value(h).squeeze(-1)


def policy_gradient(wrap):
    torch.manual_seed(0)
    model = ActorCritic()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    act = wrap(model)
    for number in range(CALLS):
        mean, log_std, value = act(rows(8, 4))
        policy = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
        ratio = (policy.log_prob(rows(8, 2)).sum(-1) - rows(8)).exp()
        advantage = rows(8)
        loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        loss = loss + (value - rows(8)).square().mean() - 0.01 * policy.entropy().mean()
        optimizer.zero_grad(set_to_none=number % 2 == 0)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        yield loss, weights(model)


def heads_that_are_written(wrap):
    torch.manual_seed(0)
    net = nn.Linear(4, 6)
    head = wrap(lambda x: (lambda y: (y[..., :3], y[..., 3:]))(net(x)))
    for number in range(CALLS):
        mean, log_std = head(rows(3, 4))
        if number % 3:
            log_std.clamp_(-0.1, 0.1)
        loss = (mean * log_std.exp()).sum()
        loss.backward()
        yield loss, mean, log_std, net.weight.grad
        net.zero_grad()


def twin_critics(wrap):
    torch.manual_seed(0)
    critics = nn.ModuleList(nn.Linear(6, 1) for _ in range(2))
    targets = copy.deepcopy(critics).requires_grad_(False)
    optimizer = torch.optim.Adam(critics.parameters(), 1e-2, fused=True)
    settings = {"discount": 0.99}

    def update(state, action, reward, following):
        with torch.no_grad():
            best = torch.min(*[critic(following) for critic in targets])
            goal = reward + settings["discount"] * best
        now = torch.cat([state, action], -1)
        loss = sum((critic(now) - goal).square().mean() for critic in critics)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(targets.parameters()), list(critics.parameters()), 0.005)
        return loss.detach()

    step = wrap(update)
    for number in range(CALLS):
        if number == 8:
            settings["discount"] = 0.9
        yield step(rows(8, 4), rows(8, 2), rows(8, 1), rows(8, 6)), weights(targets)


def denoising(wrap):
    torch.manual_seed(0)
    net = nn.Linear(9, 8).requires_grad_(False)
    products = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 50), 0)
    schedule = {"eta": 0.0}

    def sample(x, count):
        times = list(range(49, -1, -(50 // count)))
        for time, following in zip(times, [*times[1:], -1], strict=True):
            noise = net(torch.cat([x, torch.full((x.shape[0], 1), time / 50)], -1))
            now = products[time]
            then = products[following] if following >= 0 else torch.tensor(1.0)
            clean = (x - (1 - now).sqrt() * noise) / now.sqrt()
            spread = schedule["eta"] * ((1 - then) / (1 - now) * (1 - now / then)).sqrt()
            x = then.sqrt() * clean + (1 - then - spread**2).sqrt() * noise + spread * torch.randn_like(x)
        return x

    denoise = wrap(sample)
    for number in range(CALLS):
        if number == 7:
            schedule["eta"] = 0.5
        yield denoise(rows(2, 8), 5 if number < 10 else 10)


def adapters(wrap):
    torch.manual_seed(0)

    class Adapted(nn.Module):
        def __init__(self):
            super().__init__()
            self.base = nn.Linear(4, 4)
            self.down, self.up = nn.Parameter(rows(2, 4)), nn.Parameter(rows(4, 2))
            self.on, self.alpha = True, 1.0

        def forward(self, x):
            y = self.base(x)
            return y + self.alpha * (x @ self.down.T @ self.up.T) if self.on else y

    model = nn.Sequential(Adapted(), nn.ReLU(), Adapted()).requires_grad_(False)
    call = wrap(model)
    for number in range(CALLS + 4):
        if number == 4:
            model[0].on = False
        if number == 7:
            model[0].on, model[2].alpha = True, 2.0
        if number == 10:
            model[0].base.weight += model[0].up @ model[0].down
        if number == 12:
            model[2].down = nn.Parameter(rows(2, 4), requires_grad=False)
        yield call(rows(2, 4))


def cached_attention(wrap):
    torch.manual_seed(0)

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.project = nn.Linear(8, 24)
            for name in ("keys", "values"):
                self.register_buffer(name, torch.zeros(1, 16, 8))
            self.register_buffer("at", torch.zeros((), dtype=torch.long))

        def forward(self, x):
            query, key, value = self.project(x).chunk(3, -1)
            self.keys.index_copy_(1, self.at[None], key)
            self.values.index_copy_(1, self.at[None], value)
            mask = (torch.arange(16) <= self.at)[None, None]
            self.at += 1
            return functional.scaled_dot_product_attention(query, self.keys, self.values, attn_mask=mask)

    attention = Attention().requires_grad_(False)
    call = wrap(attention)
    for number in range(CALLS):
        if number == 7:
            attention.at.zero_()
        yield call(rows(1, 1, 8)), attention.at, attention.keys


def beams(wrap):
    torch.manual_seed(0)
    words, cell, scores = nn.Embedding(20, 8), nn.GRUCell(8, 8), nn.Linear(8, 20)

    def search(h, beams=3, steps=5):
        batch = h.shape[0]
        h = h.repeat_interleave(beams, 0)
        found = torch.zeros(batch * beams, 1, dtype=torch.long)
        total = torch.full((batch, beams), -1e9)
        total[:, 0] = 0
        ended = torch.zeros(batch * beams, dtype=torch.bool)
        for _ in range(steps):
            h = cell(words(found[:, -1]), h)
            each = scores(h).log_softmax(-1).masked_fill(ended[:, None], -1e9)
            each[:, 1] = torch.where(ended, torch.zeros(()), each[:, 1])
            total, index = (total.view(-1, 1) + each).view(batch, -1).topk(beams)
            source = (torch.arange(batch)[:, None] * beams + index // 20).view(-1)
            token = (index % 20).view(-1)
            found, h = torch.cat([found[source], token[:, None]], 1), h[source]
            ended = ended[source] | (token == 1)
            if ended.all():
                break
        return found, total

    call = wrap(torch.no_grad()(search))
    for number in range(CALLS):
        yield call(rows(2, 8)) if number < 8 else call(rows(2, 8), steps=3)


def ensemble(wrap):
    torch.manual_seed(0)
    members = [nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)) for _ in range(3)]
    base = copy.deepcopy(members[0]).to("meta")
    parameters, buffers = torch.func.stack_module_state(members)

    def one(own, state, x):
        return torch.func.functional_call(base, (own, state), (x,))

    def run(x):
        answers = torch.vmap(one, in_dims=(0, 0, None))(parameters, buffers, x)
        return answers.mean(0), answers.std(0)

    call = wrap(run)
    for number in range(CALLS):
        if number == 6:
            with torch.no_grad():
                parameters["0.weight"][1].zero_()
        yield call(rows(5, 4))


def served_by_threads_and_tasks(wrap):
    torch.manual_seed(0)
    net, settings = nn.Linear(4, 4).requires_grad_(False), {"gain": 1.0}
    call = wrap(lambda x: net(x) * settings["gain"])
    with ThreadPoolExecutor(3) as pool:
        yield list(pool.map(call, [rows(2, 4) for _ in range(CALLS)]))

    async def serve():
        waiting, answers = asyncio.Queue(), []

        async def worker():
            while (x := await waiting.get()) is not None:
                answers.append(call(x))

        task = asyncio.create_task(worker())
        for number in range(CALLS):
            settings["gain"] = 1.0 if number < 7 else 2.0
            await waiting.put(rows(2, 4))
            while not waiting.empty():
                await asyncio.sleep(0)
        await waiting.put(None)
        await task
        return answers

    yield asyncio.run(serve())


def actions_in_a_queue(wrap):
    torch.manual_seed(0)
    plan = wrap(nn.Linear(3, 8).requires_grad_(False))
    waiting = collections.deque()
    for _ in range(4 * CALLS):
        if not waiting:
            waiting.extend(plan(rows(3)).view(4, 2).unbind(0))
        yield waiting.popleft().clone().clamp_(-1, 1)


@pytest.mark.parametrize(
    "program",
    [
        policy_gradient, heads_that_are_written, twin_critics, denoising, adapters, cached_attention, beams,
        ensemble, served_by_threads_and_tasks, actions_in_a_queue,
    ],
    ids=lambda program: program.__name__,
)  # fmt: skip
def test_what_a_user_wrote(program):
    check(program)
