"""Optimizers inside the callable: which replay, and what the others are told."""

from __future__ import annotations

import copy
import types
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import rote
from rote.runtime.backends.cuda.torch_private import not_capturing
from rote.runtime.recording.contest.contest import BLOCK, BLOCKS, WARM
from rote.testing import assert_same, compare

STEPS = 200
TIMED = (WARM + BLOCK) * BLOCKS  # plain calls, to compare replays with
WARM = 8
"""Calls until a training step replays at the latest: state is made, observed, and recorded."""

HOST, CUDA, BOTH = ("cpu",), ("cuda",), ("cpu", "cuda")

O = torch.optim  # noqa: E741
REPLAYING: dict[str, tuple[Any, dict[str, Any], tuple[str, ...]]] = {
    "sgd": (O.SGD, {}, BOTH),
    "sgd-weight-decay": (O.SGD, {"weight_decay": 0.01}, BOTH),
    "sgd-momentum": (O.SGD, {"momentum": 0.9}, BOTH),
    "sgd-dampening": (O.SGD, {"momentum": 0.9, "dampening": 0.1, "lr": 1e-4, "maximize": True}, BOTH),
    "sgd-nesterov": (O.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}, BOTH),
    "sgd-foreach": (O.SGD, {"momentum": 0.9, "foreach": True}, BOTH),
    "sgd-loop": (O.SGD, {"momentum": 0.9, "foreach": False}, BOTH),
    "sgd-fused": (O.SGD, {"momentum": 0.9, "fused": True}, BOTH),
    "sgd-fused-tensor-lr": (O.SGD, {"lr": torch.tensor(0.01), "fused": True}, HOST),
    "adam-fused": (O.Adam, {"fused": True, "weight_decay": 0.01}, BOTH),
    "adam-fused-amsgrad": (O.Adam, {"fused": True, "amsgrad": True}, BOTH),
    "adamw-fused": (O.AdamW, {"fused": True}, BOTH),
    "adamw-fused-capturable": (O.AdamW, {"fused": True, "capturable": True}, BOTH),
    "adam-capturable": (O.Adam, {"capturable": True}, CUDA),
    "adam-capturable-foreach": (O.Adam, {"capturable": True, "foreach": True}, CUDA),
    "adam-capturable-loop": (O.Adam, {"capturable": True, "foreach": False}, CUDA),
    "adamw-capturable": (O.AdamW, {"capturable": True}, CUDA),
    "adamw-capturable-foreach": (O.AdamW, {"capturable": True, "foreach": True}, CUDA),
    "adamw-capturable-loop": (O.AdamW, {"capturable": True, "foreach": False, "amsgrad": True}, CUDA),
    "rmsprop": (O.RMSprop, {}, BOTH),
    "rmsprop-centered": (O.RMSprop, {"momentum": 0.9, "centered": True}, BOTH),
    "rmsprop-foreach": (O.RMSprop, {"foreach": True}, BOTH),
    "rmsprop-capturable": (O.RMSprop, {"capturable": True}, CUDA),
    "adagrad-fused": (O.Adagrad, {"fused": True}, HOST),
    "adadelta": (O.Adadelta, {}, BOTH),
    "rprop": (O.Rprop, {}, BOTH),
}
COUNTING: dict[str, tuple[Any, dict[str, Any]]] = {
    "adam": (O.Adam, {}),
    "adam-foreach": (O.Adam, {"foreach": True}),
    "adam-loop": (O.Adam, {"foreach": False}),
    "adamw": (O.AdamW, {}),
    "adamw-foreach": (O.AdamW, {"foreach": True}),
    "adamw-loop": (O.AdamW, {"foreach": False, "weight_decay": 0.1}),
}


class Trainer:
    """A small model, its optimizer, and a whole training step."""

    def __init__(self, device, make):
        torch.manual_seed(3)
        self.model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 2)).to(device)
        self.optimizer = make(list(self.model.parameters()))

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = F.mse_loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def state(self):
        parameters = list(self.model.parameters())
        slots = [sorted(self.optimizer.state[p].items()) for p in parameters]
        tensors = [[value for _, value in slot if isinstance(value, torch.Tensor)] for slot in slots]
        return [parameters, [p.grad for p in parameters], tensors]


def maker(cls, options):
    def make(parameters):
        own = copy.deepcopy(options)
        return cls(parameters, **{"lr": 0.01, **own})

    return make


def batches(device, count=STEPS):
    return [(torch.randn(4, 8, device=device), torch.randn(4, 2, device=device)) for _ in range(count)]


def train(device, make, steps=STEPS):
    """Train twice, graphed and plain; every loss, and at times everything else, has to be the same."""
    ours, theirs = Trainer(device, make), Trainer(device, make)
    g = rote.graph(ours.step)
    for number, (x, y) in enumerate(batches(device, steps)):
        assert torch.equal(g(x, y), theirs.step(x, y)), f"step {number}\n{g.explain()}"
        if number % 20 == 0 or number == steps - 1:
            assert_same(ours.state(), theirs.state(), f"step {number}")
    return g


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", REPLAYING)
def test_replays(device, name):
    cls, options, where = REPLAYING[name]
    if device.type not in where:
        pytest.skip(f"not on {device.type}")
    g = train(device, maker(cls, options))
    assert g.report().replayed >= STEPS - WARM - TIMED, g.explain()


@pytest.mark.parametrize(
    "name",  # AdamW takes the steps of Adam
    [
        pytest.param(name, marks=[pytest.mark.long] if name in ("adamw", "adamw-foreach") else [])
        for name in COUNTING
    ],
)
def test_a_count_on_the_host_is_told_the_line(device, name, reason, where):
    cls, options = COUNTING[name]
    g = train(device, maker(cls, options), 60)
    assert g.report().replayed >= 50, g.explain()  # the count is followed
    found = reason(g, "RT411")
    assert found.message == (
        f"torch.optim.{cls.__name__}.step() reads state['step'] on the host at every step "
        "(group 0, capturable=False, fused=None)"
    )
    assert found.where == where(Trainer.step, "self.optimizer.step()")
    flag = "capturable" if device.type == "cuda" else "fused"
    assert found.remedy == f"torch.optim.{cls.__name__}(params, ..., {flag}=True)"
    told = found.remedy.replace("...", "lr=0.01")
    assert train(device, lambda params: eval(told), 40).report().replayed >= 40 - WARM


def make_nadam(parameters):
    return torch.optim.NAdam(parameters, lr=0.01)


def test_the_line_that_makes_the_optimizer_is_found(device, reason, where):
    g = train(device, make_nadam, 30)
    found = reason(g, "RT411")
    assert found.where == where(make_nadam, "NAdam(")
    step = where(Trainer.step, "self.optimizer.step()")
    assert found.message == (
        "torch.optim.NAdam.step() reads state['step'] on the host at every step "
        f"(group 0, capturable=False); step() is called at {step}"
    )
    if device.type == "cuda":
        assert found.remedy == "torch.optim.NAdam(params, ..., capturable=True)"
    else:
        assert found.remedy == (
            "torch.optim.NAdam has no fused=True on this device: use an optimizer that has, as "
            "torch.optim.AdamW(params, ..., fused=True), or leave backward() and optimizer.step() outside of "
            "the graphed callable."
        )


def test_strict_mode_names_the_line(device):
    trainer = Trainer(device, maker(O.Adam, {}))
    g = rote.graph(trainer.step, strict=True)
    flag = "capturable" if device.type == "cuda" else "fused"
    with pytest.raises(
        rote.NotReplayedError, match=rf"RT411 .*\. torch.optim.Adam\(params, ..., {flag}=True\)"
    ):
        for x, y in batches(device, 40):
            g(x, y)


def test_the_group_that_counts_is_named(device, reason):
    flag = "capturable" if device.type == "cuda" else "fused"

    def make(p):
        return torch.optim.AdamW([{"params": p[:2], flag: True}, {"params": p[2:]}], lr=0.01)

    g = train(device, make, 30)
    assert "(group 1, capturable=False" in reason(g, "RT411").message


def test_two_groups(device):
    def make(p):
        groups = [{"params": p[:2]}, {"params": p[2:], "lr": 0.001, "weight_decay": 0.1}]
        return torch.optim.AdamW(groups, lr=0.01, fused=True)

    assert train(device, make, 60).report().replayed >= 60 - WARM


def test_flags_that_a_state_dict_took_away(device, reason):
    """Loading the state of an optimizer made otherwise brings its flags along."""
    flag = "capturable" if device.type == "cuda" else "fused"
    plain, first = Trainer(device, maker(O.Adam, {})), batches(device, 1)[0]
    plain.step(*first)

    def load(p, fix):
        optimizer = torch.optim.Adam(p, lr=0.01, **{flag: True})
        saved = copy.deepcopy(plain.optimizer.state_dict())
        saved["param_groups"][0][flag] = fix
        optimizer.load_state_dict(saved)
        return optimizer

    found = reason(train(device, lambda p: load(p, False), 30), "RT411")
    assert f'state_dict["param_groups"][0]["{flag}"] = True before load_state_dict' in found.remedy
    assert train(device, lambda p: load(p, True), 40).report().replayed >= 40 - WARM


def test_pytorchs_own_check_is_off_while_a_recording_runs(monkeypatch):
    """It refuses every step during a capture whose optimizer is not capturable, fused ones included."""
    check = getattr(O.Optimizer, "_accelerator_graph_capture_health_check", None)
    if check is None or "current_accelerator" not in check.__code__.co_names:
        pytest.skip("this PyTorch asks torch.cuda.is_current_stream_capturing")
    capturing = types.SimpleNamespace(is_capturing=lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "current_stream", lambda: capturing)
    trainer, batch = Trainer("cpu", maker(O.AdamW, {"fused": True})), batches("cpu", 1)[0]
    for _ in range(2):
        with not_capturing():
            trainer.step(*batch)
        with pytest.raises(RuntimeError, match="param_groups' capturable is False"):
            trainer.step(*batch)


@pytest.mark.parametrize("flags", [{}, {"foreach": True}])
def test_capturable_on_the_host_raises_as_in_eager(flags):
    """PyTorch has capturable optimizers on accelerators only."""
    ours, theirs = (Trainer("cpu", maker(O.AdamW, {"capturable": True, **flags})) for _ in range(2))
    g = compare(ours.step, batches("cpu", 6), plain=theirs.step, states=(ours.state, theirs.state))
    assert g.report().replayed == 0
    with pytest.raises(AssertionError, match="If capturable=True, params and state_steps must be on"):
        g(*batches("cpu", 1)[0])


class Counting(torch.optim.Optimizer):
    """As people write them: the count is a tensor, the arithmetic is Python's."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if "count" not in state:
                    state["count"] = torch.zeros(())
                state["count"] += 1
                p.add_(p.grad, alpha=-group["lr"] / state["count"].item())


class CountingInPython(Counting):
    """As above, with a plain number."""

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state["count"] = state.get("count", 0) + 1
                p.add_(p.grad, alpha=-group["lr"] / state["count"])


class CountingOnTheDevice(Counting):
    """As above, without a host read."""

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if "count" not in state:
                    state["count"] = torch.zeros((), device=p.device)
                state["count"] += 1
                p.sub_(p.grad * (group["lr"] / state["count"]))


def test_own_optimizer(device, reason, where):
    found = reason(train(device, lambda p: Counting(p, lr=0.1), 40), "RT411")
    assert found.message.startswith(
        "Counting.step() reads state['count'] on the host at every step (group 0)"
    )
    assert found.where == where(Counting, ".item()")
    assert "leave backward() and optimizer.step() outside of the graphed callable" in found.remedy


def test_own_optimizer_that_counts_in_python(device):
    ours, theirs = (Trainer(device, lambda p: CountingInPython(p, lr=0.1)) for _ in range(2))
    g = rote.graph(ours.step)
    for number, (x, y) in enumerate(batches(device, 40)):
        assert torch.equal(g(x, y), theirs.step(x, y)), f"step {number}"
    assert_same(ours.state(), theirs.state(), "the end")
    assert g.report().replayed >= 20, g.explain()


def test_own_optimizer_on_the_device(device):
    g = train(device, lambda p: CountingOnTheDevice(p, lr=0.1), 40)
    assert g.report().replayed >= 40 - WARM


def test_an_optimizer_that_is_repaired_while_it_runs(device):
    """The key looks again after a while: what is fixed replays."""
    ours, theirs = (Trainer(device, maker(O.Adam, {"fused": False})) for _ in range(2))
    g = rote.graph(ours.step)
    for number, (x, y) in enumerate(batches(device, 200)):
        if number == 20:
            for trainer in (ours, theirs):
                saved = trainer.optimizer.state_dict()
                saved["param_groups"][0]["fused"] = True
                trainer.optimizer.load_state_dict(saved)
        assert torch.equal(g(x, y), theirs.step(x, y)), f"step {number}"
    assert_same(ours.state(), theirs.state(), "the end")
    assert g.report().replayed >= 80, g.explain()


def test_a_step_with_a_closure(device):
    class Closing(Trainer):
        def step(self, x, y):
            def closure():
                self.optimizer.zero_grad()
                loss = F.mse_loss(self.model(x), y)
                loss.backward()
                return loss

            return self.optimizer.step(closure).detach()

    ours, theirs = (Closing(device, maker(O.SGD, {"momentum": 0.9})) for _ in range(2))
    g = compare(ours.step, batches(device, 30), plain=theirs.step, states=(ours.state, theirs.state))
    assert g.report().replayed >= 30 - WARM


def test_lbfgs_stays_eager(device, reason):
    class Closing(Trainer):
        def step(self, x, y):
            def closure():
                self.optimizer.zero_grad()
                loss = F.mse_loss(self.model(x), y)
                loss.backward()
                return loss

            return self.optimizer.step(closure).detach()

    ours, theirs = (Closing(device, lambda p: O.LBFGS(p, lr=0.1, max_iter=2)) for _ in range(2))
    g = compare(ours.step, batches(device, 20), plain=theirs.step)
    assert_same(list(ours.model.parameters()), list(theirs.model.parameters()), "the end")
    assert g.report().replayed == 0
    told = reason(g, "RT201").message
    assert "['old_dirs'] (length) was " in told or "['func_evals'] was " in told
