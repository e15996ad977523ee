"""What each rule removes from a program, and what it leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.runtime.program.observed import observe
from torch import Tensor

from rote.runtime.optimize import RULES
from rote.runtime.optimize.effects import Effects, LeftAloneError
from rote.runtime.optimize.shortening import ShortStretch, shorten
from rote.runtime.program import NEW, Operation
from rote.runtime.program import operations as ops
from rote.runtime.recording import KernelModes

W = torch.full((3, 3), 0.5)
X = torch.arange(9.0).reshape(3, 3)
G = torch.Generator()


def captured(operations: list[Operation]) -> list[int]:
    return [n for n, each in enumerate(operations) if each.kind in (ops.CAPTURED, ops.VIEWED, ops.CONST)]


def short(function: Callable[..., Any], *args: Tensor, cut: int | None = None) -> ShortStretch:
    """A call shortened, in one segment or in two; its results are read by others."""
    operations, results = observe(function, *(args or (X.clone(),)))
    indices = captured(operations)
    segments = [indices] if cut is None else [indices[:cut], indices[cut:]]
    effects = Effects.of(operations, segments, ())
    public = [token.origin for token in results if token.origin[0] == NEW]
    return shorten(effects, dict.fromkeys(indices, KernelModes.now()), public)


def removed(function: Callable[..., Any], *args: Tensor, **how: Any) -> dict[str, int]:
    found = short(function, *args, **how)
    return {rule: found.removed[rule] for rule in RULES if found.removed[rule]}


def loop(x: Tensor) -> Tensor:
    for _ in range(3):
        x = x * W.exp()
    return x


def time_steps(x: Tensor) -> Tensor:
    for n in range(3):
        steps = torch.arange(3).float() * (n + 1)
        x = x + steps.cos()
    return x


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: (x.sin(), x.cos())[0] + 1, {"dead": 1}),
        (lambda x: ((x.sin() + 1).cos(), x)[1] * 2, {"dead": 3}),
        (loop, {"recomputed": 2}),
        (lambda x: x.sin()
         + x.sin().cos()
         + x.sin(), {"repeated": 2}),
        (lambda x: (x * W.t(),
                    x * W.t()), {"repeated": 1}),
        (lambda x: (x + 1).clone() * (x + 1).contiguous(), {"recomputed": 1, "copies": 1}),
        (time_steps, {"recomputed": 4, "constants": 8}),
        (lambda x: x + torch.tensor([1.0, 2.0, 3.0]) * 2, {"constants": 2}),
        (lambda x: x + torch.full((3,), 2.0), {"constants": 1}),
        (lambda x: x * (W @ W) + (W @ W), {"recomputed": 1}),
        (lambda x: x[torch.tensor([0, 2])], {"constants": 1}),
        (lambda x: torch.where(x > 1, x, 0.0) * torch.where(x > 1, x, 0.0),
         {"constants": 1, "recomputed": 3}),
    ],
)  # fmt: skip
def test_what_goes(function, expected):
    assert removed(function) == expected


def written_between(x: Tensor) -> Tensor:
    own = x + 1
    first = own.sin()
    own.mul_(2)
    return first + own.sin()


def written_through_a_view(x: Tensor) -> Tensor:
    own = x + 1
    first = own.sin()
    own[0].zero_()
    return first + own.sin()


def written_afterwards(x: Tensor) -> tuple[Tensor, Tensor]:
    first, second = x + 1, x + 1
    second.mul_(2)
    return first, second


def written_copy(x: Tensor) -> tuple[Tensor, Tensor]:
    own = x + 1
    copy = own.clone()
    own.mul_(2)
    return own, copy


def other_modes(x: Tensor) -> Tensor:
    return x.sum(0) + x.t().contiguous().t().sum(0)


@pytest.mark.parametrize(
    "function",
    [
        written_between,
        written_through_a_view,
        written_afterwards,
        written_copy,
        other_modes,  # equal values in another layout
        lambda x: (x + 1.0) * (x + 1),  # other numbers
        lambda x: (x + 0.0) * (x + -0.0),
        lambda x: x.sum(0) + x.sum(0, dtype=torch.float64),
        lambda x: (x[(x[:, 0] * 0).long()], x)[1] * 2,  # nobody reads it, and it may raise
        lambda x: ((x.long() // 2), x)[1] * 2,
        lambda x: (x + 1).t().contiguous(),  # a copy in another layout
        lambda x: (x + 1)[1:].clone(),  # it begins elsewhere
        lambda x: (x + 1).double(),
        lambda x: x.clone(),  # nobody knows how the argument is aligned
        lambda x: (torch.zeros(3), x * 2),  # to copy it would take as long
        lambda x: (torch.empty(3).fill_(1.0) + x) * (torch.empty(3).fill_(1.0) + x),
        lambda x: x.cumsum(0) * x.cumsum(0),  # a GPU adds in an order of its own
    ],
)
def test_what_stays(function):
    found = removed(function)
    assert not found


def test_memory_from_outside_may_change_between_two_segments():
    def twice(x: Tensor) -> Tensor:
        return W.exp() * x + W.exp()

    assert removed(twice) == {"recomputed": 1}
    assert removed(twice, cut=2) == {}


def test_random_numbers_stay():
    found = short(lambda x: (torch.rand_like(x) + torch.rand_like(x), torch.rand(3))[0] * x.exp() + x.exp())
    assert {rule: n for rule, n in found.removed.items() if n} == {"recomputed": 1}
    assert len(found.effects.draws) == 3


def written_state(x: Tensor) -> Tensor:
    first = W.exp() * x.exp()
    W.mul_(1)
    return first + W.exp() * x.exp()  # x may be W


def test_writes_to_the_outside_stay_and_are_a_barrier():
    found = short(written_state)
    assert not found.removed.total() and found.effects.changes == {("external", 0)}


def test_what_depends_on_state_alone_is_counted_and_stays():
    found = short(lambda x: x * (1 + W.double()) + W.sum())
    assert found.outside == 3 and not found.removed.total()


def test_constants_are_no_state():
    found = short(lambda x: x * (torch.arange(3) + 1) + torch.ones(3).sum())
    assert found.outside == 0


def test_numbers_add_up():
    found = short(time_steps)
    assert (found.before, found.removed.total(), found.shown(), found.after) == (15, 12, 1, 4)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda x: x + torch.rand(3, generator=G), "rand .* draws from a generator that it is given"),
        (lambda x: torch.complex(x, x).conj().real * 2, "complex numbers"),
        (lambda x: torch._neg_view(x) * 2, "lazy"),
        (lambda x: x + torch.linspace(0, 1, 3).resize_(1, 3), "changes which memory"),
    ],
)
def test_what_is_left_alone(function, why):
    with pytest.raises(LeftAloneError, match=why):
        short(function)


def test_memory_that_nothing_known_has_written():
    def unwritten(x: Tensor) -> Tensor:
        return torch.empty_like(x).sin()

    operations = observe(lambda x: torch.empty_like(x).fill_(0.0).sin(), X).operations
    without = [each for each in operations if "fill_" not in each.name]
    with pytest.raises(LeftAloneError, match="reads memory that no operation has written"):
        Effects.of(without, [captured(without)], ())
    Effects.of(operations, [captured(operations)], ())


def test_an_operation_in_no_segment():
    operations = observe(lambda x: x.sin() + 1, X).operations
    with pytest.raises(LeftAloneError, match=r"add .* is in no segment"):
        Effects.of(operations, [[0]], ())
    Effects.of(operations, [[0]], (1,))


def test_changes_of_metadata_are_no_operations():
    found = short(lambda x: (x + 1).t_().unsqueeze_(0) * 2)
    assert found.before == 2
