"""An argument is a part of a tensor that the call reads by itself: ``for t in timesteps: step(x, t)``."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

import rote
from rote.testing import assert_same

SIZE = 8


def make_state(device):
    """What a program reads outside, and what its caller takes arguments of."""
    return SimpleNamespace(
        times=torch.arange(float(SIZE), device=device),
        weight=torch.linspace(0.5, 2.0, 4, device=device).requires_grad_(),
        kept=None,
    )


def looks_up(state, x, t):
    return x * t + (state.times == t) * 1.0


def branches(state, x, t):
    out = x + state.times.sum() * t
    return out * 3 if t > 2 else out


def ways(state, x, t):
    """More ways than calls have gone so far, again and again."""
    out = x + state.times[1]
    for bound in range(SIZE):
        if t == bound:
            out = out + bound
    return out


def gives_it(state, x, t):
    return t, x + state.times.mean()


def gives_views(state, x, t):
    return t.view(1), state.times[2:4], (t, [state.times]), x * t


def gives_both(state, x, t):
    return {"times": state.times, "t": t.reshape(()), "sum": (state.times + t) * x}


def writes_it(state, x, t):
    before = state.times * 1
    t.add_(1)
    return before, state.times * x[0], t * 2


def writes_state(state, x, t):
    state.times.mul_(0.5)
    return t * x, state.times * 1


def writes_on_a_way(state, x, t):
    out = x * t + state.times
    if t > 5:
        t.sub_(3)
        out = out + state.times
    return out, t * 1


def writes_state_on_a_way(state, x, t):
    out = x * t + state.times
    if t > 5:
        state.times.copy_(state.times.flip(0))
        out = out + t
    return out


def keeps_it(state, x, t):
    state.kept = t
    return x * t + state.times


def keeps_a_view(state, x, t):
    state.kept = t.view(1)
    return x * t + state.times


def tells_it(state, x, t):
    return x * 2 if t is state.times else x * t.sum() + state.times[0]


def tells_it_on_a_way(state, x, t):
    if x[0] > 2:
        return x * 2 if t is state.times else x * 3
    return x * t.sum()


def learns(state, x, t):
    return (state.weight.sum() * t * x + state.times).sum()


def learns_inside(state, x, t):
    (gradient,) = torch.autograd.grad((state.weight * t).exp().sum() + state.times.sum(), state.weight)
    return gradient * x[:4]


def learns_on_a_way(state, x, t):
    if t > 3:
        return (state.weight * t).sum() * x.sum()
    return (state.times * t).sum() * x.sum()


@torch.no_grad()
def without_history(state, x, t):
    out = x * state.weight.sum() + state.times * t
    return out if t > 1 else -out


def in_parts(state, x, t):
    first, second = state.times.chunk(2)
    return (first + t) * x[:4] - second


PROGRAMS = [
    looks_up, branches, ways, gives_it, gives_views, gives_both, writes_it, writes_state, writes_on_a_way,
    writes_state_on_a_way, keeps_it, keeps_a_view, tells_it, tells_it_on_a_way, learns, learns_inside,
    learns_on_a_way, without_history, in_parts,
]  # fmt: skip
REPLAYED = {looks_up, branches, gives_it, gives_views, gives_both, learns_inside, without_history, in_parts}


def items(state, count):
    for number in range(count):
        yield state.times[number % SIZE]


def items_then_fresh(state, count):
    for number in range(count):
        yield state.times[number % SIZE] if number % 12 < 8 else state.times[number % SIZE].clone()


def fresh_then_items(state, count):
    for number in range(count):
        yield state.times[number % SIZE] if number % 12 > 4 else state.times[number % SIZE].clone()


def detached(state, count):
    for number in range(count):
        yield state.times.detach()[number % SIZE]


def anew(state, count):
    """As a sampler that is set up for each picture."""
    for number in range(count):
        if number % SIZE == 0:
            state.times = state.times.clone()
        yield state.times[number % SIZE]


def changed(state, count):
    for number in range(count):
        state.times += 0.25
        yield state.times[number % SIZE]


def one_place(state, count):
    for number in range(count):
        yield state.times[3] if number % 10 < 2 else state.times[number % SIZE]


CALLERS = [items, items_then_fresh, fresh_then_items, detached, anew, changed, one_place]


def place_in(state, tensor):
    """Where a tensor lies in the state, if it does."""
    if tensor is None or tensor.untyped_storage()._cdata != state.times.untyped_storage()._cdata:
        return None
    one = tensor._version == state.times._version
    return tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), one


def run(step, state, caller, device, count):
    """All that the caller sees of each call."""
    for number, t in enumerate(caller(state, count)):
        x = torch.linspace(0.0, number / 4, SIZE, device=device)
        before = state.times._version
        out = step(x, t)
        if isinstance(out, torch.Tensor) and out.requires_grad:
            state.weight.grad = None
            out.backward()
        flat = torch.utils._pytree.tree_leaves(out)
        yield (
            torch.utils._pytree.tree_map(lambda each: each.detach().clone(), out),
            [each is t for each in flat], [each is state.times for each in flat],
            [place_in(state, each) for each in flat], place_in(state, state.kept),
            state.kept is t, state.times.clone(), t.clone(), state.times._version > before,
            state.weight.grad.clone() if state.weight.grad is not None else None,
        )  # fmt: skip


@pytest.mark.parametrize("caller", CALLERS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_as_in_plain_calls(device, program, caller):
    plain, ours = make_state(device), make_state(device)
    graphed = rote.graph(lambda x, t: program(ours, x, t))
    expected = run(lambda x, t: program(plain, x, t), plain, caller, device, 40)
    for number, (found, wanted) in enumerate(
        zip(run(graphed, ours, caller, device, 40), expected, strict=True)
    ):
        assert_same((number, found), (number, wanted))
    if program in REPLAYED and caller is items:
        assert graphed.report().replayed >= 30
