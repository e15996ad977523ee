"""The self-check: silent while replays are right, and exact about what is wrong and where."""

from __future__ import annotations

import random
import re
import threading
from _queue import SimpleQueue
from threading import Thread

import numpy
import pytest
import torch
import torch.nn.functional as F
from tests.hidden import queued
from torch import nn
from torch.autograd import grad_mode

import rote
from rote import InternalError, VerificationError
from rote.runtime.backends.host.session import HostSession
from rote.testing import assert_same, compare

WARM = rote.Options().warmup + 1
CALLS = 10


@pytest.fixture
def make():
    """Wraps callables with a check of every replay, and frees them."""
    made = []

    def graph(fn, **options):
        made.append(rote.graph(fn, verify=1, **options))
        return made[-1]

    yield graph
    for found in made:
        found.reset()


def batch(device, *shape, count=CALLS):
    return [(torch.randn(*shape, device=device),) for _ in range(count)]


def failing(graphed, calls):
    """The error of the first check that fails."""
    with pytest.raises(VerificationError) as caught:
        for args in calls:
            graphed(*args)
    return caught.value


# ---------------------------------------------------------------------- right programs are silent


def noisy(x):
    return F.dropout(x, 0.5) + torch.rand_like(x)


def several(x):
    return {"a": x[1:], "b": (x, x.sum()), "c": None, "n": 3}


def not_a_number(x):
    return x / torch.zeros_like(x), torch.full_like(x, float("nan"))


def in_place(x):
    return x.add_(1)


def selected(x):
    return x[x > 0] * 2, x


def branching(x):
    return x * 2 if x.sum() > 0 else x - 1


@pytest.mark.parametrize("fn", [noisy, several, not_a_number, in_place, selected, branching])
def test_right_programs(device, fn):
    x = torch.randn(6, device=device).abs()
    calls = [(x.clone() * (-1) ** n,) for n in range(16)]
    g = compare(fn, calls, verify=1)
    report = g.report()
    assert report.verified == report.replayed > 8, g.explain()
    g.reset()


def test_state_written_in_place(device):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(4)
            self.register_buffer("count", torch.zeros((), dtype=torch.int64))
            self.register_buffer("cache", torch.zeros(8, 4))

        def forward(self, x, position):
            self.count.add_(1)
            self.cache.index_copy_(0, position, x[:1])
            return self.norm(x) + self.cache.sum(0) * self.count

    torch.manual_seed(1)
    ours = Model().to(device).requires_grad_(False)
    theirs = Model().to(device).requires_grad_(False)
    calls = [(torch.randn(3, 4, device=device), torch.tensor([n % 8], device=device)) for n in range(CALLS)]
    states = (lambda: list(ours.buffers()), lambda: list(theirs.buffers()))
    g = compare(ours, calls, plain=theirs, states=states, verify=1)
    assert g.report().verified == g.report().replayed == CALLS - WARM
    g.reset()


def test_cache_as_an_argument(device):
    def fn(cache, x, position):
        cache.index_copy_(0, position, x)
        return cache.sum(0)

    cache = torch.zeros(8, 3, device=device)
    calls = [
        (cache, torch.randn(1, 3, device=device), torch.tensor([n % 8], device=device)) for n in range(CALLS)
    ]
    g = compare(fn, calls, verify=1)
    assert g.report().verified == CALLS - WARM
    g.reset()


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
}


class Trainer:
    """A model with dropout and running statistics, and its training step."""

    def __init__(self, device, optimizer, *, set_to_none=True):
        torch.manual_seed(3)
        self.model = nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Tanh(), nn.Linear(8, 1)
        ).to(device)
        self.optimizer = optimizer(list(self.model.parameters()))
        self.set_to_none = set_to_none
        self.hidden = bool

    def step(self, x, y):
        self.optimizer.zero_grad(set_to_none=self.set_to_none)
        loss = F.mse_loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        if self.hidden():
            self.model[0].weight.grad.mul_(2)
        return loss

    def state(self):
        parameters = list(self.model.parameters())
        moments = [value for p in parameters for value in self.optimizer.state[p].values()]
        gradients = [p.grad for p in parameters]
        return [p.detach().clone() for p in parameters], gradients, moments, list(self.model.buffers())


def steps(device, count=CALLS):
    return [(torch.randn(5, 4, device=device), torch.randn(5, 1, device=device)) for _ in range(count)]


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_step(device, name, set_to_none):
    ours, theirs = (Trainer(device, OPTIMIZERS[name], set_to_none=set_to_none) for _ in range(2))
    states = (ours.state, theirs.state)
    g = compare(ours.step, steps(device, 16), plain=theirs.step, states=states, verify=1)
    assert g.report().verified == g.report().replayed >= 12, g.explain()
    g.reset()


def test_held_gradients(device):
    ours, theirs = (Trainer(device, OPTIMIZERS["sgd"]) for _ in range(2))
    g, held = rote.graph(ours.step, verify=2), []
    torch.manual_seed(5)
    for number, (x, y) in enumerate(steps(device, 16)):
        state = torch.get_rng_state()
        g(x, y)
        after = torch.get_rng_state()
        if device.type == "cpu":  # dropout draws there
            torch.set_rng_state(state)
            theirs.step(x, y)
            assert torch.equal(torch.get_rng_state(), after)
        if number % 4 == 3:
            held.append((ours.model[0].weight.grad, ours.model[0].weight.grad.clone()))
    for gradient, was in held:
        assert torch.equal(gradient, was)
    if device.type == "cpu":
        assert torch.equal(ours.model[0].weight, theirs.model[0].weight)
    g.reset()


def test_generator_argument(device):
    generator = torch.Generator(device).manual_seed(1)
    other = torch.Generator(device).manual_seed(1)

    def draw(x, generator):
        return x + torch.rand(3, generator=generator, device=x.device)

    g = rote.graph(lambda x: draw(x, generator), verify=1)
    for (x,) in batch(device, 3):
        assert torch.equal(g(x), draw(x, other))
    assert torch.equal(generator.get_state(), other.get_state())
    assert g.report().verified == CALLS - WARM
    g.reset()


def test_host_random_state_is_not_touched(device, make):
    g = make(noisy)
    before = random.getstate(), numpy.random.get_state()[1].tobytes()
    for args in batch(device, 3):
        g(*args)
    assert (random.getstate(), numpy.random.get_state()[1].tobytes()) == before


def test_numpy_memory_that_the_call_writes():
    array = numpy.zeros(1 << 15, dtype=numpy.float32)

    def fn(x):
        memory = torch.from_numpy(array).add_(1)
        return x + memory[:3]

    g = rote.graph(fn, verify=1)
    for n in range(CALLS):
        assert g(torch.zeros(3)).tolist() == [n + 1.0] * 3
    assert array[0] == CALLS and g.report().verified == CALLS - WARM
    g.reset()


def test_an_output_fed_back(device):
    g = rote.graph(lambda x: x * 2 + 1, verify=1)
    x = expected = torch.ones(3, device=device)
    for _ in range(CALLS):
        x, expected = g(x), expected * 2 + 1
        assert x.tolist() == expected.tolist()
    assert g.report().verified == CALLS - WARM
    del x
    g.reset()


def test_inference_mode(device):
    with torch.inference_mode():
        total = torch.zeros(3, device=device)

        def fn(x, weight):
            total.add_(x)
            return F.linear(x, weight) + total

        g = rote.graph(fn, verify=1)
        for _ in range(CALLS):
            g(torch.ones(3, device=device), torch.ones(3, 3, device=device))
        assert total.tolist() == [float(CALLS)] * 3
    assert g.report().verified == CALLS - WARM
    g.reset()


def test_wrappers_inside_are_plain(device, make):
    inner = make(lambda x: x.tanh() * 2)
    outer = make(lambda x: inner(x) + 1)
    for args in batch(device, 3):
        outer(*args)
    assert outer.report().verified == CALLS - WARM and inner.report().calls == 0


# ---------------------------------------------------------------------- which calls are checked


@pytest.mark.parametrize(("every", "replays", "checked"), [(0, 9, 0), (1, 9, 9), (3, 9, 3), (3, 10, 4)])
def test_every(device, every, replays, checked):
    g = rote.graph(lambda x: x * 2, verify=every)
    for args in batch(device, 3, count=WARM + replays):
        g(*args)
    report = g.report()
    assert (report.replayed, report.verified) == (replays, checked)
    assert ("verified" in g.explain()) == bool(checked)
    assert report.to_dict()["verified"] == checked
    g.reset()
    assert g.report().verified == 0


def test_the_first_replay_of_each_recording(device):
    scale = [1.0]
    g = rote.graph(lambda x: x * scale[0], verify=1000)
    for scale[0] in (1.0, 2.0, 1.0, 2.0):
        for args in batch(device, 3, count=WARM + 2):
            g(*args)
    assert g.report().verified == 2, g.explain()
    g.reset()


# ---------------------------------------------------------------------- wrong programs: what and where


def hidden(value=True, before=False):
    """A switch that rote cannot see, which changes after the first calls."""
    return handing_out([before] * 5 + [value] * 50)


def handing_out(items):
    held = queued(items)
    return lambda: held.get_nowait()


def test_frozen_number(device, make, where):
    values = hidden(5.0, 1.0)

    def fn(x):
        y = x + 1
        return {"logits": y * values()}

    g = make(fn)
    error = failing(g, batch(device, 2, 3))
    assert isinstance(error, InternalError)
    assert error.output == "result['logits']" and error.operation == "aten::mul.Tensor"
    assert error.where == where(fn, "values()") and error.difference > 0
    assert error.cause.startswith(
        f"RT322 at {error.where}: an operand of aten::mul.Tensor was 1.0 and is 5.0"
    )
    assert re.match(
        r"the replay of .*fn in call \d+ at .*test_verify.py:\d+ is not what the plain call gives:\n"
        r"  result\['logits'\] differs in 6 of 6 elements, by at most \S+ at result\['logits'\]\[\d, \d\]: "
        r"\S+ instead of \S+\n"
        r"first operation that differs: aten::mul.Tensor at .*test_verify.py:\d+\n"
        r"likely cause: RT322 at .* Pass the value in as an argument",
        str(error),
    )


def test_largest_difference(device, make):
    values = hidden(1.0, 0.0)

    def fn(x):
        return x + torch.tensor([[0.0, 0.25], [-3.0, 0.0]], device=x.device) * values()

    error = failing(make(fn), [(torch.zeros(2, 2, device=device),) for _ in range(CALLS)])
    assert error.difference == 3.0
    assert "differs in 2 of 4 elements, by at most 3 at result[1, 0]: " in str(error)
    assert error.operation == "aten::mul.Tensor"


def test_other_branch(device, make, where):
    values = hidden()

    def fn(x):
        y = x * 2
        if values():
            y = y.relu()
        return y - 1

    error = failing(make(fn), [(torch.full((3,), -1.0, device=device),) for _ in range(CALLS)])
    assert (error.output, error.operation, error.where) == ("result", "aten::relu", where(fn, "relu()"))
    assert error.cause.startswith("RT323") and error.difference == 2.0


def test_another_function(device, make, where):
    values = hidden()

    def five(x):
        return x * 5

    error = failing(make(lambda x: (five if values() else F.relu)(x)), batch(device, 3))
    assert (error.output, error.operation) == ("result", "aten::mul.Tensor")
    assert error.where == where(five, "x * 5")


def test_code_without_a_file(device, make):
    names = {"values": hidden(5.0, 1.0)}
    exec("def fn(x):\n return [x, x * values()]", names)
    error = failing(make(names["fn"]), batch(device, 3))
    assert (error.output, error.operation, error.where) == ("result[1]", "aten::mul.Tensor", "<string>:2")


def test_a_result_that_is_an_argument(device, make, where):
    values = hidden()

    def fn(x):
        return x * 5 if values() else x

    error = failing(make(fn), batch(device, 3))
    assert (error.output, error.operation) == ("result", "aten::mul.Tensor")
    assert error.where == where(fn, "x * 5")
    assert "result shares memory with args[0], unlike in the plain call" in str(error)


def beside(work, total):
    """Hands work to a thread that was there before, in a way that is declared to do nothing."""
    tasks, done = SimpleQueue(), SimpleQueue()

    def run():
        while tasks.get():
            work(total)
            done.put(1)

    Thread(target=run, daemon=True).start()
    hand_over, wait = rote.pure(tasks.put), rote.pure(done.get)

    def fn(x):
        y = x * 2
        hand_over(1)
        wait()
        return y + total

    return fn, lambda: tasks.put(0)


def test_written_by_another_thread(make, where):
    fn, stop = beside(lambda total: total.add_(1), torch.zeros(3))
    error = failing(make(fn), batch("cpu", 3))
    stop()
    assert (error.output, error.operation) == ("result", "aten::add.Tensor")
    assert error.where == where(beside, "y + total")
    assert error.cause.startswith("RT326") and "total is written by the plain call" in error.cause


def test_a_call_that_does_not_repeat_itself(make, where):
    """A write past every version counter: all that shows is that two plain calls differ."""
    fn, stop = beside(lambda total: total.data.add_(1), torch.zeros(3))
    error = failing(make(fn), batch("cpu", 3))
    stop()
    assert (error.operation, error.where) == ("aten::add.Tensor", where(beside, "y + total"))
    assert error.cause.startswith("RT325") and "use_deterministic_algorithms" in error.cause


def test_hidden_write_of_an_argument(device, make, where):
    values = hidden()

    def fn(x, scale=1.0):
        y = x * scale
        if values():
            x.add_(1)
        return y

    g = make(fn)
    error = None
    for (x,) in batch(device, 3):
        before = x.clone()
        try:
            g(x=x, scale=2.0)
        except VerificationError as raised:
            error = raised
            assert torch.equal(x, before + 1)  # once, as the plain call does
            break
    assert error is not None
    assert (error.output, error.operation) == ("kwargs['x']", "aten::add_.Tensor")
    assert error.where == where(fn, "x.add_(1)")


def test_hidden_write_of_a_buffer(device, make, where):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(3))
            self.values = hidden()

        def forward(self, x):
            if self.values():
                self.seen.add_(1)
            return x * 2 + self.seen.shape[0]

    model = Model().to(device)
    error = failing(make(model), batch(device, 3))
    assert (error.output, error.operation) == ("Model.seen", "aten::add_.Tensor")
    assert error.where == where(Model, "add_") and model.seen.tolist() == [1.0] * 3


def test_hidden_gradient(device, make, where):
    trainer = Trainer(device, OPTIMIZERS["sgd"])
    trainer.hidden = hidden()
    error = failing(make(trainer.step), steps(device))
    assert error.output.endswith("model.0.weight.grad") and error.operation == "aten::mul_.Tensor"
    assert error.where == where(Trainer, "mul_(2)") and error.difference > 0


def increment(model):
    model.count += 1


def write_one(model):
    model.table["a"] = 1


def append_one(model):
    model.log.append(1)


def advance(model):
    next(model.batches)


def declare(model):
    type(model).last = 1


CHANGES = {
    "Model.count was 0 and is 1": increment,
    "Model.table['a'] was not there and is 1": write_one,
    "Model.log (length) was 0 and is 1": append_one,
    "Model.batches": advance,
    "test_hidden_change_of_python_state.<locals>.Model.last was not there and is 1": declare,
}


@pytest.mark.parametrize("text", CHANGES)
def test_hidden_change_of_python_state(device, make, where, text):
    """Of what no recorded call has read, so that no guard looks at it."""
    change = CHANGES[text]

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.count, self.table, self.log, self.batches = 0, {}, [], iter([1, 2])
            self.values = hidden()

        def forward(self, x):
            if self.values():
                change(self)
            return x * 2

    error = failing(make(Model()), batch(device, 3))
    assert (error.output, error.operation) == (text.partition(" was ")[0], None)
    assert error.where == where(change, "    ") and error.cause.startswith("RT324") and text in str(error)


def test_what_the_plain_call_puts_back_is_no_change(device, make):
    values, log = hidden(), []

    def fn(x):
        if values():
            log.append(1)
            log.pop()
        return x * 2

    g = make(fn)
    for args in batch(device, 3):
        g(*args)
    assert g.report().verified == CALLS - WARM


@pytest.mark.parametrize(
    ("draw", "output"),
    [
        (lambda: torch.rand(1), "PyTorch's random state"),
        (random.random, "the state of Python's random module"),
        (numpy.random.rand, "the state of numpy.random"),
    ],
)
def test_hidden_random_numbers(device, make, draw, output, monkeypatch):
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # test runners have threads of their own
    values = hidden()

    def fn(x):
        if values():
            draw()
        return x * 2

    error = failing(make(fn), batch(device, 3))
    assert error.output == output


def test_host_random_numbers_of_other_threads(device, make, monkeypatch):
    """They are no reason to doubt a replay, and are never drawn twice."""
    monkeypatch.setattr(threading, "active_count", lambda: 2)
    drawn = []

    def elsewhere():
        drawn.append((random.random(), numpy.random.rand()))

    values = handing_out([None] * 3 + [elsewhere] * 50)
    g = make(lambda x: (values() or int)() or x * 2)
    for args in batch(device, 3):
        g(*args)
    assert g.report().verified == g.report().replayed > 0
    assert len(set(drawn)) == len(drawn) > 0


def test_hidden_change_of_a_mode(device, make):
    values = hidden()

    def fn(x):
        torch.set_grad_enabled(not values())
        return x * 2

    try:
        error = failing(make(fn), batch(device, 3))
        assert not torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)
    assert error.output == "the surroundings of the call" and "grad mode was True and is False" in str(error)


def test_the_plain_call_raises(device, make, where):
    values = hidden()

    def fn(x):
        if values():
            raise ValueError("too large")
        return x * 2

    error = failing(make(fn), batch(device, 3))
    assert error.output == "the call" and "raises ValueError when it is made plainly: too large" in str(error)
    assert error.where == where(fn, "raise ValueError") and isinstance(error.__cause__, ValueError)


def test_operation_that_a_recording_computes_differently(make, monkeypatch, where):
    real = HostSession.run

    def run(self, func, args, kwargs):
        return real(
            self, torch.ops.aten.sin.default if func is torch.ops.aten.tanh.default else func, args, kwargs
        )

    monkeypatch.setattr(HostSession, "run", run)

    def fn(x):
        y = (x + 1).exp()
        y = y.tanh()
        return y * 2

    error = failing(make(fn), batch("cpu", 3))
    assert (error.operation, error.where) == ("aten::tanh", where(fn, "tanh()"))
    assert error.cause.startswith("RT328") and "a fresh recording" in error.cause


def test_recording_that_became_stale(device, make):
    g = make(lambda x: x + torch.tensor([1.0, 2.0, 3.0], device=x.device))
    calls = batch(device, 3)
    for args in calls[:5]:
        g(*args)
    (entry,) = g._keys.entries.values()
    (constant,) = entry.recordings[0].root.constants.values()
    constant.fill_(7.0)  # somebody wrote into the recording's memory
    error = failing(g, calls)
    assert error.output == "result" and "this one had become stale" in error.cause


# ---------------------------------------------------------------------- what is seen without a check


def function_of_torch():
    before = F.relu
    return (
        lambda x: F.relu(x),
        lambda: setattr(F, "relu", lambda x: x * 5),
        lambda: setattr(F, "relu", before),
    )


def code():
    def helper(x):
        return x * 2

    return lambda x: helper(x), lambda: setattr(helper, "__code__", (lambda x: x * 5).__code__), bool


def computed_name():
    names = {"K": 1.0}
    exec("def fn(x):\n return [x, x * globals()['k'.upper()]]", names)
    return names["fn"], lambda: names.update(K=5.0), bool


def computed_name_defined_later():
    names = {}
    exec("def fn(x):\n return x * globals()['late'.upper()] if 'late'.upper() in globals() else x", names)
    return names["fn"], lambda: names.update(LATE=5.0), bool


def class_of_an_object():
    class Once:
        def f(self, x):
            return x + 0

    class Five:
        def f(self, x):
            return x * 5

    o = Once()
    return lambda x: o.f(x), lambda: setattr(o, "__class__", Five), bool


@pytest.mark.parametrize(
    "case", [function_of_torch, code, computed_name, computed_name_defined_later, class_of_an_object]
)
def test_what_is_replaced_is_recorded_anew(device, make, case):
    """A check finds nothing: what was replaced is under guard."""
    fn, change, back = case()
    g, calls = make(fn), batch(device, 3)
    try:
        for replaced in (False, True):
            if replaced:
                change()
            for (x,) in calls:
                assert_same(g(x), fn(x))
    finally:
        back()
    assert g.report().verified == g.report().replayed == 2 * (CALLS - WARM), g.explain()


def test_where_an_argument_lies(device, make):
    g = make(lambda x: x * x.storage_offset())
    for n in range(CALLS):
        x = torch.arange(12.0, device=device)[n:]
        assert_same(g(x), x * n)
    assert not g.report().replayed


# ---------------------------------------------------------------------- after a failed check


def test_later_calls_are_right(device, make, reason):
    scale = [1.0]
    values = rote.pure(scale.copy)  # it is not: it gives what the list holds
    g = make(lambda x: x * values()[0])
    for args in [*batch(device, 3), *batch(device, 4)]:
        g(*args)
    assert len(g.report().recordings) == 2
    scale[0] = 5.0
    failing(g, batch(device, 3))
    assert not g.report().recordings  # what was hidden from one was hidden from the other
    for (x,) in [*batch(device, 3), *batch(device, 4)]:
        assert torch.equal(g(x), x * 5)
    why = reason(g, "RT321")
    assert "result differs in 3 of 3 elements" in why.message and "reset()" in why.remedy
    assert len(g.report().recordings) == 1  # the key that was caught runs eagerly
    g.reset()
    for (x,) in batch(device, 3):
        assert torch.equal(g(x), x * 5)
    assert g.report().verified == CALLS - WARM


def test_state_after_a_failed_training_step(device, make):
    """The state is that of one plain step: parameters, gradients, moments, statistics, random numbers."""
    ours, theirs = (Trainer(device, OPTIMIZERS["sgd"]) for _ in range(2))
    ours.hidden, theirs.hidden = hidden(), hidden()
    g, failed = make(ours.step), False
    for number, args in enumerate(steps(device)):
        torch.manual_seed(number)
        try:
            g(*args)
        except VerificationError:
            failed = True
        drawn = torch.rand(1, device=device)
        torch.manual_seed(number)
        theirs.step(*args)
        assert torch.equal(drawn, torch.rand(1, device=device))
        for mine, other in zip(ours.model.parameters(), theirs.model.parameters(), strict=True):
            assert torch.equal(mine, other)
            assert torch.equal(mine.grad, other.grad)
        for mine, other in zip(ours.model.buffers(), theirs.model.buffers(), strict=True):
            assert torch.equal(mine, other)
        if failed:
            break
    assert failed


def test_interrupt_in_the_plain_call(device, make):
    values = hidden()

    def fn(x):
        if values():
            raise KeyboardInterrupt
        return x * 2

    g = make(fn)
    with pytest.raises(KeyboardInterrupt):
        for args in batch(device, 3):
            g(*args)
    g.reset()


def test_no_memory_for_a_check(device, make, caplog):
    values = hidden()

    def fn(x):
        if values():
            raise torch.OutOfMemoryError("the check needs too much")
        return x.add_(1)

    g = make(fn)
    for n in range(CALLS):
        x = torch.full((3,), float(n), device=device)
        assert g(x).tolist() == [n + 1.0] * 3 == x.tolist()
    report = g.report()
    assert 0 < report.verified < report.replayed
    assert "is not checked: the check needs too much" in caplog.text


# ---------------------------------------------------------------------- tolerance


def test_tolerance(device):
    values = hidden(1e-6, 0.0)
    g = rote.graph(lambda x: x + values(), verify=1, verify_tolerance=1e-5)
    for _ in range(CALLS):
        assert g(torch.ones(4, device=device)).tolist() == [1.0] * 4  # what the replay gives
    assert g.report().verified == CALLS - WARM
    g.reset()


def test_beyond_the_tolerance(device):
    values = hidden(1e-3, 0.0)
    g = rote.graph(lambda x: x + values(), verify=1, verify_tolerance=1e-5)
    error = failing(g, [(torch.ones(4, device=device),) for _ in range(CALLS)])
    assert error.difference == pytest.approx(1e-3, rel=1e-3)
    g.reset()


def test_whole_numbers_have_no_tolerance(device):
    values = hidden(1, 0)
    g = rote.graph(lambda x: x + values(), verify=1, verify_tolerance=10.0)
    error = failing(g, [(torch.ones(4, dtype=torch.int64, device=device),) for _ in range(CALLS)])
    assert error.difference == 1.0
    g.reset()


@pytest.mark.parametrize(("now", "differs"), [(float("nan"), False), (0.0, True)])
def test_nan(device, now, differs):
    values = hidden(now, float("nan"))
    g = rote.graph(lambda x: x + values(), verify=1)
    calls = [(torch.ones(4, device=device),) for _ in range(CALLS)]
    if differs:
        assert failing(g, calls).difference == float("inf")
    else:
        for args in calls:
            g(*args)
    g.reset()


def test_signs_of_zero_differ(device):
    values = hidden(-0.0, 0.0)
    g = rote.graph(lambda x: x * values(), verify=1)
    error = failing(g, [(torch.ones(4, device=device),) for _ in range(CALLS)])
    assert error.difference == 0.0 and "0.0 instead of -0.0" in str(error)
    g.reset()


def test_backward_of_checked_calls(device):
    """The plain call must not spoil what the replay's graph has saved."""

    def train(wrap):
        torch.manual_seed(7)
        total = torch.zeros(4, device=device)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Linear(8, 4)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def forward(x):
            total.add_(1)
            return (model(x) * total).pow(2).mean()

        g, losses = wrap(forward), []
        for _ in range(12):
            optimizer.zero_grad()
            loss = g(torch.randn(5, 4, device=device))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return g, losses, [p.detach().clone() for p in model.parameters()], list(model.buffers())

    g, *found = train(lambda fn: rote.graph(fn, verify=1))
    _, *expected = train(lambda fn: fn)
    assert_same(found, expected)
    report = g.report()
    assert report.verified == report.replayed > 6, g.explain()
    assert report.backwards_verified == report.backwards_replayed > 4, g.explain()
    assert f"{report.backwards_replayed} replayed, {report.backwards_verified} verified" in g.explain()
    g.reset()


@pytest.mark.skipif(not hasattr(grad_mode, "_unsafe_preserve_version_counter"), reason="PyTorch cannot")
def test_version_counters_count_one_call(device):
    def count(verify):
        total = torch.zeros(4, device=device)
        g = rote.graph(lambda x: total.add_(x).sum(), verify=verify)
        for args in batch(device, 4):
            g(*args)
        g.reset()
        return total._version

    assert count(verify=1) == count(verify=0)


def test_backward_that_a_recording_computes_differently(make, monkeypatch):
    real, wrong = HostSession.run, torch.ops.aten.tanh_backward.default

    def run(self, func, args, kwargs):
        out = real(self, func, args, kwargs)
        return real(self, torch.ops.aten.mul.Tensor, (out, 2), {}) if func is wrong else out

    monkeypatch.setattr(HostSession, "run", run)
    g = make(lambda x: (x * 2).tanh().sum())
    with pytest.raises(VerificationError) as caught:
        for _ in range(CALLS):
            g(torch.randn(3, requires_grad=True)).backward()
    error = caught.value
    assert str(error).startswith("the replay of the backward of ")
    assert error.output.startswith("result[0]") and error.operation == "aten::tanh_backward"
    monkeypatch.undo()
    for _ in range(CALLS):
        x = torch.randn(3, requires_grad=True)
        g(x).backward()
        y = x.detach().clone().requires_grad_()
        (y * 2).tanh().sum().backward()
        assert torch.equal(x.grad, y.grad)


def test_a_weight_that_is_cast_once_and_used_twice(device):
    """Autocast keeps the cast: its gradients are added before they are cast back."""
    layer = nn.Linear(4, 4).to(device)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def step(x):
        with torch.autocast(device.type, torch.bfloat16):
            y = layer(layer(x)).float()
        optimizer.zero_grad(set_to_none=False)
        y.square().mean().backward()
        optimizer.step()

    g = rote.graph(step, verify=1)
    for _ in range(8):
        g(torch.randn(3, 4, device=device))
    assert g.report().verified > 3
