"""Whole training steps inside the callable: bitwise those of eager, gradients included."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import rote
from rote.testing import assert_same, compare

WARM = rote.Options().warmup + 1
STEPS = 30


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01, nesterov=True),
    "sgd_foreach": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, foreach=True),
    "adamw_fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "adam_tensor_lr": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01), fused=True),
}
CAPTURABLE = {
    "adamw_capturable": lambda p: torch.optim.AdamW(p, lr=0.01, capturable=True),
    "adamw_capturable_foreach": lambda p: torch.optim.AdamW(p, lr=0.01, capturable=True, foreach=True),
}


class Trainer:
    """A small model and its training step."""

    def __init__(self, device, optimizer, *, set_to_none=True, norm=False):
        torch.manual_seed(3)
        layers = [nn.Linear(8, 16), nn.Tanh(), *([nn.BatchNorm1d(16)] if norm else []), nn.Linear(16, 2)]
        self.model = nn.Sequential(*layers).to(device)
        self.optimizer = optimizer(list(self.model.parameters()))
        self.set_to_none = set_to_none

    def step(self, x, y):
        self.optimizer.zero_grad(set_to_none=self.set_to_none)
        loss = F.mse_loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss

    def state(self):
        parameters = list(self.model.parameters())
        moments = [
            [
                value
                for key, value in sorted(self.optimizer.state[p].items())
                if isinstance(value, torch.Tensor)
            ]
            for p in parameters
        ]
        gradients = [p.grad for p in parameters]
        buffers = list(self.model.buffers())
        return [[p.detach().clone() for p in parameters], gradients, moments, buffers]


def batches(device, count=STEPS):
    return [(torch.randn(4, 8, device=device), torch.randn(4, 2, device=device)) for _ in range(count)]


def train(device, **options):
    ours, theirs = Trainer(device, **options), Trainer(device, **options)
    g = compare(ours.step, batches(device), plain=theirs.step, states=(ours.state, theirs.state))
    return g, ours, theirs


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_thirty_steps(device, name, set_to_none):
    g, *_ = train(device, optimizer=OPTIMIZERS[name], set_to_none=set_to_none)
    assert g.report().replayed >= STEPS - 8, g.explain()


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False")
@pytest.mark.parametrize("name", CAPTURABLE)
def test_capturable(name):
    g, *_ = train(torch.device("cuda"), optimizer=CAPTURABLE[name])
    assert g.report().replayed >= STEPS - 8, g.explain()


def test_adam_that_counts_in_python(device):
    """Its step size is computed on the host anew at each step: right, though it cannot replay."""
    train(device, optimizer=lambda p: torch.optim.Adam(p, lr=0.01, foreach=False))


def test_batch_norm_in_training(device):
    g, *_ = train(device, optimizer=OPTIMIZERS["momentum"], norm=True)
    assert g.report().replayed >= STEPS - 8, g.explain()


def test_held_gradients_never_change(device):
    ours, theirs = (Trainer(device, OPTIMIZERS["sgd"]) for _ in range(2))
    g = rote.graph(ours.step)
    held = []
    for number, (x, y) in enumerate(batches(device, 16)):
        g(x, y)
        theirs.step(x, y)
        if number % 3 == 2:
            held.append((ours.model[0].weight.grad, theirs.model[0].weight.grad.clone()))
        if number % 5 == 4:
            held.append((ours.model[0].bias.grad.view(-1)[2:], theirs.model[0].bias.grad.clone()[2:]))
    for mine, expected in held:
        assert torch.equal(mine, expected)


def test_gradients_changed_between_steps(device):
    ours, theirs = (Trainer(device, OPTIMIZERS["sgd"], set_to_none=False) for _ in range(2))
    g = rote.graph(ours.step)
    for number, (x, y) in enumerate(batches(device, 20)):
        for trainer, call in ((ours, g), (theirs, theirs.step)):
            call(x, y)
            if number == 8:
                trainer.model[0].weight.grad = None
            if number == 12:
                trainer.model[0].weight.grad = torch.ones_like(trainer.model[0].weight)
            if number == 15:
                trainer.optimizer.zero_grad(set_to_none=True)
        for mine, expected in zip(ours.model.parameters(), theirs.model.parameters(), strict=True):
            assert_same([mine, mine.grad], [expected, expected.grad], f"step {number}")


def test_a_learning_rate_changed_between_calls(device):
    ours, theirs = (Trainer(device, OPTIMIZERS["momentum"]) for _ in range(2))
    g = rote.graph(ours.step)
    for number, (x, y) in enumerate(batches(device, 24)):
        for trainer in (ours, theirs):
            trainer.optimizer.param_groups[0]["lr"] = 0.05 if number < 8 else 0.02
        assert torch.equal(g(x, y), theirs.step(x, y))
    assert g.report().replayed >= 12
    for mine, expected in zip(ours.model.parameters(), theirs.model.parameters(), strict=True):
        assert torch.equal(mine, expected)
    assert any("['lr']" in reason.message for reason in g.report().reasons), g.explain()


def test_a_learning_rate_kept_in_a_tensor(device):
    ours, theirs = (Trainer(device, OPTIMIZERS["adam_tensor_lr"]) for _ in range(2))
    g = rote.graph(ours.step)
    for number, (x, y) in enumerate(batches(device, 20)):
        for trainer in (ours, theirs):
            trainer.optimizer.param_groups[0]["lr"].fill_(0.01 / (number + 1))
        assert torch.equal(g(x, y), theirs.step(x, y))
    assert g.report().replayed >= 10


def test_clipping_and_accumulation_inside(device):
    class Accumulating(Trainer):
        def step(self, x, y):
            self.optimizer.zero_grad()
            for part, target in zip(x.chunk(2), y.chunk(2), strict=True):
                (F.mse_loss(self.model(part), target) / 2).backward()
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
            self.optimizer.step()
            return norm

    ours, theirs = (Accumulating(device, OPTIMIZERS["sgd"]) for _ in range(2))
    g = compare(ours.step, batches(device, 16), plain=theirs.step, states=(ours.state, theirs.state))
    assert g.report().replayed >= 8, g.explain()


def test_a_host_read_in_backward(device):
    class Reading(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * (2.0 if (grad.sum() > 0).item() else 3.0)

    class Model(Trainer):
        def step(self, x, y):
            self.optimizer.zero_grad()
            loss = F.mse_loss(Reading.apply(self.model(x)), y)
            loss.backward()
            self.optimizer.step()
            return loss.detach()

    ours, theirs = (Model(device, OPTIMIZERS["sgd"]) for _ in range(2))
    g = compare(ours.step, batches(device, 20), plain=theirs.step, states=(ours.state, theirs.state))
    assert g.report().replayed >= 6, g.explain()


def test_two_paths_replace_the_same_gradients(device):
    class Scaled(Trainer):
        def step(self, x, y):
            self.optimizer.zero_grad()
            scale = 2.0 if (x.sum() > 0).item() else 3.0
            (F.mse_loss(self.model(x), y) * scale).backward()
            self.optimizer.step()

    ours, theirs = (Scaled(device, OPTIMIZERS["sgd"]) for _ in range(2))
    signs = [1, 1, 1, 1, -1, -1, -1, *[1, -1] * 6]
    calls = [(x.abs() * sign, y) for sign, (x, y) in zip(signs, batches(device, len(signs)), strict=True)]
    g = compare(ours.step, calls, plain=theirs.step, states=(ours.state, theirs.state))
    assert g.report().replayed >= 8, g.explain()


def test_an_unseen_path_that_leaves_the_gradients_alone(device):
    class Sometimes(Trainer):
        def step(self, x, y):
            if (x.sum() > 0).item():
                super().step(x, y)
                return x.sum()
            return x.mean()

    ours, theirs = (Sometimes(device, OPTIMIZERS["sgd"]) for _ in range(2))
    signs = [1, 1, 1, 1, 1, -1, 1, -1, -1, 1, -1, 1]
    calls = [(x.abs() * sign, y) for sign, (x, y) in zip(signs, batches(device, len(signs)), strict=True)]
    compare(ours.step, calls, plain=theirs.step, states=(ours.state, theirs.state))


def test_a_step_that_reads_its_last_gradients(device):
    class Smoothed(Trainer):
        def step(self, x, y):
            last = [p.grad * 0.5 for p in self.model.parameters() if p.grad is not None]
            self.optimizer.zero_grad()
            F.mse_loss(self.model(x), y).backward()
            for p, before in zip(self.model.parameters(), last, strict=False):
                p.grad += before
            self.optimizer.step()

    ours, theirs = (Smoothed(device, OPTIMIZERS["sgd"]) for _ in range(2))
    compare(ours.step, batches(device, 14), plain=theirs.step, states=(ours.state, theirs.state))


def test_the_loss_has_no_second_backward(device):
    ours, _ = (Trainer(device, OPTIMIZERS["sgd"]) for _ in range(2))
    g = rote.graph(ours.step)
    for x, y in batches(device, WARM + 4):
        loss = g(x, y)
        assert loss.requires_grad
        with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
            loss.backward()


SPENT = {
    "whole": lambda y: y,
    "a row": lambda y: y[1],
    "a column": lambda y: y[:, 1],
    "every second": lambda y: y[::2],
    "transposed": lambda y: y.t(),
    "expanded": lambda y: y.sum(0).expand(3, 2),
    "two columns": lambda y: (y[:, 0], y[:, 1]),
    "beside another": lambda y: (y[:, 1], y.detach().sum()),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("view", SPENT.values(), ids=SPENT)
def test_a_result_of_any_layout_has_no_second_backward(device, view):
    """It requires grad as eager's does, in each replay."""
    model = Trainer(device, OPTIMIZERS["sgd"]).model

    def step(x):
        model.zero_grad()
        found = view(model(x))
        results = (found,) if isinstance(found, torch.Tensor) else found
        sum(each.sum() for each in results if each.requires_grad).backward()
        return found

    g = rote.graph(step)
    for x, _ in batches(device, WARM + 6):
        found, expected = g(x), step(x)
        assert_same(found, expected)
        first, eager = (each if isinstance(each, torch.Tensor) else each[0] for each in (found, expected))
        assert first.stride() == eager.stride()
        assert first.requires_grad
        with pytest.raises(RuntimeError, match="second time"):
            first.sum().backward()
    assert g.report().replayed


class Reading(Trainer):
    """A step in which the host reads the loss.

    Args:
        device: The device.
        clears: When gradients leave their slots: before the read, after it, or never.
        clips: Gradients of the step before are read first.
    """

    def __init__(self, device, clears, *, clips=False):
        super().__init__(device, OPTIMIZERS["sgd"])
        self.clears, self.clips, self.limit = clears, clips, 1.5

    def step(self, x, y):
        if self.clips:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.5, foreach=False)
            self.optimizer.step()
        if self.clears == "before":
            self.optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(self.model(x), y)
        large = bool(loss > self.limit)
        if self.clears == "after" and not large:
            self.optimizer.zero_grad(set_to_none=True)
        if large:
            return loss * 2
        loss.backward()
        self.optimizer.step()
        return loss


def keep_gradients(number, trainer, held):
    """Hold some of them, put others into slots, as a caller may between two steps."""
    first, last = trainer.model[0], trainer.model[2]
    if number % 7 == 2 and first.weight.grad is not None:
        held.append(first.weight.grad)
    if number % 11 == 4 and first.bias.grad is not None:
        held.append(first.bias.grad.view(-1)[2:])
    if number % 13 == 6 and last.weight.grad is not None:
        last.weight.grad = last.weight.grad * 2


PAIRED = [
    ("before", False, False, 2), ("before", True, True, 9), ("after", False, True, 9),
    ("after", True, False, 2), ("never", True, False, 9), ("never", False, True, 2),
]  # fmt: skip
"""Any two values of a row stand together; all four in every way are left to long runs."""


@pytest.mark.parametrize(
    ("clears", "clips", "holds", "seldom"),
    [
        pytest.param(*each, marks=[] if each in PAIRED else [pytest.mark.long])
        for each in product(("before", "after", "never"), (False, True), (False, True), (2, 9))
    ],
)
def test_a_host_read_among_gradients(device, clears, clips, holds, seldom):
    """Other paths leave alone what one path replaced, or find its gradients where the next replay writes."""
    ours, theirs = (Reading(device, clears, clips=clips) for _ in range(2))
    g, held, others = rote.graph(ours.step), [], []
    for number, (x, y) in enumerate(batches(device, 48)):
        y = y * 9 if number % seldom == 1 else y * 0.1
        if holds:
            keep_gradients(number, ours, held)
            keep_gradients(number, theirs, others)
        assert_same(g(x, y), theirs.step(x, y), f"step {number}")
        for mine, expected in zip(ours.model.parameters(), theirs.model.parameters(), strict=True):
            assert_same([mine, mine.grad], [expected, expected.grad], f"step {number}")
    assert_same(held, others, "held")


def test_gradients_behind_a_host_read_lie_where_they_are(device):
    trainer = Reading(device, "before")
    g, places = rote.graph(trainer.step), []
    for x, y in batches(device, 16):
        g(x, y * 0.1)
        places.append(trainer.model[0].weight.grad.data_ptr())
    assert len(set(places[-8:])) == 1
    assert g.report().replayed >= 10, g.explain()
