"""Results that a call makes over memory from outside: the caller may change what such a tensor looks like."""

from __future__ import annotations

from types import SimpleNamespace

import numpy
import pytest
import torch

import rote
from rote.testing import assert_same

CALLS = 9
MADE = {
    "from_numpy": lambda home, x: torch.from_numpy(home.array),
    "as_tensor": lambda home, x: torch.as_tensor(home.array),
    "twice": lambda home, x: (torch.from_numpy(home.array), torch.from_numpy(home.array)),
    "part": lambda home, x: torch.from_numpy(home.array)[:2],
    "parameter": lambda home, x: torch.nn.Parameter(home.tensor),
    "parameter of what was read": lambda home, x: (home.tensor + 1, torch.nn.Parameter(home.tensor)),
    "class": lambda home, x: home.tensor.as_subclass(torch.Tensor),
    "storage": lambda home, x: torch.empty(0, device=x.device).set_(home.tensor.untyped_storage()),
    "detached": lambda home, x: home.tensor.detach(),
    "data": lambda home, x: home.tensor.data,
    "detached argument": lambda home, x: x.detach(),
    "view": lambda home, x: home.tensor.view(2, 2),
    "itself": lambda home, x: home.tensor,
}
CHANGES = {
    "one axis more": lambda result: result.unsqueeze_(0),
    "gradients": lambda result: result.requires_grad_(),
    "other memory": lambda result: setattr(result, "data", torch.ones(3, device=result.device)),
    "fewer elements": lambda result: result.as_strided_((2,), (1,)),
    "attribute": lambda result: setattr(result, "note", 1),
    "detached": lambda result: result.detach_(),
    "class": lambda result: setattr(result, "__class__", torch.nn.Parameter),
}


def seen(result):
    form = tuple(result.shape), result.stride(), result.requires_grad, type(result), vars(result).copy()
    return form, result.detach().clone()


def played(make, change, wrap, device):
    home = SimpleNamespace(array=numpy.ones(4, numpy.float32), tensor=torch.ones(4, device=device))
    graphed, found, last = wrap(lambda x: make(home, x)), [], []
    for number in range(CALLS):
        made = graphed(torch.full((4,), float(number), device=device))
        results = made if type(made) is tuple else (made,)
        found.append([*map(seen, results), any(results[-1] is one for one in last)])
        last = results
        if number % 3 < 2:
            try:
                change(results[-1])
            except RuntimeError as error:
                found.append(type(error))
        found.append([*map(seen, results), *map(seen, (home.tensor,)), home.array.tolist()])
    return found


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("make", MADE)
def test_changed_by_the_caller(make, change, device):
    graphed = []

    def wrap(function):
        graphed.append(rote.graph(function, keep=True))
        return graphed[-1]

    plain = played(MADE[make], CHANGES[change], lambda function: function, device)
    assert_same(played(MADE[make], CHANGES[change], wrap, device), plain)
    graphed[0].reset()


@pytest.mark.parametrize("make", ["from_numpy", "part", "detached", "view", "itself"])
def test_they_replay(make, device):
    home = SimpleNamespace(array=numpy.ones(4, numpy.float32), tensor=torch.ones(4, device=device))
    g = rote.graph(lambda x: (x * 2, MADE[make](home, x)), keep=True)
    for number in range(CALLS):
        g(torch.full((4,), float(number), device=device))
    assert g.report().replayed > CALLS / 2
    g.reset()
