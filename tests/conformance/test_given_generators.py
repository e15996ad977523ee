"""Random generators among the arguments: another one in each call, and states as eager leaves them."""

from __future__ import annotations

import copy
import dataclasses
import gc
import random
import weakref
from typing import Any

import pytest
import torch

import rote
from rote.testing import assert_same

CALLS = 12


def made(seed: int, device: Any) -> torch.Generator:
    return torch.Generator(device).manual_seed(seed)


def randn(generator: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(shape or (3,), generator=generator, device=generator.device)


def outcome(fn, args, generators):
    """Result or exception of a call, and the states in which it leaves generators."""
    try:
        value = fn(*args)
    except IndexError as error:
        value = str(error)
    return value, [each.get_state() for each in generators]


def play(fn, make, calls=CALLS, **options):
    """Make calls to a callable as it is and graphed, each with arguments of its own.

    Args:
        fn: The callable.
        make: Gives, for the number of a call, its arguments and the generators among them.
        calls: How many.
        **options: Options of the graph.
    """
    g = rote.graph(fn, **options)
    for number in range(calls):
        assert_same(outcome(g, *make(number)), outcome(fn, *make(number)), f"call {number}")
    return g


def one(device):
    def make(number):
        generator = made(number, device)
        return (torch.full((3,), float(number), device=device), generator), [generator]

    return make


def two(device, *, shared=lambda number: False):
    def make(number):
        first, second = made(number, device), made(number + 9, device)
        second = first if shared(number) else second
        return (torch.ones(3, device=device), first, second), [first, second]

    return make


def several_draws(x, generator):
    y = x + randn(generator) * torch.rand(3, generator=generator, device=x.device)
    return y + torch.randperm(3, generator=generator, device=x.device)


def operations(x, generator):
    options: dict[str, Any] = {"generator": generator, "device": x.device}
    return (
        torch.randint(0, 9, (4,), **options),
        torch.multinomial(torch.ones(5, device=x.device), 3, generator=generator),
        torch.empty(3, device=x.device).normal_(generator=generator),
        torch.empty(3, device=x.device).uniform_(generator=generator),
        torch.empty(3, device=x.device).exponential_(generator=generator),
        torch.full((9,), 0.5, device=x.device).bernoulli(generator=generator),
        torch.normal(x, torch.ones_like(x), generator=generator),
    )


def optional(x, generator=None):
    return x + randn(generator) if generator is not None else x


def is_of_class(x, generator):
    several = isinstance(generator, list)
    assert isinstance(generator, torch.Generator) and not several
    return x + randn(generator)


def where_it_lies(x, generator):
    return x + torch.randn(3, generator=generator, device=generator.device)


def of_no_use(x, generator):
    return x * 2 if generator else x


@pytest.mark.parametrize("fn", [several_draws, operations, optional, is_of_class, where_it_lies, of_no_use])
def test_another_one_in_each_call(device, fn):
    g = play(fn, one(device))
    assert g.report().replayed >= 6, g.explain()


def test_of_the_host_beside_tensors_of_the_device(device):
    def make(number):
        generator = made(number, "cpu")
        return (torch.ones(3, device=device), generator), [generator]

    g = play(lambda x, generator: x.cpu() + randn(generator), make)
    assert g.report().replayed >= 6, g.explain()


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False")
def test_now_of_the_host_and_now_of_the_device():
    def make(number):
        generator = made(number, "cuda" if number % 2 else "cpu")
        return (torch.ones(3, device="cuda"), generator), [generator]

    g = play(lambda x, generator: x + randn(generator).cuda(), make, 20)
    assert g.report().replayed >= 10, g.explain()


def drawn_in_turns(x, first, second):
    y = x + torch.randn(3, generator=first, device=x.device)
    return y - randn(second) * torch.rand(3, generator=first, device=x.device)


def asks_which(x, first, second):
    return x + randn(first) * (1 if first is second else 2)


@pytest.mark.parametrize("fn", [drawn_in_turns, asks_which])
@pytest.mark.parametrize("shared", [lambda n: False, lambda n: True, lambda n: n % 2 == 0])
def test_two_that_are_one_in_some_calls(device, fn, shared):
    g = play(fn, two(device, shared=shared), 18)
    assert g.report().replayed >= 8, g.explain()


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False")
def test_two_that_have_one_state():
    def make(number):
        first = made(number, "cuda")
        second = first.graphsafe_get_state() if number > 8 else made(number, "cuda")
        return (torch.ones(3, device="cuda"), first, second), [first, second]

    g = play(drawn_in_turns, make, 18)
    assert 2 <= g.report().replayed <= 8, g.explain()


def equal(x, first, second):
    return x + randn(first) * (1 if first == second else 2)


def looked_for(x, first, second):
    return x + randn(first) * (1 if first in [second] else 2)


def counted(x, first, second):
    return x + randn(first) * len({first: 1, second: 2})


def by_id(x, first, second):
    return x + randn(first) * (1 if id(first) == id(second) else 2)


@pytest.mark.parametrize("fn", [equal, looked_for, counted, by_id])
def test_which_one_it_is_matters(device, fn):
    g = play(fn, two(device, shared=lambda number: number % 3 == 0), 18)
    assert g.report().replayed == 0


@dataclasses.dataclass
class Settings:
    generator: torch.Generator
    scale: float = 2.0


class Sampler:
    def __init__(self, generator):
        self.generator, self.scale = generator, 2.0


@pytest.mark.parametrize("kind", [Settings, Sampler, lambda generator: Settings([generator])])
def test_inside_of_arguments(device, kind):
    def fn(x, given):
        held = given.generator
        return x + given.scale * randn(held[0] if isinstance(held, list) else held)

    def make(number):
        generator = made(number, device)
        return (torch.ones(3, device=device), kind(generator)), [generator]

    g = play(fn, make)
    assert g.report().replayed >= 6, g.explain()


def test_a_list_of_them_and_one_of_them_again(device):
    def fn(x, given):
        y = torch.stack([randn(each) for each in given["all"]])
        return x + y * randn(given["first"])

    def make(number):
        generators = [made(number + n, device) for n in range(3)]
        given = {"all": generators, "first": generators[0]}
        return (torch.ones(3, device=device), given), generators

    g = play(fn, make)
    assert g.report().replayed >= 6, g.explain()


# ---------------------------------------------------------------------- seeded, read


def seeded(x, generator):
    generator.manual_seed(3)
    return x + randn(generator)


def seeded_between(x, generator):
    y = randn(generator)
    generator.manual_seed(3)
    z = randn(generator)
    return x + y * z - randn(generator.manual_seed(4))


@pytest.mark.parametrize("fn", [seeded, seeded_between])
def test_seeded_by_the_call(device, fn, reason):
    g = play(fn, one(device))
    if device.type == "cpu":
        assert g.report().replayed >= 6, g.explain()
    else:
        assert reason(g, "RT208")


def test_seeded_by_the_call_as_it_was_by_the_caller(device):
    """What is seen of the state does not tell that it was set."""

    def make(number):
        generator = made(3 if number < 8 else number, device)
        return (torch.ones(3, device=device), generator), [generator]

    play(seeded, make)


def test_seeded_on_one_way_alone(device):
    def fn(x, generator):
        y = randn(generator)
        if (y.sum() > 0).item():
            generator.manual_seed(4)
            return y + randn(generator)
        y = y - torch.rand(3, generator=generator, device=x.device)
        return y * randn(generator) if (y.sum() > -2).item() else y

    g = play(fn, one(device), 40)
    assert g.report().replayed >= 20 or device.type == "cuda", g.explain()


def test_seeded_after_the_last_draw(device, reason, where):
    def fn(x, generator):
        y = x + randn(generator)
        generator.manual_seed(3)
        return y

    g = play(fn, one(device))
    assert g.report().replayed == 0
    assert reason(g, "RT208").where == where(fn, "manual_seed")


def test_its_seed_is_part_of_the_key(device):
    def fn(x, generator):
        return x * (generator.initial_seed() % 7) + randn(generator)

    def make(number):
        generator = made(number // 8, device)
        randn(generator, number)
        return (torch.ones(3, device=device), generator), [generator]

    g = play(fn, make, 32)
    assert g.report().replayed >= 16, g.explain()


def test_its_state_is_read(device, reason):
    g = play(lambda x, generator: x + generator.get_state()[0].item(), one(device))
    assert g.report().replayed == 0
    assert "asks args[1] for its state (get_state)" in reason(g, "RT218").message


class Held:
    """State of a callable that draws, and its twin."""

    def __init__(self, device):
        self.generator = made(0, device)
        self.state = self.generator.get_state()


def set_after(x, held):
    y = x + randn(held.generator)
    held.generator.manual_seed(5)
    return y


def set_alone(x, held):
    held.generator.manual_seed(5)
    return x + 1


def set_and_drawn(x, held):
    held.generator.manual_seed(5)
    return x + randn(held.generator)


def copied_state(x, held):
    return x + randn(held.generator.clone_state())


def copied(x, held):
    return x + randn(copy.copy(held.generator))


def handed_on(x, held):
    generator = torch.Generator(x.device)
    generator.__setstate__(held.generator.__reduce__()[2])
    return x + randn(generator)


def state_of_another(x, held):
    generator = torch.Generator(x.device)
    generator.set_state(held.generator.get_state())
    return x + randn(generator)


def kept_state(x, held):
    generator = torch.Generator(x.device)
    generator.set_state(held.state)
    return x + randn(generator)


def put_back(x, held):
    state = held.generator.get_state()
    y = x + randn(held.generator)
    held.generator.set_state(state)
    return y


@pytest.mark.parametrize(
    "fn",
    [
        *(set_after, set_alone, set_and_drawn, copied_state, copied, handed_on),
        *(state_of_another, kept_state, put_back),
    ],
)
def test_one_that_is_state_is_set_or_copied(device, fn):
    """The caller sets it alike for a while, so that what the call leaves is no sign."""
    ours, theirs = Held(device), Held(device)
    g, x = rote.graph(lambda x: fn(x, ours)), torch.ones(3, device=device)
    for number in range(CALLS):
        for held in (ours, theirs):
            held.generator.manual_seed(5 if number < 8 else number)
            held.state.copy_(held.generator.get_state())
        assert_same(g(x), fn(x, theirs), f"call {number}")
        assert_same(ours.generator.get_state(), theirs.generator.get_state(), f"call {number}")
    seeded_first = fn is set_and_drawn and device.type == "cpu"
    assert g.report().replayed == (CALLS - 2 if seeded_first else 0)


@pytest.mark.parametrize("further", [False, True])
def test_state_is_set_and_a_way_is_new(device, further):
    """Python follows what was replayed: it sets the generator once more."""

    def fn(x, held):
        y = x + randn(held.generator)
        held.generator.manual_seed(3)
        y = y * randn(held.generator)
        if (x.sum() > 0).item():
            return y - randn(held.generator) if further else y * 2
        return y

    ours, theirs = Held(device), Held(device)
    g = rote.graph(lambda x: fn(x, ours))
    for number, sign in enumerate([-1, -1, -1, -1, 1, -1, 1, 1, -1, 1, 1, -1]):
        x = torch.full((3,), float(sign), device=device)
        assert_same(g(x), fn(x, theirs), f"call {number}")
        assert_same(ours.generator.get_state(), theirs.generator.get_state(), f"call {number}")
    assert g.report().replayed >= 4 or device.type == "cuda", g.explain()


def test_a_state_that_an_argument_holds(device):
    def fn(x, state):
        generator = torch.Generator(x.device)
        generator.set_state(state)
        return x + randn(generator)

    play(fn, lambda number: ((torch.ones(3, device=device), made(number // 6, device).get_state()), []), 20)


# ---------------------------------------------------------------------- kept, returned, state as well


def test_kept_and_returned(device):
    def fn(x, generator, held):
        held.generator = generator
        return {"noise": randn(held.generator), "generator": generator}

    held, twin = Held(device), Held(device)
    g = rote.graph(lambda x, generator: fn(x, generator, held))
    for number in range(CALLS):
        ours, theirs = made(number, device), made(number, device)
        x = torch.ones(3, device=device)
        found, expected = g(x, ours), fn(x, theirs, twin)
        assert_same(found["noise"], expected["noise"])
        assert found["generator"] is held.generator is ours
        assert_same(randn(held.generator), randn(twin.generator))
    assert g.report().replayed >= 4, g.explain()


def test_state_in_some_calls(device):
    """The recording draws from what it has found outside, which an argument is now and then."""
    ours, theirs = made(0, device), made(0, device)

    def fn(x, generator, outside):
        return x + randn(generator) * torch.rand(3, generator=outside, device=x.device)

    g, x = rote.graph(lambda x, generator: fn(x, generator, ours)), torch.ones(3, device=device)
    for number in range(24):
        fresh = [made(number, device), made(number, device)]
        first, second = (ours, theirs) if number in (9, 10, 15) else fresh
        assert_same(g(x, first), fn(x, second, theirs), f"call {number}")
        assert_same([each.get_state() for each in (ours, first)], [e.get_state() for e in (theirs, second)])
    assert g.report().replayed >= 4, g.explain()


def test_the_default_one_in_some_calls(device):
    def fn(x, generator):
        return x + randn(generator) + torch.rand(3, device=x.device)

    def default():
        return torch.default_generator if device.type == "cpu" else torch.cuda.default_generators[0]

    def run(call):
        torch.manual_seed(5)
        x = torch.ones(3, device=device)
        found = [call(x, made(n, device) if n % 3 else default()) for n in range(24)]
        return found, default().get_state()

    g = rote.graph(fn)
    assert_same(run(g), run(fn))
    assert g.report().replayed >= 12, g.explain()


def test_an_operation_raises_between_two_draws(device):
    def fn(x, generator, at):
        noise = randn(generator)
        x = (x.cpu() + noise.cpu())[at]
        return x * torch.rand(1, generator=generator, device=generator.device).cpu()

    def make(number):
        generator = made(number, device)
        at = torch.tensor([1 if number % 5 < 4 else 7])
        return (torch.ones(3, device=device), generator, at), [generator]

    g = play(fn, make, 20)
    assert g.report().replayed >= 8 or device.type == "cuda", g.explain()


# ---------------------------------------------------------------------- state that is replaced


class Slotted:
    __slots__ = ("__weakref__", "generator")


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = None


OUTSIDE: Any = None


class _Variable:
    """A variable of a function around, and a global, as an attribute."""

    def __init__(self, get, put):
        self._get, self._put = get, put

    generator = property(lambda self: self._get(), lambda self, value: self._put(value))


def _in_a_closure():
    held = None

    def put(value):
        nonlocal held
        held = value

    return _Variable(lambda: held, put), lambda x: x + randn(held) * torch.rand_like(x)


def _in_a_global():
    def put(value):
        global OUTSIDE
        OUTSIDE = value

    return _Variable(lambda: OUTSIDE, put), lambda x: x + randn(OUTSIDE) * torch.rand_like(x)


def _in(kind):
    held = kind()
    return held, lambda x: x + randn(held.generator) * torch.rand_like(x)


PLACES = {
    "attribute": lambda: _in(lambda: Sampler(None)),
    "module": lambda: _in(Layer),
    "slot": lambda: _in(Slotted),
    "closure": _in_a_closure,
    "global": _in_a_global,
}


@pytest.mark.parametrize("place", PLACES)
def test_replaced_between_calls(device, place):
    holder, fn = PLACES[place]()
    g, x = rote.graph(fn), torch.ones(3, device=device)
    for number in range(16):
        found: list[Any] = []
        for call in (g, fn):
            holder.generator = made(number, device)
            torch.manual_seed(3)
            found.append((call(x), holder.generator.get_state()))
        assert_same(*found, f"call {number}")
    assert g.report().replayed >= 8, g.explain()


def test_replaced_now_and_then(device):
    """One object in most calls; sometimes none, and one that is among the arguments as well."""

    def fn(x, held, generator):
        if held.generator is None:
            return x - randn(generator)
        return x + randn(held.generator) * torch.rand(3, generator=generator, device=x.device)

    ours, theirs = Sampler(made(1, device)), Sampler(made(1, device))
    g = rote.graph(lambda x, generator: fn(x, ours, generator))
    draw, x = random.Random(3), torch.ones(3, device=device)
    for number in range(60):
        kind, found = draw.choice(["same"] * 6 + ["fresh", "none", "given"]), list[Any]()
        for held, call in ((ours, g), (theirs, lambda x, generator: fn(x, theirs, generator))):
            generator = made(number, device)
            if kind != "same":
                given = {"fresh": made(number + 1, device), "none": None, "given": generator}
                held.generator = given[kind]
            found.append((call(x, generator), generator.get_state()))
            found.append(held.generator.get_state() if held.generator is not None else None)
        assert_same(found[:2], found[2:], f"call {number}: {kind}")
    assert g.report().replayed >= 20, g.explain()


def test_replaced_and_reachable_in_two_ways(device):
    """Which object lies in one slot matters where another one leads to it, too."""

    def fn(x, held):
        return x + randn(held.generator) * randn(held.other)

    ours, theirs = Sampler(None), Sampler(None)
    g, x = rote.graph(lambda x: fn(x, ours)), torch.ones(3, device=device)
    for number in range(24):
        for held in (ours, theirs):
            held.generator = made(number, device)
            held.other = held.generator if number % 3 else made(number + 1, device)
        assert_same(g(x), fn(x, theirs), f"call {number}")
        for name in ("generator", "other"):
            assert_same(getattr(ours, name).get_state(), getattr(theirs, name).get_state(), f"call {number}")


def test_replaced_and_its_seed_read(device):
    def fn(x, held):
        return x * (held.generator.initial_seed() % 7) + randn(held.generator)

    ours, theirs = Sampler(None), Sampler(None)
    g, x = rote.graph(lambda x: fn(x, ours)), torch.ones(3, device=device)
    for number in range(32):
        for held in (ours, theirs):
            held.generator = made(number // 10, device)
        assert_same(g(x), fn(x, theirs), f"call {number}")
    assert g.report().replayed >= 10, g.explain()


FIXED = torch.Generator()


def is_fixed(x, held, generator):
    return x + randn(held.generator) * (2 if held.generator is FIXED else 1)


def is_fixed_turned_round(x, held, generator):
    return x + randn(held.generator) * (2 if FIXED is held.generator else 1)


def equals_fixed(x, held, generator):
    return x + randn(held.generator) * (2 if held.generator == FIXED else 1)


def looks_up_fixed(x, held, generator):
    return x + randn(held.generator) * {FIXED: 2}.get(held.generator, 1)


def is_the_argument(x, held, generator):
    return x + randn(held.generator) * (2 if held.generator is generator else 1)


def argument_is_fixed(x, held, generator):
    return x + randn(generator) * (2 if generator is FIXED else 1)


@pytest.mark.parametrize(
    "fn",
    [is_fixed, is_fixed_turned_round, equals_fixed, looks_up_fixed, is_the_argument, argument_is_fixed],
)
def test_replaced_and_compared_with_another(fn):
    """Nothing is drawn from the other one, so nothing else tells that it is the same."""
    ours, theirs = Sampler(None), Sampler(None)
    g, x = rote.graph(lambda x, generator: fn(x, ours, generator)), torch.ones(3)
    for number in range(30):
        found: list[Any] = []
        for held, call in ((ours, g), (theirs, lambda x, generator: fn(x, theirs, generator))):
            held.generator = FIXED if number % 10 > 7 else torch.Generator()
            held.generator.manual_seed(number)
            given = held.generator if number % 10 > 5 else made(number, "cpu")
            found.append((call(x, given), held.generator.get_state(), given.get_state()))
        assert_same(*found, f"call {number}")


def kept_in_an_attribute(held):
    held.last = held.generator


def kept_in_a_list(held):
    held.all.clear()
    held.all.append(held.generator)


def kept_in_a_dict(held):
    held.named["one"] = held.generator


@pytest.mark.parametrize("keep", [kept_in_an_attribute, kept_in_a_list, kept_in_a_dict])
def test_replaced_and_kept_elsewhere(keep):
    """It is what lay there before in most calls, so that nothing is seen to change."""

    def fn(x, held):
        keep(held)
        return x + randn(held.generator)

    holders = [Sampler(None), Sampler(None)]
    for held in holders:
        held.last, held.all, held.named = None, [], {}
    ours, theirs = holders
    g, x = rote.graph(lambda x: fn(x, ours)), torch.ones(3)
    for number in range(40):
        for held in holders:
            if number < 5 or number % 8 == 0:
                held.generator = made(number, "cpu")
        assert_same(g(x), fn(x, theirs), f"call {number}")
        found = [[*held.all, *held.named.values(), held.last or held.generator] for held in holders]
        assert [each is ours.generator for each in found[0]] == [
            each is theirs.generator for each in found[1]
        ]


def test_what_held_one_is_let_go():
    """Keys look at the attribute of an object and do not keep the object."""
    sampler = Sampler(None)
    g = rote.graph(lambda x, held: x + randn(held[0].generator))
    for number in range(6):
        sampler.generator = made(number, "cpu")
        g(torch.ones(3), [sampler])
    alive = weakref.ref(sampler)
    del sampler
    g(torch.ones(3), [Sampler(made(1, "cpu"))])
    gc.collect()
    assert alive() is None


# ---------------------------------------------------------------------- with the rest of the runtime


def test_checked_calls(device):
    g = play(several_draws, one(device), 16, verify=2)
    assert g.report().replayed >= 4, g.explain()


def test_a_training_step(device):
    def make():
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 3).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x, generator):
            optimizer.zero_grad()
            noise = torch.randn(x.shape, generator=generator, device=x.device)
            loss = (model(x + noise) - x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return model, step

    (ours, step), (theirs, twin) = make(), make()
    g = rote.graph(step)
    for number in range(CALLS):
        (x, first), _ = one(device)(number)
        (_, second), _ = one(device)(number)
        assert_same(g(x, first), twin(x, second), f"call {number}")
        assert_same([*ours.parameters()], [*theirs.parameters()], f"call {number}")
        assert_same(first.get_state(), second.get_state(), f"call {number}")
    assert g.report().replayed >= 6, g.explain()


def test_gradients_outside(device):
    weight = torch.ones(3, device=device, requires_grad=True)

    def run(call, number):
        (x, generator), _ = one(device)(number)
        loss = call(x, generator).sum()
        return torch.autograd.grad(loss, weight), generator.get_state()

    def fn(x, generator):
        return (weight * randn(generator) + x) * torch.rand(3, generator=generator, device=x.device)

    g = rote.graph(fn)
    for number in range(CALLS):
        assert_same(run(g, number), run(fn, number), f"call {number}")
    assert g.report().replayed >= 6, g.explain()


class Noisy(torch.autograd.Function):
    """Draws in its backward from what its forward was given."""

    @staticmethod
    def forward(ctx, x, generator):
        ctx.generator = generator
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * randn(ctx.generator), None


def test_a_backward_that_draws(device):
    def run(call, number):
        generator = made(number, device)
        x = torch.ones(3, device=device, requires_grad=True)
        call(x, generator).sum().backward()
        return x.grad, generator.get_state()

    def fn(x, generator):
        return Noisy.apply(x, generator) * torch.rand(3, generator=generator, device=x.device)

    g = rote.graph(fn)
    for number in range(CALLS):
        assert_same(run(g, number), run(fn, number), f"call {number}")


# ---------------------------------------------------------------------- all forms, at random


class World:
    """Generators with names: arguments, state, and what a program makes."""

    def __init__(self, device):
        self.device = device
        self.pool = [made(seed, device) for seed in range(3)]
        self.held, self.other = made(7, device), made(8, device)
        self.box = Sampler(self.held)
        self.kept = None

    def run(self, program, x, first, given, seed):
        own = None
        for what, which, number in program:
            if what == "make":
                own = torch.Generator(x.device).manual_seed(number)
            elif what == "make by argument":
                own = torch.Generator(x.device).manual_seed(seed + number)
            else:
                generator = self.find(which, first, given, own)
                if generator is None:
                    continue
                if what == "same":
                    x = x * 2 if generator is first else x + 1
                elif what == "keep":
                    self.kept = generator
                elif what == "ask":
                    x = x + generator.initial_seed() % 5
                elif what == "seed":
                    generator.manual_seed(number)
                elif what == "branch":
                    if (x.sum() > number).item():
                        x = x - randn(generator)
                elif what == "integers":
                    x = x + torch.randint(0, 9, (3,), generator=generator, device=x.device)
                else:
                    x = x + randn(generator) * number
        return x

    def find(self, which, first, given, own):
        if which == "held":
            return self.held
        if which == "other":
            return self.other
        if which == "box":
            return self.box.generator
        return {"first": first, "second": given["second"], "own": own}[which]

    def pick(self, choice):
        kind, number = choice
        if kind == "pool":
            return self.pool[number]
        if kind == "held":
            return self.held
        if kind == "default":
            return torch.default_generator if self.device.type == "cpu" else torch.cuda.default_generators[0]
        return made(number, self.device)

    def states(self):
        return [each.get_state() for each in (*self.pool, self.held, self.other, self.box.generator)]


def _program(draw):
    kinds = ["draw"] * 7 + ["integers", "branch", "make", "make by argument"]
    kinds += draw.sample(["seed", "same", "ask", "keep"], 1)
    names = ["first", "first", "second", "held", "held", "other", "box", "own"]
    return [(draw.choice(kinds), draw.choice(names), draw.randrange(4)) for _ in range(draw.randrange(2, 7))]


def _choice(draw):
    kind = draw.choice(["fresh"] * 7 + ["pool", "held", "default"])
    return kind, draw.randrange(3)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(40))
def test_forms_at_random(device, seed):
    draw = random.Random(seed)
    program = _program(draw)
    calm, often = draw.random() < 0.6, draw.choice([0, 0.1, 0.5, 1])
    ours, theirs = World(device), World(device)

    def fn(x, first, given, seed):
        return ours.run(program, x, first, given, seed)

    g = rote.graph(fn)
    for number in range(16):
        choices = [("fresh", number)] * 2 if calm else [_choice(draw), _choice(draw)]
        argument, shared = draw.randrange(2), draw.random() < 0.1
        replaced = [name for name in ("held", "other", "box") if draw.random() < often]
        merged = not calm and draw.random() < 0.1
        found: list[Any] = []
        for world, call in ((ours, g), (theirs, lambda *given: theirs.run(program, *given))):
            for name in replaced:
                fresh = made(number, device)
                if name == "box":
                    world.box.generator = fresh
                else:
                    setattr(world, name, fresh)
            if merged:
                world.other = world.held
            first, second = (world.pick(choice) for choice in choices)
            second = first if shared else second
            torch.manual_seed(number)
            value = call(torch.full((3,), 1.0, device=device), first, {"second": second}, argument)
            named = [first, second, world.held, world.other, world.box.generator, *world.pool]
            kept = [each is world.kept for each in named]
            found.append((value, kept, world.states(), first.get_state(), second.get_state()))
        assert_same(found[0], found[1], f"call {number} of {program}")


def test_a_copy_of_one(device):
    def fn(x, generator):
        return x + randn(copy.deepcopy(generator)) + randn(generator)

    if device.type == "cpu":
        play(fn, one(device))
