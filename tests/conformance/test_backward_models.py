"""Training with a graphed forward and everything else outside: losses and parameters bitwise as in eager."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

import rote


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True) for _ in range(2)
        )
        self.head = nn.Linear(32, 5)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.body(x)[0][:, -1])


class Language(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(11, 8), nn.LayerNorm(8)

    def forward(self, ids):
        return self.norm(self.table(ids)).mean(1) @ self.table.weight.t()


def mlp():
    return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 5))


def convolution():
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(6 * 9, 5),
    )  # fmt: skip


MODELS = {
    "mlp": (mlp, lambda: torch.randn(8, 6), 200),
    "attention": (Attention, lambda: torch.randn(4, 7, 32), 100),
    "recurrent": (Recurrent, lambda: torch.randn(4, 3, 6), 30),
    "convolution": (convolution, lambda: torch.randn(4, 3, 6, 6), 30),
    "language": (Language, lambda: torch.randint(0, 11, (4, 6)), 30),
}


def train(model, call, batch, steps, device):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(5)
    losses = []
    for _ in range(steps):
        inputs, labels = batch().to(device), torch.randint(0, 5, (len(batch()),)).to(device)
        loss = functional.cross_entropy(call(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    return losses


@pytest.fixture
def deterministic(device, monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read at the first use of each handle
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.filterwarnings("ignore:.*deterministic.*:UserWarning")
@pytest.mark.filterwarnings("ignore:RNN module weights are not part of single contiguous chunk:UserWarning")
@pytest.mark.parametrize("name", MODELS)
def test_training(name, device, deterministic):
    build, batch, steps = MODELS[name]
    torch.manual_seed(1)
    plain = build().to(device)
    model = copy.deepcopy(plain)
    graphed = rote.graph(model)
    wanted = train(plain, plain, batch, steps, device)
    got = train(model, graphed, batch, steps, device)
    for number, (a, b) in enumerate(zip(wanted, got, strict=True)):
        assert torch.equal(a, b), f"loss of step {number}: {a} and {b}"
    for (name, a), b in zip(plain.named_parameters(), model.parameters(), strict=True):
        assert torch.equal(a, b), name
    report = graphed.report()
    measured = sum(reason.count for reason in report.reasons if reason.code == "RT308")  # to compare with
    assert report.replayed == steps - 2 - measured, graphed.explain()
    assert report.backwards_replayed == report.replayed - 1, graphed.explain()


@pytest.mark.filterwarnings("ignore:.*deterministic.*:UserWarning")
def test_training_under_autocast(device, deterministic):
    def step(call):
        def run(x):
            with torch.autocast(device.type, dtype=torch.bfloat16):
                return call(x)

        return run

    torch.manual_seed(1)
    plain = mlp().to(device)
    model = copy.deepcopy(plain)
    graphed = rote.graph(model)
    batch = MODELS["mlp"][1]
    wanted = train(plain, step(plain), batch, 20, device)
    got = train(model, step(graphed), batch, 20, device)
    assert all(torch.equal(a, b) for a, b in zip(wanted, got, strict=True))
    assert graphed.report().backwards_replayed == 17, graphed.explain()


def test_two_wrappers_in_one_model(device):
    """A step through two graphed parts: each result is an argument of the next."""

    def run(wrap):
        torch.manual_seed(2)
        body, head = nn.Linear(6, 8).to(device), nn.Linear(8, 3).to(device)
        first, second = wrap(body), wrap(head)
        optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1, momentum=0.9)
        losses = []
        for _ in range(12):
            loss = second(torch.tanh(first(torch.randn(4, 6, device=device)))).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses, (first, second)

    wanted, got = run(lambda module: module), run(rote.graph)
    assert all(torch.equal(a, b) for a, b in zip(wanted[0], got[0], strict=True))
    for graphed in got[1]:
        assert graphed.report().replayed == 10 and graphed.report().backwards_replayed == 9
