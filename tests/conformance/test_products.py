"""Gradients of products: PyTorch divides where no mode is active, and a traced call does so as well."""

import pytest
import torch

import rote

CALLS = 12

PROGRAMS = {
    "all": lambda y: y.prod(),
    "rows": lambda y: y.prod(-1),
    "columns": lambda y: torch.prod(y, 0, keepdim=True),
    "cumulated": lambda y: y.cumprod(-1),
    "cumulated columns": lambda y: torch.cumprod(y, dim=0),
    "rendering": lambda y: torch.cumprod(torch.cat([torch.ones_like(y[:, :1]), y.sigmoid()], -1), -1)[:, :-1],
    "with zeros": lambda y: torch.relu(y).prod(-1),
    "a single factor": lambda y: y[:, :1].prod(-1) + y[:1, :1].cumprod(-1).sum(),
}


def inputs(device, size=(6, 17)):
    generator = torch.Generator().manual_seed(0)
    for _ in range(CALLS):
        yield (torch.randn(*size, generator=generator) * 0.7 + 1).to(device)


class Product(torch.nn.Module):
    def __init__(self, program):
        super().__init__()
        self.program, self.w = program, torch.nn.Parameter(torch.linspace(0.5, 1.5, 17))

    def forward(self, x):
        return self.program(self.w * x).sin().sum()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_backward_inside(device, name):
    models = [Product(PROGRAMS[name]).to(device) for _ in range(2)]

    def step(model, x):
        model.zero_grad()
        loss = model(x)
        loss.backward()
        return loss.detach()

    g = rote.graph(lambda x: step(models[0], x), keep=True)
    for x in inputs(device):
        assert torch.equal(g(x), step(models[1], x))
        assert torch.equal(models[0].w.grad, models[1].w.grad)
    assert g.report().replayed >= CALLS // 2, g.explain()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_backward_outside(device, name):
    models = [Product(PROGRAMS[name]).to(device) for _ in range(2)]
    g = rote.graph(models[0], keep=True)
    for x in inputs(device):
        for loss in (g(x), models[1](x)):
            loss.backward()
        assert torch.equal(models[0].w.grad, models[1].w.grad)
        for model in models:
            model.zero_grad()
