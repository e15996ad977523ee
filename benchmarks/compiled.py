"""Compiled code: as it is, with the compiler's own graphs, captured by hand, by rote in both ways.

Twelve layers of a transformer without dropout on 16 tokens: little enough work that launches are most of it.
Inputs change with every call. Results are kept by the caller, so those of ``reduce-overhead`` and of the
capture by hand are cloned. Each way compiles the model anew; ``ready after`` is the time until its first fast
call.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any

import torch
from torch import Tensor, nn

import rote
from rote.integrations.torch_compile import backend

from .common import Outcome, Settings, now, time_loops

NEEDS_GPU = True
LAYERS, WIDTH, TOKENS = 12, 768, 16
Way = Callable[[Tensor], Tensor]


def _layer() -> nn.Module:
    return nn.TransformerEncoderLayer(WIDTH, 12, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True)


class Layers(nn.Module):
    """A stack of layers, as a class of its own: Dynamo compiles no frames of PyTorch's."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = nn.ModuleList([_layer() for _ in range(LAYERS)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.stack:
            x = layer(x)
        return x


def _reduced(model: nn.Module) -> Way:
    act = torch.compile(model, mode="reduce-overhead")

    def call(x: Tensor) -> Tensor:
        torch.compiler.cudagraph_mark_step_begin()
        return act(x).clone()

    return call


def _captured(model: nn.Module) -> Way:
    act = torch.compile(model)
    static = torch.zeros(1, TOKENS, WIDTH, device="cuda", dtype=torch.bfloat16)
    act(static)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        act(static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = act(static)

    def call(x: Tensor) -> Tensor:
        static.copy_(x)
        graph.replay()
        return made.clone()

    return call


WAYS: dict[str, Callable[[nn.Module], Way]] = {
    "compile": torch.compile,
    "reduce-overhead": _reduced,
    "compiled, captured by hand": _captured,
    "backend=rote": lambda model: torch.compile(model, backend=backend),
    "rote.graph": lambda model: rote.graph(torch.compile(model)),
}


@torch.no_grad()
def run(settings: Settings) -> Outcome:
    """All ways of one model."""
    out = Outcome()
    torch.manual_seed(0)
    model = Layers().to(settings.device, torch.bfloat16).eval()
    inputs = [torch.randn(1, TOKENS, WIDTH, device=settings.device, dtype=torch.bfloat16) for _ in range(4)]
    ways: dict[str, Way] = {"eager": model}
    for name, make in WAYS.items():
        began = now(settings.device)
        ways[name] = make(model)
        for x in inputs:
            ways[name](x)
        out.facts[f"{name}: ready after"] = now(settings.device) - began
    expected = [ways["compile"](x) for x in inputs]
    for name in ("compiled, captured by hand", "backend=rote", "rote.graph"):
        out.checks[f"{name} has the bits of compile"] = all(
            torch.equal(ways[name](x), was) for x, was in zip(inputs, expected, strict=True)
        )
    turns: dict[str, Any] = {name: cycle(inputs) for name in ways}
    calls = {name: lambda way=way, turn=turns[name]: way(next(turn)) for name, way in ways.items()}
    out.add("12 layers", time_loops(calls, settings, rounds=30, calls=100))
    for ours in ("backend=rote", "rote.graph"):
        for other in ("eager", "compile", "reduce-overhead", "compiled, captured by hand"):
            out.ratio("12 layers", other, ours)
    return out
