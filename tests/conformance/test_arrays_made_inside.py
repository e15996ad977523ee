"""Arrays that a call makes and that become tensors: constants, as long as the call leaves them alone."""

from __future__ import annotations

from types import SimpleNamespace

import numpy
import pytest
import torch

import rote
from rote.testing import assert_same

STATE = SimpleNamespace(steps=3, scale=0.5)
CALLS = 5
TABLE = numpy.arange(6, dtype=numpy.float32)


def made():
    return (numpy.arange(0, STATE.steps)[::-1].copy() * STATE.scale).astype(numpy.float32)


MAKERS = {
    "from_numpy": lambda x: torch.from_numpy(made()).to(x.device),
    "a part": lambda x: torch.from_numpy(made()[1:]).to(x.device),
    "as_tensor": lambda x: torch.as_tensor(made(), device=x.device),
    "as_tensor on the host": lambda x: torch.as_tensor(made()).to(x.device),
    "another type": lambda x: torch.as_tensor(made(), dtype=torch.float64, device=x.device),
    "asarray": lambda x: torch.asarray(made(), device=x.device),
    "tensor": lambda x: torch.tensor(made(), device=x.device),
    "new_tensor": lambda x: x.new_tensor(made()),
    "nan": lambda x: torch.from_numpy(made() + numpy.float32("nan")).nan_to_num(1.0).to(x.device),
    "two": lambda x: torch.from_numpy(made()).to(x.device) + torch.from_numpy(made() + 1).to(x.device),
    "from what lies outside": lambda x: torch.from_numpy(TABLE + STATE.scale).to(x.device),
    "an index": lambda x: torch.arange(6.0, device=x.device)[numpy.arange(STATE.steps)],
}


@pytest.fixture(autouse=True)
def _as_it_was():
    yield
    STATE.steps, STATE.scale = 3, 0.5


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_constant(device, make):
    def fn(x):
        return x * make(x).sum(), make(x)

    g, x = rote.graph(fn), torch.ones(2, device=device)
    for scale, steps in ((0.5, 3), (2.0, 3), (2.0, 4), (0.5, 3)):
        STATE.scale, STATE.steps = scale, steps
        before = g.report().replayed
        for number in range(CALLS):
            assert_same(g(x + number), fn(x + number))
        assert g.report().replayed >= before + CALLS - 2, g.explain()


def test_what_it_is_made_of_changes(device):
    def fn(x):
        return x + torch.from_numpy(TABLE * 2).to(x.device).sum()

    g, x = rote.graph(fn), torch.ones(2, device=device)
    for number in range(3 * CALLS):
        TABLE[1] = 1 + number // CALLS
        assert_same(g(x), fn(x))
    TABLE[1] = 1
    assert g.report().replayed


def changed_after(x):
    array = made()
    tensor = torch.from_numpy(array)
    array[0] = 7
    return x * tensor.to(x.device).sum()


def changed_through_the_tensor(x):
    array = made()
    torch.from_numpy(array).add_(1)
    return x * float(array.sum())


def shown_by_an_outer_array(x):
    return x * torch.from_numpy(TABLE[1:3]).to(x.device).sum()


@pytest.mark.parametrize("fn", [changed_after, changed_through_the_tensor])
def test_it_is_changed_afterwards(device, fn):
    g, x = rote.graph(fn), torch.ones(2, device=device)
    for number in range(CALLS):
        assert_same(g(x + number), fn(x + number))
    assert g.report().replayed == 0
    texts = [why.message for why in g.report().reasons if why.code == "RT123"]
    assert any("is changed" in text for text in texts), g.explain()


def test_a_part_of_an_array_outside(device):
    g, x = rote.graph(shown_by_an_outer_array), torch.ones(2, device=device)
    for number in range(3 * CALLS):
        TABLE[2] = 2 + number // CALLS
        assert_same(g(x), shown_by_an_outer_array(x))
    TABLE[2] = 2
    assert g.report().replayed


def test_it_is_bound_outside(device):
    """As schedulers do with their time steps."""
    state = SimpleNamespace(steps=None)

    def fn(x):
        state.steps = torch.from_numpy(made()).to(x.device)
        for step in state.steps:
            x = x + step
        return x

    g, x = rote.graph(fn), torch.ones(2, device=device)
    for number in range(CALLS):
        got = g(x + number)
        held = state.steps
        assert_same(got, fn(x + number))
        assert_same(held, state.steps)
    assert g.report().replayed == CALLS - 2


def test_an_equal_array_is_kept_where_a_value_leads_elsewhere():
    state = SimpleNamespace(last=None, flag=True)

    def kept(x):
        state.flag = not state.flag
        y = x + 1
        if bool((x > 1).all()) and state.flag:
            state.last = y.numpy()
        return y

    g, last = rote.graph(kept), None
    for number in range(28):
        y = g(torch.full((2,), float(number % 3)))
        assert y.tolist() == [number % 3 + 1] * 2
        last = [3, 3] if number % 3 == 2 and state.flag else last
        assert state.last is last or state.last.tolist() == last
    assert g.report().replayed >= 4
