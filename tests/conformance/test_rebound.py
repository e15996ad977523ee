"""Calls that give tensors from outside other memory: ``p.data = 0.9 * p.data + 0.1 * q.data``."""

from __future__ import annotations

import copy
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.conformance.test_exact_tier import entries
from torch import nn

import rote
from rote.testing import assert_same

CALLS = 12
PLACES = 3
"""Tensors of one program: a parameter, one that is frozen, and a plain tensor."""

LINES = (
    "p[{i}].data = p[{i}].data * 0.9 + p[{j}].data * 0.1",
    "p[{i}].data = p[{i}].data * 0.9 + x",
    "old = p[{i}].data; p[{i}].data = old * 0.5 + x",
    "old = p[{i}].data; p[{i}].data = old * 0.5; y = y + old",
    "old = p[{i}].data; p[{i}].data = x * 2; old.add_(1); y = y + old",
    "p[{i}].data = p[{j}].data",
    "p[{i}].data = p[{j}].data.clone()",
    "p[{i}].data = p[{i}].data",
    "p[{i}].data, p[{j}].data = p[{j}].data, p[{i}].data",
    "new = x * 3; p[{i}].data = new; y = y + new",
    "new = x * 3; p[{i}].data = new; new.add_(1)",
    "p[{i}].data = x * 2; p[{i}].data = p[{i}].data + 1",
    "p[{i}].data = x * 2; p[{i}].data.mul_(3)",
    "p[{i}].data = torch.cat([x, x])[:4]",
    "v = x[0] + torch.cat([each.data for each in p]); p[0].data, p[1].data, p[2].data = v.split(4)",
    "v = torch.cat([p[{j}].data, x, x]); p[0].data, p[1].data, p[2].data = v.split(4); y = y + v.sum()",
    "v = torch.cat([x, p[{j}].data]) * 0.5; p[{i}].data, p[{j}].data = v.split(4)",
    "v = torch.cat([x, x]); p[{i}].data, p[{j}].data = v[2:6], v[:4]",
    "p[{i}].data = x",
    "p[{i}].data = self.spare",
    "p[{i}].data = torch.ones(4, device=x.device)",
    "self.spare = p[{i}].data",
    "y = y + p[{i}].detach()",
    "y = y + (p[{i}] * 2).detach()",
    "y = p[{i}].data",
    "with torch.no_grad(): p[{i}].mul_(0.5)",
    "with torch.no_grad(): p[{i}].data = p[{i}] * 0.5",
    "view = p[{i}].data[:2]; p[{i}].data = x + 1; y = y + view.sum()",
    "if p[{i}].sum() > 10: p[{i}].data = x * 0.1",
    "if x.sum() > 3: y = y + 1",
    "if x.sum() > 5: self.spare = p[{i}].data",
    "if x.sum() > 5: p[{i}].data = p[{j}].data * 2",
    "if x.sum() > 7: raise ArithmeticError",
    "if self.raises: raise ArithmeticError",
)
"""What a call may do."""

BETWEEN = (
    "held.append(p[{i}].data)",
    "held.append(p[{i}].data[1:])",
    "held.append(p[{i}].untyped_storage())",
    "held.append(p[{i}].detach().cpu().numpy())",
    "held.append(torch.ones_like(p[{i}].data)); p[{i}].data = held[-1]",
    "held[:] = [p[{i}].data]",
    "held.clear()",
    "held.clear()",
    "p[{i}].data = p[{i}].data.clone()",
    "p[{i}].data = p[{j}].data",
    "p[{i}].data.add_(1)",
    "v = torch.cat([each.data for each in self.p]); p[0].data, p[1].data, p[2].data = v.split(4)",
    "held.append(torch.cat([p[{i}].data, p[{j}].data])); p[{i}].data, p[{j}].data = held[-1].split(4)",
    "held and held[-1].add_(1) if isinstance((held or [0])[-1], torch.Tensor) else None",
    "self.raises = True",
    "self.raises = False",
    "self.p[{i}] = nn.Parameter(torch.ones(4, device=p[{i}].device), requires_grad={i} == 0)",
)
"""What its caller may do between two calls."""


class Scene:
    """Tensors, a call that gives them other memory, and what its caller holds."""

    def __init__(self, device, lines, between):
        torch.manual_seed(0)
        first = [torch.randn(4, device=device) for _ in range(PLACES)]
        self.p = [nn.Parameter(first[0]), nn.Parameter(first[1], requires_grad=False), first[2]]
        self.spare = torch.zeros(4, device=device)
        self.held, self.raises, self.between = [], False, between
        body = "\n".join(["def call(x, self):", "    p, y = self.p, x", *[f"    {each}" for each in lines]])
        names = {"torch": torch}
        exec(body + "\n    return y", names)
        self.call = names["call"]

    def run(self, wrap):
        call, seen = wrap(lambda x: self.call(x, self)), []
        for number in range(CALLS):
            try:
                seen.append(call(torch.full((4,), number % 5 / 2, device=self.spare.device)))
            except ArithmeticError:
                seen.append("raised")
            look = [*self.p, self.spare, *self.held]
            kept = [each if isinstance(each, torch.Tensor) else torch.tensor(each) for each in look]
            shared = {each.data_ptr() for each in kept}
            storages = [each.untyped_storage()._cdata for each in self.p]
            seen.append(
                [[each.detach().clone() for each in kept], len(shared), [*map(storages.index, storages)]]
            )
            for line in self.between.get(number, ()):
                exec(line, {"p": self.p, "held": self.held, "self": self, "torch": torch, "nn": nn})
        return seen


def played(device, lines, between=None):
    """Plainly, and graphed; how many calls were replayed."""
    graphs = []

    def wrap(function):
        graphs.append(rote.graph(function, keep=True))
        return graphs[0]

    plain = Scene(device, lines, between or {}).run(lambda function: function)
    assert_same(Scene(device, lines, between or {}).run(wrap), plain)
    return graphs[0].report().replayed


def filled(lines):
    places = st.integers(0, PLACES - 1)
    return st.builds(lambda line, i, j: line.format(i=i, j=j), st.sampled_from(lines), places, places)


MEANWHILE = st.dictionaries(
    st.integers(2, CALLS - 2), st.lists(filled(BETWEEN), min_size=1, max_size=2), max_size=4
)
"""What happens behind some of the calls."""


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    lines=st.lists(filled(LINES), min_size=1, max_size=4),
    between=MEANWHILE,
)
def test_nobody_can_tell(device, lines, between):
    played(device, lines, between)


def comparing(graphs, function):
    """A graphed callable whose replays are compared with plain calls again and again."""
    g = rote.graph(function)
    graphs.append(g)

    def call(*args):
        for entry in entries(g):
            for recording in entry.recordings:
                if recording.recorded:
                    recording.compare_at(0)
        return g(*args)

    return call


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    lines=st.lists(filled(LINES), min_size=1, max_size=3),
    between=MEANWHILE,
)
def test_nobody_can_tell_which_calls_are_compared(device, lines, between):
    plain = Scene(device, lines, between).run(lambda function: function)
    assert_same(Scene(device, lines, between).run(partial(comparing, [])), plain)


def test_calls_that_are_compared_leave_tensors_where_they_lay(device):
    graphs = []
    plain = Averaged(device, assigned).run(lambda function: function)
    assert_same(Averaged(device, assigned).run(partial(comparing, graphs)), plain)
    report = graphs[0].report()
    assert report.recorded == 1 and "RT308" in graphs[0].explain(), graphs[0].explain()


ALONE = (
    "v = torch.cat([each.data * 0.5 + x for each in p]); p[0].data, p[1].data, p[2].data = v.split(4)",
    "v = torch.cat([x, p[{j}].data]) * 0.5; p[{i}].data, p[{j}].data = v.split(4)",
    "p[{i}].data = p[{i}].data * 0.9 + p[{j}].data * 0.1",
    "old = p[{i}].data; p[{i}].data = old * 0.5 + x",
    "p[{i}].data = x * 2; p[{i}].data = p[{i}].data + 1",
    "with torch.no_grad(): p[{i}].data = p[{i}] * 0.5",
)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("line", ALONE)
@pytest.mark.parametrize("place", range(PLACES))
def test_what_nobody_else_holds_is_replayed(device, line, place):
    assert played(device, [line.format(i=place, j=(place + 1) % PLACES)]) > CALLS // 2


class Averaged:
    """A network that learns from a slow copy of itself."""

    def __init__(self, device, write):
        torch.manual_seed(0)
        self.online = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to(device)
        self.target = copy.deepcopy(self.online)
        self.optimizer = torch.optim.SGD(self.online.parameters(), 0.1)
        self.write, self.held = write, None

    def step(self, x):
        with torch.no_grad():
            aim = self.target(x)
        loss = (self.online(x) - aim).square().mean() + self.online(x).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.write(self)
        return loss.detach()

    def run(self, wrap, between=lambda scene, number: None):
        step, seen = wrap(self.step), []
        for number in range(30):
            x = torch.full((2, 3), number / 7, device=self.online[0].weight.device)
            seen.append(step(x))
            both = [*self.online.parameters(), *self.target.parameters()]
            seen.append([each.detach().clone() for each in both])
            seen.append([each._version for each in self.target.parameters()])
            between(self, number)
            seen.append(None if self.held is None else [each.clone() for each in self.held])
        return seen


def assigned(scene):
    for online, target in zip(scene.online.parameters(), scene.target.parameters(), strict=True):
        target.data = 0.9 * target.data + 0.1 * online.data


def averaged(scene):
    def average(old, new):
        return new if old is None else old * 0.9 + 0.1 * new

    for online, target in zip(scene.online.parameters(), scene.target.parameters(), strict=True):
        old, new = target.data, online.data
        target.data = average(old, new)


def descends(scene):
    for each in scene.online.parameters():
        each.data = each.data - 0.1 * each.grad


def keeps_the_best(scene, number):
    if number % 9 == 4:
        scene.held = [each.detach() for each in scene.target.parameters()]
    if number % 9 == 8:
        scene.held = None


def loads(scene, number):
    if number % 11 == 5:
        scene.target.load_state_dict(scene.online.state_dict())


@pytest.mark.sampled(1)
@pytest.mark.parametrize("write", [assigned, averaged, descends])
@pytest.mark.parametrize("between", [None, keeps_the_best, loads])
def test_a_slow_copy_is_replayed(device, write, between):
    graphs = []

    def wrap(function):
        graphs.append(rote.graph(function, keep=True))
        return graphs[0]

    ways = [between] if between is not None else []
    plain = Averaged(device, write).run(lambda function: function, *ways)
    assert_same(Averaged(device, write).run(wrap, *ways), plain)
    assert graphs[0].report().replayed > (25 if between is None else 12)


@pytest.mark.parametrize("write", [assigned, averaged])
def test_another_callable_reads_the_slow_copy(device, write):
    """Recordings do not own the memory of what lies outside."""
    plain, graphed = Averaged(device, write), Averaged(device, write)
    step = rote.graph(graphed.step, keep=True)
    ask = rote.graph(torch.no_grad()(lambda x: graphed.target(x)), keep=True)
    for number in range(30):
        x = torch.full((2, 3), number / 7, device=device)
        assert_same(step(x), plain.step(x))
        with torch.no_grad():
            assert_same(ask(x), plain.target(x))
    assert step.report().replayed > 20 and ask.report().replayed > 20


def reads_members(scene, x):
    return sum(scene.listed, x)


def reads_item(scene, x):
    return x + scene.named["q"].sum()


def reads_attribute(scene, x):
    return x + scene.owner.q.detach()


def clears_gradients(scene, x):
    scene.optimizer.zero_grad()
    return x


class Listed:
    """A tensor that gets other memory, and is read by another way behind that."""

    def __init__(self, device, read):
        self.q = nn.Parameter(torch.ones(4, device=device), requires_grad=False)
        self.p = nn.Parameter(torch.full((4,), 2.0, device=device))
        self.listed, self.named, self.owner = [self.q], {"q": self.q}, SimpleNamespace(q=self.q)
        self.optimizer = torch.optim.SGD([self.p, self.q], 0.1)
        self.read = read

    @torch.no_grad()
    def step(self, x):
        self.q.data = self.q.data * 0.9 + self.p.data * 0.1
        return self.read(self, x)


@pytest.mark.parametrize("read", [reads_members, reads_item, reads_attribute, clears_gradients])
def test_what_gets_other_memory_is_read_by_another_way_behind_that(device, read):
    plain, graphed = Listed(device, read), Listed(device, read)
    step = rote.graph(graphed.step, keep=True)
    for number in range(24):
        if number == 14:
            for each in (plain, graphed):
                each.listed[-1] = each.named["q"] = each.owner.q = each.q.detach() * 3
        if number == 18:
            for each in (plain, graphed):
                each.q.data = each.q.data * 2
        x = torch.full((4,), number / 7, device=device)
        assert_same(step(x), plain.step(x))
        assert_same(graphed.q, plain.q)
    assert step.report().replayed > 10, step.explain()
