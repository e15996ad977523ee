"""Attributes that the code of a call can't have read have no part in its state; all others have."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import random
import threading

import pytest
import torch
from torch import nn

import rote

from .reading import READS, WRITES, Policy

CALLS = 3


class Robot(nn.Module):
    """The commonest program: a counter, a history and a last result beside the graphed method."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 4)
        self.n = 0
        self.history = []
        self.infer = rote.graph(self._infer)

    def _infer(self, x):
        return self.net(x).relu()

    def act(self, x):
        self.n += 1
        self.history.append(x)
        self.last_action = self.infer(x)
        return self.last_action


class PlainRobot:
    """The same, not a module; its method reads one attribute."""

    def __init__(self):
        self.n, self.scale = 0, 2.0
        self.infer = rote.graph(self._infer)

    def _infer(self, x):
        return x * self.scale

    def act(self, x):
        self.n += 1
        self.last = x
        setattr(self, f"step{self.n}", x)
        return self.infer(x)


@pytest.mark.parametrize("kind", [Robot, PlainRobot])
def test_a_counter_beside_a_method(device, kind):
    robot = kind()
    if isinstance(robot, nn.Module):
        robot.to(device)
    with torch.no_grad():
        for _ in range(10):
            x = torch.randn(2, 4, device=device)
            assert torch.equal(robot.act(x), robot._infer(x))
    assert robot.infer.report().replayed == 8


def test_what_libraries_do_on_the_way(device):
    """A cached property, an attribute of a module that is set, a dataclass, a text that is formatted."""

    @dataclasses.dataclass
    class Config:
        scale: float = 2.0

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.n, self.config, self.kept = 0, Config(), None

        @functools.cached_property
        def offset(self):
            return self.config.scale + 1

        def run(self, x):
            self.kept = None
            names = [each.name for each in dataclasses.fields(self.config)]
            text = "{0.scale}{name}".format(self.config, name="")
            return x * getattr(self.config, names[0]) + self.offset * (float(text) == self.config.scale)

    model, x = Model(), torch.randn(3, device=device)
    g = rote.graph(model.run)
    for scale in (2.0, 4.0):
        model.config.scale = scale
        for _ in range(6):
            model.n += 1
            assert torch.equal(g(x), x * scale + 3)
    assert g.report().replayed >= 6


def test_an_attribute_that_is_read_stays_under_guard(device):
    robot, x = PlainRobot(), torch.randn(3, device=device)
    for scale in (2.0, 3.0, 2.0, -0.0, 0.0):
        robot.scale = scale
        for _ in range(4):
            assert torch.equal(robot.act(x), x * scale)
    assert robot.infer.report().replayed >= 8


def test_an_attribute_that_comes_and_goes(device):
    class Lazy:
        def __init__(self):
            self.n = 0

        def run(self, x):
            return x * 2 if hasattr(self, "doubled") else x

    lazy, x = Lazy(), torch.randn(3, device=device)
    g = rote.graph(lazy.run)
    for present in (False, True, False, True):
        for _ in range(4):
            lazy.n += 1
            lazy.__dict__.pop("doubled", None)
            lazy.__dict__.pop(f"other{lazy.n - 1}", None)
            setattr(lazy, "doubled" if present else f"other{lazy.n}", 1)
            assert torch.equal(g(x), x * 2 if present else x)
    assert g.report().replayed >= 4


def _change(policy, value):
    """Change what every way reads: the attribute, wherever it is."""
    policy.hidden = value
    for part in (policy.config, policy.slotted, policy.space, policy.inner):
        part.hidden = value


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", READS)
def test_however_it_is_read_in_code_that_ran_often(device, way):
    """Python makes such code anew. What is read in a method, below, has not run before."""
    read, policy, x = READS[way], Policy(), torch.randn(3, device=device)
    for _ in range(20):
        read(policy)
    g = rote.graph(lambda x: x * read(policy), keep=True)
    for value in (1.0, 2.0, 1.0, 4.0):
        _change(policy, value)
        for _ in range(CALLS):
            policy.untouched = object()
            expected = x * read(policy)
            assert torch.equal(g(x), expected), way


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", READS)
def test_however_it_is_read_in_a_method(device, way):
    """The object is what is called, and reads its own."""

    class Own(Policy):
        def act(self, x):
            return x * READS[way](self)

    policy, x = Own(), torch.randn(3, device=device)
    g = rote.graph(policy.act, keep=True)
    for value in (1.0, 2.0, 1.0):
        _change(policy, value)
        for _ in range(CALLS):
            assert torch.equal(g(x), policy.act(x)), way


@pytest.mark.parametrize("where", ["hook", "property", "branch", "later", "argument"])
@pytest.mark.parametrize(
    "way", ["getattr", "vars", "attrgetter in a list", "namespace", "copy", "format in a global"]
)
def test_wherever_it_is_read(device, where, way):
    read, policy = READS[way], Policy()
    linear = nn.Linear(3, 3).to(device)

    class Holder:
        steps = 0

        @property
        def value(self):
            return read(policy)

    holder = Holder()
    if where == "hook":
        linear.register_forward_hook(lambda module, args, out: out * read(policy))

    def run(x, given=None):
        if where == "property":
            return linear(x) * holder.value
        if where == "branch":
            return linear(x) * (read(policy) if x.sum() > 0 else 1.0)
        if where == "later":
            return linear(x) * (read(policy) if holder.steps > 3 else 1.0)
        return linear(x) * (read(given) if given is not None else 1.0)

    g, x = rote.graph(run, keep=True), torch.randn(2, 3, device=device)
    given = (policy,) if where == "argument" else ()
    with torch.no_grad():
        for step, value in enumerate((1.0, 2.0, 1.0, 4.0, 2.0)):
            _change(policy, value)
            for sign in (1, 1, 1, -1, -1, -1):
                holder.steps = step
                policy.untouched = object()
                a = x.abs() * sign
                assert torch.equal(g(a, *given), run(a, *given)), (where, way)


@pytest.mark.parametrize("way", [way for way in READS if "swapped" in way])
def test_another_object_is_read_than_lies_there_in_the_end(device, way):
    read, policy, x = READS[way], Policy(), torch.randn(3, device=device)
    g = rote.graph(lambda x: x * read(policy), keep=True)
    for value in (1.0, 2.0, 1.0, 4.0):
        policy.config.hidden = value
        for _ in range(CALLS):
            assert torch.equal(g(x), x * value), way


def test_a_private_slot(device):
    class Slotted:
        __slots__ = ("__scale", "n")

        def set(self, scale):
            self.__scale = scale

        def run(self, x):
            return x * self.__scale

    slotted, x = Slotted(), torch.randn(3, device=device)
    g = rote.graph(slotted.run)
    for scale in (2.0, 3.0, 2.0):
        slotted.set(scale)
        for step in range(4):
            slotted.n = step
            assert torch.equal(g(x), x * scale)
    assert g.report().replayed >= 6


def test_a_slot_that_is_set_later(device):
    class Slotted:
        __slots__ = ("n", "scale")

        def run(self, x):
            return x * getattr(self, "scale", 1.0)

    slotted, x = Slotted(), torch.randn(3, device=device)
    g = rote.graph(slotted.run)
    for scale in (None, 3.0, None, 2.0):
        if scale is not None:
            slotted.scale = scale
        elif hasattr(slotted, "scale"):
            del slotted.scale
        for step in range(4):
            slotted.n = step
            assert torch.equal(g(x), x * (scale or 1.0))
    assert g.report().replayed >= 8


@pytest.mark.parametrize("way", WRITES)
def test_however_it_is_written(device, way):
    """What a call writes is done by each call, as in eager."""
    plain, policy, x = Policy(), Policy(), torch.randn(3, device=device)

    def call(p, x):
        WRITES[way](p)
        return x * 2

    g = rote.graph(lambda x: call(policy, x))
    for _ in range(6):
        assert torch.equal(g(x), call(plain, x))
        assert vars(policy).keys() == vars(plain).keys() and policy.count == plain.count, way


HOLDERS = {
    "bound append": lambda p: p.table.append,
    "bound method in a list": lambda p: [p.table.append],
    "bound method in a partial": lambda p: functools.partial(p.table.append, 1),
    "cache": lambda p: functools.lru_cache(lambda: p.table),
    "view": lambda p: memoryview(p.raw),
    "timer": lambda p: threading.Timer(1.0, p.table.append),
    "stack": lambda p: contextlib.ExitStack().enter_context(contextlib.nullcontext(p.table)) and p.table,
    "set by method": lambda p: p.members.add,
    "dict by method": lambda p: p.entries.__setitem__,
    "generator of numbers": lambda p: p.dice.random,
    "iterator": lambda p: zip(p.table),
}


def _use(kind, held, step):
    if kind == "cache":
        held().append(1)
    elif kind == "view":
        held[0] = (held[0] + 1) % 100
    elif kind == "timer":
        held.function(1)
    elif kind == "stack":
        held.append(1)
    elif kind == "bound method in a list":
        held[0](1)
    elif kind == "bound method in a partial":
        held()
    elif kind == "dict by method":
        held(len(step), 1)
    elif kind == "generator of numbers":
        held()
    elif kind == "iterator":
        next(held)
    else:
        held(len(step))


@pytest.mark.parametrize("kind", HOLDERS)
def test_what_is_changed_behind_an_attribute(device, kind):
    """A container in an attribute that the call does not name is got at by something that holds it."""

    class Owner:
        def __init__(self):
            self.table, self.raw = [0] * 3, bytearray(b"abc")
            self.members, self.entries, self.dice = {0}, {0: 0}, random.Random(3)

        def step(self, x):
            _use(kind, self.__class__.held[self.number], self.steps)
            return x * 2

    def content(owner):
        return (owner.table, bytes(owner.raw), owner.members, owner.entries, owner.dice.getstate())

    plain, owner, x = Owner(), Owner(), torch.randn(3, device=device)
    Owner.held = (HOLDERS[kind](plain), HOLDERS[kind](owner))
    plain.number, owner.number = 0, 1
    plain.steps, owner.steps = [], []
    g = rote.graph(owner.step)
    for call in range(3 if kind == "iterator" else 6):
        for each, function in ((plain, plain.step), (owner, g)):
            each.unread = call
            assert torch.equal(function(x), x * 2)
        assert content(owner) == content(plain), kind


def test_a_backward_of_ones_own(device):
    policy = Policy()

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * READS["vars"](policy)

    weight = torch.randn(3, device=device, requires_grad=True)

    def step(x):
        weight.grad = None
        (Scaled.apply(weight) * x).sum().backward()
        return weight.grad * 1

    g, x = rote.graph(step, keep=True), torch.randn(3, device=device)
    for value in (1.0, 2.0, 1.0):
        policy.hidden = value
        for _ in range(4):
            assert torch.equal(g(x), x * value)


def test_a_scheduler_whose_index_is_read(device):
    class Scheduler:
        def __init__(self):
            self.index, self.calls = 0, 0
            self.sigmas = [1.0, 0.5, 0.25]

        def step(self, sample):
            return sample * self.sigmas[self.index]

    scheduler, x = Scheduler(), torch.randn(3, device=device)
    g = rote.graph(scheduler.step)
    for _ in range(4):
        for index in range(3):
            scheduler.index = index
            scheduler.calls += 1
            assert torch.equal(g(x), x * scheduler.sigmas[index])
    assert g.report().replayed == 6


def test_a_name_that_is_computed(device):
    class Reader:
        def __init__(self):
            self.n, self.scale = 0, 2.0

        def act(self, x):
            self_ = [self][0]
            return x * getattr(self_, "".join(["sc", "ale"]))

    reader, x = Reader(), torch.randn(3, device=device)
    g = rote.graph(reader.act)
    for _ in range(4):
        reader.n += 1
        assert torch.equal(g(x), x * 2)
    assert g.report().replayed == 2


def test_an_item_of_the_namespace(device):
    class Reader:
        def __init__(self):
            self.n, self.scale = 0, 2.0

        def act(self, x):
            return x * vars(self)["".join(["sc", "ale"])]

    reader, x = Reader(), torch.randn(3, device=device)
    g = rote.graph(reader.act)
    for _ in range(4):
        reader.n += 1
        assert torch.equal(g(x), x * 2)
    assert g.report().replayed == 2


@pytest.mark.parametrize("name", ["steps", "index", "count", "total", "n", "kind", "template", "storage"])
def test_names_that_the_recorder_itself_uses(device, name):
    class Robot:
        def act(self, x):
            return x * 2

    robot, x = Robot(), torch.randn(3, device=device)
    setattr(robot, name, 0)
    g = rote.graph(robot.act)
    for _ in range(10):
        setattr(robot, name, getattr(robot, name) + 1)
        assert torch.equal(g(x), x * 2)
    assert g.report().replayed >= 6, g.report()


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False")
def test_names_that_a_capture_reads():
    class Robot:
        def __init__(self):
            self.n, self.device, self.stream, self.pool, self.gen = 0, "cuda", 1, 2, 3

        def act(self, x):
            return x * 2

    robot, x = Robot(), torch.randn(3, device="cuda")
    g = rote.graph(robot.act)
    for _ in range(10):
        robot.n += 1
        assert torch.equal(g(x), x * 2)
    assert g.report().replayed == 8
