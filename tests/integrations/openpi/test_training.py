"""Training of openpi's models, plain and graphed: the same losses, gradients and weights, to the bit."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tests.integrations.openpi.building import build_model, noise, observation

import rote
from rote.integrations.openpi import graph_policy, graph_training, graphed

pytestmark = pytest.mark.transformers
BATCH = 2


def build(device: torch.device, **options: Any) -> Any:
    """A model as ``train_pytorch.py`` sets it up: in training, with checkpoints."""
    model = build_model(device=device, **options).train()
    model.gradient_checkpointing_enable()
    return model


def one(model: Any) -> rote.Graphed:
    (found,) = graphed(model)
    return found


def batch(number: int, model: Any, device: torch.device) -> tuple[Any, torch.Tensor]:
    actions = noise(100 + number, model, BATCH).to(device)
    return observation(number, model, device, BATCH), actions


class Trainer:
    """The step of openpi's training loop."""

    def __init__(self, model: Any) -> None:
        self.model, self.optimizer = model, torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(self, number: int, device: torch.device) -> tuple[Any, ...]:
        """The losses, the norm of the gradients and the gradients; the seed is the number of the step."""
        torch.manual_seed(number)
        for group in self.optimizer.param_groups:
            group["lr"] = 1e-3 / (1 + number)
        losses = self.model(*batch(number, self.model, device))
        losses.mean().backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), max_norm=1.0)
        gradients = [each.grad for each in self.model.parameters()]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return losses.detach(), norm, gradients, torch.randn(1, device=device)


def assert_same(found: Any, wanted: Any) -> None:
    for one_, other in zip(found, wanted, strict=True):
        if isinstance(one_, list):
            assert_same(one_, other)
        else:
            assert (one_ is None) == (other is None)
            assert one_ is None or torch.equal(one_, other)


def test_steps_of_adamw_are_equal_to_the_bit(device):
    plain, model = (build(device, pi05=True) for _ in range(2))
    assert graph_training(model) is model
    trainers = [Trainer(each) for each in (plain, model)]
    for number in range(7):
        wanted, found = (each.step(number, device) for each in trainers)
        assert_same(found, wanted)
        assert any(each is not None and each.any() for each in found[2])
    assert_same(list(model.parameters()), list(plain.parameters()))
    report = one(model).report()
    assert (report.replayed, report.backwards_replayed) == (5, 4), one(model).explain()
    assert model.gradient_checkpointing_enabled and model.paligemma_with_expert.training


def test_steps_in_bfloat16_with_given_noise_and_time(device):
    plain, model = (build(device, dtype="bfloat16") for _ in range(2))
    graph_training(model)
    for number in range(5):
        time = torch.linspace(0.1, 0.9, BATCH, device=device)
        for each in (plain, model):
            each.zero_grad()
            torch.manual_seed(number)  # augmentation
            losses = each(*batch(number, each, device), noise(number, each, BATCH).to(device), time)
            losses.mean().backward()
        assert_same([each.grad for each in model.parameters()], [each.grad for each in plain.parameters()])
    assert one(model).report().backwards_replayed == 2, one(model).explain()


def test_validation_and_actions_of_a_model_in_training(device):
    """Losses without gradients, and actions in between, of the same graphed model."""
    plain, model = (build(device) for _ in range(2))
    graph_policy(graph_training(model))
    trainers = [Trainer(each) for each in (plain, model)]
    for number in range(5):
        assert_same(*(each.step(number, device) for each in reversed(trainers)))
        for each in (plain, model):
            each.eval()
        results = []
        for each in (plain, model):
            torch.manual_seed(number)
            with torch.no_grad():
                losses = each(*batch(50 + number, each, device))
            actions = each.sample_actions(str(device), observation(number, each, device), num_steps=3)
            results.append([losses, actions])
            each.train()
        assert_same(*results)
    counts = {each.report().name: each.report().replayed for each in graphed(model)}
    assert len(counts) == 2 and min(counts.values()) > 0, counts


def test_a_copy_of_a_model_trains_its_own_weights(device):
    model = graph_training(build(device))
    Trainer(model).step(0, device)
    twin = copy.deepcopy(model)
    before = copy.deepcopy(model.state_dict())
    trainer, plain = Trainer(twin), Trainer(build(device))
    plain.model.load_state_dict(before)
    for number in range(4):
        assert_same(trainer.step(number, device), plain.step(number, device))
    assert_same(list(model.state_dict().values()), list(before.values()))
    assert one(twin) is not one(model) and one(twin).report().replayed == 2


def test_what_is_graphed_as_it_is_checkpoints_and_is_not_replayed(device, reason):
    """Why ``graph_training`` is more than ``rote.graph(model.forward)``."""
    model = build(device)
    forward = rote.graph(model.forward)
    for number in range(4):
        forward(*batch(number, model, device)).mean().backward()
    assert forward.report().replayed == 0 and reason(forward, "RT406")


def whole_step(model: Any) -> Any:
    """A step as one callable, of observations that are prepared; checkpoints stay."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(1e-3), fused=True)
    model._preprocess_observation = lambda parts, train: parts

    def step(parts, actions, noise, time):
        optimizer.zero_grad()
        loss = model(parts, actions, noise, time).mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def test_a_whole_step_with_checkpoints_replays_behind_augmentation(device):
    plain, model = (build(device) for _ in range(2))
    prepare = plain._preprocess_observation
    step, replayed = whole_step(plain), rote.graph(whole_step(model))
    for number in range(5):
        seen, actions = batch(number, plain, device)
        parts, time = prepare(seen, train=True), torch.linspace(0.1, 0.9, BATCH, device=device)
        arguments = parts, actions, noise(number, plain, BATCH).to(device), time
        assert torch.equal(replayed(*arguments), step(*arguments))
    assert_same(list(model.parameters()), list(plain.parameters()))
    assert replayed.report().replayed == 2, replayed.explain()


def test_a_model_that_does_not_fit_is_refused():
    with pytest.raises(
        rote.MisuseError,
        match=r"graph_training needs Linear\._preprocess_observation, the method that augments images in ",
    ):
        graph_training(torch.nn.Linear(2, 2))
    model = build_model()
    del model.gradient_checkpointing_enabled
    with pytest.raises(rote.MisuseError, match=r"PI0Pytorch\.gradient_checkpointing_enabled, whether parts"):
        graph_training(model)
    wrapped = torch.nn.Module()
    wrapped.module = model
    with pytest.raises(rote.MisuseError, match=r"pass what the DistributedDataParallel wraps, its module"):
        graph_training(wrapped)
    model = graph_training(build_model())
    with pytest.raises(rote.MisuseError, match=r"PI0Pytorch\.forward is graphed already; leave the second"):
        graph_training(model)
