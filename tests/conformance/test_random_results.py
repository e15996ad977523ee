"""Random calls with several results, and random things that a caller does with their gradients."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rote
from rote.testing import assert_same

EXACT = (
    lambda a, b: (a * b).clamp(-8, 8),
    lambda a, b: (a + b).clamp(-8, 8),
    lambda a, b: (a * 2 - b).clamp(-8, 8),
    lambda a, b: torch.where(a > b, a, b * 2).clamp(-8, 8),
    lambda a, b: torch.stack([a, b]).unbind(0)[0],
)
"""Operations whose gradients are integers: their sums are the same in any order, but for the sign of zero."""
ROUNDED = (*EXACT, lambda a, b: a.sin() * b, lambda a, b: (a * 0.3 + b).tanh())
PARAMETERS = 3
PLACES = st.integers(0, 9)

some_steps = st.lists(st.tuples(PLACES, PLACES, PLACES), min_size=2, max_size=7)
kept_places = st.lists(PLACES, min_size=1, max_size=3)


def make(operations, steps, kept, outside):
    """A call over random operations that returns some of what they give."""

    def call(x, *given):
        values = [x, *given, *outside]
        for operation, one, other in steps:
            values.append(
                operations[operation % len(operations)](
                    values[one % len(values)], values[other % len(values)]
                )
            )
        made = values[1 + PARAMETERS :]
        return [made[place] for place in sorted({*[each % len(made) for each in kept], len(made) - 1})]

    return call


def use_all(results, parameters, todo):
    """What the caller sees of the gradients; errors by what they say."""
    seen = []
    for what, one, other in todo:
        result, earlier = results[one % len(results)], results[other % len(results)]
        try:
            if what == "hook":
                result.register_hook(lambda gradient: seen.append(gradient + 0.0) or gradient * 2)
            elif what == "retain":
                result.retain_grad()
            elif what == "backward":
                result.sum().backward(retain_graph=True)
            elif what == "ask":
                found = torch.autograd.grad(result.sum(), earlier, retain_graph=True, allow_unused=True)
                seen.append([None if grad is None else grad + 0.0 for grad in found])
            elif what == "inputs":
                result.sum().backward(inputs=[earlier], retain_graph=True)
            else:
                sum([each.sum() for each in results]).backward(retain_graph=True)
        except RuntimeError as error:
            seen.append(str(error)[:40])
    grads = [each.grad for each in (*results, *parameters)]
    return seen, [
        None if grad is None else grad + 0.0 for grad in grads
    ]  # a copy, in which no zero is negative


def check(device, operations, steps, kept, todo, outside):
    like = {"device": device, "dtype": torch.float64}
    parameters = [
        torch.tensor([1.0, -1.0, 2.0], **like).mul(n + 1).requires_grad_() for n in range(PARAMETERS)
    ]
    call = make(operations, steps, kept, parameters if outside else ())
    g, given = rote.graph(call), () if outside else parameters
    for n in range(4):
        x = torch.tensor([1.0, 2.0, n - 1.0], **like)
        found = []
        for each in (call, g):
            for parameter in parameters:
                parameter.grad = None
            found.append(use_all(each(x, *given), parameters, todo))
        assert_same(found[1], found[0], g.explain())
    g.reset()


def uses(*words):
    return st.lists(st.tuples(st.sampled_from(words), PLACES, PLACES), min_size=1, max_size=4)


freely = settings(
    max_examples=30,
    suppress_health_check=[*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture],
)


@freely
@given(some_steps, kept_places, uses("hook", "retain", "backward", "ask", "inputs", "all"), st.booleans())
@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_gradients_that_somebody_looks_at(device, steps, kept, todo, outside):
    check(device, EXACT, steps, kept, todo, outside)


@freely
@given(some_steps, kept_places, uses("backward", "all"), st.booleans())
@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_gradients_are_rounded_as_in_eager(device, steps, kept, todo, outside):
    check(device, ROUNDED, steps, kept, todo, outside)
