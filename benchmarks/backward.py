"""Forward graphed, backward outside: four transformer layers, width 256, 8 x 32 tokens, dropout.

The step is zero_grad, forward, loss, backward. ``make_graphed_callables`` hands out its own gradient memory
and checks nothing; rote checks, and gives the caller gradients that stay.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

import rote

from .common import Call, Outcome, Settings, all_equal, describe, first_line, time_loops

NEEDS_GPU = False
WIDTH = 256
STEPS = 20


def build(device: torch.device) -> nn.Module:
    """The layers, always with the same parameters."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=4 * WIDTH, batch_first=True)
    return nn.TransformerEncoder(layer, num_layers=4, enable_nested_tensor=False).to(device)


def stepping(model: nn.Module, forward: Call, x: Tensor) -> Call:
    """One step without an optimizer."""
    parameters = list(model.parameters())

    def step() -> Tensor:
        for parameter in parameters:
            parameter.grad = None
        loss: Tensor = forward(x).square().mean()  # type: ignore[call-arg,attr-defined]
        loss.backward()
        return loss.detach()

    return step


def run(settings: Settings) -> Outcome:
    """Losses and gradients over some steps, then time per step in turns."""
    out = Outcome()
    x = torch.randn(8, 32, WIDTH, device=settings.device)
    models = {way: build(settings.device) for way in ("eager", "rote")}
    graphed = rote.graph(models["rote"], keep=True)
    ways = {
        "eager": stepping(models["eager"], models["eager"], x),
        "rote": stepping(models["rote"], graphed, x),
    }
    for _ in range(STEPS):
        curves: dict[str, list[Tensor]] = {}
        for way, step in ways.items():
            torch.manual_seed(1)
            gradients = [step(), *(p.grad for p in models[way].parameters() if p.grad is not None)]
            curves[way] = gradients
        same = all_equal(curves["eager"], curves["rote"])
        name = "loss and gradients of every step bitwise equal"
        out.checks[name] = out.checks.get(name, True) and same
    if settings.on_gpu:
        peer = build(settings.device)
        try:
            forward = torch.cuda.make_graphed_callables(copy.deepcopy(peer), (x.clone(),))
            ways["make_graphed_callables"] = stepping(forward, forward, x)
        except Exception as error:
            out.facts["make_graphed_callables"] = first_line(error)
    if settings.peers:
        peer = build(settings.device)
        ways["reduce-overhead"] = stepping(peer, torch.compile(peer, mode="reduce-overhead"), x)
    for step in ways.values():
        for _ in range(5):
            step()
    out.add("forward and backward", time_loops(ways, settings, rounds=20, calls=10))
    for way in ("rote", "make_graphed_callables"):
        out.ratio("forward and backward", "eager", way)
    report = graphed.report()
    out.facts["rote"] = describe(graphed)
    out.facts["rote: backward passes"] = {"all": report.backwards, "replayed": report.backwards_replayed}
    graphed.reset()
    return out
