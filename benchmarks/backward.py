"""Forward graphed, backward outside: four transformer layers (256 wide, 8 x 32 tokens), four linear ones.

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


def build() -> nn.Module:
    """The layers, always with the same parameters."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=4 * WIDTH, batch_first=True)
    return nn.TransformerEncoder(layer, num_layers=4, enable_nested_tensor=False)


def build_small() -> nn.Module:
    """Four linear layers: what the device does takes no time."""
    torch.manual_seed(0)
    return nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.ReLU())])


SUBJECTS = {
    "forward and backward": (build, (8, 32, WIDTH)),
    "four linear layers": (build_small, (16, 64)),
}
"""What makes the model, and the shape of its input, by name."""


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
    """Losses and gradients over some steps, then time per step in turns, of each subject."""
    out = Outcome()
    for subject in SUBJECTS:
        measure(subject, settings, out)
    return out


def measure(subject: str, settings: Settings, out: Outcome) -> None:
    """Measure one subject."""
    make, shape = SUBJECTS[subject]
    x = torch.randn(*shape, device=settings.device)
    models = {way: make().to(settings.device) for way in ("eager", "rote")}
    graphed = rote.graph(models["rote"], keep=True)
    ways = {
        "eager": stepping(models["eager"], models["eager"], x),
        "rote": stepping(models["rote"], graphed, x),
    }
    name = "loss and gradients of every step bitwise equal"
    for _ in range(STEPS):
        curves: dict[str, list[Tensor]] = {}
        for way, step in ways.items():
            torch.manual_seed(1)
            gradients = [step(), *(p.grad for p in models[way].parameters() if p.grad is not None)]
            curves[way] = gradients
        same = all_equal(curves["eager"], curves["rote"])
        out.checks[name] = out.checks.get(name, True) and same
    if settings.on_gpu:
        peer = make().to(settings.device)
        try:
            forward = torch.cuda.make_graphed_callables(copy.deepcopy(peer), (x.clone(),))
            ways["make_graphed_callables"] = stepping(forward, forward, x)
        except Exception as error:
            out.facts[f"{subject}: make_graphed_callables"] = first_line(error)
    if settings.peers:
        peer = make().to(settings.device)
        ways["reduce-overhead"] = stepping(peer, torch.compile(peer, mode="reduce-overhead"), x)
    for step in ways.values():
        for _ in range(5):
            step()
    out.add(subject, time_loops(ways, settings, rounds=20, calls=10))
    for way in ("rote", "make_graphed_callables"):
        out.ratio(subject, "eager", way)
    report = graphed.report()
    out.facts[f"{subject}: rote"] = describe(graphed)
    out.facts[f"{subject}: backward passes"] = {
        "all": report.backwards,
        "replayed": report.backwards_replayed,
    }
    graphed.reset()
