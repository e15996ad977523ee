"""What a call keeps outside of itself: containers and objects it has made, arguments, members of lists."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, deque
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import rote

CALLS = 9
WARM = 3


class Box:
    def __init__(self, **given: Any):
        self.__dict__.update(given)


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class State:
    x: torch.Tensor
    scale: float = 2.0


class Model:
    """Keeps something; ``kept`` is what it has."""

    def __init__(self):
        self.kept: Any = None
        self.other: Any = None
        self.list: list[Any] = [None, 0]
        self.growing: list[Any] = []
        self.short: Any = deque(maxlen=3)


def fresh_list(m, x):
    m.kept = []
    for n in range(3):
        x = x + n
        m.kept.append(x)
    return x


def fresh_dict(m, x):
    m.kept = {"y": x * 2, "n": 1}
    m.kept["z"] = m.kept["y"] + 1
    return x + 1


def fresh_ordered(m, x):
    m.kept = OrderedDict(b=x * 2, a=(x, "text"))
    return x + 1


def fresh_object(m, x):
    m.kept = Box(y=x * 2, inner=SimpleNamespace(z=x + 1), n=None)
    return x + 1


def fresh_dataclass(m, x):
    m.kept = State(x * 2)
    return m.kept.x + 1


def fresh_pair(m, x):
    m.kept = Pair(x * 2, [x + 1])
    return x + 1


def nested(m, x):
    m.kept = {"list": [x * 2, {"deep": x + 1}], "pair": (x, [1, 2])}
    return x + 1


def kept_and_returned(m, x):
    """One list, in two places and in the result."""
    states = [x * 2, x + 1]
    m.kept, m.other = states, {"states": states}
    return {"out": x + 3, "states": states}


def kept_object_and_returned(m, x):
    box = Box(y=x * 2)
    m.kept, m.other = box, [box]
    return box


def a_member(m, x):
    m.list[-1] = y = x * 2
    m.list[0] = {"y": y}
    return y


def grows(m, x):
    m.growing.append(x * 2)
    return x + 1


def grows_by_what_it_returns(m, x):
    y = x * 2
    m.growing.append(y)
    m.growing.append({"y": y, "x": x})
    return y


def extends(m, x):
    m.growing.extend([x, x * 2])
    m.growing.extend((1, "text"))
    return x + 1


def extends_in_place(m, x):
    m.growing += [x, x * 2]
    m.growing.append(3)
    m.growing += (1, "text")
    return x


def extends_in_place_by_rows(m, x):
    m.short += torch.stack([x, x + 1])
    grown = m.growing
    grown += [len("text")]
    return x


def extends_by_rows(m, x):
    m.short.extend(torch.stack([x, x + 1]))
    return x + 1


def short(m, x):
    m.short.append(x * 2)
    return x + 1


def short_by_more_than_it_holds(m, x):
    for n in range(5):
        m.short.append(x * n)
    return x + 1


def appends_an_argument(m, x):
    m.growing.append(x)
    return x + 1


PROGRAMS = [
    fresh_list, fresh_dict, fresh_ordered, fresh_object, fresh_dataclass, fresh_pair, nested,
    kept_and_returned, kept_object_and_returned, a_member, grows, grows_by_what_it_returns, extends,
    extends_in_place, extends_in_place_by_rows, extends_by_rows, short, short_by_more_than_it_holds,
    appends_an_argument,
]  # fmt: skip
GROWING = [
    grows, grows_by_what_it_returns, extends, extends_in_place, extends_in_place_by_rows, extends_by_rows,
    short, short_by_more_than_it_holds,
]  # fmt: skip


def flat(value: Any, found: list[Any], seen: dict[int, int]) -> list[Any]:
    """All that something holds, with a number for each object that is there twice."""
    if isinstance(value, torch.Tensor):
        found += [("tensor", seen.setdefault(id(value), len(seen))), value]
        return found
    if isinstance(value, (str, int, float, type(None))):
        found.append(value)
        return found
    found.append((type(value), seen.setdefault(id(value), len(seen)) if type(value) is not tuple else 0))
    inner = value if isinstance(value, (list, tuple, deque, dict)) else vars(value)
    for each in [*inner.items()] if isinstance(inner, dict) else inner:
        flat(each, found, seen)
    return found


def assert_alike(ours: Any, theirs: Any) -> None:
    mine, other = flat(ours, [], {}), flat(theirs, [], {})
    assert len(mine) == len(other)
    for one, two in zip(mine, other, strict=True):
        if isinstance(two, torch.Tensor):
            assert torch.equal(one, two) and one.requires_grad == two.requires_grad
            assert one.stride() == two.stride() and one.is_inference() == two.is_inference()
        else:
            assert one == two


def inputs(device: Any, count: int = CALLS) -> list[torch.Tensor]:
    return [torch.arange(4.0, device=device) + n for n in range(count)]


def play(program: Any, device: Any, count: int = CALLS, **options: Any) -> Any:
    """Calls side by side, each with a state of its own; all that is left is compared after each."""
    ours, theirs = Model(), Model()
    g = rote.graph(lambda x: program(ours, x), **options)
    for x in inputs(device, count):
        out, wanted = g(x), program(theirs, x)
        assert_alike([out, vars(ours), x], [wanted, vars(theirs), x])
    return g


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_replay_keeps_what_the_call_keeps(device, program):
    g = play(program, device)
    assert g.report().replayed >= CALLS - WARM, g.explain()


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_check_knows_it(device, program):
    g = play(program, device, verify=2)
    assert g.report().verified >= 2, g.explain()


@pytest.mark.parametrize("program", [fresh_dict, kept_and_returned, a_member, *GROWING])
def test_with_gradients(device, program):
    ours, theirs = Model(), Model()
    torch.manual_seed(0)
    layer = nn.Linear(4, 4).to(device)
    g = rote.graph(lambda x: program(ours, layer(x)))
    for x in inputs(device):
        out, wanted = g(x), program(theirs, layer(x))
        assert_alike([out, vars(ours)], [wanted, vars(theirs)])
        found = []
        for result, model in ((out, ours), (wanted, theirs)):
            parts = flat([result, model.kept, model.growing[-2:], [*model.short][-1:], model.list], [], {})
            losses = [each.sum() for each in parts if isinstance(each, torch.Tensor) and each.requires_grad]
            found.append(torch.autograd.grad(sum(losses), list(layer.parameters())))
            for kept in (model.growing, model.short):
                kept.clear()
        assert all(map(torch.equal, *found))
    assert program in GROWING or g.report().replayed >= CALLS - WARM, g.explain()


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_kept_stays_what_it_was(device, program):
    m, held = Model(), []
    g = rote.graph(lambda x: program(m, x))
    for x in inputs(device):
        out = g(x)
        parts = flat([out, m.kept, m.growing, [*m.short]], [], {})
        held += [(each, each.clone()) for each in parts if isinstance(each, torch.Tensor)]
    assert all([torch.equal(now, then) for now, then in held])


@pytest.mark.parametrize("program", [fresh_dict, grows, short])
def test_a_host_read_in_the_middle(device, program):
    """Two ways through the recording, and Python that takes over in between."""

    def branched(m, x):
        program(m, x)
        if x.sum() > 20:
            return program(m, x * 3)
        return x * 2

    g = play(branched, device, 16)
    assert g.report().replayed >= 8, g.explain()


@pytest.mark.parametrize("program", [fresh_dict, grows, short, extends])
def test_an_exception_afterwards(device, program):
    def raising(m, x):
        out = program(m, x)
        if x.sum() > 20:
            raise ValueError("too large")
        return out

    ours, theirs = Model(), Model()
    g = rote.graph(lambda x: raising(ours, x))
    for n, x in enumerate(inputs(device, 14)):
        x = x if n % 5 == 4 else x * 0 + n / 10
        for fn, m in ((g, ours), (lambda x: raising(theirs, x), theirs)):
            try:
                fn(x)
            except ValueError:
                m.other = "raised"
        assert_alike(vars(ours), vars(theirs))
    assert g.report().replayed >= 5, g.explain()


# ---------------------------------------------------------------------- the same object, twice


def test_the_argument_itself(device):
    """What is kept is the argument of that very call."""
    m = Model()

    def fn(batch):
        m.kept = batch
        m.growing.append(batch)
        return batch["x"] * 2

    g = rote.graph(fn)
    for x in inputs(device):
        batch = {"x": x}
        assert torch.equal(g(batch), x * 2)
        assert m.kept is batch and m.growing[-1] is batch
    assert len(m.growing) == CALLS
    assert g.report().replayed >= CALLS - WARM, g.explain()


def test_an_object_among_the_arguments(device):
    m = Model()

    def fn(box):
        m.kept = {"box": box}
        return box.x * 2

    g = rote.graph(fn)
    for x in inputs(device):
        box = Box(x=x)
        assert torch.equal(g(box), x * 2)
        assert m.kept["box"] is box
    assert g.report().replayed >= CALLS - 5, g.explain()


def test_a_view_of_an_argument(device):
    def fn(m, x):
        m.kept = [x[1:], x]
        m.growing.append(x[:2])
        return x + 1

    ours, theirs = Model(), Model()
    g = rote.graph(lambda x: fn(ours, x))
    for x in inputs(device):
        g(x)
        fn(theirs, x)
        assert_alike(vars(ours), vars(theirs))
        assert ours.kept[1] is x and ours.kept[0].data_ptr() == x[1:].data_ptr()
        assert ours.growing[-1].data_ptr() == x.data_ptr()
    assert g.report().replayed >= CALLS - 5, g.explain()


def test_what_a_call_puts_into_its_argument(device):
    """As transformers' ``batch.to(device)`` does."""

    def fn(box):
        box.data = {key: value * 2 for key, value in box.data.items()}
        box.extra = [box.data["x"]]
        return box

    g = rote.graph(fn)
    for x in inputs(device):
        ours, theirs = Box(data={"x": x}), Box(data={"x": x})
        assert g(ours) is ours
        assert_alike(ours, fn(theirs))
    assert g.report().replayed >= CALLS - 5, g.explain()


# ---------------------------------------------------------------------- what is none of these


def test_what_is_read_goes_on_from_call_to_call(device):
    """Each reads what an earlier call has left."""

    def shifted(m, x):
        m.short.append(x * 2)
        return torch.stack(list(m.short)).sum(0)

    def counted(m, x):
        m.growing.append(x)
        return x * len(m.growing)

    def last(m, x):
        m.list[-1] = y = m.list[-1] + x
        return y

    def taken(m, x):
        m.short.append(x)
        return m.short[0]

    def joined(m, x):
        m.kept = [*(m.kept or ())[-1:], x * 2]
        return m.kept[0] + 1

    for program in (shifted, counted, taken, last, joined):
        g = play(program, device, 12)
        assert g.report().replayed >= 4, g.explain()


def test_read_first_and_added_to_afterwards(device):
    def fn(m, x):
        if len(m.short) == 3:
            x = x * 2
        m.short.append(x)
        return x + 1

    g = play(fn, device, 16)
    assert g.report().replayed >= 8, g.explain()


def test_a_list_of_somebody_else(device):
    """A container that was there before is not made again by a replay."""
    m, n, shared = Model(), Model(), [1, 2]
    m.other = n.other = shared

    def fn(m, x):
        m.kept = {"shared": m.other}
        return x + 1

    g = rote.graph(lambda x: fn(m, x))
    for x in inputs(device):
        g(x)
        assert m.kept["shared"] is shared


def test_one_list_behind_two_names(device):
    def fn(m, x):
        m.growing.append(x * 2)
        m.kept.append(x + 1)
        return x

    ours, theirs = Model(), Model()
    ours.kept, theirs.kept = ours.growing, theirs.growing
    g = rote.graph(lambda x: fn(ours, x))
    for x in inputs(device):
        g(x)
        fn(theirs, x)
        assert_alike(vars(ours), vars(theirs))


def test_the_caller_changes_it_in_between(device):
    """Another list, one that was cleared, one that is shorter, another limit."""

    def fn(m, x):
        m.growing.append(x * 2)
        m.short.append(x)
        m.list[-1] = x + 1
        return x

    ours, theirs = Model(), Model()
    g = rote.graph(lambda x: fn(ours, x))
    for n, x in enumerate(inputs(device, 24)):
        for m in (ours, theirs):
            if n == 8:
                m.growing = []
            if n == 11:
                m.growing.clear()
            if n == 14:
                m.short = deque(maxlen=2)
            if n == 17:
                m.list.append(7)
            if n == 20:
                m.list[:] = [0]
        g(x)
        fn(theirs, x)
        assert_alike(vars(ours), vars(theirs))
    assert g.report().replayed >= 8, g.explain()


def test_what_is_added_and_taken_away_again(device):
    """A stack of things that are being done."""

    def fn(m, x):
        m.growing.append("inside")
        y = x * len(m.growing)
        m.growing.pop()
        return y

    ours, theirs = Model(), Model()
    g = rote.graph(lambda x: fn(ours, x))
    for n, x in enumerate(inputs(device, 16)):
        if n == 8:
            ours.growing.append("around")
            theirs.growing.append("around")
        assert torch.equal(g(x), fn(theirs, x))
        assert_alike(vars(ours), vars(theirs))
    assert g.report().replayed >= 8, g.explain()


def test_a_full_deque_of_plain_values(device):
    """It looks the same before and after a call, as long as nobody changes it."""

    def fn(m, x):
        m.short.append(1)
        return x * sum(m.short)

    ours, theirs = Model(), Model()
    g = rote.graph(lambda x: fn(ours, x))
    for n, x in enumerate(inputs(device, 20)):
        if n == 12:
            ours.short[1] = theirs.short[1] = 5
        assert torch.equal(g(x), fn(theirs, x))
        assert_alike(vars(ours), vars(theirs))


def test_a_loss_that_is_walked_back_inside(device):
    """A training loop's own history."""
    torch.manual_seed(0)
    layers = [nn.Linear(4, 2).to(device) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    history: list[list[Any]] = [[], []]

    def step(number, x):
        layer = layers[number]
        loss = layer(x).square().mean()
        loss.backward()
        with torch.no_grad():
            for p in layer.parameters():
                p -= 0.1 * p.grad
                p.grad = None
        history[number].append(loss.detach())
        return loss

    g = rote.graph(lambda x: step(0, x))
    for x in inputs(device):
        assert torch.equal(g(x), step(1, x))
        assert_alike(*history)
        assert not history[0][-1].requires_grad
    assert g.report().replayed >= CALLS - 5, g.explain()


@pytest.mark.parametrize("several", [1, 4])
def test_results_with_gradients_are_collected(device, several):
    """What a few calls have added is walked back together, as in methods of policy gradients."""
    torch.manual_seed(0)
    layers = [nn.Linear(4, 2).to(device) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    saved: list[list[Any]] = [[], []]

    def act(number, x):
        scores = layers[number](x).log_softmax(-1)
        saved[number].append((scores.amax(-1), scores.sum(-1)))
        return scores.detach()

    g = rote.graph(lambda x: act(0, x), keep=True)
    for count, x in enumerate(inputs(device)):
        assert torch.equal(g(x), act(1, x))
        assert_alike(*[[part.detach() for pair in each for part in pair] for each in saved])
        if count % several == several - 1:
            for number, layer in enumerate(layers):
                assert all(part.requires_grad for pair in saved[number] for part in pair)
                torch.stack([first * second for first, second in saved[number]]).sum().backward()
                del saved[number][:]
                with torch.no_grad():
                    for p in layer.parameters():
                        p -= 0.1 * p.grad
                        p.grad = None
            assert_alike(*[[p.detach() for p in each.parameters()] for each in layers])
    assert g.report().replayed, g.explain()


def test_a_kernel_that_appends_does_so_once(device):
    """Where a replay runs the kernel, it is the kernel that appends."""
    seen = []
    with torch.library._scoped_library("kept_outside", "FRAGMENT") as library:
        library.define("noted(Tensor x) -> Tensor")
        library.impl("noted", lambda x: (seen.append(1), x * 2)[1], "CompositeExplicitAutograd")
        g = rote.graph(lambda x: torch.ops.kept_outside.noted(x))
        for n in range(8):
            x = torch.full((3,), float(n), device=device)
            assert torch.equal(g(x), x * 2)
            assert len(seen) == n + 1
