"""A value leads nowhere recorded, and state that no earlier call read shares memory with an argument."""

from __future__ import annotations

import contextvars
import functools
import sys
import threading
import types
import weakref
from collections import OrderedDict, deque

import pytest
import torch

import rote
from rote.runtime.conditions import reached

CALLS = 6
VARIABLE = contextvars.ContextVar("VARIABLE")
LOCAL = threading.local()
GLOBAL = None
LISTED = [None]


class Slotted:
    __slots__ = ("held",)


class Owner:
    held = None

    def method(self):
        return self.held


class Meta(type):
    held = None


class Made(metaclass=Meta):
    pass


def _module():
    module = types.ModuleType("rote_test_reached")
    module.held = None
    sys.modules[module.__name__] = module
    return module


def in_global():
    def put(value):
        global GLOBAL
        GLOBAL = value

    return put, lambda: GLOBAL


def in_list():
    return functools.partial(LISTED.__setitem__, 0), lambda: LISTED[0]


def in_cell():
    held = None

    def put(value):
        nonlocal held
        held = value

    return put, lambda: held


def in_default():
    def take(held=[None]):  # noqa: B006
        return held[0]

    return lambda value: take.__defaults__[0].__setitem__(0, value), take


def in_attribute_of_function():
    def take():
        return take.held

    return functools.partial(setattr, take, "held"), take


def in_slot():
    owner = Slotted()
    return functools.partial(setattr, owner, "held"), lambda: owner.held


def in_instance():
    owner = Owner()
    return functools.partial(setattr, owner, "held"), owner.method


def in_class():
    return functools.partial(setattr, Owner, "held"), lambda: Owner.held


def in_metaclass():
    return functools.partial(setattr, Meta, "held"), lambda: Made.held


def in_module():
    module = _module()
    return functools.partial(setattr, module, "held"), lambda: module.held


def in_variable():
    return VARIABLE.set, VARIABLE.get


def in_thread_local():
    return functools.partial(setattr, LOCAL, "held"), lambda: LOCAL.held


def in_deque():
    held = deque([None])
    return functools.partial(held.__setitem__, 0), lambda: held[0]


def in_ordered_dict():
    held = OrderedDict(a=None)
    return functools.partial(held.__setitem__, "a"), lambda: held["a"]


def in_partial():
    holder = [None]
    take = functools.partial(lambda holder: holder[0], holder)
    return functools.partial(holder.__setitem__, 0), take


def in_buffer():
    layer = torch.nn.Module()
    layer.register_buffer("held", None)
    return functools.partial(setattr, layer, "held"), lambda: layer.held


def on_a_tensor():
    carrier = torch.zeros(1)
    return functools.partial(setattr, carrier, "held"), lambda: carrier.held


def behind_a_weak_reference():
    owner = Owner()
    reference = weakref.ref(owner)
    return functools.partial(setattr, owner, "held"), lambda: reference().held


PLACES = [value for name, value in list(globals().items()) if name.startswith(("in_", "on_", "behind_"))]


@pytest.mark.parametrize("place", PLACES)
def test_it_is_noticed_before_the_call_goes_on_with_copies(device, place):
    put, take = place()

    def call(x, kind):
        if bool(kind > 0):
            x.add_(1)
            return take() * 2
        return x * 3

    graphed = rote.graph(call)
    found = []
    for function in (call, graphed):
        results = []
        for number in range(CALLS):
            put(torch.ones(4, device=device))
            x = torch.full((4,), float(number), device=device)
            results.append(function(x, torch.tensor(-1.0, device=device)).tolist())
        for _ in range(3):
            x = torch.zeros(4, device=device)
            put(x.view(2, 2))
            results.append((function(x, torch.tensor(1.0, device=device)).tolist(), x.tolist()))
        put(None)
        found.append(results)
    assert found[0] == found[1]
    assert graphed.report().replayed


def test_another_object_where_the_one_lay_that_is_gone(device):
    """A tensor with the identity and the address of one that shared its argument's memory."""
    held, memory = [None], torch.zeros(4, device=device)

    def call(x, kind):
        if bool(kind > 0):
            x.add_(1)
            return held[0] * 2
        return x * 3

    graphed, spare = rote.graph(call), []
    for number in range(CALLS):
        held[0] = torch.ones(4, device=device)
        assert graphed(memory, torch.tensor(-1.0, device=device)).tolist() == [0.0] * 4, number
    address = None
    for _ in range(4):
        x = memory.zero_().as_subclass(torch.Tensor)
        for _ in range(10000):
            held[0] = x.view(2, 2)
            if address in (None, id(held[0])):
                break
            spare[:] = [torch.zeros(0) for _ in range(len(spare) % 7 + 1)]
        address = id(held[0])
        assert graphed(x, torch.tensor(1.0, device=device)).tolist() == [[2.0, 2.0]] * 2


LAST = None


def _shaped(x, w):
    rows = x[x[:, 0] > 0]
    if len(rows) > 2:
        rows = rows + 1
        x.add_(1)
        return rows.sum() + LAST.sum()  # what no call before has read
    return getattr(rows, "T") @ w.new_ones(len(rows))  # noqa: B009


def _number(x, w):
    y = x @ w
    if y.sum().sign().item() > 0:
        x.mul_(2)
        return (LAST * y.sum()).relu(), y
    return y, getattr(x, "shape")  # noqa: B009


def _ways(x, w):
    if bool(x.sum() > 0):
        x.add_(1)
        if bool(LAST.sum() > 100):
            return LAST * 2
        return LAST - w.sum()
    return x + 1


def _told(called):
    """What a report says of calls; each of them replays, is recorded, or has a reason."""
    report = called.report() if isinstance(called, rote.Graphed) else None
    return report and (report.replayed, report.recorded, sum(each.count for each in report.reasons))


@pytest.mark.parametrize("function", [_shaped, _number, _ways])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_arguments_that_are_variables_of_the_module(device, function, grad, seed):
    """As in a script: code that looks anything up by its name may come to each argument by another way."""
    global LAST
    generator, seen = torch.Generator().manual_seed(seed), []
    inputs = [(torch.randn(4, 3, generator=generator) - 0.7 + (n % 5 == 4)).to(device) for n in range(40)]
    for graphs in (False, True):
        called, found = rote.graph(function, keep=True) if graphs else function, []
        w = torch.ones(3, 2, device=device, requires_grad=grad)
        for number, each in enumerate(inputs):
            LAST, told = each.clone(), _told(called)
            with torch.set_grad_enabled(grad):
                out = called(LAST, w)
            assert not graphs or not number or _told(called) != told, number
            parts = out if isinstance(out, tuple) else (out,)
            flat = [part.tolist() for part in parts if isinstance(part, torch.Tensor)]
            found.append([flat, LAST.tolist()])
        seen.append(found)
    LAST = None
    assert seen[0] == seen[1]
    report = called.report()
    assert grad or function is _number or report.replayed >= 4, called.explain()


@pytest.mark.parametrize("grad", [False, True])
def test_an_argument_that_the_module_holds_is_recorded_once(device, grad):
    """No call reads it there, though code that looks up anything by name might."""
    global LAST
    w = torch.ones(3, 2, device=device, requires_grad=grad)

    def function(x, scale):
        y = x @ w * getattr(scale, "by", 1.0)
        return y * 2 if (y.sum() > 1e9).item() else y + 1

    graphed, scale, held = rote.graph(function), types.SimpleNamespace(by=2.0), []
    for _ in range(20):
        LAST = torch.randn(4, 3, device=device)
        held.append(LAST)
        with torch.set_grad_enabled(grad):
            assert torch.equal(graphed(LAST, scale), function(LAST, scale))
    LAST = None
    assert graphed.report().replayed == 18, graphed.explain()


def test_what_moves_is_told(device):
    """A recording that is bound to the memory of its argument does not answer for another one."""
    owner = Owner()

    def function(x):
        x.add_(owner.held.sum() * 0)
        return x * 2

    graphed = rote.graph(function)
    for number in range(8):
        owner.held = torch.ones(4, device=device) if number < 4 else owner.held
        x = owner.held if number % 4 else torch.ones(4, device=device)
        assert graphed(x).tolist() == [2.0] * 4
    assert sum(each.count for each in graphed.report().reasons) >= 3


def test_a_loader_is_no_state():
    """That of pytest leads to every test of the process."""
    module, loader, held = types.ModuleType("made_here"), Owner(), Owner()
    module.__loader__, module.held = loader, held
    exec("def function(): return getattr(held, 'held')", vars(module))
    for root in (module, module.function):
        found = list(reached([root]))
        assert any(each is held for each in found) and not any(each is loader for each in found)


def test_what_no_call_has_read_is_used_where_it_lies(device):
    """Python runs once more before it is recorded, and may come to what shares memory with the argument."""
    owner, x = Owner(), torch.zeros(3, device=device)
    owner.held = x

    def call(x):
        x.add_(1)
        return owner.held if x.numel() > 100 else x * 2

    graphed = rote.graph(call)
    for number in range(CALLS):
        assert graphed(x).tolist() == [2.0 * (number + 1)] * 3
    assert graphed.report().replayed == CALLS - 2
    other = torch.zeros(3, device=device)
    for number in range(4):
        assert graphed(other).tolist() == [2.0 * (number + 1)] * 3
    assert graphed(x).tolist() == [2.0 * (CALLS + 1)] * 3


STEPS = {
    "not read": lambda data, x, model: model(x),
    "read": lambda data, x, model: model(x) + data.x.sum(),
    "written": lambda data, x, model: model(x.mul_(0.9)),
    "written behind it": lambda data, x, model: model(data.x.mul_(0.9)[: len(x)] + x),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", STEPS)
@pytest.mark.parametrize("batches", ["whole", "slices", "rebound", "freed", "other memory"])
def test_training_on_data_that_the_step_can_reach(device, how, batches):
    """A step whose argument is a part of what its closure holds: its own results require no gradients."""
    seen = []
    for graphs in (False, True):
        torch.manual_seed(0)
        data = Owner()
        data.x, data.y = torch.randn(8, 4, device=device), torch.randn(8, 2, device=device)
        model = torch.nn.Linear(4, 2).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x, y, data=data, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = (STEPS[how](data, x, model) - y).square().mean() + 0 * data.y.sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        function = rote.graph(step) if graphs else step
        found = []
        for number in range(12):
            if batches == "rebound" and number == 6:
                data.x = data.x * 2
            if batches == "other memory" and number == 6:
                data.x.data = data.x * 2
            if batches != "freed" or number < 6:
                x = data.x[number % 2 * 4 :][:4] if batches == "slices" else data.x
            if batches == "freed" and number == 6 and how in ("not read", "written"):
                data.x = None
            y = data.y[: len(x)].clone()
            found.append([function(x, y).tolist(), x.tolist(), model.weight.tolist()])
        seen.append(found)
    assert seen[0] == seen[1]
    replayed = function.report().replayed
    assert replayed >= (8 if batches == "whole" else 2), function.explain()


@pytest.mark.parametrize("where", ["result", "attribute"])
def test_what_leaves_a_history_is_not_recorded_on_state(device, reason, where):
    owner = Owner()
    owner.held = torch.ones(4, device=device)
    weight, count = torch.ones(4, device=device, requires_grad=True), torch.zeros((), device=device)

    def call(x):
        count.add_(1)
        y = (x * weight).sum() + 0 * owner.held.sum()
        owner.last = y if where == "attribute" else None
        return y if where == "result" else y.detach()

    graphed = rote.graph(call)
    for number in range(8):
        found = graphed(owner.held)
        (found if where == "result" else owner.last).backward()
        assert weight.grad.tolist() == [1.0] * 4 and float(count) == number + 1
        weight.grad, owner.last = None, None
        owner.held.copy_(torch.ones(4))
    assert not graphed.report().replayed
