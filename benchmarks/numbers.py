"""Numbers of Python's that change from call to call, beside the same programs with tensors.

- *scaled*: operations in place, each with a number of its own. As constants, replays change nothing; that
  difference is what a number costs.
- *AdamW*: a whole training step of a small transformer, as its users write it (steps counted on the host, a
  schedule of the learning rate), and with all of that in tensors (``capturable``).
- *decoding*: a step of a decoder with a cache written at a position, which Python counts or a tensor holds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import rote

from .adamw import SHAPE, WIDTH
from .common import Outcome, Settings, all_equal, describe, time_loops
from .training import Job, batches, feeding, losses

NEEDS_GPU = False
COUNTS = (1, 17)
STEPS = 40
LAYERS, HEADS, LENGTH = 8, 8, 256


def run(settings: Settings) -> Outcome:
    """All three, each compared with plain calls first."""
    out = Outcome()
    _scaled(settings, out)
    _adamw(settings, out)
    _decoding(settings, out)
    return out


# ---------------------------------------------------------------------- scaled


class Scaled:
    """Values scaled in place, one after the other, by numbers that a counter moves, or that stay."""

    def __init__(self, device: torch.device, count: int, *, moves: bool) -> None:
        self.values = [torch.linspace(0.5, 2.0, 1024, device=device) for _ in range(count)]
        self.moves = moves
        self.calls = 0

    def __call__(self) -> Tensor:
        """One call; the last of the values."""
        self.calls += self.moves
        for place, value in enumerate(self.values):
            value.mul_(1.0 + self.calls * 1e-6 + place)
            value.sub_(value.amax())
        return self.values[-1].clone()


def _scaled(settings: Settings, out: Outcome) -> None:
    for count in COUNTS:
        name = f"{count} number{'s' * (count > 1)}"
        moving, staying, plain = (
            Scaled(settings.device, count, moves=moves) for moves in (True, False, True)
        )
        numbers, constants = rote.graph(moving, keep=True), rote.graph(staying, keep=True)
        same = all([torch.equal(numbers(), plain()) for _ in range(STEPS)])
        for _ in range(STEPS):
            constants()
        for each in (numbers, constants):
            each.wait_until_optimized(timeout_s=60)
        out.checks[f"{name}: {STEPS} calls bitwise equal"] = same
        ways: dict[str, Callable[[], Any]] = {"eager": plain, "constants": constants, "numbers": numbers}
        out.add(name, time_loops(ways, settings, rounds=20, calls=100))
        out.ratio(name, "numbers", "constants")
        out.facts[name] = describe(numbers)
        numbers.reset()
        constants.reset()


# ---------------------------------------------------------------------- AdamW


class Scheduled:
    """A training job with a schedule of the learning rate, as a number or as a tensor."""

    def __init__(self, device: torch.device, *, tensors: bool) -> None:
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=256, dropout=0.0, batch_first=True)
        model = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False).to(device)
        rate: Any = torch.tensor(1e-3, device=device) if tensors else 1e-3
        self.job = Job(model, torch.optim.AdamW(model.parameters(), lr=rate, capturable=tensors))
        self.decay = torch.tensor(0.999, device=device) if tensors else 0.999

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        """One whole training step, and one of the schedule."""
        loss = self.job.step(x, y)
        for group in self.job.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].mul_(self.decay)
            else:
                group["lr"] *= self.decay
        return loss


def _adamw(settings: Settings, out: Outcome) -> None:
    data = batches(SHAPE, 4, settings.device)
    kinds = (False, True) if settings.on_gpu else (False,)
    ways: dict[str, Callable[[], Any]] = {}
    steps: list[Any] = []
    for tensors in kinds:
        name = "tensors" if tensors else "numbers"
        plain, recorded = (Scheduled(settings.device, tensors=tensors) for _ in range(2))
        step = rote.graph(recorded.step, keep=True)
        same = all_equal(losses(plain.step, data, STEPS), losses(step, data, STEPS))
        same = same and all_equal(plain.job.state(), recorded.job.state())
        out.checks[f"AdamW with {name}: {STEPS} steps bitwise equal"] = same
        step.wait_until_optimized(timeout_s=60)
        ways |= {f"eager, {name}": feeding(plain.step, data), name: feeding(step, data)}
        out.facts[f"AdamW: {name}"] = describe(step)
        steps.append(step)
    out.add("AdamW", time_loops(ways, settings, rounds=20, calls=20))
    out.ratio("AdamW", "eager, numbers", "numbers")
    if settings.on_gpu:
        out.ratio("AdamW", "numbers", "tensors")
    for step in steps:
        step.reset()


# ---------------------------------------------------------------------- decoding


class Decoder(nn.Module):
    """Layers of attention over a cache and a feed-forward part each, for one new token."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inward = nn.ModuleList([nn.Linear(WIDTH, 3 * WIDTH, device=device) for _ in range(LAYERS)])
        self.outward = nn.ModuleList([nn.Linear(WIDTH, WIDTH, device=device) for _ in range(LAYERS)])
        self.wide = nn.ModuleList([nn.Linear(WIDTH, 4 * WIDTH, device=device) for _ in range(LAYERS)])
        self.narrow = nn.ModuleList([nn.Linear(4 * WIDTH, WIDTH, device=device) for _ in range(LAYERS)])
        self.places = torch.arange(LENGTH, device=device)
        self.keys, self.values = (
            [torch.zeros(1, HEADS, LENGTH, WIDTH // HEADS, device=device) for _ in range(LAYERS)]
            for _ in range(2)
        )

    def forward(self, x: Tensor, position: Any) -> Tensor:
        """The next state of a token, ``(1, 1, width)``, at a position: a number, or a tensor of one."""
        seen = (self.places <= position)[None, None, None]
        for layer in range(LAYERS):
            heads = self.inward[layer](F.layer_norm(x, (WIDTH,))).view(1, 1, 3, HEADS, -1).unbind(2)
            query, key, value = [each.transpose(1, 2) for each in heads]
            if isinstance(position, Tensor):
                self.keys[layer].index_copy_(2, position, key)
                self.values[layer].index_copy_(2, position, value)
            else:
                self.keys[layer][:, :, position] = key[:, :, 0]
                self.values[layer][:, :, position] = value[:, :, 0]
            found = F.scaled_dot_product_attention(
                query, self.keys[layer], self.values[layer], attn_mask=seen
            )
            x = x + self.outward[layer](found.transpose(1, 2).reshape(1, 1, WIDTH))
            x = x + self.narrow[layer](F.gelu(self.wide[layer](F.layer_norm(x, (WIDTH,)))))
        return x


class Decoding:
    """One step of decoding after another; the position is counted by Python, or on the device."""

    def __init__(self, device: torch.device, *, tensors: bool, graphed: bool) -> None:
        model = Decoder(device)
        self.step: Any = rote.graph(model, keep=True) if graphed else model
        self.x = torch.full((1, 1, WIDTH), 0.1, device=device)
        self.positions: list[Any] = list(range(LENGTH))
        if tensors:
            self.positions = [torch.tensor([each], device=device) for each in self.positions]
        self.done = 0

    def __call__(self) -> Tensor:
        """One step."""
        self.done += 1
        with torch.no_grad():
            return self.step(self.x, self.positions[self.done % LENGTH])


def _decoding(settings: Settings, out: Outcome) -> None:
    ways: dict[str, Callable[[], Any]] = {}
    for name, tensors in (("numbers", False), ("tensors", True)):
        plain, recorded = (
            Decoding(settings.device, tensors=tensors, graphed=graphed) for graphed in (False, True)
        )
        same = all([torch.equal(recorded(), plain()) for _ in range(STEPS)])
        out.checks[f"decoding with {name}: {STEPS} steps bitwise equal"] = same
        recorded.step.wait_until_optimized(timeout_s=60)
        ways |= {f"eager, {name}": plain, name: recorded}
        out.facts[f"decoding: {name}"] = describe(recorded.step)
    out.add("decoding", time_loops(ways, settings, rounds=20, calls=50))
    out.ratio("decoding", "eager, numbers", "numbers")
    out.ratio("decoding", "numbers", "tensors")
    for name in ("numbers", "tensors"):
        ways[name].step.reset()  # pyright: ignore[reportFunctionMemberAccess]
