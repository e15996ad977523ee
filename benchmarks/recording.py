"""What recording costs: the calls before the first replay, for each thousand operations, and where it goes.

Every round makes a fresh ``rote.graph`` and calls it until it replays, so a row's samples are independent
recordings in one warm process; the very first one, which also looks every operation up, is a fact of its own.
The plain call is measured in the same rounds. What matters is ``above the plain call``: what an observed or a
recording call costs beyond it, in milliseconds for each thousand operations. Operations are those that
PyTorch dispatches; views count, since they are followed like all others. Beside it stands what two modes cost
that do nothing, one for functions and one for operations: nobody who follows operations in Python has less.

The phases of a recording call are taken in rounds of their own, with timers around the recorder's own
methods; a timer around each captured operation costs some 0.2 us, which is why these rounds do not count for
the rows. ``trace`` is the plain Python code too; ``capture`` is the operations themselves.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import rote
from rote.runtime.backends.cuda.session import CudaSession
from rote.runtime.backends.host.session import HostSession
from rote.runtime.capture.run import TracedCall
from rote.runtime.engine.settling import Settling
from rote.runtime.pytorch.modes import DispatchMode

from .common import Outcome, Settings, now, statistic

NEEDS_GPU = False
WIDTH = 64
LENGTHS = (100, 1_000, 10_000)
LIVE = 20_000
CALLS = ("observation", "recording", "first replay", "second replay", "third replay")
ABOVE = "ms per 1,000 operations above the plain call"
COLLECTOR = "garbage collector (within the others)"
PHASES = {
    "trace": [(TracedCall, "run")],
    "capture": [(CudaSession, "run"), (HostSession, "run")],
    "begin": [(CudaSession, "begin"), (HostSession, "begin")],
    "end, instantiate, first launch": [(CudaSession, "end"), (HostSession, "end")],
    "look at the state again": [(Settling, "_look_again")],
    "judge and keep": [(Settling, "learn")],
    "finish (lowering, code, memory)": [(CudaSession, "finish"), (HostSession, "finish")],
}


@dataclass
class Subject:
    """A callable whose recording is measured.

    Attributes:
        name: What it is.
        function: The callable.
        x: Its argument.
        rounds: How often it is recorded.
        keep: Objects that have to be alive meanwhile.
    """

    name: str
    function: Callable[[Tensor], Tensor]
    x: Tensor
    rounds: int = 10
    keep: list[Any] = field(default_factory=list[Any])


class Block(nn.Module):
    """One layer of a transformer without dropout."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for part in self.qkv(self.before(x)).chunk(3, -1))  # fmt: skip
        y = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.out(y)
        return x + self.down(nn.functional.gelu(self.up(self.after(x))))


def chain(length: int) -> Callable[[Tensor], Tensor]:
    """Some operations in a row, each on a small tensor."""

    def call(x: Tensor) -> Tensor:
        for _ in range(length // 2):
            x = (x * 0.5).relu()
        return x

    return call


class Functions(TorchFunctionMode):
    """Calls every function, and does nothing else."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


class Operations(DispatchMode):
    """Calls every operation, and does nothing else."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


def subjects(settings: Settings) -> Iterator[Subject]:
    """Everything that is measured, made when its turn comes: what is alive makes all of it slower."""
    device = settings.device
    torch.manual_seed(0)
    x = torch.randn(1, WIDTH, device=device)
    for length in LENGTHS[: 2 if settings.quick else 3]:
        yield Subject(f"chain of {length:,}", chain(length), x, 10 if length <= 1_000 else 4)
    blocks = nn.Sequential(*[Block(WIDTH, 4) for _ in range(12)]).to(device).eval().requires_grad_(False)
    yield Subject("transformer of 12 layers", blocks, torch.randn(1, 8, WIDTH, device=device))
    del blocks
    live = [torch.zeros(1, device=device) for _ in range(LIVE // (10 if settings.quick else 1))]
    yield Subject(f"chain of 1,000, {len(live):,} live tensors", chain(1_000), x, keep=live)


@torch.no_grad()
def run(settings: Settings) -> Outcome:
    """The calls before the first replay, of every subject."""
    out = Outcome()
    for subject in subjects(settings):
        measure(subject, settings, out)
        gc.collect()
    return out


def measure(subject: Subject, settings: Settings, out: Outcome) -> None:
    """One subject: rounds for the rows, then rounds for the phases."""
    name, call = subject.name, lambda: subject.function(subject.x)
    expected, times = call(), {way: [] for way in ("plain", "modes that do nothing", *CALLS)}
    cold, operations = one_round(subject, settings, out)
    for _ in range(settings.rounds(subject.rounds)):
        for _ in range(3):
            times["plain"].append(timed(call, settings))
            with Functions(), Operations():
                times["modes that do nothing"].append(timed(call, settings))
        for way, seconds in one_round(subject, settings, out)[0].items():
            times[way].append(seconds)
    measured = {way: statistic(seconds) for way, seconds in times.items()}
    out.add(name, measured)
    thousands = operations / 1e3
    for way in ("modes that do nothing", "observation", "recording"):
        above = {
            kind: (measured[way][f"{kind}_us"] - measured["plain"][f"{kind}_us"]) / 1e3 / thousands
            for kind in ("median", "min")
        }
        out.facts[f"{name}: {way}: {ABOVE}"] = above
        out.ratio(name, way, "plain")
    out.facts[f"{name}: operations"] = operations
    out.facts[f"{name}: the first recording of the process, ms"] = {k: s * 1e3 for k, s in cold.items()}
    out.facts[f"{name}: phases of the recording call, ms per 1,000 operations"] = phases(
        subject, settings, thousands
    )
    out.checks[f"{name}: bitwise equal"] = torch.equal(rote.graph(subject.function)(subject.x), expected)


def one_round(subject: Subject, settings: Settings, out: Outcome) -> tuple[dict[str, float], int]:
    """Seconds of each call of a fresh graph up to its second replay, and the operations recorded."""
    graphed = rote.graph(subject.function)
    expected = subject.function(subject.x)
    seconds: dict[str, float] = {}
    for way in CALLS:
        results: list[Tensor] = []
        seconds[way] = timed(lambda results=results: results.append(graphed(subject.x)), settings)
        if not torch.equal(results[0], expected):
            out.checks[f"{subject.name}: {way} is right"] = False
    report = graphed.report()
    nodes = [
        node
        for entry in graphed._keys.entries.values()
        for each in entry.recordings
        for node in each.root.walk()
    ]
    operations = sum(len(node.operations) for node in nodes)
    out.checks[f"{subject.name}: recorded at the second call, then replayed"] = report.replayed == 3
    graphed.reset()
    return seconds, operations


def timed(call: Callable[[], object], settings: Settings) -> float:
    """Seconds of one call."""
    start = now(settings.device)
    call()
    return now(settings.device) - start


def phases(subject: Subject, settings: Settings, thousands: float) -> dict[str, float]:
    """Milliseconds of each phase for each thousand operations; a phase does not count what lies inside it."""
    samples: dict[str, list[float]] = {}
    for _ in range(max(2, settings.rounds(subject.rounds // 2))):
        graphed = rote.graph(subject.function)
        with _timers():  # or they would be code that the call has not run before
            graphed(subject.x)
        with _timers() as spent:
            start = now(settings.device)
            graphed(subject.x)
            total = now(settings.device) - start
        total -= sum(spent[phase] for phase in PHASES)
        for phase, seconds in {**spent, "rest": total}.items():
            samples.setdefault(phase, []).append(seconds * 1e3 / thousands)
        graphed.reset()
    return {phase: statistics.median(values) for phase, values in samples.items()}


@contextmanager
def _timers() -> Generator[dict[str, float]]:
    """Timers around the recorder's methods; yields seconds by phase, less those of phases inside."""
    spent = dict.fromkeys((*PHASES, COLLECTOR), 0.0)
    inside = [0.0]

    def around(phase: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            start, inside_before = time.perf_counter(), inside[0]
            inside[0] = 0.0
            try:
                return method(*args, **kwargs)
            finally:
                took = time.perf_counter() - start
                spent[phase] += took - inside[0]
                inside[0] = inside_before + took

        return call

    def collector(step: str, info: dict[str, int]) -> None:
        del info
        spent[COLLECTOR] += time.perf_counter() if step == "stop" else -time.perf_counter()

    with ExitStack() as stack:
        gc.callbacks.append(collector)
        stack.callback(gc.callbacks.remove, collector)
        for phase, methods in PHASES.items():
            for owner, name in methods:
                stack.enter_context(mock.patch.object(owner, name, around(phase, getattr(owner, name))))
        yield spent
