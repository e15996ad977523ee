"""Attention of few queries: PyTorch's kernel, two products, and parts of the keys by every tile.

Each way is captured into a CUDA graph that it is launched 20 times in, one behind the other; times are those
of one launch. The subjects are PI0's (actions, vision tower, prefix) and a step of a Llama that decodes.
Errors are roots of mean squares against the result in 64 bits. ``parts 64x32x8x4/7`` is a tile of 64 queries
and 32 keys with 8 warps and 4 stages, and 7 parts. What rote chooses comes first; where that is not the
fastest, :mod:`rote.runtime.optimize.alternatives.tiles` guesses badly.

``python -m benchmarks.run --case attention`` writes the JSON.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import astuple
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from rote.runtime.backends import PROCESS
from rote.runtime.compiling import COMPILERS
from rote.runtime.fusion import KernelRequest, NoKernelError, kernels_of
from rote.runtime.optimize.alternatives import parts, products
from rote.runtime.optimize.alternatives.operands import Attention
from rote.runtime.optimize.alternatives.parts import PartsPlan
from rote.runtime.optimize.alternatives.tiles import Cut
from rote.runtime.optimize.running import AlternativeRunner, RunningSession

from .common import Call, Outcome, Settings, time_loops

NEEDS_GPU = True
LAUNCHES = 20
ROUNDS, REPLAYS = 20, 10
COMPILE_S = 40
OTHER_STEPS = (1, 2, 4, 8, 1 << 20)
"""Blocks of keys of a part, beside what is chosen."""


class Subject(NamedTuple):
    """Sizes of an attention.

    Attributes:
        heads: Of the queries.
        kept: Of keys and values.
        queries: Of each head.
        keys: Of each head.
        width: Of all of them.
        masked: With numbers that are added to scores.
    """

    heads: int
    kept: int
    queries: int
    keys: int
    width: int
    masked: bool

    def made(self, device: torch.device) -> Attention:
        """One of it, with random numbers, laid out as models do."""

        def tensor(heads: int, tokens: int) -> Tensor:
            return torch.randn(1, tokens, heads, self.width, device=device).bfloat16().transpose(1, 2)

        query = tensor(self.heads, self.queries)
        key, value = (tensor(self.kept, self.keys).expand(-1, self._shown, -1, -1) for _ in range(2))
        mask = None
        if self.masked:
            mask = torch.zeros(1, 1, self.queries, self.keys, device=device, dtype=torch.bfloat16)
            mask[..., self.keys // 2 : self.keys // 2 + 50] = torch.finfo(torch.bfloat16).min
        return Attention(query, key, value, mask, None, like_query=True)

    @property
    def _shown(self) -> int:
        """Heads that keys seem to have: all that share one are seen as such."""
        return self.heads if self.kept == 1 else self.kept


SUBJECTS = {
    "pi0 actions": Subject(8, 1, 51, 867, 256, masked=True),
    "pi0 vision": Subject(16, 16, 256, 256, 72, masked=False),
    "pi0 prefix": Subject(8, 1, 816, 816, 256, masked=True),
    "llama decoding": Subject(32, 8, 1, 2048, 128, masked=False),
}


@torch.no_grad()
def run(settings: Settings) -> Outcome:
    """Every subject: times and errors of every way."""
    out = Outcome()
    torch.manual_seed(0)
    backend = PROCESS.of(torch.device("cuda", torch.cuda.current_device()))
    givens = {name: subject.made(settings.device) for name, subject in SUBJECTS.items()}
    plans = {name: _plans(given) for name, given in givens.items()}
    with backend.lock:
        backend.enter_call()
        device = kernels_of(backend)
        begun = time.perf_counter()
        sources = [source for each in plans.values() for plan in each.values() for source in plan.sources]
        COMPILERS.get().submit(sources).wait(COMPILE_S)
        out.facts["compiled in s"] = time.perf_counter() - begun
        runner = AlternativeRunner(RunningSession(), device)
        for name, given in givens.items():
            kept = _measure(out, name, given, plans[name], runner, settings)
            del kept
    return out


def _plans(given: Attention) -> dict[str, PartsPlan]:
    """A plan for every tile, and for other parts of the chosen one, by names that say how they cut.

    What is chosen is the first.
    """
    capability, cuts = parts.plan_for(given).capability, parts.cuts(given)
    tile, blocks = cuts[0].tile, -(-given.keys // cuts[0].tile.keys)
    steps = sorted({min(each, blocks) for each in OTHER_STEPS})
    others = [Cut(tile, each, -(-blocks // each)) for each in steps]
    return {
        f"parts {'x'.join(map(str, astuple(cut.tile)))}/{cut.parts}": PartsPlan(given, cut, capability)
        for cut in [*cuts, *others]
    }


def _measure(
    out: Outcome,
    name: str,
    given: Attention,
    plans: dict[str, PartsPlan],
    runner: AlternativeRunner,
    settings: Settings,
) -> list[KernelRequest]:
    """One subject; returns what holds its kernels."""
    ways: dict[str, Callable[[], Tensor]] = {"eager": lambda: _eager(given)}
    if given.key.shape[1] == given.heads:  # whatever their number
        ways["products"] = lambda: products.calculate(runner, given, 1)
    held: list[KernelRequest] = []
    left: dict[str, str] = {}
    for way, plan in plans.items():
        try:
            request = KernelRequest(runner.device, plan.sources, ())
            if not request.compiled:
                raise NoKernelError(f"it takes longer than {COMPILE_S} s to compile")
            request.prove()
        except NoKernelError as why:
            left[way] = str(why)
            continue
        held.append(request)
        ways[way] = lambda plan=plan: plan.run(runner)
    exact = _exact(given)
    errors = {way: _error(act(), exact) for way, act in ways.items()}
    graphs = {way: _captured(act) for way, act in ways.items()}
    found = time_loops(graphs, settings, ROUNDS, REPLAYS)
    scaled = ("median_us", "p99_us", "min_us", "host_us")
    out.add(
        name,
        {
            way: {key: value / LAUNCHES if key in scaled else value for key, value in timing.items()}
            for way, timing in found.items()
        },
    )
    chosen = next(iter(plans))
    out.ratio(name, "eager", "products")
    out.ratio(name, "eager", chosen)
    out.facts[name] = {"error": errors, "chosen": chosen, "left out": left}
    own = errors["eager"]
    out.checks[f"{name}: as near as eager"] = all(
        [mine <= 1.02 * own for way, mine in errors.items() if way.startswith("parts")]
    )
    return held


def _eager(given: Attention) -> Tensor:
    return F.scaled_dot_product_attention(
        given.query, given.key, given.value, given.mask, enable_gqa=given.key.shape[1] != given.heads
    )


def _exact(given: Attention) -> Tensor:
    mask = None if given.mask is None else given.mask.double()
    return Attention(given.query.double(), given.key.double(), given.value.double(), mask, None).exact()


def _error(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).square().mean().sqrt())


def _captured(act: Callable[[], Tensor]) -> Call:
    """Launches one graph of 20 calls."""
    for _ in range(3):
        act()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES):
            act()
    return graph.replay
