"""Whole training steps with what belongs to them: clipping, scaling, schedules, averages, accumulation."""

from __future__ import annotations

import copy
import os
import warnings
from enum import Enum

import pytest
import torch
from tests.conformance.keeping import KeptGraph
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)
from torch.optim.swa_utils import (
    AveragedModel,
    get_ema_avg_fn,
    get_ema_multi_avg_fn,
    get_swa_avg_fn,
    get_swa_multi_avg_fn,
)
from torch.utils.checkpoint import checkpoint

import rote
from rote.runtime.recording.contest.contest import BLOCK, BLOCKS, WARM
from rote.testing import assert_same

TIMED = (WARM + BLOCK) * BLOCKS  # plain calls, to compare replays with
WARM = 8
"""Calls until a training step replays at the latest: state is made, observed, and recorded."""

REPEATABLE = (":4096:8", ":16:8")


@pytest.fixture
def deterministic(device):
    """Deterministic algorithms; cuBLAS has them only with a workspace that is set before CUDA starts."""
    if device.type == "cuda" and os.environ.get("CUBLAS_WORKSPACE_CONFIG") not in REPEATABLE:
        pytest.skip("CUBLAS_WORKSPACE_CONFIG was not set before CUDA started")
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def momentum(params):
    return torch.optim.SGD(params, lr=0.05, momentum=0.9)


def adamw(params):
    return torch.optim.AdamW(params, lr=0.01, fused=True)


class Trainer:
    """A small model and a whole training step, in parts that tests replace."""

    def __init__(self, device, make=momentum):
        torch.manual_seed(3)
        self.device = device
        self.model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 2)).to(device)
        self.optimizer = make(list(self.model.parameters()))
        self.prepare()

    def prepare(self):
        """What a test adds."""

    def between(self, number):
        """What happens after each call."""

    def loss(self, x, y):
        return F.mse_loss(self.model(x), y)

    def clip(self):
        return None

    def after(self):
        """What follows the optimizer's step."""

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        loss.backward()
        norm = self.clip()
        self.optimizer.step()
        self.after()
        return loss.detach(), norm

    def state(self):
        parameters = list(self.model.parameters())
        slots = [sorted(self.optimizer.state[p].items()) for p in parameters]
        tensors = [[value for _, value in slot if isinstance(value, torch.Tensor)] for slot in slots]
        return [parameters, [p.grad for p in parameters], tensors]


def batches(device, count):
    return [(torch.randn(4, 8, device=device), torch.randn(4, 2, device=device)) for _ in range(count)]


def train(make, calls, every=5, tolerance=0.0):
    """Train twice, graphed and plain; every result, and at times everything else, has to be the same."""
    ours, theirs = make(), make()
    g = rote.graph(ours.step)
    for number, arguments in enumerate(calls):
        results = []
        for call in (g, theirs.step):
            torch.manual_seed(number)
            results.append(call(*arguments))
        assert_same(*results, f"step {number}", tolerance=tolerance)
        if number % every == 0 or number == len(calls) - 1:
            assert_same(ours.state(), theirs.state(), f"step {number}: state", tolerance=tolerance)
        ours.between(number)
        theirs.between(number)
    return g


# ---------------------------------------------------------------------- bitwise, over many steps


class Attention(nn.Module):
    """Multi-head attention, written out."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):  # (batch, tokens, width)
        B, T, W = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.heads, W // self.heads).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) / (W // self.heads) ** 0.5).softmax(-1)
        weights = F.dropout(weights, 0.1, self.training)
        return self.out((weights @ v).transpose(1, 2).reshape(B, T, W))


class Block(nn.Module):
    """A pre-norm transformer layer with dropout."""

    def __init__(self, width, heads):
        super().__init__()
        self.attention, self.norm1, self.norm2 = (
            Attention(width, heads),
            nn.LayerNorm(width),
            nn.LayerNorm(width),
        )
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.mlp(self.norm2(x)))


class Transformer(Trainer):
    """Two layers, 64 wide: next-token loss, clipping, an average of the weights."""

    def __init__(self, device, make):
        torch.manual_seed(3)
        self.model = nn.Sequential(
            nn.Embedding(32, 64), Block(64, 4), Block(64, 4), nn.LayerNorm(64), nn.Linear(64, 32)
        ).to(device)
        self.optimizer = make(list(self.model.parameters()))
        self.average = [p.detach().clone() for p in self.model.parameters()]

    def step(self, tokens):
        self.optimizer.zero_grad()
        logits = self.model(tokens[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, 32), tokens[:, 1:].reshape(-1))
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        with torch.no_grad():
            for average, p in zip(self.average, self.model.parameters(), strict=True):
                average.lerp_(p, 0.01)
        return loss.detach(), norm

    def state(self):
        return [*super().state(), self.average]


def decayed(params):
    """AdamW as large models are trained with: matrices decay, the rest does not."""
    matrices, rest = [p for p in params if p.dim() > 1], [p for p in params if p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), fused=True)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-3, fused=True),
    "adamw": decayed,
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.usefixtures("deterministic")
def test_linear_gelu_linear(device, name):
    g = train(lambda: Trainer(device, OPTIMIZERS[name]), batches(device, 100), every=20)
    assert g.report().replayed >= 100 - WARM - TIMED, g.explain()


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.usefixtures("deterministic")
def test_transformer(device, name):
    calls = [(torch.randint(0, 32, (2, 9), device=device),) for _ in range(50)]
    g = train(lambda: Transformer(device, OPTIMIZERS[name]), calls, every=20)
    assert g.report().replayed >= 50 - WARM - TIMED, g.explain()


@pytest.mark.usefixtures("deterministic")
def test_transformer_encoder_layer(device):
    class Encoder(Trainer):
        def prepare(self):
            layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True, activation="gelu")
            self.model = nn.Sequential(
                nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(64, 2)
            )
            self.model.to(self.device)
            self.optimizer = adamw(self.model.parameters())

        def loss(self, x, y):
            return F.mse_loss(self.model(x).mean(1), y)

    calls = [(torch.randn(2, 5, 64, device=device), torch.randn(2, 2, device=device)) for _ in range(60)]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        g = train(lambda: Encoder(device), calls, every=20)
    assert g.report().replayed >= 60 - WARM, g.explain()


# ---------------------------------------------------------------------- clipping

CLIPPING = {
    "norm": lambda p: nn.utils.clip_grad_norm_(p, 0.1),
    "norm-foreach": lambda p: nn.utils.clip_grad_norm_(p, 0.1, foreach=True),
    "norm-loop": lambda p: nn.utils.clip_grad_norm_(p, 0.1, foreach=False),
    "norm-inf": lambda p: nn.utils.clip_grad_norm_(p, 0.1, norm_type=float("inf")),
    "norm-checked": lambda p: nn.utils.clip_grad_norm_(p, 0.1, error_if_nonfinite=True),
    "value-foreach": lambda p: nn.utils.clip_grad_value_(p, 0.01, foreach=True),
    "value-loop": lambda p: nn.utils.clip_grad_value_(p, 0.01, foreach=False),
}


@pytest.mark.parametrize("name", CLIPPING)
def test_clipping(device, name):
    class Clipping(Trainer):
        def clip(self):
            return CLIPPING[name](self.model.parameters())

    g = train(lambda: Clipping(device), batches(device, 40))
    assert g.report().replayed >= 40 - WARM, g.explain()


def test_a_norm_that_is_not_finite_raises_as_in_eager(device):
    class Clipping(Trainer):
        def clip(self):
            return nn.utils.clip_grad_norm_(self.model.parameters(), 0.1, error_if_nonfinite=True)

    ours, theirs = Clipping(device), Clipping(device)
    g = rote.graph(ours.step)
    for number, (x, y) in enumerate(batches(device, 20)):
        if number in (9, 14):
            bad = torch.full_like(x, float("inf"))
            for call in (g, theirs.step):
                with pytest.raises(RuntimeError, match="is non-finite, so it cannot be clipped"):
                    call(bad, y)
        assert_same(g(x, y), theirs.step(x, y), f"step {number}")
    assert_same(ours.state(), theirs.state(), "the end")


# ---------------------------------------------------------------------- loss scaling and autocast


class Scaled(Trainer):
    """A step with a gradient scaler that grows fast, so that it also overflows."""

    unscale = False

    def prepare(self):
        kind = self.device.type
        self.scaler = torch.amp.GradScaler(kind, init_scale=2.0**10, growth_interval=3, enabled=True)

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        self.scaler.scale(loss).backward()
        if self.unscale:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()

    def state(self):
        return [*super().state(), self.scaler._scale, self.scaler._growth_tracker]


def overflowing(device, count=60):
    """Batches of which every seventh overflows; the scaler skips those steps."""
    calls = batches(device, count)
    return [(x * 1e30 if number % 7 == 6 else x, y) for number, (x, y) in enumerate(calls)]


@pytest.mark.parametrize("unscale", [False, True], ids=["scaled", "unscaled"])
def test_grad_scaler(device, unscale):
    """Whether gradients overflowed is read by the host: two ways through the recording."""

    class Case(Scaled):
        pass

    Case.unscale = unscale
    g = train(lambda: Case(device), overflowing(device), every=1)
    report = g.report()
    assert report.replayed >= 40, g.explain()
    assert max(recording.paths for recording in report.recordings) == 2


def test_grad_scaler_whose_step_is_read(device):
    """Numbers that are read make the traced call begin again: what the scaler has noted by then is gone."""

    class Reading(Scaled):
        unscale = True

        def step(self, x, y):
            return super().step(x, y).item(), self.scaler.get_scale()

    g = train(lambda: Reading(device), batches(device, 40), every=1)
    assert g.report().replayed >= 40 - 2 * WARM, g.explain()


@pytest.mark.parametrize("unscale", [False, True], ids=["scaled", "unscaled"])
def test_grad_scaler_with_a_fused_optimizer(device, unscale):
    """It takes the scale and the overflow as tensors: no host read, one way."""

    class Case(Scaled):
        pass

    Case.unscale = unscale
    g = train(lambda: Case(device, adamw), overflowing(device), every=1)
    assert g.report().replayed >= 60 - WARM, g.explain()
    assert [recording.paths for recording in g.report().recordings] == [1]


def test_scaler_updated_outside(device):
    """Its table of stages lives from one call to the next; such a call is not recorded."""

    class Outside(Scaled):
        def step(self, x, y):
            self.optimizer.zero_grad()
            loss = self.loss(x, y)
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            return loss.detach()

        def between(self, number):
            self.scaler.update()

    g = train(lambda: Outside(device), overflowing(device, 30), every=1)
    assert g.report().replayed == 0


def test_scaler_changed_between_calls(device):
    class Changed(Scaled):
        def between(self, number):
            if number == 20:
                self.scaler.update(16.0)
            if number == 30:
                self.scaler.set_growth_factor(4.0)
            if number == 40:
                self.scaler.load_state_dict({**self.scaler.state_dict(), "scale": 64.0})

    g = train(lambda: Changed(device), overflowing(device), every=1)
    assert g.report().replayed >= 20, g.explain()


def test_autocast(device):
    class Autocast(Trainer):
        def loss(self, x, y):
            with torch.autocast(self.device.type, dtype=torch.bfloat16):
                return F.mse_loss(self.model(x).float(), y)

    g = train(lambda: Autocast(device), batches(device, 40))
    assert g.report().replayed >= 40 - WARM, g.explain()


def test_autocast_with_a_scaler(device):
    class Autocast(Scaled):
        def loss(self, x, y):
            with torch.autocast(self.device.type, dtype=torch.float16):
                return F.mse_loss(self.model(x).float(), y)

    g = train(lambda: Autocast(device), batches(device, 60), every=1)
    assert g.report().replayed >= 30, g.explain()


# ---------------------------------------------------------------------- learning rates

SCHEDULES = {
    "exponential": lambda o: ExponentialLR(o, 0.99),
    "cosine": lambda o: CosineAnnealingLR(o, 20),
    "lambda": lambda o: LambdaLR(o, lambda epoch: 1 / (epoch + 1)),
    "sequential": lambda o: SequentialLR(o, [LinearLR(o, 0.1), ExponentialLR(o, 0.99)], milestones=[10]),
    "one-cycle": lambda o: OneCycleLR(o, 0.1, total_steps=80, cycle_momentum=False),
}


class Scheduled(Trainer):
    """A trainer that holds its scheduler, as most do, and steps it after each call."""

    def __init__(self, device, make, schedule):
        super().__init__(device, make)
        self.scheduler = schedule(self.optimizer)

    def between(self, number):
        self.scheduler.step()

    def state(self):
        return [*super().state(), [float(group["lr"]) for group in self.optimizer.param_groups]]


def tensor_rate(device):
    return lambda p: torch.optim.SGD(p, lr=torch.tensor(0.05, device=device), momentum=0.9, fused=True)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_rate_in_a_tensor_replays(device, name):
    g = train(lambda: Scheduled(device, tensor_rate(device), SCHEDULES[name]), batches(device, 60))
    assert g.report().replayed >= 60 - WARM, g.explain()


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_rate_that_changes_at_every_call_is_told_the_line(device, name, reason):
    g = train(lambda: Scheduled(device, momentum, SCHEDULES[name]), batches(device, 30))
    found = reason(g, "RT412")
    assert ".optimizer.param_groups[0]['lr'] was " in found.message
    assert found.message.endswith(" (torch.optim.SGD, group 0)")
    place = ', device="cuda"' if device.type == "cuda" else ""
    rate = 0.004 if name == "one-cycle" else 0.05
    assert found.remedy == (
        f"torch.optim.SGD(params, lr=torch.tensor({rate}{place}), fused=True): schedulers then change it in "
        "place, and it is read on the device "
        '(set it by hand with optimizer.param_groups[0]["lr"].fill_(...)).'
    )
    line = found.remedy.partition(": ")[0]
    again = train(lambda: Scheduled(device, lambda params: eval(line), SCHEDULES[name]), batches(device, 20))
    assert again.report().replayed >= 20 - WARM, again.explain()


def test_a_rate_that_follows_the_loss(device):
    class Following(Scheduled):
        def between(self, number):
            self.scheduler.step(1.0 if number % 7 else 0.5)

    schedule = lambda o: ReduceLROnPlateau(o, patience=2)  # noqa: E731
    g = train(lambda: Following(device, tensor_rate(device), schedule), batches(device, 40))
    assert g.report().replayed >= 40 - WARM, g.explain()


def test_a_rate_that_changes_seldom_is_recorded_anew(device, reason):
    g = train(lambda: Scheduled(device, momentum, lambda o: StepLR(o, 12, 0.5)), batches(device, 60))
    assert g.report().replayed >= 40, g.explain()
    assert "lr=torch.tensor(0.05" in reason(g, "RT412").remedy


def test_many_rates_tell_the_line(device):
    """Each value has a recording; what is said of too many is still the line to change."""
    schedule = lambda o: StepLR(o, 3, 0.9)  # noqa: E731
    ours, theirs = (Scheduled(device, momentum, schedule) for _ in range(2))
    g = rote.graph(ours.step, max_recordings=4, verify=10**6)  # so nothing is followed
    for number, (x, y) in enumerate(batches(device, 60)):
        assert_same(g(x, y), theirs.step(x, y), f"step {number}")
        ours.between(number)
        theirs.between(number)
    limit = [found for found in g.report().reasons if found.code == "RT303"]
    assert len(limit) == 1 and "param_groups[0]['lr'] was" in limit[0].message
    assert "lr=torch.tensor(0.05" in limit[0].remedy


@pytest.mark.parametrize("flags", [{}, {"foreach": True}])
def test_a_rate_in_a_tensor_that_the_optimizer_reads_on_the_host(device, reason, flags):
    def make(p):
        return torch.optim.SGD(p, lr=torch.tensor(0.05, device=device), momentum=0.9, **flags)

    g = train(lambda: Scheduled(device, make, SCHEDULES["exponential"]), batches(device, 60))
    found = reason(g, "RT412")
    assert found.message == "torch.optim.SGD.step() reads param_groups[0]['lr'] on the host, and it changes"
    assert found.remedy.startswith("torch.optim.SGD(params, lr=..., fused=True)")


def test_other_hyperparameters(device, reason):
    class Warming(Trainer):
        def between(self, number):
            self.optimizer.param_groups[0]["momentum"] = 0.9 - 0.5 / (number + 1)

    g = train(lambda: Warming(device), batches(device, 40))
    found = reason(g, "RT412")
    assert "['momentum'] was " in found.message
    assert found.remedy.startswith("Keep momentum constant (OneCycleLR and CyclicLR: cycle_momentum=False)")


def test_a_scheduler_stepped_inside(device, reason, where):
    class Inside(Scheduled):
        def between(self, number):
            pass

        def after(self):
            self.scheduler.step()

    g = train(lambda: Inside(device, tensor_rate(device), SCHEDULES["exponential"]), batches(device, 40))
    assert g.report().replayed >= 30, g.explain()
    found = reason(g, "RT413")
    assert found.where == where(Inside.after, "self.scheduler.step()")
    assert "steps a ExponentialLR: " in found.message and ".scheduler." in found.message
    assert found.remedy.startswith("Call scheduler.step() after the graphed callable, with lr=torch.tensor(")


READS = {
    "attribute": lambda scheduler: scheduler.last_epoch,
    "method": lambda scheduler: float(scheduler.get_last_lr()[0]),
    "getattr": lambda scheduler: getattr(scheduler, "last_epoch"),  # noqa: B009
    "dict": lambda scheduler: scheduler.__dict__["last_epoch"],
    "vars": lambda scheduler: vars(scheduler)["last_epoch"],
    "state_dict": lambda scheduler: scheduler.state_dict()["last_epoch"],
}


@pytest.mark.parametrize("name", READS)
def test_a_step_that_reads_its_scheduler(device, name):
    """What the step reads is under guard; it changes when a recording has been made."""
    read = READS[name]

    class Reading(Scheduled):
        def loss(self, x, y):
            return super().loss(x, y) * (1 + read(self.scheduler))

        def between(self, number):
            if number % 10 == 9:
                self.scheduler.step()

    g = train(lambda: Reading(device, tensor_rate(device), SCHEDULES["exponential"]), batches(device, 50))
    assert g.report().replayed >= 15, g.explain()


def test_an_attribute_that_only_has_the_name_of_one_of_the_scheduler(device):
    class Damped(Scheduled):
        gamma = 0.5

        def loss(self, x, y):
            return super().loss(x, y) * self.gamma

    g = train(lambda: Damped(device, tensor_rate(device), SCHEDULES["exponential"]), batches(device, 30))
    assert g.report().replayed >= 30 - WARM, g.explain()


class Sometimes(Scheduled):
    """Steps its scheduler on one of two paths, without changing the rate."""

    def __init__(self, device):
        super().__init__(device, momentum, lambda o: StepLR(o, 1000))

    def between(self, number):
        pass

    def step(self, x, y):
        loss, _ = super().step(x, y)
        if (x.sum() > 0).item():
            self.scheduler.step()
        return loss

    def state(self):
        return [*super().state(), self.scheduler.last_epoch]


class Changing(Sometimes):
    """Observed anew with its third call, which is the first one that takes the other path."""

    def prepare(self):
        self.factors = iter([1.0] * 2 + [2.0] * 100)

    def loss(self, x, y):
        return super().loss(x, y) * next(self.factors)


@pytest.mark.parametrize(("make", "first"), [(Sometimes, 8), (Changing, 2)], ids=["recorded", "observed"])
def test_a_scheduler_stepped_on_some_paths_only(device, make, first):
    """The guard does not look at the scheduler; that a known variant steps it is noticed all the same."""
    signs = [-1] * first + [1, 1, 1, 1, -1, -1, 1, -1, 1] * 3
    calls = [(x.abs() * sign, y) for sign, (x, y) in zip(signs, batches(device, len(signs)), strict=True)]
    train(lambda: make(device), calls, every=1)


# ---------------------------------------------------------------------- several optimizers, resuming


@pytest.mark.parametrize("fused", [False, True])
def test_two_optimizers_with_one_scaler(device, fused):
    """A generator and a discriminator, as adversarial training has them."""

    class Adversaries(Trainer):
        def prepare(self):
            torch.manual_seed(4)
            self.judge = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)).to(self.device)
            self.other = (adamw if fused else momentum)(self.judge.parameters())
            self.scaler = torch.amp.GradScaler(self.device.type, init_scale=2.0**10, growth_interval=3)

        def step(self, x, y):
            self.other.zero_grad()
            made = self.model(x)
            loss = (self.judge(made.detach()) - self.judge(y)).mean()
            self.scaler.scale(loss).backward()
            self.scaler.step(self.other)
            self.optimizer.zero_grad()
            against = -self.judge(made).mean()
            self.scaler.scale(against).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            return loss.detach(), against.detach()

        def state(self):
            return [*super().state(), list(self.judge.parameters()), self.scaler._scale]

    g = train(lambda: Adversaries(device, adamw if fused else momentum), batches(device, 40), every=1)
    assert g.report().replayed >= 40 - 2 * WARM, g.explain()


def test_resuming_from_a_checkpoint(device):
    """Loading replaces the optimizer's state tensors; what was recorded on the old ones does not replay."""

    class Resuming(Trainer):
        def between(self, number):
            if number == 12:
                self.saved = copy.deepcopy((self.model.state_dict(), self.optimizer.state_dict()))
            if number == 20:
                self.model.load_state_dict(self.saved[0])
                self.optimizer.load_state_dict(copy.deepcopy(self.saved[1]))

        def prepare(self):
            self.saved = None

    g = train(lambda: Resuming(device, adamw), batches(device, 40), every=1)
    assert g.report().replayed >= 40 - 3 * WARM, g.explain()


# ---------------------------------------------------------------------- averages of the weights

AVERAGES = {
    "equal": {"avg_fn": get_swa_avg_fn()},
    "ema": {"avg_fn": get_ema_avg_fn(0.9)},
    "ema-multi": {"multi_avg_fn": get_ema_multi_avg_fn(0.9)},
    "ema-buffers": {"multi_avg_fn": get_ema_multi_avg_fn(0.9), "use_buffers": True},
    "default": {},
}


@pytest.mark.parametrize("name", AVERAGES)
def test_averaged_model(device, name):
    class Averaging(Trainer):
        def prepare(self):
            self.average = AveragedModel(self.model, **AVERAGES[name])

        def after(self):
            self.average.update_parameters(self.model)

        def state(self):
            return [*super().state(), list(self.average.parameters()), self.average.n_averaged]

    g = train(lambda: Averaging(device), batches(device, 40))
    if name != "default" or device.type == "cpu":  # on CUDA its weights 1 / (n + 1) pass through the host
        assert g.report().replayed >= 40 - WARM, g.explain()


def test_an_average_that_counts_on_the_host(device, reason):
    class Averaging(Trainer):
        average_options = {"multi_avg_fn": get_swa_multi_avg_fn()}  # noqa: RUF012

        def prepare(self):
            self.average = AveragedModel(self.model, **self.average_options)

        def after(self):
            self.average.update_parameters(self.model)

        def state(self):
            return [*super().state(), list(self.average.parameters()), self.average.n_averaged]

    g = train(lambda: Averaging(device), batches(device, 40))
    found = reason(g, "RT415")
    assert "AveragedModel(model, avg_fn=torch.optim.swa_utils.get_swa_avg_fn())" in found.remedy
    Averaging.average_options = {"avg_fn": get_swa_avg_fn()}
    assert train(lambda: Averaging(device), batches(device, 40)).report().replayed >= 40 - WARM


@pytest.mark.parametrize("foreach", [False, True])
def test_average_by_hand(device, foreach):
    class Averaging(Trainer):
        def prepare(self):
            self.average = [p.detach().clone() for p in self.model.parameters()]

        @torch.no_grad()
        def after(self):
            parameters = list(self.model.parameters())
            if foreach:
                torch._foreach_lerp_(self.average, parameters, 0.1)
            else:
                for average, p in zip(self.average, parameters, strict=True):
                    average.lerp_(p, 0.1)

        def state(self):
            return [*super().state(), self.average]

    g = train(lambda: Averaging(device), batches(device, 40))
    assert g.report().replayed >= 40 - WARM, g.explain()


# ---------------------------------------------------------------------- accumulation


@pytest.mark.parametrize("parts", [2, 4])
def test_accumulation_inside(device, parts):
    class Accumulating(Trainer):
        def step(self, x, y):
            self.optimizer.zero_grad()
            total = torch.zeros((), device=x.device)
            for part, target in zip(x.chunk(parts), y.chunk(parts), strict=True):
                loss = self.loss(part, target) / parts
                loss.backward()
                total += loss.detach()
            self.optimizer.step()
            return total

    g = train(lambda: Accumulating(device, adamw), batches(device, 40))
    assert g.report().replayed >= 40 - WARM, g.explain()


class Across(Trainer):
    """Micro-batches are calls; a flag says when the optimizer steps."""

    set_to_none = True

    def step(self, x, y, last):
        loss = self.loss(x, y) / 4
        loss.backward()
        if last:
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=self.set_to_none)
        return loss.detach()


def micro_batches(device, count=60):
    return [(x, y, number % 4 == 3) for number, (x, y) in enumerate(batches(device, count))]


def test_accumulation_across_calls(device):
    """Gradients that stay where they are: each of the two ways is recorded once."""

    class Keeping(Across):
        set_to_none = False

    g = train(lambda: Keeping(device), micro_batches(device), every=1)
    assert g.report().replayed >= 60 - 2 * WARM, g.explain()


def test_accumulation_across_calls_into_new_gradients(device):
    """Gradients made anew in each round: they are shown in the same memory."""
    g = train(lambda: Across(device), micro_batches(device, 90), every=1)
    assert g.report().replayed >= 60, g.explain()


# ---------------------------------------------------------------------- sparse gradients


class Looking(Trainer):
    """A row is looked up, and the gradient of the table is sparse."""

    clears = True

    def prepare(self):
        self.table = nn.Embedding(9, 4, sparse=True).to(self.device)
        self.other = torch.optim.SGD(self.table.parameters(), lr=0.1)

    def loss(self, x, y):
        index = (x[:, :2].abs() * 4).long().clamp(max=8)
        return super().loss(x, y) + self.table(index).square().mean()

    def after(self):
        self.other.step()
        if self.clears:
            self.other.zero_grad()

    def state(self):
        return [*super().state(), self.table.weight]


@pytest.mark.parametrize("clears", [True, False])
def test_a_sparse_gradient_inside(device, clears):
    """It is no single piece of memory: the step runs eagerly, and says so."""

    class Step(Looking):
        pass

    Step.clears = clears
    rounding = 0.0 if device.type == "cpu" else 1e-5  # CUDA adds up a sparse gradient in any order
    g = train(lambda: Step(device), batches(device, 20), every=1, tolerance=rounding)
    assert g.report().replayed == 0
    found = {why.message for why in g.report().reasons if why.code == "RT601"}
    assert any(message.endswith(" met a sparse_coo tensor") for message in found), g.explain()
    if clears is False:
        assert any(message.endswith(".table.weight.grad is a sparse_coo tensor") for message in found), found


# ---------------------------------------------------------------------- activation checkpointing


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("preserves", [False, True])
def test_checkpointing_inside(device, reentrant, preserves):
    """It sets the random state to what it was, unless it is told not to."""

    class Checkpointing(Trainer):
        def loss(self, x, y):
            x = x * self.model[0].weight[0]  # the other kind needs an argument that requires grad
            options = {"use_reentrant": reentrant, "preserve_rng_state": preserves}
            return F.mse_loss(checkpoint(self.model, x, **options), y)

    g = train(lambda: Checkpointing(device), batches(device, 30))
    assert g.report().replayed >= 30 - WARM, g.explain()


# ---------------------------------------------------------------------- what is said, and that it helps


class Outside(Trainer):
    """Clears gradients outside of the call, as a loop with accumulation does."""

    in_place = False

    def step(self, x, y):
        loss = self.loss(x, y)
        loss.backward()
        return loss.detach()

    def between(self, number):
        if number % 2:
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=not self.in_place)


def test_gradients_cleared_outside(device):
    assert train(lambda: Outside(device), batches(device, 30), every=1).report().replayed >= 30 - WARM

    class InPlace(Outside):
        in_place = True

    assert train(lambda: InPlace(device), batches(device, 30), every=1).report().replayed >= 30 - WARM


def test_freezing_between_epochs(device, reason):
    class Freezing(Trainer):
        def between(self, number):
            if number % 10 == 9:
                self.model[0].requires_grad_(number % 20 == 19)

    g = train(lambda: Freezing(device), batches(device, 60), every=1)
    assert g.report().replayed >= 60 - 3 * WARM, g.explain()
    found = {why.code: why.remedy for why in g.report().reasons}
    assert found["RT301"].startswith("Nothing has to be done if it is seldom: each way of freezing")

    class Late(Trainer):
        def prepare(self):
            self.model[0].requires_grad_(False)

        def state(self):
            return [list(self.model.parameters())]

        def between(self, number):
            if number == 9:
                self.model[0].requires_grad_(True)

    assert train(lambda: Late(device), batches(device, 30), every=1).report().replayed >= 30 - 2 * WARM


def test_an_average_with_a_history(device, reason):
    class Averaging(Trainer):
        def prepare(self):
            self.average = [p.detach().clone() for p in self.model.parameters()]

        def after(self):
            torch._foreach_lerp_(self.average, list(self.model.parameters()), 0.1)

        def state(self):
            return [*super().state(), [average.detach() for average in self.average]]

    g = train(lambda: Averaging(device), batches(device, 12))
    assert reason(g, "RT401").remedy.startswith("Write it under torch.no_grad(), as averages of")


@pytest.mark.parametrize("kind", ["spectral_norm", "weight_norm"])
def test_weights_that_a_hook_makes(device, kind):
    class Normed(Trainer):
        norms = torch.nn.utils

        def prepare(self):
            with warnings.catch_warnings(action="ignore", category=FutureWarning):
                getattr(self.norms, kind)(self.model[0])
            self.optimizer = momentum(list(self.model.parameters()))

    # The hook assigns the weight in each call, and so does a replay.
    assert train(lambda: Normed(device), batches(device, 30)).report().replayed >= 30 - WARM

    class Parametrized(Normed):
        norms = torch.nn.utils.parametrizations

    assert train(lambda: Parametrized(device), batches(device, 30)).report().replayed >= 30 - WARM


def test_an_index_that_the_host_reads(device, reason):
    """Timesteps of a diffusion model."""
    rates = torch.linspace(0.1, 1, 12, device=device)
    steps = torch.arange(12, device=device)
    g = rote.graph(lambda x, t: x * rates[t])
    for n in range(12):
        g(torch.ones(2, device=device), steps[n])
    assert "x.index_select(0, step.view(1))" in reason(g, "RT307").remedy
    g = rote.graph(lambda x, t: x * rates.index_select(0, t.view(1))[0])
    for n in range(12):
        assert_same(g(torch.ones(2, device=device), steps[n]), rates[n].expand(2).clone())
    assert g.report().replayed == 10


def test_numbers_and_objects_among_the_arguments(device, reason):
    class Settings:
        def __del__(self):  # they are known by their identity for good
            pass

    for arguments, remedy in (
        ([0.1 * n for n in range(5)], "a number that often changes is better passed as a tensor"),
        ([Settings() for _ in range(5)], "Pass one and the same object"),
        ([torch.ones(n) for n in range(5)], "Call with these arguments during the warm-up"),
    ):
        g = rote.graph(lambda x, argument: x * 2)
        for argument in arguments:
            g(torch.ones(2, device=device), argument)
        assert remedy in reason(g, "RT306").remedy


class Toggling(Trainer):
    """A generator's step, which freezes the judge that the judge's own step trains."""

    inside, puts_back = True, False

    def prepare(self):
        self.judge = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)).to(self.device)
        self.other = momentum(list(self.judge.parameters()))

    def loss(self, x, y):
        if self.inside:
            self.judge.requires_grad_(False)
        return -self.judge(self.model(x)).mean()

    def after(self):
        if self.puts_back:
            self.judge.requires_grad_(True)

    def between(self, number):
        self.judge.requires_grad_(True)
        self.other.zero_grad()
        self.judge(torch.ones(3, 2, device=self.device)).mean().backward()
        self.other.step()
        if not self.inside:
            self.judge.requires_grad_(False)

    def state(self):
        return [*super().state(), list(self.judge.parameters())]


def test_one_of_two_networks_is_frozen_in_turns(device, reason):
    g = train(lambda: Toggling(device), batches(device, 20), every=1)
    found = [why for why in g.report().reasons if why.remedy.startswith("Set requires_grad outside")]
    assert len(found) == 1 and found[0].message.endswith("was requires_grad=True and is False"), g.explain()

    for fields in ({"inside": False}, {"puts_back": True}):
        mended = type("Mended", (Toggling,), fields)
        assert train(lambda: mended(device), batches(device, 30)).report().replayed >= 30 - WARM  # noqa: B023


class Phase(Enum):
    FIRST = "first"
    SECOND = "second"


def test_members_of_an_enumeration_are_looked_up(device):
    """They are hashed by Python code, which runs for our own tables, too, while a number is read."""

    def run(wrap):
        torch.manual_seed(0)
        model, weights = nn.Linear(4, 2).to(device), {Phase.FIRST: 0.5, Phase.SECOND: 2.0}
        optimizer, state = torch.optim.Adam(model.parameters(), 1e-2), {"phase": Phase.FIRST, "steps": 0}

        @wrap
        def step(x):
            loss = model(x).square().mean() * weights[state["phase"]]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            state["steps"] += 1
            return loss.item() * state["steps"]

        found = []
        for number in range(30):
            if number == 20:
                state["phase"] = Phase.SECOND
            found.append(step(torch.randn(3, 4).to(device)))
        return found, model.weight

    wrap = KeptGraph()

    assert_same(run(wrap), run(lambda function: function))
    assert wrap.graphed.report().replayed >= 12, wrap.graphed.explain()
