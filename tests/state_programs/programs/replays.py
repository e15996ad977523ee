"""What has to replay: state that is only reachable, output, what a call made itself, simple effects."""

from __future__ import annotations

import collections
import functools
import itertools
import logging
import re
import sys
import threading
import types
import warnings
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from tests.footguns.case import Program, Wrap, full
from tests.state_programs.program import StateProgram, item, put, state, turns
from torch import nn

Items = Iterator[Any]


def replays(program: Program) -> StateProgram:
    """A program whose late calls have to be answered from a recording."""
    return state("replays", replays=True)(program)


def steady(g: Any, device: torch.device, *changes: Any, **options: Any) -> Items:
    """As :func:`turns`, with more calls."""
    yield from turns(g, device, *changes, **{"before": 6, "after": 6, **options})


@replays
def schedule_made_in_each_call(wrap: Wrap, device: torch.device) -> Items:
    """``self.timesteps = torch.linspace(...)`` in each call, as schedulers of diffusers do."""

    class Scheduler:
        timesteps: Any = None

        def set_timesteps(self, n: int) -> None:
            self.timesteps = torch.linspace(0, 1, n, device=device)

    s = Scheduler()

    def fn(x: torch.Tensor) -> torch.Tensor:
        s.set_timesteps(4)
        for t in s.timesteps:
            x = x * 0.5 + t
        return x

    yield from steady(wrap(fn), device, before=12)


@replays
def scratch_attribute(wrap: Wrap, device: torch.device) -> Items:
    """An attribute holds a value between two methods of one call."""

    class Net(nn.Module):
        def encode(self, x: torch.Tensor) -> None:
            self.hidden = x * 2

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.encode(x)
            return self.hidden + 1

    m = Net()
    yield from steady(wrap(m), device, before=12)


@replays
def scratch_dict(wrap: Wrap, device: torch.device) -> Items:
    """A dict outside is emptied and filled in each call."""
    cache: dict[str, Any] = {}

    def fn(x: torch.Tensor) -> torch.Tensor:
        cache.clear()
        cache["a"] = x * 2
        cache["b"] = cache["a"] + 1
        return cache["b"]

    yield from steady(wrap(fn), device, before=12)


@replays
def scratch_list(wrap: Wrap, device: torch.device) -> Items:
    """A list outside is emptied and filled in each call, as hooks that keep features do."""
    features: list[torch.Tensor] = []
    m = nn.Sequential(nn.ReLU(), nn.Tanh())
    for part in m:
        part.register_forward_hook(lambda m, args, out: features.append(out))

    def fn(x: torch.Tensor) -> torch.Tensor:
        features.clear()
        m(x)
        return features[0] + features[1]

    yield from steady(wrap(fn), device, before=12)


@replays
def feature_of_a_hook(wrap: Wrap, device: torch.device) -> Items:
    """A hook keeps a feature; the user reads it after each call."""
    kept: dict[str, Any] = {}
    m = nn.Sequential(nn.ReLU(), nn.Tanh())
    m[0].register_forward_hook(lambda m, args, out: kept.__setitem__("feature", out))
    yield from steady(wrap(m), device, watch=lambda: dict(kept), before=12)


@replays
def result_kept_in_an_attribute(wrap: Wrap, device: torch.device) -> Items:
    """``self.last = y`` in each call, read by the user."""
    o = types.SimpleNamespace(last=None)

    def fn(x: torch.Tensor) -> torch.Tensor:
        o.last = x * 2
        return o.last + 1

    yield from steady(wrap(fn), device, watch=lambda: o.last, before=12)


@replays
def result_in_the_argument(wrap: Wrap, device: torch.device) -> Items:
    """``d["y"] = y; return d``, a fresh dict in each call."""

    def fn(d: dict[str, Any]) -> dict[str, Any]:
        d["y"] = d["x"] * 2
        return d

    g = wrap(fn)
    for n in range(12):
        d = {"x": full(n, device)}
        out = g(d)
        yield out, out is d


@replays
def result_on_the_argument(wrap: Wrap, device: torch.device) -> Items:
    """``batch.y = y`` on a fresh object in each call."""

    def fn(batch: Any) -> torch.Tensor:
        batch.y = batch.x * 2
        return batch.y + 1

    g = wrap(fn)
    for n in range(12):
        batch = types.SimpleNamespace(x=full(n, device))
        yield g(batch), batch.y


@replays
def attribute_on_the_result(wrap: Wrap, device: torch.device) -> Items:
    """``out.kind = "x"`` on what is returned."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        out = x * 2
        out.kind = "logits"  # type: ignore[attr-defined]
        return out

    g = wrap(fn)
    for n in range(12):
        out = g(full(n, device))
        yield out, getattr(out, "kind", None)


@replays
def constant_bound(wrap: Wrap, device: torch.device) -> Items:
    """``self.mode = "b"`` in each call, whatever it was before."""
    o = types.SimpleNamespace(mode="a")

    def fn(x: torch.Tensor) -> torch.Tensor:
        o.mode = "b"
        return x * 2

    yield from steady(wrap(fn), device, put(o, mode="c"), watch=lambda: o.mode)


@replays
def printed(wrap: Wrap, device: torch.device) -> Items:
    """``print`` to the standard output."""
    o = types.SimpleNamespace(step="a")

    def fn(x: torch.Tensor) -> torch.Tensor:
        print("step", o.step, tuple(x.shape))
        return x * 2

    yield from steady(wrap(fn), device, before=12)


@replays
def logged(wrap: Wrap, device: torch.device) -> Items:
    """``logging`` at a level that is shown."""
    logger = logging.getLogger("state_program.replays")
    logger.propagate = False
    handler = logging.StreamHandler(sys.stderr)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)

    def fn(x: torch.Tensor) -> torch.Tensor:
        logger.info("shape %s", x.shape)
        return x * 2

    try:
        yield from steady(wrap(fn), device, before=12)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)


@replays
def logged_below_the_level(wrap: Wrap, device: torch.device) -> Items:
    """``logging`` at a level that is not shown."""
    logger = logging.getLogger("state_program.replays")
    g = wrap(lambda x: (logger.debug("shape %s", x.shape), x * 2)[1])
    yield from steady(g, device, before=12)


@replays
def warned(wrap: Wrap, device: torch.device) -> Items:
    """``warnings.warn`` in each call."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        warnings.warn("deprecated", UserWarning, stacklevel=1)
        return x * 2

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield from steady(wrap(fn), device, before=12)


@replays
def cached_tensors(wrap: Wrap, device: torch.device) -> Items:
    """``functools.lru_cache`` holds a table of tensors."""

    @functools.lru_cache(maxsize=8)
    def table(size: int) -> torch.Tensor:
        return torch.arange(float(size), device=device)

    g = wrap(lambda x: x * table(x.shape[0]))
    yield from steady(g, device, before=12, watch=lambda: table.cache_info().currsize)


@replays
def cached_numbers(wrap: Wrap, device: torch.device) -> Items:
    """``functools.cache`` over numbers."""

    @functools.cache
    def gain(n: int) -> float:
        return n * 1.5

    yield from steady(wrap(lambda x: x * gain(x.dim())), device, before=12)


@replays
def modes_in_turns(wrap: Wrap, device: torch.device) -> Items:
    """``train()`` and ``eval()`` called inside two wrappers in turns."""
    m = nn.Sequential(nn.Linear(4, 4, device=device), nn.ReLU()).requires_grad_(False)

    def training(x: torch.Tensor) -> torch.Tensor:
        m.train()
        return m(x)

    def evaluation(x: torch.Tensor) -> torch.Tensor:
        m.eval()
        return m(x) + 1

    g, h = wrap(training), wrap(evaluation)
    for n in range(12):
        yield g(full(n, device)), m.training, m[0].training
        yield h(full(n, device)), m.training, m[0].training


@replays
def generator_for_each_call(wrap: Wrap, device: torch.device) -> Items:
    """A fresh ``torch.Generator().manual_seed(i)`` as an argument."""
    g = wrap(lambda x, gen: x + torch.randn(4, generator=gen, device=x.device))
    for n in range(12):
        yield g(full(n, device), torch.Generator(device).manual_seed(n))


@replays
def fresh_own_objects(wrap: Wrap, device: torch.device) -> Items:
    """A fresh object of an own class in each call."""

    class Batch:
        def __init__(self, x: torch.Tensor) -> None:
            self.x, self.k = x, 1.5

    g = wrap(lambda batch: batch.x * batch.k)
    yield from steady(g, device, before=12, args=lambda x: (Batch(x),))


@replays
def fresh_user_dicts(wrap: Wrap, device: torch.device) -> Items:
    """A fresh ``UserDict`` in each call, as tokenizers return."""
    g = wrap(lambda batch: batch["x"] * batch["k"])
    yield from steady(g, device, before=12, args=lambda x: (collections.UserDict(x=x, k=1.5),))


@replays
def fresh_namespaces(wrap: Wrap, device: torch.device) -> Items:
    """A fresh ``SimpleNamespace`` in each call."""
    g = wrap(lambda batch: batch.x * batch.k)
    yield from steady(g, device, before=12, args=lambda x: (types.SimpleNamespace(x=x, k=1.5),))


@replays
def fresh_dataclasses(wrap: Wrap, device: torch.device) -> Items:
    """A fresh dataclass in each call."""

    @dataclass
    class Batch:
        x: torch.Tensor
        k: float = 1.5

    yield from steady(wrap(lambda batch: batch.x * batch.k), device, before=12, args=lambda x: (Batch(x),))


@replays
def views_of_a_dict(wrap: Wrap, device: torch.device) -> Items:
    """``d.values()`` as an argument."""
    g = wrap(lambda values: torch.stack(list(values)).sum(0))
    yield from steady(g, device, before=12, args=lambda x: ({"a": x, "b": x + 1}.values(),))


@replays
def size_one_strides(wrap: Wrap, device: torch.device) -> Items:
    """Strides of dimensions of one element differ, and nothing else."""
    g = wrap(lambda x: x * 2)
    big = torch.arange(96.0, device=device).view(1, 8, 12)
    for n in range(18):
        yield g(big[:, n % 8 : n % 8 + 1, :4] if n % 2 else full(n, device).view(1, 1, 4))


@replays
def scripted_module(wrap: Wrap, device: torch.device) -> Items:
    """A scripted module with constants."""

    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 1.5 + torch.ones([4], device=x.device)

    m = torch.jit.script(Net())
    yield from steady(wrap(lambda x: m(x)), device, before=12)


@replays
def unrelated_attribute(wrap: Wrap, device: torch.device) -> Items:
    """Attributes of the same object that nobody reads change all the time."""
    o = types.SimpleNamespace(k=1.5, step=0)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * o.k

    g = wrap(fn)
    for n in range(12):
        o.step = n
        yield g(full(n, device))


@replays
def unrelated_item(wrap: Wrap, device: torch.device) -> Items:
    """Items of the same dict that nobody reads change all the time."""
    cfg: dict[str, Any] = {"k": 1.5}
    g = wrap(lambda x: x * cfg["k"])
    for n in range(12):
        cfg["step"] = n
        yield g(full(n, device))


@replays
def unrelated_global(wrap: Wrap, device: torch.device) -> Items:
    """Other globals change all the time."""
    names: dict[str, Any] = {"k": 1.5, "step": 0}
    exec("def fn(x):\n    return x * k", names)
    g = wrap(names["fn"])
    for n in range(12):
        names["step"] = n
        yield g(full(n, device))


@replays
def unrelated_list_grows(wrap: Wrap, device: torch.device) -> Items:
    """A list of results grows beside what the call reads."""
    o: Any = types.SimpleNamespace(k=1.5, history=[])
    g = wrap(lambda x: x * o.k)
    for n in range(12):
        out = g(full(n, device))
        o.history.append(out)
        yield out


@replays
def unknown_objects_reachable(wrap: Wrap, device: torch.device) -> Items:
    """Objects of C types that nobody uses are reachable."""
    o: Any = types.SimpleNamespace(
        k=1.5, lock=threading.Lock(), pattern=re.compile("a"), count=itertools.count()
    )
    g = wrap(lambda x: x * o.k)
    for n in range(12):
        next(o.count)
        yield g(full(n, device))


@replays
def same_state_again(wrap: Wrap, device: torch.device) -> Items:
    """State goes to and fro between two values."""
    o = types.SimpleNamespace(k=1.5)
    g = wrap(lambda x: x * o.k)
    for n in range(18):
        o.k = 1.5 + n % 2
        yield g(full(n, device))


@replays
def change_then_steady(wrap: Wrap, device: torch.device) -> Items:
    """State changes once and stays."""
    cfg = {"k": 1.5}
    yield from steady(wrap(lambda x: x * cfg["k"]), device, item(cfg, "k", 2.5), after=9)


@replays
def equal_object_in_place(wrap: Wrap, device: torch.device) -> Items:
    """A config is replaced by an equal one in each call."""

    @dataclass
    class Config:
        k: float
        sizes: tuple[int, ...] = (1, 2)

    o: Any = types.SimpleNamespace(cfg=Config(1.5))
    g = wrap(lambda x: x * o.cfg.k + sum(o.cfg.sizes))
    for n in range(12):
        o.cfg = Config(1.5)
        yield g(full(n, device))


@replays
def properties_and_slots(wrap: Wrap, device: torch.device) -> Items:
    """Properties, slots and class attributes that stay."""

    class Scale:
        __slots__ = ("_k",)
        shift = 1.0

        def __init__(self) -> None:
            self._k = 1.5

        @property
        def k(self) -> float:
            return self._k + self.shift

    o = Scale()
    yield from steady(wrap(lambda x: x * o.k), device, before=12)


@replays
def own_operators(wrap: Wrap, device: torch.device) -> Items:
    """Own ``__len__``, ``__iter__``, ``__getitem__`` and ``__eq__`` that stay."""

    class Sizes:
        def __init__(self) -> None:
            self.values = [1.0, 2.0]

        def __len__(self) -> int:
            return len(self.values)

        def __getitem__(self, index: int) -> float:
            return self.values[index]

        def __iter__(self) -> Iterator[float]:
            return iter(self.values)

    o = Sizes()
    yield from steady(wrap(lambda x: x * len(o) + o[1] + sum(o)), device, before=12)


@replays
def big_dict_that_stays(wrap: Wrap, device: torch.device) -> Items:
    """5,000 items of which one is read, and another changes all the time."""
    cfg = {n: 1.5 for n in range(5000)}
    g = wrap(lambda x: x * cfg[4321])
    for n in range(12):
        cfg[7] = n
        yield g(full(n, device))


@replays
def queue_of_actions(wrap: Wrap, device: torch.device) -> Items:
    """A policy's queue: the network runs in the callable, the queue is outside."""
    q: deque[torch.Tensor] = deque(maxlen=3)
    m = nn.Linear(4, 4, device=device).requires_grad_(False)

    def chunk(x: torch.Tensor) -> list[torch.Tensor]:
        y = m(x)
        return [y, y + 1, y + 2]

    g = wrap(chunk)
    for n in range(18):
        if not q:
            q.extend(g(full(n % 4, device)))
        yield q.popleft()


@replays
def counter_reset_inside(wrap: Wrap, device: torch.device) -> Items:
    """A step counter that the call sets to 0, counts, and reads."""
    o = types.SimpleNamespace(i=0)

    def fn(x: torch.Tensor) -> torch.Tensor:
        o.i = 0
        for _ in range(3):
            o.i += 1
            x = x * 0.5 + o.i
        return x

    yield from steady(wrap(fn), device, before=12, watch=lambda: o.i)


@replays
def local_objects(wrap: Wrap, device: torch.device) -> Items:
    """Objects, counters, sets and generators that live and die in the call."""

    class Tracker:
        def __init__(self) -> None:
            self.seen: set[int] = set()
            self.count = itertools.count(1)

        def note(self, value: int) -> int:
            self.seen.add(value)
            return next(self.count) + len(self.seen)

    def fn(x: torch.Tensor) -> torch.Tensor:
        tracker, counts = Tracker(), collections.Counter("abca")
        return x * sum(tracker.note(k) for k in range(3)) + counts["a"]

    yield from steady(wrap(fn), device, before=12)


@replays
def numpy_constants(wrap: Wrap, device: torch.device) -> Items:
    """numpy arithmetic over arrays that stay."""
    ks = numpy.array([1.5, 2.5])
    g = wrap(lambda x: x * float(ks[0]) + float(numpy.sqrt(ks[1])))
    yield from steady(g, device, before=12)


@replays
def enum_and_match(wrap: Wrap, device: torch.device) -> Items:
    """A branch by ``match`` over a config that stays."""
    cfg = {"kind": "scale", "k": 1.5}

    def fn(x: torch.Tensor) -> torch.Tensor:
        match cfg:
            case {"kind": "scale", "k": k}:
                return x * k
        return x

    yield from steady(wrap(fn), device, before=12)


@replays
def thread_in_turns(wrap: Wrap, device: torch.device) -> Items:
    """Calls from another thread that read nothing of the thread."""
    o = types.SimpleNamespace(k=1.5)
    g = wrap(lambda x: x * o.k)
    for n in range(12):
        found: list[Any] = []
        thread = threading.Thread(target=lambda n=n, found=found: found.append(g(full(n, device))))
        thread.start()
        thread.join()
        yield found[0]


@replays
def optimizer_inside(wrap: Wrap, device: torch.device) -> Items:
    """A training step inside, the optimizer's settings stay."""
    p = nn.Parameter(full(1, device))
    opt = torch.optim.SGD([p], lr=0.1, momentum=0.9)

    def fn(x: torch.Tensor) -> torch.Tensor:
        opt.zero_grad()
        loss = (x * p).sum()
        loss.backward()
        opt.step()
        return loss.detach()

    yield from steady(wrap(fn), device, before=12, watch=lambda: p.detach().clone())


@replays
def progress_bar(wrap: Wrap, device: torch.device) -> Items:
    """A loop with a progress bar on the error stream."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        for k in range(3):
            sys.stderr.write(f"\r{k}")
            sys.stderr.flush()
            x = x * 0.5 + k
        return x

    yield from steady(wrap(fn), device, before=12)
