"""What rote costs programs that never settle: each call brings something new, so that hardly any replays.

The plain callable and the graphed one are called in turns, a block of calls each, from the first call on. A
ratio is the time of the graphed calls over that of the plain ones in one window of calls: the first 50, in
which rote learns; those up to call 500; and the rest. What is new in each call stands in a program's
docstring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

import rote

from .common import Outcome, Settings, describe, now, statistic

NEEDS_GPU = False
BLOCK = 10
WINDOWS = (50, 500, 5_000)
"""Where a window of calls ends."""
RARE_WINDOWS = (50, 100, 200)
"""The same for long calls."""
WIDTH = 64


@dataclass(frozen=True)
class Program:
    """A callable, and the arguments of one call after the other.

    Attributes:
        function: The callable.
        arguments: Those of each call.
        between: What the user does after each call.
        whole: That is timed, too: it takes what a call has left.
    """

    function: Callable[..., Any]
    arguments: Iterator[tuple[Any, ...]]
    between: Callable[[], object] = lambda: None
    whole: bool = False


class Block(nn.Module):
    """Attention and a feed-forward network: some 30 operations."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(batch, tokens, features)`` to the same shape."""
        y = self.first(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        out: Tensor = x + self.down(torch.nn.functional.gelu(self.up(self.second(x))))
        return out


class Model(nn.Module):
    """Two blocks, with what the programs below read and change."""

    def __init__(self, device: torch.device, layers: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(*[Block() for _ in range(layers)]).to(device).eval()
        self.steps = 0
        self.seen: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(batch, tokens, features)`` to the same shape."""
        out: Tensor = self.layers(x)
        return out


def inputs(device: torch.device, tokens: int = 8) -> Iterator[Tensor]:
    """A batch for each call, of one shape."""
    generator = torch.Generator().manual_seed(1)
    while True:
        yield torch.randn(1, tokens, WIDTH, generator=generator).to(device)


def counter(device: torch.device) -> Program:
    """A counter on the module, which steers what is computed."""
    model = Model(device)

    def step(x: Tensor) -> Tensor:
        model.steps += 1
        return model(x) * (1 / model.steps)

    return Program(step, ((x,) for x in inputs(device)))


def growing_list(device: torch.device) -> Program:
    """A list on the module that grows at its front, and whose length is read."""
    model = Model(device)

    def step(x: Tensor) -> Tensor:
        model.seen.insert(0, x.shape[1])
        return model(x) / len(model.seen)

    return Program(step, ((x,) for x in inputs(device)))


def new_float(device: torch.device) -> Program:
    """A float among the arguments, another one in each call."""
    model = Model(device)
    return Program(lambda x, rate: model(x) * rate, ((x, 1 / (n + 2)) for n, x in enumerate(inputs(device))))


def small_new_float(device: torch.device) -> Program:
    """The same with three operations: what rote does for each call weighs most here."""
    weight = torch.ones(WIDTH, device=device)
    return Program(
        lambda x, rate: torch.relu(x @ weight) * rate,
        ((x, 1 / (n + 2)) for n, x in enumerate(inputs(device))),
    )


class Cache:
    """Keys and values of one prompt, as libraries make them anew for each."""

    def __init__(self, device: torch.device) -> None:
        self.states = torch.zeros(1, 8, WIDTH, device=device)
        self.length = 0


def new_cache(device: torch.device) -> Program:
    """A cache object that lives for eight calls, with a position that counts."""
    model = Model(device)

    def step(x: Tensor, cache: Cache) -> Tensor:
        cache.states[:, cache.length] = x[:, 0]
        cache.length += 1
        return model(cache.states[:, : cache.length])

    def arguments() -> Iterator[tuple[Tensor, Cache]]:
        made = Cache(device)
        for n, x in enumerate(inputs(device)):
            made = Cache(device) if n % 8 == 0 else made
            yield x, made

    return Program(step, arguments())


def new_shapes(device: torch.device) -> Program:
    """Another batch size in each call, and none comes again for 500 calls."""
    model = Model(device)
    return Program(model, ((torch.ones(1 + n % 500, 1, WIDTH, device=device),) for n in count()))


def host_read(device: torch.device) -> Program:
    """A value read on the host, another one in each call."""
    model = Model(device)

    def step(x: Tensor) -> Tensor:
        return model(x) * x.sum().item()

    return Program(step, ((x,) for x in inputs(device)))


def selected_rows(device: torch.device) -> Program:
    """A shape that depends on values."""
    model = Model(device)

    def step(x: Tensor) -> Tensor:
        return model(x[:, x[0, :, 0] > 0] + 1)

    return Program(step, ((x,) for x in inputs(device, 64)))


def bound_anew(device: torch.device) -> Program:
    """The user binds a new parameter to the module after each call."""
    model = Model(device)
    scale = nn.Linear(WIDTH, WIDTH).to(device)

    def bind() -> None:
        scale.weight = nn.Parameter(scale.weight.detach() * 0.999)

    def step(x: Tensor) -> Tensor:
        return scale(model(x)).relu()

    return Program(torch.no_grad()(step), ((x,) for x in inputs(device)), bind)


def training_step(
    model: Callable[[Tensor], Tensor], optimizer: torch.optim.Optimizer
) -> Callable[..., Tensor]:
    """A whole step, whose loss is what the model gives, squared."""

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def scheduled_training(device: torch.device) -> Program:
    """A training step with Adam as it is, and a schedule that sets another learning rate after each."""
    model = Model(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9999)

    step = training_step(model, optimizer)
    return Program(step, ((x,) for x in inputs(device)), schedule.step)


def long_and_rare(device: torch.device) -> Program:
    """A call of a thousand operations with a counter: each traced call is dear, and there are few calls."""
    model = Model(device, layers=32)

    def step(x: Tensor) -> Tensor:
        model.steps += 1
        return model(x) * (1 / model.steps)

    return Program(step, ((x,) for x in inputs(device)))


def kept_graphs(device: torch.device) -> Program:
    """REINFORCE: the graphs of an episode's calls are kept, and walked back together behind it."""
    policy, kept = Model(device, layers=1), list[Tensor]()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    lengths = iter(torch.randint(10, 33, (100_000,), generator=torch.Generator().manual_seed(2)).tolist())
    left = next(lengths)

    def act(x: Tensor) -> Tensor:
        chosen = torch.distributions.Categorical(logits=policy(x)[:, -1])
        action = chosen.sample()
        kept.append(chosen.log_prob(action))
        return action

    def learn() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            left = next(lengths)
            optimizer.zero_grad()
            torch.stack(kept).sum().backward()
            optimizer.step()
            kept.clear()

    return Program(act, ((x,) for x in inputs(device)), learn, whole=True)


def slow_weights(device: torch.device) -> Program:
    """Lookahead around Adam: each fifth step does more."""
    model = Model(device, layers=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    slow, count = [each.detach().clone() for each in model.parameters()], 0
    fast = training_step(model, optimizer)

    def step(x: Tensor) -> Tensor:
        nonlocal count
        loss = fast(x)
        count += 1
        if count % 5 == 0:
            with torch.no_grad():
                for each, kept in zip(model.parameters(), slow, strict=True):
                    each.copy_(kept.lerp_(each, 0.5))
        return loss

    return Program(step, ((x,) for x in inputs(device)))


def rate_of_an_epoch(device: torch.device) -> Program:
    """A cosine schedule whose rate is another one in each 25th call."""
    model = Model(device, layers=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule, count = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100), 0

    def end() -> None:
        nonlocal count
        count += 1
        if count % 25 == 0:
            schedule.step()

    return Program(training_step(model, optimizer), ((x,) for x in inputs(device)), end)


def target_of_fifty_steps(device: torch.device) -> Program:
    """DQN: each fiftieth step copies the network to its target, and goes a way that the others do not."""
    model, target = Model(device, layers=1), Model(device, layers=1)
    optimizer, count = torch.optim.Adam(model.parameters(), lr=1e-4), 0

    def step(x: Tensor) -> Tensor:
        nonlocal count
        with torch.no_grad():
            wanted = target(x)
        optimizer.zero_grad()
        loss = (model(x) - wanted).square().mean()
        loss.backward()
        optimizer.step()
        count += 1
        if count % 50 == 0:
            target.load_state_dict(model.state_dict())
        return loss.detach()

    return Program(step, ((x,) for x in inputs(device)))


PROGRAMS: dict[str, Callable[[torch.device], Program]] = {
    "a counter": counter,
    "a growing list": growing_list,
    "a new float": new_float,
    "a new float, three operations": small_new_float,
    "a new cache object": new_cache,
    "a new shape": new_shapes,
    "a value read": host_read,
    "a shape read": selected_rows,
    "a parameter bound anew": bound_anew,
    "Adam with a schedule": scheduled_training,
    "graphs that are kept": kept_graphs,
    "slow weights": slow_weights,
    "a rate for each epoch": rate_of_an_epoch,
    "a target network": target_of_fifty_steps,
    "long calls": long_and_rare,
}


def run(settings: Settings) -> Outcome:
    """How many times as long each program takes when it is graphed."""
    out = Outcome()
    for name, build in PROGRAMS.items():
        windows = RARE_WINDOWS if build is long_and_rare else WINDOWS
        measure(name, build, windows[:-1] if settings.quick else windows, settings, out)
    return out


def measure(
    name: str,
    build: Callable[[torch.device], Program],
    windows: tuple[int, ...],
    settings: Settings,
    out: Outcome,
) -> None:
    """Call one program both ways until the last window ends."""
    plain, ours = build(settings.device), build(settings.device)
    graphed = rote.graph(ours.function)
    done = 0
    for end in windows:
        seconds: dict[str, list[float]] = {"plain": [], "rote": []}
        window = f"calls {done} to {end}"
        while done < end:
            seconds["plain"] += _block(plain, plain.function, settings)
            seconds["rote"] += _block(ours, graphed, settings)
            done += BLOCK
        out.add(f"{name}, {window}", {way: statistic(found) for way, found in seconds.items()})
        out.ratios[f"{name}, {window}: rote / plain"] = sum(seconds["rote"]) / sum(seconds["plain"])
    out.facts[name] = describe(graphed)
    graphed.reset()


def _block(program: Program, function: Callable[..., Any], settings: Settings) -> list[float]:
    """Seconds of each call of a block; what the user does between them is counted where it is to be."""
    seconds = list[float]()
    for arguments in [next(program.arguments) for _ in range(BLOCK)]:
        start = now(settings.device)
        function(*arguments)
        if program.whole:
            program.between()
        seconds.append(now(settings.device) - start)
        if not program.whole:
            program.between()
    return seconds
