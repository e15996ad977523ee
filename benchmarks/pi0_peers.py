"""Peers of the PI0 case, one per process: ``python -m benchmarks.pi0_peers compile|raw|backend|graph|near``.

``compile`` is torch.compile(mode="reduce-overhead"); ``raw`` puts torch.cuda.graph around the policy, which
transformers 5.17 defeats with a boolean-mask index and constants built on the host (5.23 does not).
``backend`` is torch.compile(backend="rote"); ``graph`` and ``near`` are rote.graph with all that a tier
finds. Each is timed against eager in turns, on two cameras.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

import rote
from rote.integrations.torch_compile import backend

from .common import Settings, first_line, now, time_calls
from .pi0 import calling, observations, policy_for

VIEWS = 2
OPTIMIZED_S = 120
MOST_CALLS = 3000
ROUNDS = 20


def compiled(sample: Callable[..., Tensor], inputs: dict[str, Tensor]) -> Callable[..., Tensor]:
    """torch.compile with its own CUDA graphs. Outputs are cloned, as a caller who keeps them has to."""
    act = torch.compile(sample, mode="reduce-overhead")

    def call(**kwargs: Tensor) -> Tensor:
        torch.compiler.cudagraph_mark_step_begin()
        return act(**kwargs).clone()

    for _ in range(3):  # its own graphs are recorded in the second call and replayed from the third
        call(**inputs)
    return call


def captured(sample: Callable[..., Tensor], inputs: dict[str, Tensor]) -> Callable[..., Tensor]:
    """One graph around everything."""
    static = {name: tensor.clone() for name, tensor in inputs.items()}
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        sample(**static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        actions = sample(**static)

    def call(**kwargs: Tensor) -> Tensor:
        for name, tensor in kwargs.items():
            static[name].copy_(tensor)
        graph.replay()
        return actions.clone()

    call(**inputs)
    return call


def by_backend(sample: Callable[..., Tensor], inputs: dict[str, Tensor]) -> Callable[..., Tensor]:
    """The compiler's kernels, recorded by rote."""
    act = torch.compile(sample, backend=backend)
    for _ in range(4):  # compiled, observed, recorded, replayed
        act(**inputs)
    return act


def by_graph(
    sample: Callable[..., Tensor], inputs: dict[str, Tensor], numerics: Literal["exact", "near"] = "exact"
) -> Callable[..., Tensor]:
    """Recorded by rote, without a compiler in front of it."""
    act = rote.graph(sample, keep=True, numerics=numerics)
    for _ in range(MOST_CALLS):
        act(**inputs)
        if act.wait_until_optimized(timeout_s=OPTIMIZED_S):
            break
    return act


WAYS = {
    "compile": compiled,
    "raw": captured,
    "backend": by_backend,
    "graph": by_graph,
    "near": partial(by_graph, numerics="near"),
}


@torch.no_grad()
def measure(way: str, settings: Settings) -> dict[str, Any]:
    """Seconds until the first fast call could be made, time per call, and the difference from eager."""
    policy = policy_for(settings)
    inputs = observations(policy, VIEWS, 4)
    for _ in range(2):
        policy.sample_actions(**inputs[0])
    start = now(settings.device)
    act = WAYS[way](policy.sample_actions, inputs[0])
    ready = now(settings.device) - start
    pairs = [(policy.sample_actions(**kwargs), act(**kwargs)) for kwargs in inputs]
    ways = {"eager": calling(policy.sample_actions, inputs), way: calling(act, inputs)}
    times = time_calls(ways, settings, rounds=ROUNDS)
    return {
        "ready_after_s": ready,
        "times": times,
        f"eager / {way}": times["eager"]["median_us"] / times[way]["median_us"],
        "bitwise_equal": all(torch.equal(a, b) for a, b in pairs),
        "largest_difference": max((a - b).abs().max().item() for a, b in pairs),
    }


def main() -> int:
    """Measure one peer; an error is a result too."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pi0_peers")
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    try:
        result = measure(options.way, Settings(torch.device(options.device), quick=options.quick))
    except Exception as error:
        result = {"error": first_line(error)}
    print(json.dumps(result), flush=True)
    return int("error" in result)


if __name__ == "__main__":
    sys.exit(main())
