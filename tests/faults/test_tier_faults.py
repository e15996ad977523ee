"""A fault at every point at which an exact tier is made: a line in the report, and nothing else.

What reaches the caller is an interrupt alone. All results are right, before and afterwards, and what was
captured goes on to replay.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.runtime.fusion import evaluated
from tests.seeds import seed

import rote
from rote.base.errors import CaptureError
from rote.runtime.backends.cuda.session import CudaSession
from rote.runtime.backends.host.pool import Chunk, HostPool
from rote.runtime.backends.host.segment import HostSegment
from rote.runtime.backends.host.session import HostSession
from rote.runtime.compiling import COMPILERS
from rote.runtime.memory.holding import Holding
from rote.runtime.optimize import ALTERNATIVES
from rote.testing import assert_pool_empty, assert_same

from .injection import Injector


class OwnError(Exception):
    """The fault."""


FAULTS: dict[str, Any] = {
    "exception": OwnError,
    "interrupt": KeyboardInterrupt,
    "allocation": lambda: torch.OutOfMemoryError("out of memory, as asked for"),
    "capture": lambda: CaptureError("refused, as asked for"),
}


def targets(device: torch.device, *, after: bool) -> list[tuple[type, str]]:
    """Between a lease and its assignment nobody could give the lease back."""
    session: type = CudaSession if device.type == "cuda" else HostSession
    found = [(session, name) for name in ("begin", "run", "launch", "end", "finish")] + [(Holding, "keep")]
    own: list[tuple[type, str]] = [(Chunk, "__init__"), (HostSegment, "freeze")]
    own += [] if after else [(HostPool, "lease")]
    return found if device.type == "cuda" else found + own


SHORTENED, FUSED, CHOSEN = 4, 5, 6
"""The calls in which operations are left out, kernels take the place of others, and then alternatives."""


class Branching(torch.nn.Module):
    """Two stretches that only read what is outside."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(4, device=device))

    def forward(self, x: torch.Tensor) -> Any:
        y = self.work(x)
        if y.sum() > 0:
            return y, y[0]
        return y * 2 + x.exp(), y

    def work(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for n in range(2):
            table = torch.arange(4, device=x.device).float().cos()
            y = (y + table) * x.exp() + n
            x.sin()
        return y


class Writing(Branching):
    """One stretch, which writes a buffer and draws random numbers."""

    def forward(self, x: torch.Tensor) -> Any:
        y = self.work(x) + torch.rand_like(x)
        self.count.add_(y.sum(0))
        return y, self.work(x) + self.count, torch.rand(2, device=x.device)


class Training(Branching):
    """A whole training step, which leaves a gradient and updates in place what a kernel can store."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.weight = torch.nn.Parameter(torch.ones(4, device=device))
        self.weight.grad = torch.zeros(4, device=device)

    def forward(self, x: torch.Tensor) -> Any:
        self.weight.grad = None
        loss = (self.work(x) * self.weight).sum()
        loss.backward()
        with torch.no_grad():
            self.weight.mul_(0.9).sub_(self.weight.grad * 0.1)
            self.count.add_(self.weight)
        return loss


class Multiplying(Branching):
    """One stretch with products, for which there is an alternative with the same bits."""

    def forward(self, x: torch.Tensor) -> Any:
        y = self.work(x) @ x.t()
        self.count.add_(y.sum())
        return y @ self.work(x), y


def left(module: Branching) -> list[torch.Tensor]:
    """What a call leaves in a module."""
    tensors = [*module.buffers(), *module.parameters(), *[each.grad for each in module.parameters()]]
    return [each.detach().clone() for each in tensors if each is not None]


def play(
    kind: type[Branching],
    device: torch.device,
    injector: Injector,
    point: int | None,
    fault: Any,
    *,
    after: bool,
    at: int,
) -> None:
    """Calls with the fault armed in the one that makes the tier (``at``); each compared with eager."""
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).abs().to(device)
    ours, theirs = kind(device), kind(device)
    injector.arm(None, fault)
    g, raised = rote.graph(ours, keep=True, numerics="probed" if at == CHOSEN else "exact"), False
    for number in range(12):
        if number in (SHORTENED, FUSED, CHOSEN):
            (entry,) = g._keys.entries.values()
            COMPILERS.get().wait(120)
            entry.recordings[0].improve_at(0)
        if number == at:
            injector.arm(point, fault, after=after)
        seed(number)
        expected = theirs(x), left(theirs), torch.rand(2), torch.rand(2, device=device)
        seed(number)
        try:
            result = g(x)
        except KeyboardInterrupt:  # its call has come to its end
            assert fault is KeyboardInterrupt and number == at
            raised, result = True, expected[0]
        found = result, left(ours), torch.rand(2), torch.rand(2, device=device)
        assert_same(found, expected, f"call {number}")
        if number == at:
            injector.stop()
            injector.forget()
    (recording,) = g.report().recordings
    tier = recording.tier
    assert tier is not None
    if point is None or raised:
        assert tier.used and not tier.left and tier.fused is not None
        assert raised or len(tier.near) == (at == CHOSEN)
    else:
        (stays,) = tier.left  # the other stretch has its tier, and this one what it had
        assert tier.used or at == SHORTENED
        assert not isinstance(fault, type) or fault.__name__ in stays.reason
    g.reset()
    del g, entry
    assert_pool_empty()


def prove(kind: type[Branching], device: torch.device) -> None:
    """On a GPU the functions of kernels are proved in replays, a share in each; certificates stay."""
    x = torch.rand(3, 4, device=device)
    g = rote.graph(kind(device), keep=True)
    for _ in range(100):
        g(x)
        (entry,) = g._keys.entries.values()
        if entry.recordings and entry.recordings[0].recorded:
            COMPILERS.get().wait(120)
            entry.recordings[0].improve_at(0)
        (found,) = g.report().recordings or (None,)
        if found is not None and found.tier is not None and found.tier.fused is not None:
            break
    g.reset()
    del g, entry
    assert_pool_empty()


EVERY = [
    pytest.mark.parametrize("fault", FAULTS),
    pytest.mark.parametrize("after", [False, True]),
    pytest.mark.parametrize("kind", [Branching, Writing, Training]),
    pytest.mark.parametrize("at", [SHORTENED, FUSED]),
]


def every(test: Any) -> Any:
    """A test with each fault, before and after each kind of program's points, in both of its calls."""
    return functools.reduce(lambda marked, mark: mark(marked), EVERY, test)


def try_points(
    kind: type[Branching],
    device: torch.device,
    injector: Injector,
    fault: str,
    first: int = 0,
    step: int = 1,
    **how: Any,
) -> None:
    if device.type == "cuda":
        injector.arm(None, FAULTS[fault])
        prove(kind, device)
    play(kind, device, injector, None, FAULTS[fault], **how)
    points = list(injector.points)
    assert len(points) >= 8
    for number, point in list(enumerate(points))[first::step]:
        try:
            play(kind, device, injector, number, FAULTS[fault], **how)
        except AssertionError as error:
            raise AssertionError(f"point {number} of {len(points)}, {point}: {error}") from error


@pytest.mark.sampled(3)
@every
def test_a_fault_at_points_in_turn(device, at, kind, fault, after, monkeypatch):
    """Every fourth point. Each fault begins at another one, so all points of a program have one."""
    evaluated.install(monkeypatch)
    injector = Injector(monkeypatch, targets(device, after=after))
    first = list(FAULTS).index(fault)
    try_points(kind, device, injector, fault, first, len(FAULTS), after=after, at=at)


@pytest.mark.long
@every
def test_a_fault_at_every_point(device, at, kind, fault, after, monkeypatch):
    evaluated.install(monkeypatch)
    injector = Injector(monkeypatch, targets(device, after=after))
    try_points(kind, device, injector, fault, after=after, at=at)


@pytest.fixture
def _offered() -> Iterator[None]:
    alternative = rote.Alternative(
        "aten::mm", "in two steps", lambda x, y: True, lambda run, x, y: torch.mm(x.clone(), y) * 1
    )
    rote.register_alternative(alternative)
    yield
    ALTERNATIVES.withdraw(alternative)


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("_offered")
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_while_alternatives_are_captured(device, fault, after, monkeypatch):
    evaluated.install(monkeypatch)
    injector = Injector(monkeypatch, targets(device, after=after))
    first = list(FAULTS).index(fault)
    try_points(Multiplying, device, injector, fault, first % 2, 2, after=after, at=CHOSEN)
