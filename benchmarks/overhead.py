"""What one call costs the host: four times Linear(256) and ReLU at batch 1 under no_grad, on a GPU.

The kernels are as small as kernels get, so ``host_us`` is the figure: the time Python needs to issue a call.
A bare replay is the floor nobody gets under; a replay with its input copied in and its output cloned is the
least that is safe to hand out; the peers and rote add their checks to that.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import rote

from .common import Call, Outcome, Settings, describe, first_line, time_loops

NEEDS_GPU = True
WIDTH = 256
CALLS = 100


def build(device: torch.device) -> nn.Sequential:
    """The four layers."""
    torch.manual_seed(0)
    layers = [module for _ in range(4) for module in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return nn.Sequential(*layers).to(device).eval().requires_grad_(False)


def by_hand(model: nn.Module, x: Tensor) -> tuple[Call, Call]:
    """A replay and nothing else, and a replay that takes its input and gives its output away."""
    static = x.clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        model(static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = model(static)

    def safe() -> Tensor:
        static.copy_(x)
        graph.replay()
        return y.clone()

    return graph.replay, safe


@torch.no_grad()
def run(settings: Settings) -> Outcome:
    """Host cost per call of every way, in turns."""
    out = Outcome()
    x = torch.randn(1, WIDTH, device=settings.device)
    model = build(settings.device)
    bare, safe = by_hand(model, x)
    graphed = rote.graph(build(settings.device))
    borrowing = rote.graph(build(settings.device), outputs="borrow")
    ways: dict[str, Call] = {
        "eager": lambda: model(x),
        "bare replay": bare,
        "replay, copy, clone": safe,
        "rote": lambda: graphed(x),
        "rote, borrow": lambda: borrowing(x),
    }
    try:
        peer = torch.cuda.make_graphed_callables(build(settings.device), (x.clone(),))
        ways["make_graphed_callables"] = lambda: peer(x)
    except Exception as error:
        out.facts["make_graphed_callables"] = first_line(error)
    if settings.peers:
        _add_compiled(ways, build(settings.device), x, out)
    for call in ways.values():
        for _ in range(5):
            call()
    expected = model(x)
    out.checks["rote bitwise equal to eager"] = torch.equal(expected, graphed(x))
    out.checks["rote, borrow bitwise equal to eager"] = torch.equal(expected, borrowing(x))
    out.add("4 x (Linear, ReLU)", time_loops(ways, settings, rounds=50, calls=CALLS))
    for way in ("bare replay", "replay, copy, clone", "make_graphed_callables"):
        out.ratio("4 x (Linear, ReLU)", "rote", way, "host_us")
    out.facts["rote"] = describe(graphed)
    graphed.reset()
    borrowing.reset()
    return out


def _add_compiled(ways: dict[str, Call], model: nn.Module, x: Tensor, out: Outcome) -> None:
    """torch.compile's own way to CUDA graphs, if it works here."""
    try:
        compiled = torch.compile(model, mode="reduce-overhead")

        def call() -> object:
            torch.compiler.cudagraph_mark_step_begin()
            return compiled(x)

        for _ in range(3):
            call()
        ways["reduce-overhead"] = call
    except Exception as error:
        out.facts["reduce-overhead"] = first_line(error)
