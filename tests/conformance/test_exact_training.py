"""The exact tier of training: parameters, optimizer state and gradients, to the bit, at every step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from tests.conformance.test_exact_tier import entries, soon, steps, tier
from tests.conformance.test_fused import compiled, hurry
from torch import Tensor, nn
from torch.nn import functional as F

import rote
from rote import Graphed
from rote.inspect import TierReport
from rote.runtime.engine.specialization import Specialization
from rote.runtime.optimize import before
from rote.runtime.recording import Recording
from rote.testing import assert_same

pytest.importorskip("hypothesis")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

CALLS = 14
"""Calls of a training step; it is recorded in the fifth at the latest."""
MADE = 7
"""The call in which the exact tier is made."""


@pytest.fixture(autouse=True)
def _proofs_in_one_call(monkeypatch):
    """On a GPU all operands of a function take many calls to try."""
    monkeypatch.setattr("rote.runtime.fusion.device.GPU_SLICE", 1 << 40)


class Model(nn.Module):
    """Attention over a few places with a mask that is made anew in each layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(2)])
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            mask = torch.triu(torch.full((6, 6), -1e9, device=x.device), 1)
            weights = torch.softmax(x @ x.transpose(-1, -2) * 0.3 + mask, -1)
            x = self.norm(x + F.gelu(layer(weights @ x)))
        return self.head(x)


class Momentum(torch.optim.Optimizer):
    """An optimizer that is written with plain operations."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for each in group["params"]:
                if each.grad is None:
                    continue
                state = self.state[each]
                if "momentum" not in state:
                    state["momentum"], state["second"] = torch.zeros_like(each), torch.zeros_like(each)
                state["momentum"].mul_(0.9).add_(each.grad * 0.1)
                state["second"].copy_(state["second"] * 0.99 + each.grad * each.grad * 0.01)
                each.mul_(0.999).sub_(state["momentum"] / (state["second"].sqrt() + 1e-3) * 0.05)


def sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05)


def with_momentum(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=0.01)


def adamw(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    on_gpu = parameters[0].is_cuda
    return torch.optim.AdamW(parameters, lr=0.01, fused=not on_gpu, capturable=on_gpu)


OPTIMIZERS = [sgd, with_momentum, adamw, Momentum]


class Training:
    """A model, its optimizer, and one whole step as a function."""

    def __init__(self, device: torch.device, make: Callable[[Any], torch.optim.Optimizer] = sgd) -> None:
        torch.manual_seed(0)
        self.model = Model().to(device)
        self.parameters = list(self.model.parameters())
        self.optimizer = make(self.parameters)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(self.model(x), y)

    def step(self, x: Tensor, y: Tensor) -> Any:
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        loss.backward()
        self.optimizer.step()
        return loss

    def seen(self) -> dict[str, Any]:
        """All that a step leaves behind."""
        state = [each for kept in self.optimizer.state.values() for each in kept.values()]
        return {
            "parameters": [each.detach().clone() for each in self.parameters],
            "gradients": [each.grad.clone() if each.grad is not None else None for each in self.parameters],
            "state": [each.clone() for each in state if isinstance(each, Tensor)],
            "random numbers": torch.rand(2, device=self.parameters[0].device),
        }


class Clipped(Training):
    def step(self, x: Tensor, y: Tensor) -> Any:
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.parameters, 0.05)
        self.optimizer.step()
        return loss.detach(), norm


class Accumulated(Training):
    """Two backward passes, into gradients that are there before and after."""

    def step(self, x: Tensor, y: Tensor) -> Any:
        self.optimizer.zero_grad(set_to_none=False)
        losses = [self.loss(a, b) * 0.5 for a, b in zip(x.split(2), y.split(2), strict=True)]
        for loss in losses:
            loss.backward()
        self.optimizer.step()
        return sum([loss.detach() for loss in losses])


class Cleared(Training):
    """Gradients that nobody sees after the step."""

    def step(self, x: Tensor, y: Tensor) -> Any:
        loss = self.loss(x, y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss


class Mixed(Training):
    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16):
            return F.mse_loss(self.model(x).float(), y) * 128 / 128


class WithDropout(Training):
    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(F.dropout(self.model(F.dropout(x, 0.2)), 0.1), y)


class Tied(Training):
    """Two layers share their weights, and one weight is frozen."""

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        self.model.layers[1].weight = self.model.layers[0].weight
        self.model.norm.weight.requires_grad_(False)
        return F.mse_loss(self.model(x), y)


class ByHand(Training):
    """Gradients by ``autograd.grad``, with one of the second order, and averaged parameters."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.averaged = [each.detach().clone() for each in self.parameters]

    def step(self, x: Tensor, y: Tensor) -> Any:
        x = x.clone().requires_grad_()
        loss = self.loss(x, y)
        (slope,) = torch.autograd.grad(loss, x, create_graph=True)
        loss = loss + slope.square().sum()
        gradients = torch.autograd.grad(loss, self.parameters)
        with torch.no_grad():
            for each, gradient, average in zip(self.parameters, gradients, self.averaged, strict=True):
                each -= gradient * 0.05
                average.mul_(0.9).add_(each * 0.1)
        return loss.detach()

    def seen(self) -> dict[str, Any]:
        return {**super().seen(), "averages": [each.clone() for each in self.averaged]}


KINDS = [Training, Clipped, Accumulated, Cleared, Mixed, WithDropout, Tied, ByHand]


def batches(device: torch.device) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    drawn = [torch.randn(4, 6, size, generator=generator).to(device) for _ in range(CALLS) for size in (8, 4)]
    return list(zip(drawn[::2], drawn[1::2], strict=True))


Between = Callable[[Training, int], None]


def train(
    training: Training, device: torch.device, *, graphed: bool, between: Between | None = None, **options: Any
) -> tuple[Graphed | None, list[Any], list[bool]]:
    """Steps, each with all that it leaves behind, and what was counted as written; kernels are waited for."""
    g = rote.graph(training.step, **{"keep": True, **options}) if graphed else None
    found: list[Any] = []
    counted: list[bool] = []
    for number, (x, y) in enumerate(batches(device)):
        if g is not None and number >= MADE:
            hurry(g)
        given = [each for each in training.parameters if each.requires_grad]
        versions = [each._version for each in given]
        result = (g or training.step)(x, y)
        written = [each._version > was for each, was in zip(given, versions, strict=True)]
        found.append((result, training.seen()))
        counted += written
        if between is not None:
            between(training, number)
    return g, found, counted


def compared(
    make: Callable[[], Training], device: torch.device, between: Between | None = None, **options: Any
) -> Graphed:
    """The steps of a plain training and of a graphed one."""
    _, expected, written = train(make(), device, graphed=False, between=between)
    g, got, counted = train(make(), device, graphed=True, between=between, **options)
    for number, (mine, theirs) in enumerate(zip(got, expected, strict=True)):
        assert_same(mine, theirs, f"step {number}")
    assert all([mine or not theirs for mine, theirs in zip(counted, written, strict=True)])
    assert g is not None
    return g


def newest(g: Graphed) -> TierReport:
    """What stands for the stretches of the only recording."""
    found = tier(g)
    assert found is not None
    assert not [each for each in found.left if "equal" in each.reason or "Error" in each.reason], g.explain()
    return found


def pairs() -> Iterator[Any]:
    """Kinds of steps with optimizers; without the long ones, each kind once and each optimizer twice."""
    for row, kind in enumerate(KINDS):
        for column, make in enumerate(OPTIMIZERS):
            marks = [] if (row + row // len(OPTIMIZERS)) % len(OPTIMIZERS) == column else [pytest.mark.long]
            yield pytest.param(kind, make, id=f"{kind.__name__}-{make.__name__}", marks=marks)


@pytest.mark.sampled(2)
@compiled
@pytest.mark.parametrize(("kind", "make"), [*pairs()])
def test_whole_steps(device, kind, make):
    g = compared(lambda: kind(device, make), device)
    found = newest(g)
    assert g.report().replayed >= CALLS - 5, g.explain()
    assert not found.used or found.after < found.before
    # A copy for each gradient may be as much as there is to save.
    if make is Momentum or kind in (Cleared, Accumulated, ByHand):
        assert found.used and found.fused is not None, g.explain()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("make", OPTIMIZERS)
def test_whole_steps_checked(_evaluated, make):
    """Each kind with two of the optimizers, without a compiler."""
    device, used = torch.device("cpu"), 0
    for kind in KINDS[OPTIMIZERS.index(make) % 2 :: 2]:
        g = compared(lambda kind=kind: kind(device, make), device, verify=1)
        used += newest(g).used
        assert g.report().verified, g.explain()
    assert used > 1


def test_gradients_stay_in_one_place(device):
    """Nothing that an exact tier holds counts as somebody who holds a gradient."""
    training = Training(device)
    g = rote.graph(training.step, keep=True)
    places = set[int]()
    for number, (x, y) in enumerate(batches(device)):
        if number >= MADE:
            hurry(g)
        g(x, y)
        gradient = training.parameters[0].grad
        assert gradient is not None
        places.add(gradient.data_ptr()) if number >= MADE else None
        del gradient
    assert newest(g).used and len(places) == 1 and g.report().replayed >= CALLS - 5


def test_gradients_that_somebody_holds(device):
    """Earlier gradients stay what they were, whoever holds them, before and behind the exact tier."""
    kept: list[Any] = []

    def hold(training: Training, number: int) -> None:
        if number in (MADE - 1, MADE + 2, MADE + 6):
            gradients = [each.grad for each in training.parameters]
            kept.append((gradients, [each.clone() for each in gradients if each is not None]))

    g = compared(lambda: Training(device, with_momentum), device, hold)
    for gradients, then in kept:
        assert_same(gradients, then, "a gradient that is held")
    assert newest(g).used


def test_gradients_and_parameters_that_somebody_writes(device):
    def write(training: Training, number: int) -> None:
        first = training.parameters[0]
        with torch.no_grad():
            if number == MADE + 1:
                first.mul_(1.5)
            if number == MADE + 2 and first.grad is not None:
                first.grad.fill_(7)
            if number == MADE + 3:
                first.data[0] = 3.0
            if number == MADE + 4:
                training.model.load_state_dict(
                    {k: torch.ones_like(v) for k, v in training.model.state_dict().items()}
                )
            if number == MADE + 5:
                first.grad = None
            if number == MADE + 6:
                first.data = first.data.clone()

    for kind in (Training, Accumulated, Cleared):
        compared(lambda kind=kind: kind(device, with_momentum), device, write)


def test_gradients_outlive_the_recording(device):
    training = Training(device)
    g, found, _ = train(training, device, graphed=True)
    assert g is not None and newest(g).used
    g.reset()
    other = rote.graph(lambda x: (x * 2).cos() * 3 + x, keep=True)
    for _ in range(4):
        other(torch.ones(64, 64, device=device))
    expected = found[-1][1]["gradients"]
    assert_same([each.grad for each in training.parameters], expected, "gradients")


def test_made_again_after_an_eviction(device):
    training, plain = Training(device, with_momentum), Training(device, with_momentum)
    g = rote.graph(training.step, keep=True)
    for turn in range(2):
        for number, (x, y) in enumerate(batches(device)):
            if number == MADE:
                soon(g)
            assert_same(g(x, y), plain.step(x, y), f"step {number} of turn {turn}")
            assert_same(training.parameters, plain.parameters, f"step {number} of turn {turn}")
        assert newest(g).before
        for entry in g._keys.entries.values():
            for recording in entry.recordings:
                recording.evict("a test took its memory")
        assert g.report().bytes_held == 0


def test_too_much_is_written(device, monkeypatch):
    monkeypatch.setattr(before, "MOST_BYTES", 100)
    g = compared(lambda: Training(device), device)
    found = newest(g)
    assert not found.used
    assert "of memory from outside, and no more than 100 B are copied" in found.left[0].reason


def test_a_step_that_the_host_decides(device):
    class Scaled(Training):
        def step(self, x: Tensor, y: Tensor) -> Any:
            self.optimizer.zero_grad()
            loss = self.loss(x, y)
            loss.backward()
            if not torch.isfinite(self.parameters[0].grad).all():
                return loss
            self.optimizer.step()
            return loss

    found = newest(compared(lambda: Scaled(device), device))
    assert [each.reason for each in found.left] == [
        "it writes arguments or state, and the host reads values before it ends"
    ]


# ---------------------------------------------------------------------- gradients taken outside


class Layers(nn.Module):
    """A forward whose results require grad: what is made of numbers alone is made once."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 4).to(device), nn.Linear(4, 4).to(device)
        self.norm = nn.BatchNorm1d(4).to(device)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = steps(self.first(x)) + torch.rand_like(x) * 0.01
        z = self.norm(F.dropout(y * 2 + 1 - y, 0.3))
        return self.second(z * y), z


def walks(g: Graphed) -> Iterator[Specialization]:
    """The keys of the backward passes."""
    for entry in entries(g):
        for backward in [each for recording in entry.recordings for each in recording.backwards()]:
            yield from [walker._entry for walker in backward._walkers.values()]


def recorded_walks(g: Graphed) -> list[Recording]:
    return [recording for entry in walks(g) for recording in entry.recordings if recording.recorded]


def hurry_all(g: Graphed) -> None:
    hurry(g)
    for recording in recorded_walks(g):
        recording.improve_at(0)


def taken_outside(
    forward: Callable[[Tensor], Any],
    layers: Layers,
    device: torch.device,
    g: Graphed | None,
    losses: Callable[[Any], Tensor],
    *,
    several: int,
) -> list[Any]:
    """Steps of several calls each, whose backward passes come in another order; what they leave behind."""
    generator = torch.Generator().manual_seed(2)
    seen: list[Any] = []
    for number in range(16):
        if g is not None and number >= MADE:
            hurry_all(g)
        torch.manual_seed(number)
        layers.zero_grad()
        xs = [torch.randn(4, 4, generator=generator).to(device).requires_grad_() for _ in range(several)]
        results = [forward(x) for x in xs]
        found = [[each.detach().clone() for each in result] for result in results]
        for result in reversed(results):
            loss = losses(result)
            loss.backward(retain_graph=True)
            loss.backward()
        gradients = [each.grad.clone() for each in (*xs, *layers.parameters()) if each.grad is not None]
        seen.append(
            (found, gradients, [each.clone() for each in layers.buffers()], torch.rand(2, device=device))
        )
        with torch.no_grad():
            for each in layers.parameters():
                each.sub_(each.grad * 0.01) if each.grad is not None else None
    return seen


@pytest.mark.sampled(2)
@compiled
@pytest.mark.parametrize("several", [1, 2])
@pytest.mark.parametrize("losses", [lambda r: r[0].square().sum(), lambda r: r[0].sum() + r[1].exp().sum()])
def test_gradients_taken_outside(device, several, losses):
    plain, layers = Layers(device), Layers(device)
    expected = taken_outside(plain, plain, device, None, losses, several=several)
    g = rote.graph(layers, keep=True)
    got = taken_outside(g, layers, device, g, losses, several=several)
    for number, (mine, theirs) in enumerate(zip(got, expected, strict=True)):
        assert_same(mine, theirs, f"step {number}")
    tiers = [each.tier for each in g.report().recordings]
    assert all([found is not None and found.used for found in tiers]), g.explain()
    told = [why for found in tiers if found is not None for why in found.left]
    told += [why for recording in recorded_walks(g) for _, why in recording.tiers.left]
    assert not told and any([recording.tiers.exact for recording in recorded_walks(g)])


def test_what_a_backward_has_saved_is_checked(device):
    """As without an exact tier: parameters that are written between forward and backward are an error."""
    layers = Layers(device)
    g = rote.graph(layers, keep=True)
    for number in range(MADE + 3):
        if number == MADE:
            soon(g)
        g(torch.randn(4, 4, device=device))[0].sum().backward()
    found = tier(g)
    assert found is not None and found.used
    result, _ = g(torch.randn(4, 4, device=device))
    with torch.no_grad():
        layers.second.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


# ---------------------------------------------------------------------- random optimizers

STATE = 4
"""Tensors that a random optimizer has: all alike, or two that share memory."""

UPDATES: dict[str, Callable[[Tensor, Tensor, float], Any]] = {
    "add_": lambda a, b, n: a.add_(b),
    "add_number": lambda a, b, n: a.add_(n),
    "sub_": lambda a, b, n: a.sub_(b * n),
    "mul_": lambda a, b, n: a.mul_(b),
    "mul_number": lambda a, b, n: a.mul_(n),
    "div_": lambda a, b, n: a.div_(b.abs() + 1),
    "copy_": lambda a, b, n: a.copy_(b + n),
    "copy_turned": lambda a, b, n: a.copy_(b.t() * n),
    "copy_row": lambda a, b, n: a.copy_(b[0] + a),
    "part": lambda a, b, n: a[1].sub_(b[0] * n),
    "zero_": lambda a, b, n: a.zero_(),
    "fill_": lambda a, b, n: a.fill_(n),
    "addcmul_": lambda a, b, n: a.addcmul_(a, b, value=n),
    "product": lambda a, b, n: a.copy_(a @ b),
    "bits": lambda a, b, n: a.mul_((b.view(torch.int32).reshape(-1)[:9].reshape(3, 3) > 0) + n),
    "halves": lambda a, b, n: a.sub_((b.view(torch.int16)[:, :3] > 0) * n).mul_(b),
    "negative": lambda a, b, n: a.add_(-(a * n)).sub_(a.t()),
}
STEPS = st.lists(
    st.tuples(
        st.sampled_from(sorted(UPDATES)),
        st.integers(0, STATE - 1),
        st.integers(0, STATE),
        st.sampled_from([0.5, -1.0, 0.25]),
    ),
    min_size=2,
    max_size=9,
)


@pytest.mark.parametrize("aliased", [False, True])
def test_random_updates_in_place(_evaluated, aliased):
    used = [0, 0]

    @settings(max_examples=60, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(STEPS, st.booleans())
    def law(program, wide: bool) -> None:
        def state() -> list[Tensor]:
            found = [torch.linspace(-1, n + 1, 9).reshape(3, 3) for n in range(STATE)]
            if wide:
                found[1] = found[1].double()
            if aliased:  # two names, one memory
                found[2] = torch.from_numpy(found[0].numpy())
                found[3] = found[1].t()
            return found

        def update(tensors: list[Tensor]) -> Callable[[Tensor], Tensor]:
            def fn(x: Tensor) -> Tensor:
                for name, target, source, number in program:
                    UPDATES[name](tensors[target], [*tensors, x][source], number)
                return x * 2 + tensors[0] - 1

            return fn

        mine, theirs = state(), state()
        plain, g = update(theirs), rote.graph(update(mine), keep=True)
        for number in range(8):
            if number >= 3:
                soon(g)
            x = torch.linspace(number - 4, 2, 9).reshape(3, 3)
            try:
                expected = plain(x)
            except RuntimeError:  # what it writes overlaps itself
                return
            assert_same(g(x), expected, f"call {number}")
            for one, other in zip(mine, theirs, strict=True):
                assert_same(one.clone(), other.clone(), f"state after call {number}")
        tiers = [each.tier for each in g.report().recordings if each.tier is not None]
        told = [each.reason for found in tiers for each in found.left]
        assert not [why for why in told if "Error" in why or "equal" in why], told
        used[0] += 1
        used[1] += any([each.fused is not None for each in tiers])
        g.reset()

    law()
    assert aliased or used[1] > 0.4 * used[0], used


@pytest.mark.parametrize("name", ["addcmul_", "addcdiv_"])
def test_a_third_operand_of_a_larger_type(_evaluated, name):
    """PyTorch calculates in that type then."""

    def fn(w: Tensor, end: Tensor, third: Tensor) -> Tensor:
        w.mul_(3).sub_(0.1)
        getattr(w, name)(end, third)
        return w * 2

    g = rote.graph(fn, keep=True)
    for number in range(8):
        if number >= 3:
            soon(g)
        end, third = torch.linspace(number - 4, 2, 9), torch.linspace(1, 3, 9).double()
        mine, theirs = torch.linspace(-1, 1, 9), torch.linspace(-1, 1, 9)
        assert_same(g(mine, end, third), fn(theirs, end, third), f"call {number}")
        assert_same(mine, theirs, f"call {number}")
    (recording,) = g.report().recordings
    assert recording.tier is not None and not recording.tier.left


def test_updates_in_place_are_stored_once(_evaluated):
    """Of several versions only the last one is in memory; a kernel reads and writes the same tensor."""
    w, average = torch.ones(3, 3), torch.zeros(3, 3)

    def fn(x: Tensor) -> None:
        w.mul_(0.5).sub_(x * 2)
        average.mul_(0.9).add_(w * 0.1)
        w.add_(average)

    g = rote.graph(fn, keep=True)
    for number in range(8):
        if number >= 3:
            soon(g)
        g(torch.full((3, 3), float(number)))
    found = newest(g)
    assert found.fused is not None and (found.before, found.after) == (7, 1), g.explain()
    (recording,) = [each for entry in entries(g) for each in entry.recordings]
    assert recording.tiers.settled[-1].fused is not None
