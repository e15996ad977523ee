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
            state.kept is t, state.times.clone(), t.clone(),
            state.weight.grad.clone() if state.weight.grad is not None else None,
        ), state.times._version > before  # fmt: skip


def assert_alike(found, wanted):
    """All results are the same, and wherever plain calls count a version, ours do."""
    for number, ((one, counts), (other, counted)) in enumerate(zip(found, wanted, strict=True)):
        assert_same((number, one), (number, other))
        assert counts or not counted, number


@pytest.mark.sampled(3)
@pytest.mark.parametrize("caller", CALLERS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_as_in_plain_calls(device, program, caller):
    plain, ours = make_state(device), make_state(device)
    graphed = rote.graph(lambda x, t: program(ours, x, t))
    expected = run(lambda x, t: program(plain, x, t), plain, caller, device, 40)
    assert_alike(run(graphed, ours, caller, device, 40), expected)
    if program in REPLAYED and caller is items:
        assert graphed.report().replayed >= 30


GIVEN = [each for each in PROGRAMS if each not in (keeps_it, keeps_a_view)]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("caller", CALLERS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("program", GIVEN, ids=lambda each: each.__name__)
def test_given_with_what_it_is_a_part_of(device, program, caller):
    def step(state):
        def run(x, t, times):
            return program(SimpleNamespace(times=times, weight=state.weight), x, t)

        return run

    plain, ours = make_state(device), make_state(device)
    graphed, other = rote.graph(step(ours), keep=True), step(plain)
    expected = run(lambda x, t: other(x, t, plain.times), plain, caller, device, 60)
    found = run(lambda x, t: graphed(x, t, ours.times), ours, caller, device, 60)
    assert_alike(found, expected)
    if program in REPLAYED and caller is items:
        assert graphed.report().replayed >= 30


def test_two_that_share_memory_and_one_is_written_later(device):
    """Nothing is written until the recording has been replayed, whichever parts the calls are given."""

    def fn(a, b, limit):
        out = a * 2 + b
        if a[0] > limit:
            a.add_(1)
            out = out + b
        return out, a * 1, b * 1

    graphed = rote.graph(fn, keep=True)
    ours, theirs = (torch.arange(24.0, device=device) / 24 for _ in range(2))
    for number in range(60):
        first, second = number % 7, number % 5
        limit = torch.tensor(50.0 if number < 40 else 0.1, device=device)
        found = [
            call(memory[first : first + 8], memory[second : second + 8], limit)
            for call, memory in ((graphed, ours), (fn, theirs))
        ]
        assert_same((number, *found[0]), (number, *found[1]))
        assert torch.equal(ours, theirs), number
    assert graphed.report().replayed >= 20


@pytest.mark.parametrize("first", ["own", "fresh"])
@pytest.mark.parametrize("asks", ["is", "any", "not"])
def test_which_tensor_an_argument_is(device, asks, first):
    buffer = torch.arange(8.0, device=device)

    def fn(x):
        if asks == "any":
            return x * 2 if any(x is each for each in [buffer]) else x * 3
        return x * 2 if (x is buffer if asks == "is" else not (x is not buffer)) else x * 3

    graphed = rote.graph(fn)
    for number in range(30):
        own = (number % 20 < 10) is (first == "own")
        x = buffer if own else torch.full((8,), float(number), device=device)
        assert torch.equal(graphed(x), fn(x)), number
    assert graphed.report().replayed >= 20


@pytest.mark.parametrize("does", ["attribute", "shape", "own attribute"])
def test_what_a_way_not_seen_before_does_to_the_argument(device, does):
    def make():
        times = torch.arange(12.0, device=device)

        def fn(x, t):
            out = x * t.sum() + times[0]
            if x[0] > 10:
                if does == "attribute":
                    t.tag = "late"
                elif does == "shape":
                    t.unsqueeze_(0)
                else:
                    out = out * t.scale
            return out

        return times, fn

    (ours, graphed), (theirs, plain) = make(), make()
    graphed = rote.graph(graphed)
    for number in range(40):
        x = torch.full((3,), 20.0 if number in (4, 9) or number > 25 else 1.0, device=device)
        given = [memory[number % 8 : number % 8 + 4] for memory in (ours, theirs)]
        if does == "own attribute":
            for each in given:
                each.scale = number
        assert torch.equal(graphed(x, given[0]), plain(x, given[1])), number
        assert given[0].__dict__ == given[1].__dict__ and given[0].shape == given[1].shape, number
        assert given[0].untyped_storage()._cdata == ours.untyped_storage()._cdata, number
