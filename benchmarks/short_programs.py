"""Short programs of many kinds, of microseconds to milliseconds a call, for ``benchmarks.slower``.

What comes anew in a call, or what it is made of, stands in the name: counters that steer, lists that grow,
new floats, new objects, new shapes, values read on the host, new keys, numpy, containers, modules, training,
exceptions, keys by turns, long calls.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, cycle
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .unsettled import Program, training_step

WIDTH = 64
Given = Iterator[tuple[Any, ...]]


def drawn(*shape: int, device: torch.device) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(1)
    while True:
        yield torch.randn(*shape, generator=generator).to(device)


def one(*shape: int, device: torch.device) -> Given:
    return ((x,) for x in drawn(*shape, device=device))


def arrays(*shape: int) -> Given:
    generator = np.random.default_rng(1)
    while True:
        yield (generator.standard_normal(shape),)


def network(device: torch.device, layers: int = 2, width: int = WIDTH) -> nn.Module:
    torch.manual_seed(0)
    parts = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*parts).to(device).eval()


class State:
    """What a program keeps."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


# ---------------------------------------------------------------------- settled, and tiny


def add(device: torch.device) -> Program:
    return Program(lambda x: x + 1, one(4, device=device))


def three_operations(device: torch.device) -> Program:
    return Program(lambda x: torch.relu(x * 2 + 1), one(4, device=device))


def ten_operations(device: torch.device) -> Program:
    def step(x: Tensor) -> Tensor:
        for _ in range(10):
            x = x * 1.5
        return x

    return Program(step, one(4, device=device))


def linear(device: torch.device) -> Program:
    return Program(torch.no_grad()(nn.Linear(8, 8).to(device)), one(1, 8, device=device))


def linear_with_gradients(device: torch.device) -> Program:
    return Program(nn.Linear(8, 8).to(device), one(1, 8, device=device))


def small_network(device: torch.device) -> Program:
    return Program(torch.no_grad()(network(device)), one(1, WIDTH, device=device))


def deep_network(device: torch.device) -> Program:
    return Program(torch.no_grad()(network(device, layers=30, width=16)), one(1, 16, device=device))


def wide_network(device: torch.device) -> Program:
    return Program(torch.no_grad()(network(device, width=1024)), one(16, 1024, device=device))


def views_only(device: torch.device) -> Program:
    return Program(lambda x: x.reshape(2, 8)[:, 1:3].transpose(0, 1), one(16, device=device))


def nothing(device: torch.device) -> Program:
    return Program(lambda x: x, one(4, device=device))


def in_place(device: torch.device) -> Program:
    return Program(lambda x: x.mul_(2).add_(1), one(4, device=device))


def many_arguments(device: torch.device) -> Program:
    parts = drawn(4, device=device)
    return Program(lambda *xs: sum(xs), (tuple(next(parts) for _ in range(12)) for _ in count()))


def dict_of_arguments(device: torch.device) -> Program:
    parts = drawn(4, device=device)
    return Program(
        lambda batch: {key: value * 2 for key, value in batch.items()},
        (({f"k{n}": next(parts) for n in range(6)},) for _ in count()),
    )


# ---------------------------------------------------------------------- settled, many reads


def config_of_fifty(device: torch.device) -> Program:
    config = {f"k{n}": float(n) for n in range(50)}

    def step(x: Tensor) -> Tensor:
        return x * sum(config[f"k{n}"] for n in range(50))

    return Program(step, one(4, device=device))


def objects_in_a_loop(device: torch.device) -> Program:
    parts = [State(scale=float(n), on=n % 2 == 0, name=f"p{n}") for n in range(40)]

    def step(x: Tensor) -> Tensor:
        scale = 0.0
        for part in parts:
            if part.on and part.name.startswith("p"):
                scale += part.scale
        return x * scale

    return Program(step, one(4, device=device))


def list_of_thousand(device: torch.device) -> Program:
    values = [float(n) for n in range(1000)]
    return Program(lambda x: x * sum(values) / len(values), one(4, device=device))


def nested_settings(device: torch.device) -> Program:
    settings = State(model=State(head=State(gain=2.0, bias=1.0)), data=State(mean=[0.1, 0.2, 0.3]))

    def step(x: Tensor) -> Tensor:
        head = settings.model.head
        return (x - sum(settings.data.mean)) * head.gain + head.bias

    return Program(step, one(4, device=device))


def sorted_words(device: torch.device) -> Program:
    words = [f"w{(7919 * n) % 101}" for n in range(100)]

    def step(x: Tensor) -> Tensor:
        return x * len(sorted(set(words))) + len(" ".join(words))

    return Program(step, one(4, device=device))


def python_alone(device: torch.device) -> Program:
    def step(x: Tensor) -> Tensor:
        total = 0
        for n in range(200):
            total += n * n % 7
        return x + total

    return Program(step, one(4, device=device))


def modules_by_hand(device: torch.device) -> Program:
    layers = [nn.Linear(16, 16).to(device) for _ in range(8)]

    def step(x: Tensor) -> Tensor:
        for layer in layers:
            x = torch.relu(layer(x))
        return x

    return Program(torch.no_grad()(step), one(1, 16, device=device))


# ---------------------------------------------------------------------- numpy


def array_scaled(device: torch.device) -> Program:
    return Program(lambda a: a * 2.0 + 1.0, arrays(8))


def array_to_tensor(device: torch.device) -> Program:
    return Program(lambda a: torch.from_numpy(a) * 2, arrays(8))


def array_normalized(device: torch.device) -> Program:
    return Program(lambda a: (a - a.mean(0)) / (a.std(0) + 1e-6), arrays(32, 8))


def arrays_of_an_episode(device: torch.device) -> Program:
    policy = network(device)

    @torch.no_grad()
    def act(a: Any) -> Any:
        a = np.clip((a - 0.1) / 1.2, -5, 5)
        return policy(torch.as_tensor(a, dtype=torch.float32)[None])[0].numpy()

    return Program(act, arrays(WIDTH))


def many_small_arrays(device: torch.device) -> Program:
    def step(a: Any) -> Any:
        out = np.zeros(3)
        for row in a:
            out = out + np.cross(row, [0.0, 0.0, 1.0])
        return out

    return Program(step, arrays(10, 3))


def array_steers(device: torch.device) -> Program:
    return Program(lambda a: a * 2 if a.sum() > 0 else -a, arrays(8))


def array_written(device: torch.device) -> Program:
    table = np.zeros((100, 4))
    at = count()

    def step(a: Any) -> Any:
        table[next(at) % 100] = a
        return table.mean(0)

    return Program(step, arrays(4))


def random_arrays(device: torch.device) -> Program:
    return Program(lambda x: x + float(np.random.standard_normal()), one(4, device=device))


def array_sorted(device: torch.device) -> Program:
    return Program(lambda a: a[np.argsort(a)][:10].tolist(), arrays(100))


# ---------------------------------------------------------------------- never settled


def counter_steers(device: torch.device) -> Program:
    state = State(steps=0)

    def step(x: Tensor) -> Tensor:
        state.steps += 1
        return x * 2 if math.sin(state.steps) > 0 else x + state.steps

    return Program(step, one(4, device=device))


def counter_in_words(device: torch.device) -> Program:
    state = State(steps=0)

    def step(x: Tensor) -> Tensor:
        state.steps += 1
        return x * len(f"step {state.steps * 37}")

    return Program(step, one(4, device=device))


def counter_and_network(device: torch.device) -> Program:
    state, model = State(steps=0), network(device)

    def step(x: Tensor) -> Tensor:
        state.steps += 1
        return model(x) if hash(str(state.steps)) % 3 else model(model(x))

    return Program(torch.no_grad()(step), one(1, WIDTH, device=device))


def list_grows(device: torch.device) -> Program:
    seen: list[float] = []

    def step(x: Tensor) -> Tensor:
        seen.append(len(seen) * 0.5)
        return x * sum(seen[-10:])

    return Program(step, one(4, device=device))


def list_of_results_grows(device: torch.device) -> Program:
    seen: list[Tensor] = []

    def step(x: Tensor) -> Tensor:
        seen.append(x * 2)
        return torch.stack(seen[-4:]).sum(0)

    return Program(step, one(4, device=device))


def dict_grows(device: torch.device) -> Program:
    known: dict[str, int] = {}

    def step(x: Tensor) -> Tensor:
        known[f"k{len(known)}"] = len(known)
        return x + len(known)

    return Program(step, one(4, device=device))


def window(device: torch.device) -> Program:
    frames: deque[Tensor] = deque(maxlen=4)

    def step(x: Tensor) -> Tensor:
        frames.append(x)
        return torch.cat([*frames])

    return Program(step, one(4, device=device))


def new_float(device: torch.device) -> Program:
    return Program(lambda x, a: x * a, ((x, 1 / (n + 2)) for n, x in enumerate(drawn(4, device=device))))


def new_float_in_words(device: torch.device) -> Program:
    return Program(
        lambda x, a: x * len(f"{a:.6f}"), ((x, 1 / (n + 2)) for n, x in enumerate(drawn(4, device=device)))
    )


def new_word(device: torch.device) -> Program:
    return Program(lambda x, a: x * len(a), ((x, f"w{n}") for n, x in enumerate(drawn(4, device=device))))


def new_words_and_network(device: torch.device) -> Program:
    model = network(device)
    return Program(
        torch.no_grad()(lambda x, a: model(x) * len(a)),
        ((x, f"w{n}") for n, x in enumerate(drawn(1, WIDTH, device=device))),
    )


def new_object(device: torch.device) -> Program:
    return Program(
        lambda x, a: x * a.scale, ((x, State(scale=n * 0.1)) for n, x in enumerate(drawn(4, device=device)))
    )


def new_equal_object(device: torch.device) -> Program:
    return Program(
        lambda x, a: x * a.scale, ((x, State(scale=2.0, name="n")) for x in drawn(4, device=device))
    )


def new_cache(device: torch.device) -> Program:
    class Cache:
        def __init__(self) -> None:
            self.keys: list[Tensor] = []

    def step(x: Tensor, cache: Any) -> Tensor:
        cache.keys.append(x)
        return torch.cat(cache.keys).mean(0)

    def given() -> Given:
        cache = Cache()
        for n, x in enumerate(drawn(1, 8, device=device)):
            cache = Cache() if n % 6 == 0 else cache
            yield x, cache

    return Program(step, given())


def new_shape(device: torch.device) -> Program:
    return Program(lambda x: x * 2 + 1, ((torch.ones(1 + n, device=device),) for n in count()))


def new_shapes_and_network(device: torch.device) -> Program:
    model = network(device)
    return Program(
        torch.no_grad()(model), ((torch.ones(1 + n % 700, WIDTH, device=device),) for n in count())
    )


def ragged(device: torch.device) -> Program:
    generator = torch.Generator().manual_seed(3)

    def given() -> Given:
        while True:
            sizes = torch.randint(1, 30, (3,), generator=generator).tolist()
            yield ([torch.ones(size, device=device) for size in sizes],)

    return Program(lambda xs: torch.cat([x / len(x) for x in xs]).sum(), given())


def value_read(device: torch.device) -> Program:
    return Program(lambda x: x * x.sum().item(), one(4, device=device))


def branch_on_a_value(device: torch.device) -> Program:
    return Program(lambda x: x * 2 if x.sum() > 0 else x - 1, one(4, device=device))


def loop_until_small(device: torch.device) -> Program:
    def step(x: Tensor) -> Tensor:
        x = x.abs() + 1
        while x.max() > 1.01:
            x = x.sqrt()
        return x

    return Program(step, one(16, device=device))


def rows_selected(device: torch.device) -> Program:
    return Program(lambda x: x[x > 0].sum(), one(64, device=device))


def values_as_a_list(device: torch.device) -> Program:
    return Program(lambda x: sorted(x.tolist())[0], one(8, device=device))


def metric_on_the_host(device: torch.device) -> Program:
    model, state = network(device), State(total=0.0, best=-math.inf)

    @torch.no_grad()
    def step(x: Tensor) -> float:
        loss = model(x).square().mean().item()
        state.total += loss
        state.best = max(state.best, loss)
        return state.total

    return Program(step, one(8, WIDTH, device=device))


# ---------------------------------------------------------------------- training


def trained(device: torch.device, make: Callable[..., Any], *, width: int = 16, layers: int = 2) -> Program:
    model = network(device, layers, width).train()
    optimizer = make(model.parameters())

    return Program(training_step(model, optimizer), one(8, width, device=device))


def sgd(device: torch.device) -> Program:
    return trained(device, lambda parameters: torch.optim.SGD(parameters, 1e-3))


def adam(device: torch.device) -> Program:
    return trained(device, lambda parameters: torch.optim.Adam(parameters, 1e-3))


def adamw_of_many(device: torch.device) -> Program:
    return trained(device, lambda parameters: torch.optim.AdamW(parameters, 1e-3), layers=12)


def adam_of_wide_layers(device: torch.device) -> Program:
    return trained(device, lambda parameters: torch.optim.Adam(parameters, 1e-3), width=512)


def loss_read(device: torch.device) -> Program:
    program = trained(device, lambda parameters: torch.optim.SGD(parameters, 1e-3))
    return Program(lambda x: program.function(x).item(), program.arguments)


def forward_alone(device: torch.device) -> Program:
    model = network(device, width=16).train()
    return Program(lambda x: model(x).square().mean(), one(8, 16, device=device))


def clipped_and_scheduled(device: torch.device) -> Program:
    model = network(device, width=16).train()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + n))

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        return loss.detach()

    return Program(step, one(8, 16, device=device))


# ---------------------------------------------------------------------- exceptions, turns, long calls


def raises_and_catches(device: torch.device) -> Program:
    def step(x: Tensor) -> Tensor:
        with contextlib.suppress(KeyError):
            x = x * {"a": 2}["b"]
        return x + 1

    return Program(step, one(4, device=device))


def raises_often(device: torch.device) -> Program:
    def inner(x: Tensor) -> Tensor:
        if x[0] > 0:
            raise ValueError(f"{x[0].item()}")
        return x * 2

    return Program(inner, one(4, device=device))


def three_shapes(device: torch.device) -> Program:
    sizes = cycle([3, 5, 7])
    return Program(lambda x: torch.relu(x * 2) + 1, ((torch.ones(size, device=device),) for size in sizes))


def twenty_shapes(device: torch.device) -> Program:
    sizes = cycle(range(1, 21))
    return Program(lambda x: torch.relu(x * 2) + 1, ((torch.ones(size, device=device),) for size in sizes))


def modes_by_turns(device: torch.device) -> Program:
    model, modes = network(device), cycle([True, False])
    model.insert(1, nn.Dropout(0.1))

    def switch() -> None:
        model.train(next(modes))

    return Program(torch.no_grad()(model), one(1, WIDTH, device=device), switch)


def words_by_turns(device: torch.device) -> Program:
    words = cycle(["a", "bb", "ccc", "dddd", "eeeee", "ffffff"])
    return Program(lambda x, a: x * len(a), zip(drawn(4, device=device), words, strict=False))


def rebound_weight(device: torch.device) -> Program:
    layer = nn.Linear(8, 8).to(device)

    def bind() -> None:
        layer.weight = nn.Parameter(layer.weight.detach() * 0.999)

    return Program(torch.no_grad()(layer), one(1, 8, device=device), bind)


def long_python(device: torch.device) -> Program:
    state = State(steps=0)

    def step(x: Tensor) -> Tensor:
        state.steps += 1
        total = 0
        for n in range(40_000):
            total += n * state.steps % 7
        return x + total

    return Program(step, one(4, device=device))


def long_network(device: torch.device) -> Program:
    state, model = State(steps=0), network(device, layers=200)

    def step(x: Tensor) -> Tensor:
        state.steps += 1
        return model(x) * len(f"{state.steps * 7}")

    return Program(torch.no_grad()(step), one(1, WIDTH, device=device))


def long_and_settled(device: torch.device) -> Program:
    return Program(torch.no_grad()(network(device, layers=200)), one(1, WIDTH, device=device))


@dataclass
class Point:
    """Where something is."""

    x: float
    y: float


def dataclasses_in_a_list(device: torch.device) -> Program:
    def step(x: Tensor, points: list[Point]) -> Tensor:
        return x * sum(point.x * point.y for point in points)

    return Program(
        step,
        ((x, [Point(n * 0.1, m * 0.2) for m in range(8)]) for n, x in enumerate(drawn(4, device=device))),
    )


_HELPERS = {drawn, one, arrays, network, trained}

SHORT: dict[str, Callable[[torch.device], Program]] = {
    name: made
    for name, made in list(globals().items())
    if callable(made)
    and getattr(made, "__module__", "") == __name__
    and not isinstance(made, type)
    and made not in _HELPERS
}
