"""Where a callable does not replay, the modules that it calls do, and only the time tells."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import resource
import threading
import traceback
import weakref

import pytest
import torch
from tests.clock import Clock
from torch import nn

import rote
from rote.api.parts import part as part_module
from rote.api.parts.parts import REVIEW
from rote.runtime.engine.ledger import FREE_TRACES
from rote.testing import assert_same

BEGIN = FREE_TRACES + 2
"""Calls after which a callable that never settles has parts."""

ENOUGH = BEGIN + 24


@pytest.fixture(autouse=True)
def _any_size(monkeypatch):
    """No test depends on how long a module takes."""
    monkeypatch.setattr(part_module, "LEAST_S", 0.0)


@pytest.fixture(autouse=True)
def own_code_afterwards():
    """Calls of modules are what they were when nobody needs them otherwise."""
    code = nn.Module.__call__.__code__
    yield
    gc.collect()
    assert nn.Module.__call__.__code__ is code


class Net(nn.Module):
    def __init__(self, device, width=4):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.to(device)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def net(device, **given):
    torch.manual_seed(0)
    return Net(device, **given)


def inputs(device, count, rows=2):
    made = torch.Generator().manual_seed(1)
    return [torch.randn(rows, 4, generator=made).to(device) for _ in range(count)]


def parts_of(g):
    return {part.name: part for part in g.report().parts}


def same_as_plain(make, device, count=ENOUGH, mode=torch.no_grad):
    """Run a program that ``make`` makes, plainly and graphed, on the same inputs; the graphed callable."""
    (plain, other), xs = (make(), make()), inputs(device, count)
    g = rote.graph(other)
    with mode():
        for n, x in enumerate(xs):
            expected, found = plain(x.clone()), g(x.clone())
            assert torch.equal(expected, found), n
            assert found.requires_grad == expected.requires_grad
    return g


def test_a_list_that_grows(device):
    def make():
        model, seen = net(device), []

        def step(x):
            for _ in range(3):
                x = model(x)
                seen.insert(0, len(seen))
            return x * len(seen)

        return step

    g = same_as_plain(make, device)
    assert g.report().replayed == 0
    part = parts_of(g)["Net"]
    assert part.replayed > 3 * 10 and not part.given_up
    assert "Net" in g.explain() and f"{part.calls} calls, {part.replayed} replayed" in g.explain()


def test_the_line_that_calls_a_part(device, where):
    model, seen = net(device), []

    def step(x):
        seen.insert(0, 1)
        return model(x) * len(seen)  # here

    g = rote.graph(step)
    with torch.no_grad():
        for x in inputs(device, ENOUGH):
            g(x)
    assert parts_of(g)["Net"].where == where(step, "# here")


def test_generation_reads_each_token(device):
    def make():
        model = net(device)

        @torch.no_grad()
        def generate(x):
            tokens, states = [], x
            while len(tokens) < 4:
                states = model(states)
                tokens.append(int(states[0].argmax().item()) + len(tokens))
                if tokens[-1] > 100:
                    break
            return states * sum(tokens)

        return generate

    g = same_as_plain(make, device)
    part = parts_of(g).get("Net")
    assert g.report().replayed > 0 or (part is not None and part.replayed > 10)


def test_a_pipeline_that_reads_values_and_draws(device):
    def make():
        model, steps = net(device).eval(), [0]

        def pipeline(x):
            steps[0] += 1
            for t in range(3):
                noise = torch.rand(x.shape, generator=torch.Generator().manual_seed(steps[0] + t)).to(device)
                x = x - 0.1 * model(x + noise) * float(x.abs().max()) / steps[0]
            return x

        return pipeline

    g = same_as_plain(make, device)
    assert parts_of(g)["Net"].replayed > 10


def test_random_numbers_in_a_part(device):
    class Drops(Net):
        def forward(self, x):
            return nn.functional.dropout(super().forward(x), 0.5, training=True)

    def program(graphed):
        torch.manual_seed(0)
        model, seen = Drops(device), []

        def step(x):
            seen.insert(0, 1)
            return model(x) + len(seen) + torch.rand_like(x)

        call = rote.graph(step) if graphed else step
        torch.manual_seed(5)
        with torch.no_grad():
            found = [call(x) for x in inputs(device, ENOUGH)]
        return found, torch.get_rng_state(), call

    (plain, state, _), (found, ours, g) = program(False), program(True)
    assert all(torch.equal(a, b) for a, b in zip(plain, found, strict=True)) and torch.equal(state, ours)
    assert parts_of(g)["Drops"].replayed > 10


def test_a_module_that_calls_itself(device):
    class Tree(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net(device)

        def forward(self, x, depth):
            return self.net(x) if depth == 0 else self(x, depth - 1) + self(x * 2, depth - 1)

    def make():
        model, seen = Tree(), []

        def step(x):
            seen.insert(0, 1)
            return model(x, 2) * len(seen)

        return step

    g = same_as_plain(make, device)
    assert parts_of(g)["Tree"].replayed > 10


def test_a_callable_that_calls_itself(device):
    model, seen = net(device), []

    def step(x, depth=2):
        seen.insert(0, 1)
        y = model(x) * len(seen)
        return y if depth == 0 else g(y, depth - 1)

    def plain(x, count, depth=2):
        for _ in range(depth + 1):
            count += 1
            x = model(x) * count
        return x, count

    g, count = rote.graph(step), 0
    with torch.no_grad():
        for x in inputs(device, ENOUGH):
            expected, count = plain(x, count)
            assert torch.equal(g(x), expected)
    assert parts_of(g)["Net"].replayed > 10


def test_modes_in_turn(device):
    """Without gradients a part replays; with them its call is the plain one, with its gradients."""
    model, seen = net(device), []
    other = net(device)

    def step(x):
        seen.insert(0, 1)
        return model(x) * len(seen)

    g = rote.graph(step)
    for count, x in enumerate(inputs(device, 3 * ENOUGH), 1):
        mode = (torch.no_grad, torch.inference_mode, torch.enable_grad)[count % 3]
        with mode():
            found, expected = g(x), other(x) * count
        assert torch.equal(found, expected) and found.is_inference() == expected.is_inference()
        assert found.requires_grad == expected.requires_grad
        if found.requires_grad:
            found.sum().backward()
            expected.sum().backward()
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine.grad, theirs.grad)
    assert parts_of(g)["Net"].replayed > 10


def test_autocast_in_turn(device):
    def make():
        model, seen = net(device), []

        def step(x):
            seen.insert(0, 1)
            with torch.autocast(device.type, torch.bfloat16, enabled=len(seen) % 2 == 0):
                return model(x).float() * len(seen)

        return step

    g = same_as_plain(make, device, 2 * ENOUGH)
    assert parts_of(g)["Net"].replayed > 10


def test_gradients_are_those_of_the_plain_call(device):
    """A parameter that is used in the module, twice, and outside of it: it is summed in the plain order."""

    class Tied(Net):
        def forward(self, x):
            return self.first(torch.relu(self.first(x)))

    def run(graphed):
        torch.manual_seed(0)
        model = Tied(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

        def step(x):
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean() + (model.first.weight**3).sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        call = rote.graph(step) if graphed else step
        return [call(x) for x in inputs(device, ENOUGH)], [*model.parameters()]

    (plain, theirs), (found, mine) = run(False), run(True)
    assert all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(theirs, mine, strict=True))


def test_a_module_without_gradients_in_a_step_with_them(device):
    """A target network is a part of a training step."""

    def run(graphed):
        torch.manual_seed(0)
        model, target = Net(device), Net(device)
        optimizer, seen = torch.optim.Adam(model.parameters(), lr=0.1), []

        def step(x):
            seen.insert(0, 1)
            with torch.no_grad():
                wanted = target(x) * len(seen)
            loss = (model(x) - wanted).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for theirs, mine in zip(target.parameters(), model.parameters(), strict=True):
                    theirs.lerp_(mine, 0.1)
            return loss.detach()

        call = rote.graph(step) if graphed else step
        return [call(x) for x in inputs(device, ENOUGH)], [*target.parameters()], call

    (plain, theirs, _), (found, mine, g) = run(False), run(True)
    assert all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(theirs, mine, strict=True))
    assert parts_of(g)["Net"].replayed > 10


def test_gradients_that_a_module_takes_care_of_itself(device):
    """A result that leads to gradients, although none are taken around the call."""

    class Tracks(Net):
        def forward(self, x):
            with torch.enable_grad():
                return super().forward(super().forward(x))

    def run(graphed):
        torch.manual_seed(0)
        model, seen = Tracks(device), []

        def step(x):
            seen.insert(0, 1)
            with torch.no_grad():
                y = model(x)
            (y.square().sum() + model.first.weight.pow(3).sum()).backward()
            return y.detach() * len(seen)

        call = rote.graph(step) if graphed else step
        found = [call(x) for x in inputs(device, ENOUGH)]
        return found, [each.grad for each in model.parameters()]

    (plain, theirs), (found, mine) = run(False), run(True)
    assert all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(theirs, mine, strict=True))


def test_a_symbolic_trace_inside(device):
    """Another one who sees calls of modules sees all of them."""
    model, seen = nn.Sequential(net(device), nn.ReLU()), []

    def step(x):
        seen.insert(0, 1)
        graph = torch.fx.symbolic_trace(model)
        return graph(x) * len([*graph.graph.nodes]) * len(seen) + model(x)

    g = rote.graph(step)
    with torch.no_grad():
        expected = model(torch.ones(2, 4, device=device))
        count = len([*torch.fx.symbolic_trace(model).graph.nodes])
        for n in range(1, ENOUGH):
            found = g(torch.ones(2, 4, device=device))
            assert torch.equal(found, expected * count * n + expected)


def test_output_of_a_part_is_told(device, where):
    class Prints(Net):
        def forward(self, x):
            print("here")
            return super().forward(x)

    torch.manual_seed(0)
    model, seen = Prints(device), []

    def step(x):
        seen.insert(0, 1)
        return model(x) * len(seen)

    g = rote.graph(step)
    with torch.no_grad():
        for x in inputs(device, ENOUGH):
            g(x)
    assert parts_of(g)["Prints"].replayed
    assert [(each.what, each.where) for each in g.report().output] == [
        ("print", where(Prints.forward, 'print("here")'))
    ]


def test_a_module_that_is_replaced(device):
    """It is gone when its user drops it; the one in its place is a part as well."""

    def run(graphed):
        torch.manual_seed(0)
        held, seen = {"net": Net(device)}, []

        def step(x):
            seen.insert(0, 1)
            return held["net"](x) * len(seen)

        call, found, gone = rote.graph(step) if graphed else step, [], []
        with torch.no_grad():
            for n, x in enumerate(inputs(device, 3 * ENOUGH)):  # means that one has earned are the next one's
                if n in (ENOUGH, 2 * ENOUGH):
                    gone.append(weakref.ref(held["net"]))
                    held["net"] = Net(device)
                found.append(call(x))
                if n in (ENOUGH, 2 * ENOUGH):
                    gc.collect()
                    assert gone[-1]() is None
        return found, call

    (plain, _), (found, g) = run(False), run(True)
    assert all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))
    assert [part.name for part in g.report().parts] == ["Net"] and parts_of(g)["Net"].replayed > 10


def test_a_module_that_is_made_in_each_call(device):
    def step(x):
        seen.insert(0, 1)
        torch.manual_seed(len(seen))
        return Net(device)(x)

    seen: list[int] = []
    g = rote.graph(step)
    with torch.no_grad():
        for n, x in enumerate(inputs(device, ENOUGH), 1):
            found = g(x)
            torch.manual_seed(n)
            assert torch.equal(found, Net(device)(x))
    assert g.report().parts == ()


def test_parameters_that_are_replaced(device):
    def make():
        model, seen = net(device), []

        def step(x):
            seen.insert(0, 1)
            if len(seen) % 7 == 0:
                model.first.weight = nn.Parameter(model.first.weight * 0.5)
            if len(seen) % 5 == 0:
                model.second.bias.mul_(0.5)
            return model(x)

        return step

    same_as_plain(make, device, 2 * ENOUGH)


class Rejects(Net):
    def forward(self, x):
        if x.shape[0] == 3:
            raise ValueError("three rows")
        return super().forward(x)


def test_a_module_that_raises(device):
    torch.manual_seed(0)
    model, seen = Rejects(device), []

    def step(x):
        seen.insert(0, 1)
        return model(x) * len(seen)

    g = rote.graph(step)
    with torch.no_grad():
        for n, x in enumerate(inputs(device, ENOUGH), 1):
            if n % 4 == 0:
                with pytest.raises(ValueError, match="three rows") as caught:
                    g(torch.ones(3, 4, device=device))
                frames = traceback.extract_tb(caught.value.__traceback__)
                assert frames[-1].line == 'raise ValueError("three rows")'
            assert torch.equal(g(x), model(x) * len(seen))
    assert parts_of(g)["Rejects"].replayed > 10


def test_the_users_objects_stay_as_they_are(device):
    model, seen = net(device), []
    before = {name: (dict(vars(each)), type(each)) for name, each in model.named_modules()}
    state, text = [*model.state_dict()], repr(model)
    source, function = inspect.getsource(nn.Module.__call__), nn.Module.__call__

    def step(x):
        seen.insert(0, 1)
        return model(x) * len(seen)

    g = rote.graph(step)
    with torch.no_grad():
        for x in inputs(device, ENOUGH):
            g(x)
        assert parts_of(g)["Net"].replayed
        for name, each in model.named_modules():
            assert (dict(vars(each)), type(each)) == before[name]
        assert [*model.state_dict()] == state and repr(model) == text
        assert nn.Module.__call__ is function and inspect.getsource(function) == source
        x = torch.ones(2, 4, device=device)
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert torch.equal(other(x), model(x))
        assert copy.deepcopy(g) is not None


def test_hooks(device):
    """A hook that is added later is called, and one that keeps a feature keeps that of its call."""

    def make():
        model, seen, kept = net(device), [], []

        def step(x):
            seen.insert(0, 1)
            if len(seen) == ENOUGH:
                model.first.register_forward_hook(lambda module, args, out: kept.append(out) or out * 2)
            y = model(x) * len(seen)
            return y + sum(kept[-2:])

        return step

    same_as_plain(make, device, 2 * ENOUGH)


def test_only_the_thread_that_calls(device):
    model, seen = net(device), []

    def step(x):
        seen.insert(0, 1)
        return model(x) * len(seen)

    g = rote.graph(step)
    with torch.no_grad():
        for x in inputs(device, ENOUGH):
            g(x)
    before, found = parts_of(g)["Net"].calls, []

    def other():
        with torch.no_grad():
            found.extend(model(x) for x in inputs(device, 8))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    with torch.no_grad():
        assert all(torch.equal(a, model(x)) for a, x in zip(found, inputs(device, 8), strict=True))
    assert parts_of(g)["Net"].calls == before


def test_several_threads_at_once(device):
    model = net(device)

    def step(x, n):
        for _ in range(2):
            x = model(x) * n
        return x

    g, wrong = rote.graph(step), []

    def run(number):
        with torch.no_grad():
            for n, x in enumerate(inputs(device, ENOUGH)):
                value = number + n + 1.5
                if not torch.equal(g(x, value), model(model(x) * value) * value):
                    wrong.append((number, n))

    threads = [threading.Thread(target=run, args=(1000.0 * n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_graphed_module_inside_is_its_users(device):
    model, seen = net(device), []
    inner = rote.graph(model)

    def step(x):
        seen.insert(0, 1)
        return inner(x) * len(seen)

    g = rote.graph(step)
    with torch.no_grad():
        for x in inputs(device, ENOUGH):
            assert torch.equal(g(x), model(x) * len(seen))
    assert g.report().parts == () and inner.report().replayed > 0


def test_a_graphed_module_that_does_not_replay(device):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.calls = net(device), []

        def forward(self, x):
            self.calls.insert(0, 1)
            return self.net(x) * len(self.calls)

    def make():
        return Counting()

    g = same_as_plain(make, device)
    assert [*parts_of(g)] == ["Net"] and parts_of(g)["Net"].replayed > 10


def test_the_largest_first_and_those_in_it_where_it_does_not_replay(device):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.calls = net(device), []

        def forward(self, x):
            self.calls.insert(0, 1)
            return self.net(x) * len(self.calls)

    def make():
        steady, counting, seen = net(device), Counting(), []

        def step(x):
            seen.insert(0, 1)
            return steady(counting(x)) * len(seen)

        return step

    g = same_as_plain(make, device, 12 * ENOUGH)
    found = [(part.name, bool(part.given_up), part.replayed > 10) for part in g.report().parts]
    assert sorted(found) == [("Counting", True, False), ("Net", False, True), ("Net", False, True)]
    assert "; given up: RT201" in g.explain()


def test_layers_of_one_class_are_tried_one_by_one(device):
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.calls = net(device), []

        def forward(self, x):
            self.calls.insert(0, 1)
            return self.net(x) * len(self.calls)

    def make():
        layers, seen = [Layer() for _ in range(6)], []

        def step(x):
            seen.insert(0, 1)
            for layer in layers:
                x = layer(x)
            return x / len(seen)

        return step

    g = same_as_plain(make, device, 2 * ENOUGH)
    found = g.report().parts
    assert [part.name for part in found if part.given_up] == ["Layer"]
    assert sum(part.replayed > 10 for part in found if part.name == "Net") >= 4


def test_replays_that_are_slower(device, monkeypatch):
    """The contest of the part says so, and the part is given up; the report has both times."""
    clock = Clock()
    clock.install(monkeypatch)
    clock.replay_s = 2 * clock.plain_s
    ticks = clock.ticks

    class Ticking(Net):
        def forward(self, x):
            ticks.put(1)
            return super().forward(x)

    model, seen = Ticking(device), []

    def step(x):
        seen.insert(0, 1)
        return model(x) * len(seen)

    g = rote.graph(step)
    with torch.no_grad():
        for x in inputs(device, 8 * ENOUGH):
            assert torch.equal(g(x), model(x) * len(seen))
    (part,) = (part for part in g.report().parts if part.name == "Ticking")
    assert 0 < part.replayed < part.calls < 4 * ENOUGH
    assert part.given_up.startswith("RT308 a replay took ") and " and a plain call " in part.given_up
    assert f"; given up: {part.given_up}" in g.explain()


def test_no_parts_where_they_are_not_wanted(device):
    model, seen = net(device), []

    def step(x):
        seen.insert(0, 1)
        return model(x) * len(seen)

    g = rote.graph(step, parts=False)
    with torch.no_grad():
        for x in inputs(device, ENOUGH):
            g(x)
    assert g.report().parts == ()


def test_nothing_in_a_graph_is_nothing_in_a_part(device):
    model, seen = net(device), []

    def step(x):
        seen.insert(0, 1)
        with rote.no_graphs():
            return model(x) * len(seen)

    g = rote.graph(step)
    with torch.no_grad():
        for x in inputs(device, ENOUGH):
            assert torch.equal(g(x), model(x) * len(seen))
    assert g.report().parts == ()


def test_where_nothing_comes_of_it_nobody_asks(device):
    class Counting(Net):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return super().forward(x) * self.calls

    def step(x):
        model.calls += 1
        return model(x)

    torch.manual_seed(0)
    model, code = Counting(device), nn.Module.__call__.__code__
    g = rote.graph(step)
    for x in inputs(device, BEGIN + REVIEW + 1):  # with gradients
        g(x)
    assert nn.Module.__call__.__code__ is code and g.report().parts == ()


def test_reset(device):
    model, seen = net(device), []

    def step(x):
        seen.insert(0, 1)
        return model(x) * len(seen)

    g, code = rote.graph(step), nn.Module.__call__.__code__
    with torch.no_grad():
        for x in inputs(device, ENOUGH):
            g(x)
        assert g.report().parts and nn.Module.__call__.__code__ is not code
        g.reset()
        assert g.report().parts == () and nn.Module.__call__.__code__ is code
        for x in inputs(device, ENOUGH):
            assert torch.equal(g(x), model(x) * len(seen))
        assert parts_of(g)["Net"].replayed


def test_recordings_from_before_stay(device):
    """Another callable's recordings know nothing of how modules are called now."""
    other, model, seen = net(device), net(device), []
    strict = rote.graph(other, strict=True)

    def step(x):
        seen.insert(0, 1)
        return model(x) * len(seen)

    g, x = rote.graph(step), torch.ones(2, 4, device=device)
    with torch.no_grad():
        for _ in range(4):
            strict(x)
        for y in inputs(device, ENOUGH):
            g(y)
        assert parts_of(g)["Net"].replayed
        assert torch.equal(strict(x), other(x))
        g.reset()
        assert torch.equal(strict(x), other(x))
    assert strict.report().recorded == 1


def test_compiled_code_is_what_it_was(device):
    """A function that Dynamo compiles, while calls of modules are asked about, inlines them as ever.

    One that names ``__call__`` of modules has the code of that under guard, and is compiled once more.
    """

    class Explicit(nn.Linear):
        def __call__(self, x):
            return super().__call__(x) + 1

    compiled = []

    def backend(graph, given):
        compiled.append([node.target for node in graph.graph.nodes if node.op == "call_function"])
        return graph.forward

    model, seen = nn.Sequential(Explicit(4, 4).to(device), nn.ReLU()), []

    def step(x):
        seen.insert(0, 1)
        return fast(x) * len(seen)

    def functions():
        torch.compiler.reset()
        compiled.clear()
        return torch.compile(lambda x: model(x), backend=backend, fullgraph=True)

    with torch.no_grad():
        x = torch.ones(2, 4, device=device)
        expected = functions()(x)
        before, fast = [*compiled], functions()
        g = rote.graph(step)
        for n in range(1, ENOUGH):
            if n == BEGIN + 1:
                fast = functions()
            assert torch.equal(g(x), expected * n)
    assert compiled in (before, 2 * before)
    torch.compiler.reset()


def test_a_compiled_module_is_compiled_once(device):
    compiled = []

    def backend(graph, given):
        compiled.append(graph)
        return graph.forward

    model, seen = net(device), []
    fast = torch.compile(model, backend=backend)

    def step(x):
        seen.insert(0, 1)
        return fast(x) * len(seen)

    g = rote.graph(step)
    with torch.no_grad():
        for x in inputs(device, ENOUGH):
            assert torch.equal(g(x), model(x) * len(seen))
    assert len(compiled) == 1
    torch.compiler.reset()


def test_a_module_given_objects_that_are_new_each_time(device):
    class Cache:
        def __init__(self):
            self.past = []

    class Cached(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net(device)

        def forward(self, x, cache):
            cache.past.append(self.net(x))
            return torch.cat(cache.past[-2:]).sum(0, keepdim=True) * len(cache.past)

    def make():
        model = Cached()

        def decode(x):
            cache, out = Cache(), x
            for _ in range(5):
                out = model(x, cache) + out
            return out * float(out.sum())

        return decode

    same_as_plain(make, device, 2 * ENOUGH)


def test_results_are_the_callers(device):
    def make():
        model, kept = net(device), []

        def step(x):
            kept.append(model(x))
            kept[0].add_(1)
            return torch.stack(kept).sum(0)

        return step

    g = same_as_plain(make, device)
    assert parts_of(g)["Net"].replayed > 10


def test_a_part_that_writes_state_and_arguments(device):
    class Writes(Net):
        def __init__(self, device):
            super().__init__(device)
            self.register_buffer("total", torch.zeros(4, device=device))

        def forward(self, x):
            self.total.add_(x.sum(0))
            x.mul_(0.5)
            return super().forward(x) + self.total

    def make():
        torch.manual_seed(0)
        model, seen = Writes(device), []

        def step(x):
            seen.insert(0, 1)
            return model(x) * len(seen) + x

        return step

    g = same_as_plain(make, device)
    assert parts_of(g)["Writes"].replayed > 10


class Negating:
    """A backend whose code gives what the code as written gives, negated."""

    def __call__(self, graph, inputs):
        return lambda *args: tuple([-each for each in graph(*args)])


@pytest.mark.usefixtures("compiles_afresh")
def test_modules_below_a_frame_that_is_not_compiled(device):
    """Dynamo compiles what such a frame calls: a module there is no part, and one elsewhere is."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh()).to(device)
    uncompiled = torch._dynamo.decorators.skip(lambda x: model(x) * 2)
    compiled = torch.compile(uncompiled, backend=Negating())

    def fn(x):
        resource.getpagesize()  # of which nothing is known
        with torch.no_grad():
            return compiled(x), model(x)

    g = rote.graph(fn)
    for number in range(40):
        x = torch.randn(4, 8, device=device)
        assert_same(g(x), fn(x), f"call {number}")
