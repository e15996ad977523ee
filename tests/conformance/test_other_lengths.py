"""Calls at many lengths: once one is known, that of the next one is recorded, if it does the same."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch import nn

import rote
from rote.runtime.engine.specialization import Specialization
from rote.testing import assert_same

LENGTHS, WIDTH = 9, 4


class Cache(nn.Module):
    """A cache of fixed size, written at a position, with what programs keep beside it."""

    def __init__(self, device):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(WIDTH, WIDTH, device=device)
        self.register_buffer("kept", torch.zeros(LENGTHS, WIDTH, device=device))
        self.scale, self.memo, self.history, self.tables = 1.0, {}, [], [1.0] * LENGTHS

    def forward(self, x, n):
        self.kept[n : n + 1] = self.linear(x[:1])
        return self.kept[: n + 1].softmax(0).sum(0)


def plain(model, x, n):
    return model(x, n)


def scaled(model, x, n):
    return model(x, n) * model.scale


def divided(model, x, n):
    return model(x, n) / (n + 0.5)


def of_length(model, x, n):
    return model(x, n) + x[: n + 1].cumsum(0)[-1] + torch.arange(n + 1, device=x.device).sum()


def at_times(model, x, n):
    y = model(x, n)
    return y.relu() if n % 3 == 2 else y


def remembered(model, x, n):
    if n not in model.memo:
        model.memo[n] = 3 * n
    return model(x, n) + model.memo[n]


def remembered_tensor(model, x, n):
    if n not in model.memo:
        model.memo[n] = torch.full((WIDTH,), float(n), device=x.device)
    return model(x, n) + model.memo[n]


def tabled(model, x, n):
    return model(x, n) * model.tables[n]


def listed(model, x, n):
    if n == 0:
        model.history = []
    model.history.append(model(x, n).detach())
    return torch.stack(model.history).sum(0)


def written(model, x, n):
    y = model(x, n)
    if n > LENGTHS // 2:
        x.mul_(0.5)
    return y


def asked(model, x, n):
    y = model(x, n)
    return y + 1 if bool(y.sum() > 0) else y - 1


def random(model, x, n):
    return model(x, n) + torch.rand(n + 1, WIDTH, device=x.device).mean(0)


def of_host_data(model, x, n):
    return model(x, n) + torch.tensor([float(n)] * WIDTH, device=x.device)


def looped(model, x, n):
    y = model(x, n)
    for _ in range(n % 3):
        y = y.sin()
    return y


def returned(model, x, n):
    return {"y": model(x, n), "next": n + 1, "x": x, "same": [x[:n], n > 4]}


def backward(model, x, n):
    model.zero_grad()
    loss = model.linear(x[: n + 1]).square().mean()
    loss.backward()
    return loss.detach(), model.linear.weight.grad.clone()


def tracked(model, x, n):
    return model.linear(x[: n + 1]).square().sum()


WITH_GRADIENTS = (backward, tracked)
PROGRAMS = [
    *(plain, scaled, divided, of_length, at_times, remembered, remembered_tensor, tabled, listed, written),
    *(asked, random, of_host_data, looped, returned, *WITH_GRADIENTS),
]


TOUCHES = ("scale", "weight", "table", "forget", "train", "cache given", "none")


def touch(model, what, n):
    with torch.no_grad():
        if what == "scale":
            model.scale += 0.5
        elif what == "weight":
            model.linear.weight.mul_(0.9)
        elif what == "table":
            model.tables[n] += 0.25
        elif what == "forget":
            model.memo.clear()
        elif what == "train":
            model.train(not model.training)


def in_form(function, form, model, wrap):
    """The program as one callable, and what calls it with arguments of that form."""
    if form == "a size":
        body = wrap(lambda x: function(model, x, len(x) - 1))
        return body, lambda x, n: body(x[: n + 1])
    if form == "in a dict":
        body = wrap(lambda given: function(model, given["x"], given["n"]))
        return body, lambda x, n: body({"x": x, "n": n})
    body = wrap(lambda x, n: function(model, x, n))
    return body, body


def play(function, form, calls, device, wrap):
    """The calls, with what lies in the model after each; the callable as well."""
    model, seen = Cache(device), []
    body, step = in_form(function, form, model, wrap)
    torch.manual_seed(1)
    with torch.set_grad_enabled(function in WITH_GRADIENTS):
        for number, (n, what) in enumerate(calls):
            x = torch.linspace(-1, 1, LENGTHS * WIDTH, device=device).view(LENGTHS, WIDTH) * (
                number % 5 - 1.5
            )
            x = model.kept if what == "cache given" else x
            y = step(x, n)
            if isinstance(y, torch.Tensor) and y.requires_grad:
                model.zero_grad()
                y.backward()
                y = y.detach(), model.linear.weight.grad
            left = dict(model.state_dict()), model.memo, model.history
            seen.append(copied((y, x, left, torch.get_rng_state())))
            touch(model, what, n)
    return seen, body


def copied(value):
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: copied(each) for key, each in value.items()}
    return type(value)([copied(each) for each in value]) if isinstance(value, (list, tuple)) else value


def in_both_ways(function, form, calls, device, **options):
    expected, _ = play(function, form, calls, device, lambda body: body)
    found, graphed = play(function, form, calls, device, lambda body: rote.graph(body, **options))
    for number, (was, now) in enumerate(zip(expected, found, strict=True)):
        assert_same(now, was, f"call {number}, {calls[number]}")
    return graphed


FORMS = ["a number", "a size", "in a dict"]
PROMPTS = [(n, "none") for _ in range(5) for n in range(LENGTHS)]


@pytest.fixture
def traced(monkeypatch):
    """Of each traced call, what it was by."""
    found, execute = [], Specialization._execute

    def counted(self, recording, call, plan, *rest):
        answer = execute(self, recording, call, plan, *rest)
        found.append(("at length" if plan.at_length else "alone", answer.how))
        return answer

    monkeypatch.setattr(Specialization, "_execute", counted)
    return found


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("function", PROGRAMS)
def test_prompts_come_again(device, function, form):
    graphed = in_both_ways(function, form, PROMPTS, device, keep=True)
    if function not in (listed, backward, asked):
        vain = function is remembered_tensor  # one call is followed that stores under the number
        assert graphed.report().replayed >= 2 * LENGTHS - vain, graphed.explain()


def test_each_length_is_traced_once(device, traced):
    in_both_ways(plain, "a size", PROMPTS, device)
    assert len(traced) <= LENGTHS + 2  # the first one is observed, and the lengths 0 and 1 are other programs
    assert traced.count(("at length", "recorded")) >= LENGTHS - 3


def test_a_position_is_traced_once_where_calls_depend_on_it(device, traced):
    graphed = in_both_ways(plain, "a number", PROMPTS, device)
    assert (
        len(traced) <= LENGTHS + 5
    )  # three are observed before one is followed, and recorded in the next prompt
    assert graphed.report().replayed >= 3 * LENGTHS, graphed.explain()


def test_what_the_first_call_reads_is_a_condition(device, traced):
    calls = [*PROMPTS[: 2 * LENGTHS], (LENGTHS - 1, "scale"), *PROMPTS[:LENGTHS], (4, "scale"), *PROMPTS]
    in_both_ways(scaled, "a size", calls, device, keep=True)
    assert ("at length", "recorded") in traced


@pytest.mark.parametrize("function", [divided, at_times, looped, remembered_tensor, written])
def test_a_length_that_does_something_else_is_observed_first(device, traced, function):
    in_both_ways(function, "a size", PROMPTS, device, keep=True)
    assert ("at length", "eager") in traced
    assert traced.count(("at length", "eager")) <= 2 * LENGTHS


def test_a_warm_up_that_was_asked_for_is_each_keys_own(device, traced):
    in_both_ways(plain, "a size", PROMPTS, device, warmup=2, keep=True)
    assert {by for by, _ in traced} == {"alone"}


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    function=st.sampled_from(PROGRAMS),
    form=st.sampled_from(FORMS),
    calls=st.lists(
        st.tuples(st.integers(0, LENGTHS - 1), st.sampled_from(["none"] * 12 + list(TOUCHES))),
        min_size=6, max_size=40,
    ),
    keep=st.booleans(),
)  # fmt: skip
@example(
    function=remembered_tensor, form="a number", calls=[(n, "none") for n in (1, 1, 1, 0, 0, 1)], keep=True
)
def test_any_lengths_in_any_order(device, function, form, calls, keep):
    in_both_ways(function, form, calls, device, keep=keep)
