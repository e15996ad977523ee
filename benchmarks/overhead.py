"""What one call costs the host: 4 x Linear(256) and ReLU at batch 1 under no_grad, called in many ways.

The kernels are as small as kernels get, so ``host_us`` is the figure: the time Python needs to issue a call.
A bare replay is the floor nobody gets under; a replay with its inputs copied in and its output cloned is the
least that is safe to hand out; the peers and rote add their checks to that. On the host backend a bare replay
runs the operations too, so it is the difference to it that says what a call costs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import rote

from .common import Call, Outcome, Settings, bare_replay, describe, first_line, time_loops

NEEDS_GPU = False
WIDTH = 256
CALLS = 100


@dataclass
class Subject:
    """A callable and one set of arguments.

    Attributes:
        name: What is special about the call.
        function: The callable.
        arguments: What it is called with.
        flat: Whether the arguments are tensors and nothing else.
        graphs: Whether the call can be captured as one graph.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    flat: bool = True
    graphs: bool = True


def build(device: torch.device) -> nn.Sequential:
    """The four layers."""
    torch.manual_seed(0)
    layers = [module for _ in range(4) for module in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return nn.Sequential(*layers).to(device).eval().requires_grad_(False)


def subjects(device: torch.device) -> list[Subject]:
    """Everything that is measured beside the guard (see :mod:`.guards`)."""
    x = torch.randn(1, WIDTH, device=device)
    many = tuple(torch.randn(1, WIDTH, device=device) for _ in range(100))
    layers = build(device)

    def none() -> Tensor:
        return layers(x)

    def several(*inputs: Tensor) -> Tensor:
        return layers(torch.cat(inputs).sum(0, keepdim=True))

    def nested(batch: dict[str, Any]) -> Tensor:
        return layers(batch["image"]["left"] + batch["image"]["right"] * batch["scale"] + batch["state"][0])

    def island(x: Tensor) -> Tensor:
        return layers(x) + x[x > 0].sum()

    batch = {"image": {"left": many[0], "right": many[1]}, "state": [many[2]], "scale": 2.0}
    return [
        Subject("no inputs", none, ()),
        Subject("1 input", layers, (x,)),
        Subject("10 inputs", several, many[:10]),
        Subject("100 inputs", several, many),
        Subject("nested dict", nested, (batch,), flat=False),
        Subject("one island", island, (x,), graphs=False),
    ]


def by_hand(function: Callable[..., Any], arguments: tuple[Tensor, ...]) -> tuple[Call, Call]:
    """A replay and nothing else, and a replay that takes its inputs and gives its output away."""
    static = [argument.clone() for argument in arguments]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        function(*static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = function(*static)

    def safe() -> Tensor:
        if static:
            torch._foreach_copy_(static, arguments)
        graph.replay()
        return y.clone()

    return graph.replay, safe


@torch.no_grad()
def run(settings: Settings) -> Outcome:
    """Host cost per call of every way, in turns."""
    out = Outcome()
    for subject in subjects(settings.device):
        measure(subject, settings, out)
    measure_chain(settings, out)
    return out


def measure(subject: Subject, settings: Settings, out: Outcome) -> None:
    """One subject in every way that there is."""
    function, arguments = subject.function, subject.arguments
    graphed = rote.graph(function, keep=True)
    ways: dict[str, Call] = {
        "eager": lambda: function(*arguments),
        "rote": lambda: graphed(*arguments),
    }
    for call in ways.values():
        for _ in range(8):
            call()
    bare = bare_replay(graphed)
    if bare is not None:
        ways["bare replay"] = bare
    if settings.on_gpu and subject.flat and subject.graphs:
        ways["bare replay"], ways["replay, copy, clone"] = by_hand(function, arguments)
        _add_peers(ways, subject, settings, out)
    expected = function(*arguments)
    out.checks[f"{subject.name}: rote bitwise equal to eager"] = torch.equal(expected, graphed(*arguments))
    measured = time_loops(ways, settings, rounds=40, calls=CALLS)
    out.add(subject.name, measured)
    _compare(subject.name, measured, out)
    out.facts[f"{subject.name}: rote"] = describe(graphed)
    graphed.reset()


def measure_chain(settings: Settings, out: Outcome) -> None:
    """Two graphed callables, the second takes what the first returns."""
    x, subject = torch.randn(1, WIDTH, device=settings.device), "two chained"
    first, second = build(settings.device), build(settings.device)
    pair = rote.graph(first, keep=True), rote.graph(second, keep=True)
    ways: dict[str, Call] = {"eager": lambda: second(first(x)), "rote": lambda: pair[1](pair[0](x))}
    for call in ways.values():
        for _ in range(10):
            call()
    steps = [bare_replay(graphed) for graphed in pair]
    if all(steps):
        ways["bare replay"] = lambda: [step() for step in steps if step is not None]
    out.checks[f"{subject}: rote bitwise equal to eager"] = torch.equal(second(first(x)), pair[1](pair[0](x)))
    measured = time_loops(ways, settings, rounds=40, calls=CALLS)
    out.add(subject, measured)
    _compare(subject, measured, out)
    for graphed in pair:
        graphed.reset()


def _compare(subject: str, measured: dict[str, dict[str, Any]], out: Outcome) -> None:
    """Ratios to the peers, and what rote costs on top of the launches."""
    for way in ("eager", "bare replay", "replay, copy, clone", "make_graphed_callables"):
        out.ratio(subject, "rote", way, "host_us")
    if "bare replay" in measured:
        above = measured["rote"]["host_us"] - measured["bare replay"]["host_us"]
        out.facts[f"{subject}: host_us above a bare replay"] = above


def _add_peers(ways: dict[str, Call], subject: Subject, settings: Settings, out: Outcome) -> None:
    """PyTorch's own ways to a graph, where they work."""
    function, arguments = subject.function, subject.arguments
    if isinstance(function, nn.Module):
        function = copy.deepcopy(function)  # a module that it is given is changed in place
    try:
        samples = tuple(argument.clone() for argument in arguments)
        peer = torch.cuda.make_graphed_callables(function, samples)
        ways["make_graphed_callables"] = lambda: peer(*arguments)
    except Exception as error:
        out.facts[f"{subject.name}: make_graphed_callables"] = first_line(error)
    if settings.peers:
        _add_compiled(ways, subject, out)


def _add_compiled(ways: dict[str, Call], subject: Subject, out: Outcome) -> None:
    """torch.compile's own way to CUDA graphs, if it works here."""
    try:
        compiled = torch.compile(subject.function, mode="reduce-overhead")

        def call() -> object:
            torch.compiler.cudagraph_mark_step_begin()
            return compiled(*subject.arguments)

        for _ in range(3):
            call()
        ways["reduce-overhead"] = call
    except Exception as error:
        out.facts[f"{subject.name}: reduce-overhead"] = first_line(error)
