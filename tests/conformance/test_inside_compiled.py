"""A graphed callable in a compiled function is one call in its graph, and replays."""

from __future__ import annotations

import copy
import gc
import weakref
from collections import namedtuple
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch._functorch import config as functorch_config

import rote
from rote.enclosed.operators import _KEPT
from rote.integrations.torch_compile import backend as rote_backend
from rote.testing import assert_same

CALLS = 8
REPLAYED = CALLS - 2
pytestmark = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf"  # Dynamo looks, behind a graph break
)
AROUND = ["eager", "aot_eager"]


@pytest.fixture(autouse=True)
def _afresh(compiles_afresh):
    torch._dynamo.utils.counters.clear()


@pytest.fixture(
    params=[
        "eager",
        pytest.param("aot_eager", marks=pytest.mark.long),
        pytest.param("inductor", marks=pytest.mark.slow),
    ]
)
def around(request):
    """The backend of the code around the call.

    Inductor is among them where it has something to order, to keep apart or to free. It begins with what
    ``aot_eager`` does, which is left to long runs here.
    """
    return request.param


def compiled_graphs():
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


class Nodes:
    """A backend that runs graphs as they are, and keeps them."""

    def __init__(self):
        self.graphs = []

    def __call__(self, graph, inputs):
        self.graphs.append(graph)
        return graph.forward

    @property
    def names(self):
        """What each graph calls."""
        return [
            [node.name for node in each.graph.nodes if node.op not in ("placeholder", "output")]
            for each in self.graphs
        ]


def compare(device, graphed, plain, make, *, around="eager", fullgraph=True, inputs=None, calls=CALLS):
    """Call a compiled function with a graphed callable and the same one with the plain, and compare results.

    ``make`` makes the function of a callable.
    """
    inputs = inputs or (lambda n: (torch.randn(3, 8, device=device),))
    act = torch.compile(make(graphed), backend=around, fullgraph=fullgraph)
    expected = make(plain)
    for n in range(calls):
        given = inputs(n)
        tolerance = 1e-5 if around == "inductor" else 0.0  # its kernels round in another way
        assert_same(act(*copied(given)), expected(*copied(given)), tolerance=tolerance)


def copied(values):
    return tuple(value.clone() if isinstance(value, torch.Tensor) else value for value in values)


def network(device, *more):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 16), *more, nn.Tanh(), nn.Linear(16, 8)).to(device)


def surrounded(call):
    """A function that does something before a call and behind it."""
    return lambda x: call(x + 1) * 2


FINDS_ATTRIBUTES = pytest.mark.skipif(
    torch.__version__.startswith("2.11."), reason="Dynamo takes such an attribute for one of the class"
)


class TestGraph:
    def test_call_is_one_node_and_the_code_around_it_is_compiled(self, device):
        model, seen = network(device), Nodes()
        act = rote.graph(lambda x: model(x).relu())
        compare(device, act, lambda x: model(x).relu(), surrounded, around=seen)
        assert seen.names == [["y", "enclosed", "relu", "mul"]] or len(seen.names[0]) == 4
        assert act.report().replayed == REPLAYED

    def test_results_are_those_of_the_plain_callable(self, device, around):
        model = network(device)
        act = rote.graph(lambda x: model(x).relu())
        with torch.no_grad():
            compare(device, act, lambda x: model(x).relu(), surrounded, around=around)
        assert (act.report().calls, act.report().replayed) == (CALLS, REPLAYED)
        assert compiled_graphs() == 1

    @pytest.mark.parametrize("around", AROUND)
    def test_held_results_stay(self, device, around):
        act = rote.graph(lambda x: x.cumsum(0))
        f = torch.compile(lambda x: act(x), backend=around, fullgraph=True)
        inputs = [torch.randn(4, device=device) for _ in range(CALLS)]
        held = [f(x) for x in inputs]
        assert_same(held, [x.cumsum(0) for x in inputs])

    def test_two_calls_have_results_of_their_own(self, device, around):
        model = network(device)
        act = rote.graph(lambda x: model(x))

        def twice(call):
            return lambda x: (call(x), call(x), call(call(x)))

        with torch.no_grad():
            compare(device, act, model, twice, around=around)
        assert act.report().calls == 4 * CALLS
        one, other, _ = torch.compile(twice(act), backend=around)(torch.randn(3, 8, device=device))
        one.zero_()
        assert other.abs().sum() > 0

    def test_inside_the_backend_of_rote_it_is_part_of_the_recording(self, device):
        model = network(device)
        act = rote.graph(lambda x: model(x).relu())
        f = torch.compile(surrounded(act), backend=rote_backend, options={"kernels": "aten"}, fullgraph=True)
        for _ in range(CALLS):
            x = torch.randn(3, 8, device=device)
            loss, expected = f(x).sum(), surrounded(lambda x: model(x).relu())(x).sum()
            assert_same(
                torch.autograd.grad(loss, [*model.parameters()]),
                torch.autograd.grad(expected, [*model.parameters()]),
            )
        (report,) = [each.report() for each in rote_backend.graphed()]
        assert report.replayed == CALLS - 3
        assert act.report().calls == 0

    def test_compiled_code_in_a_graphed_callable_calls_another_one(self, device, around):
        model = network(device)
        inner = rote.graph(lambda x: model(x).relu())
        middle = torch.compile(surrounded(inner), backend=around)
        outer = rote.graph(lambda x: middle(x) - 1)
        plain = surrounded(lambda x: model(x).relu())
        with torch.no_grad():
            for _ in range(CALLS):
                x = torch.randn(3, 8, device=device)
                torch.testing.assert_close(outer(x), plain(x) - 1)

    @pytest.mark.parametrize("donated", [True, False])
    def test_compiled_code_in_a_graphed_callable_is_trained(self, device, around, donated):
        model = network(device)
        inner = rote.graph(lambda x: model(x).relu())
        middle = torch.compile(surrounded(inner), backend=around)
        outer = rote.graph(lambda x: middle(x) - 1)
        plain = surrounded(lambda x: model(x).relu())
        with functorch_config.patch(donated_buffer=donated):
            for _ in range(2 * CALLS):
                x, y = torch.randn(3, 8, device=device), torch.randn(3, 8, device=device)
                losses, expected = [outer(x).sum(), outer(y).sum()], [plain(x).sum(), plain(y).sum()]
                for loss, other in zip(losses, expected, strict=True):
                    torch.testing.assert_close(
                        torch.autograd.grad(loss, [*model.parameters()]),
                        torch.autograd.grad(other, [*model.parameters()]),
                    )
        codes = {found.code for found in outer.report().reasons}
        assert "RT401" in codes if around != "eager" else outer.report().replayed > 0

    def test_switched_off_it_is_the_plain_callable(self, device):
        act, seen = rote.graph(lambda x: x.sin(), enabled=False), Nodes()
        compare(device, act, torch.sin, surrounded, around=seen)
        assert [name for name in seen.names[0] if "enclosed" in name] == []


class TestKinds:
    def test_decorated_function(self, device):
        @rote.graph
        def act(x):
            return x.exp()

        compare(device, act, torch.exp, surrounded)
        assert act.report().replayed == REPLAYED

    @pytest.mark.parametrize("around", AROUND)
    def test_module(self, device, around):
        model = network(device)
        act = rote.graph(model)
        compare(device, act, model, surrounded, around=around)
        assert act.report().replayed == REPLAYED

    def test_module_as_a_child_of_a_compiled_one(self, device):
        model = network(device, nn.Sequential(nn.Linear(16, 16), nn.ReLU()))
        plain = copy.deepcopy(model)
        model[1] = rote.graph(model[1])
        compare(device, model, plain, surrounded)
        assert model[1].report().replayed == REPLAYED

    @FINDS_ATTRIBUTES
    def test_bound_method_in_an_attribute(self, device):
        class Policy(nn.Module):
            def __init__(self):
                super().__init__()
                self.net, self.scale = network(device), 2.0
                self.infer = rote.graph(self._infer)

            def _infer(self, x):
                return self.net(x) * self.scale

            def forward(self, x):
                return self.infer(x) + 1

        policy = Policy()
        f = torch.compile(policy, backend="eager", fullgraph=True)
        for n in range(2 * CALLS):
            if n == CALLS:
                policy.scale = 3.0
            x = torch.randn(3, 8, device=device)
            assert_same(f(x), policy._infer(x) + 1)
        assert policy.infer.report().replayed == 2 * REPLAYED

    def test_method_graphed_in_the_class(self, device):
        class Policy(nn.Module):
            def __init__(self, scale):
                super().__init__()
                self.net, self.scale = network(device), scale

            @rote.graph
            def infer(self, x):
                return self.net(x) * self.scale

            def forward(self, x):
                return self.infer(x) + 1

        policies = [Policy(2.0), Policy(3.0)]
        for policy in policies:
            f = torch.compile(policy, backend="eager")
            for _ in range(CALLS):
                x = torch.randn(3, 8, device=device)
                assert_same(f(x), policy.net(x) * policy.scale + 1)
        assert [policy.infer.report().replayed for policy in policies] == [REPLAYED, REPLAYED]

    @FINDS_ATTRIBUTES
    def test_method_that_was_taken_from_its_instance(self, device):
        class Policy:
            scale = 2.0

            @rote.graph
            def infer(self, x):
                return x * self.scale

        policy = Policy()
        infer = policy.infer
        compare(device, infer, lambda x: x * 2.0, surrounded)
        assert policy.infer.report().replayed == REPLAYED

    def test_method_behind_a_graph_break(self, device):
        class Policy:
            scale = 2.0

            @rote.graph
            def infer(self, x):
                print(end="")
                return x * self.scale

        policy = Policy()
        compare(device, lambda x: policy.infer(x), lambda x: x * 2.0, surrounded, fullgraph=False)
        assert policy.infer.report().replayed == REPLAYED

    @pytest.mark.parametrize("around", AROUND)
    def test_padded(self, device, around):
        model = network(device)
        act = rote.padded(lambda x: model(x), axes={"x": {0: [4, 8]}}, tolerance=1e-5)
        f = torch.compile(surrounded(act), backend=around, dynamic=True, fullgraph=True)
        with torch.no_grad():
            for n in range(3 * CALLS):
                x = torch.randn(2 + n % 5, 8, device=device)
                assert_same(f(x), surrounded(model)(x), tolerance=1e-5)
        assert act.report().padded > 0
        assert act.report().graphed.replayed > 0

    def test_padded_method(self, device):
        class Policy:
            scale = 2.0

            @rote.padded(axes={"x": {0: [4, 8]}})
            def infer(self, x):
                return x * self.scale

        policy = Policy()
        f = torch.compile(lambda x: policy.infer(x) + 1, backend="eager", dynamic=True)
        for n in range(3 * CALLS):
            x = torch.randn(2 + n % 5, 8, device=device)
            assert_same(f(x), x * 2.0 + 1)
        assert policy.infer.report().padded > 0

    def test_compiled_itself(self, device):
        model = network(device)
        act = rote.graph(lambda x: model(x))
        f = torch.compile(act, backend="eager")
        for _ in range(CALLS):
            x = torch.randn(3, 8, device=device)
            assert_same(f(x), model(x))
        assert act.report().replayed == REPLAYED

    def test_graphed_callable_in_a_graphed_one(self, device):
        inner = rote.graph(lambda x: x.sin())
        act = rote.graph(lambda x: inner(x) + inner(x * 2))
        compare(device, act, lambda x: x.sin() + (x * 2).sin(), surrounded)
        assert act.report().replayed == REPLAYED
        assert inner.report().calls == 0


def train(f, parameters, inputs):
    """Losses and gradients of some steps, the gradients left in place."""
    seen = []
    for x in inputs:
        for each in parameters:
            each.grad = None
        loss = f(x).square().mean()
        loss.backward()
        seen.append(
            (loss.detach(), [None if each.grad is None else each.grad.clone() for each in parameters])
        )
    return seen


class TestGradients:
    @pytest.mark.parametrize("around", AROUND)
    def test_parameters_behind_a_closure_and_inputs(self, device, around):
        model = network(device)
        scale = torch.nn.Parameter(torch.tensor(2.0, device=device))
        act = rote.graph(lambda x: (model(x) * scale).tanh())
        f = torch.compile(surrounded(act), backend=around, fullgraph=True)
        plain = surrounded(lambda x: (model(x) * scale).tanh())
        for _ in range(CALLS):
            x = torch.randn(3, 8, device=device, requires_grad=True)
            wanted = [x, scale, *model.parameters()]
            got = torch.autograd.grad(f(x).square().sum(), wanted)
            torch.testing.assert_close(got, torch.autograd.grad(plain(x).square().sum(), wanted))
        assert act.report().replayed == REPLAYED
        assert act.report().backwards_replayed >= REPLAYED - 2

    @pytest.mark.parametrize("around", AROUND)
    def test_gradients_come_to_grad_and_unused_parameters_have_none(self, device, around):
        model, unused = network(device), nn.Linear(3, 3).to(device)
        parameters = [*model.parameters(), *unused.parameters()]
        act = rote.graph(lambda x: model(x) if unused.weight.shape[0] else x)
        f = torch.compile(surrounded(act), backend=around, fullgraph=True)
        inputs = [torch.randn(3, 8, device=device) for _ in range(CALLS)]
        torch.testing.assert_close(train(f, parameters, inputs), train(surrounded(model), parameters, inputs))

    def test_only_the_result_that_is_used_brings_gradients(self, device, around):
        one, other = nn.Linear(8, 8).to(device), nn.Linear(8, 8).to(device)
        parameters = [*one.parameters(), *other.parameters()]
        act = rote.graph(lambda x: (one(x), other(x)))

        def first(call):
            return lambda x: call(x)[0] * 2

        f = torch.compile(first(act), backend=around, fullgraph=True)
        inputs = [torch.randn(3, 8, device=device) for _ in range(CALLS)]
        expected = train(first(lambda x: (one(x), other(x))), parameters, inputs)
        got = train(f, parameters, inputs)
        assert got[-1][1][2] is None
        torch.testing.assert_close(got, expected)

    def test_several_forwards_before_their_backwards(self, device, around):
        model = network(device)
        act = rote.graph(lambda x: model(x).tanh())
        f, plain = torch.compile(surrounded(act), backend=around), surrounded(lambda x: model(x).tanh())
        for _ in range(3):
            inputs = [torch.randn(3, 8, device=device) for _ in range(4)]
            losses, expected = [f(x).sum() for x in inputs], [plain(x).sum() for x in inputs]
            for loss, other in zip(reversed(losses), reversed(expected), strict=True):
                got = torch.autograd.grad(loss, [*model.parameters()])
                torch.testing.assert_close(got, torch.autograd.grad(other, [*model.parameters()]))

    def test_walked_twice(self, device, around):
        model = network(device)
        act = rote.graph(lambda x: model(x).tanh())
        f = torch.compile(surrounded(act), backend=around)
        for _ in range(CALLS):
            loss = f(torch.randn(3, 8, device=device)).sum()
            once = torch.autograd.grad(loss, [*model.parameters()], retain_graph=True)
            assert_same(once, torch.autograd.grad(loss, [*model.parameters()]))

    def test_memory_that_compiled_code_uses_again(self, device, around):
        """Both what it makes for the call and what it gets are saved for the backward."""
        act = rote.graph(lambda x, y: (x * y).tanh() * x)

        def f(call):
            def run(x, y):
                first, second = x.sin() + 1, y.cos() * 2
                z = call(first, second)
                return ((z.exp() + first * 3).sin() * second).relu() + z * 0.5

            return run

        one, other = torch.compile(f(act), backend=around), f(lambda x, y: (x * y).tanh() * x)
        for _ in range(CALLS):
            x, y = (torch.randn(64, 64, device=device, requires_grad=True) for _ in range(2))
            torch.testing.assert_close(
                torch.autograd.grad(one(x, y).sum(), [x, y]),
                torch.autograd.grad(other(x, y).sum(), [x, y]),
                atol=1e-4,
                rtol=1e-4,
            )

    def test_parameter_that_is_rebound(self, device, around):
        model = network(device)
        act = rote.graph(lambda x: model(x))
        f = torch.compile(surrounded(act), backend=around)
        for n in range(2 * CALLS):
            if n == CALLS:
                model[0].weight = nn.Parameter(torch.randn(16, 8, device=device))
            x = torch.randn(3, 8, device=device)
            got = torch.autograd.grad(f(x).sum(), [*model.parameters()])
            expected = torch.autograd.grad(surrounded(model)(x).sum(), [*model.parameters()])
            torch.testing.assert_close(got, expected)
        assert act.report().replayed >= REPLAYED

    @pytest.mark.parametrize("around", AROUND)
    def test_parameter_that_is_an_argument_too(self, device, around):
        weight = nn.Parameter(torch.randn(8, 8, device=device))
        act = rote.graph(lambda x, w: x @ w + x @ weight)
        f = torch.compile(lambda x: act(x, weight), backend=around)
        for _ in range(CALLS):
            x = torch.randn(3, 8, device=device)
            (got,) = torch.autograd.grad(f(x).sum(), [weight])
            (expected,) = torch.autograd.grad((x @ weight + x @ weight).sum(), [weight])
            torch.testing.assert_close(got, expected)

    def test_forward_without_backward_holds_nothing(self, device, around):
        act = rote.graph(lambda x: (x * 2).tanh())
        f = torch.compile(surrounded(act), backend=around)
        for _ in range(CALLS):
            f(torch.randn(3, device=device, requires_grad=True))
        gc.collect()
        assert not _KEPT

    @pytest.mark.parametrize("around", AROUND)
    def test_callable_is_gone_before_the_backward(self, device, around):
        model = network(device)
        act = rote.graph(lambda x: model(x))
        f = torch.compile(surrounded(act), backend=around)
        for _ in range(CALLS):
            torch.autograd.grad(f(torch.ones(3, 8, device=device)).sum(), [*model.parameters()])
        x = torch.randn(3, 8, device=device)
        loss = f(x).sum()
        del act, f
        torch._dynamo.reset()
        gc.collect()
        got = torch.autograd.grad(loss, [*model.parameters()])
        expected = torch.autograd.grad(surrounded(model)(x).sum(), [*model.parameters()])
        torch.testing.assert_close(got, expected)


Pair = namedtuple("Pair", ["first", "rest"])


@dataclass
class Features:
    value: torch.Tensor
    name: str
    more: list


class TestResultsAndArguments:
    @pytest.mark.parametrize("around", AROUND)
    @pytest.mark.parametrize(
        "wrap",
        [
            lambda y: {"a": y, "b": [y + 1, (y * 2, None)]},
            lambda y: (y, 3, "text"),
            lambda y: Pair(y, [y * 2]),
            lambda y: Features(y, "name", [y - 1]),
            lambda y: [],
            lambda y: None,
            lambda y: (y, y),
        ],
        ids=["dict", "values", "namedtuple", "dataclass", "empty", "nothing", "twice"],
    )
    def test_structures(self, device, around, wrap):
        act = rote.graph(lambda x: wrap(x.sin()))
        compare(device, act, lambda x: wrap(x.sin()), lambda call: lambda x: call(x * 2), around=around)

    @pytest.mark.parametrize("around", AROUND)
    def test_arguments(self, device, around):
        def plain(x, *rest, scale=1.0, mode="plus", **named):
            y = x * scale if mode == "plus" else x / scale
            return y + sum(rest) + named["pair"]["a"] + named["pair"]["b"][0] * named["times"]

        act = rote.graph(plain)

        def make(call):
            return lambda x: call(
                x, x * 2, x + 1, times=3, mode="plus", scale=0.5, pair={"a": x, "b": [x - 1, 2]}
            )

        compare(device, act, plain, make, around=around)
        assert act.report().replayed == REPLAYED

    def test_module_and_function_are_the_ones_of_the_call(self, device):
        act = rote.graph(lambda layer, finish, x: finish(layer(x)))
        layers, ends = [nn.Linear(8, 8).to(device) for _ in range(3)], [torch.relu, torch.sigmoid]
        f = torch.compile(lambda layer, finish, x: act(layer, finish, x) * 2, backend="eager", fullgraph=True)
        for _ in range(CALLS):
            for layer in layers:
                for end in ends:
                    x = torch.randn(3, 8, device=device)
                    assert_same(f(layer, end, x), end(layer(x)) * 2)

    def test_tensor_is_given_twice(self, device, around):
        plain = lambda x, y: x * 2 if x is y else x * 3  # noqa: E731
        act = rote.graph(plain)
        compare(device, act, plain, lambda call: lambda x: call(x, x) + call(x, x.clone()), around=around)

    @pytest.mark.parametrize("around", AROUND)
    def test_argument_that_requires_grad_where_gradients_are_off(self, device, around):
        def plain(x):
            return x * 2 if x.requires_grad else x * 3

        def make(call):
            def run(x):
                y = x.sin()
                with torch.no_grad():
                    return call(y) + call(y.detach())

            return run

        act, x = rote.graph(plain), torch.randn(3, 8, device=device, requires_grad=True)
        f = torch.compile(make(act), backend=around, fullgraph=True)
        for _ in range(CALLS):
            assert_same(f(x), make(plain)(x), tolerance=1e-5)

    @pytest.mark.parametrize("around", AROUND)
    def test_transforms_of_functions(self, device, around):
        def plain(x):
            return torch.vmap(lambda row: row.sum() * row)(x)

        act = rote.graph(plain)
        compare(device, act, plain, surrounded, around=around)
        assert act.report().replayed == REPLAYED

    def test_in_a_transform_of_a_function_it_is_the_plain_callable(self, device):
        act = rote.graph(lambda x: x.sin() * 2)
        f = torch.compile(lambda x: torch.func.grad(lambda y: act(y).sum())(x), backend="aot_eager")
        g = torch.compile(lambda x: torch.vmap(lambda y: act(y))(x), backend="aot_eager")
        for _ in range(CALLS):
            x = torch.randn(3, 8, device=device)
            torch.testing.assert_close((f(x), g(x)), (x.cos() * 2, x.sin() * 2))

    def test_size_of_a_result_that_is_not_known(self, device):
        act = rote.graph(lambda x: (x * 2, x.shape[0]))
        f = torch.compile(lambda x: act(x)[0] + act(x)[1], backend="aot_eager", dynamic=True)
        for n in range(CALLS):
            x = torch.randn(3 + n % 2, 8, device=device)
            torch.testing.assert_close(f(x), x * 2 + len(x))

    def test_result_that_is_an_argument_is_that_argument(self, device):
        act = rote.graph(lambda x: (x, x * 2))
        f = torch.compile(lambda x: act(x), backend="eager", fullgraph=True)
        for _ in range(CALLS):
            x = torch.randn(3, device=device)
            same, twice = f(x)
            assert same is x
            assert_same(twice, x * 2)

    def test_strides(self, device, around):
        act = rote.graph(lambda x: (x.t() * 2, x.transpose(0, 1).contiguous()))
        compare(device, act, lambda x: (x.t() * 2, x.t().contiguous()), lambda call: call, around=around)

    @pytest.mark.parametrize("around", AROUND)
    def test_sizes_that_change(self, device, around):
        model = network(device)
        act = rote.graph(lambda x, n: model(x)[:, :n] * n)
        f = torch.compile(lambda x, n: act(x * 2, n) + 1, backend=around, dynamic=True, fullgraph=True)
        for n in range(3 * CALLS):
            x, size = torch.randn(3 + n % 3, 8, device=device), 2 + n % 2
            got, expected = f(x, size), model(x * 2)[:, :size] * size + 1
            torch.testing.assert_close(got, expected)
            torch.testing.assert_close(
                torch.autograd.grad(got.sum(), [*model.parameters()]),
                torch.autograd.grad(expected.sum(), [*model.parameters()]),
            )
        assert act.report().replayed > CALLS

    @pytest.mark.parametrize("around", AROUND)
    def test_closures_over_tensors_that_change(self, device, around):
        state = {"scale": torch.full((8,), 2.0, device=device)}
        act = rote.graph(lambda x: x * state["scale"])
        f = torch.compile(surrounded(act), backend=around, fullgraph=True)
        for n in range(2 * CALLS):
            if n == 4:
                state["scale"].fill_(3.0)
            if n == CALLS:
                state["scale"] = torch.full((8,), 4.0, device=device)
            x = torch.randn(3, 8, device=device)
            torch.testing.assert_close(f(x), (x + 1) * state["scale"] * 2)


class TestModes:
    @pytest.mark.parametrize("around", AROUND)
    def test_autocast_at_the_call(self, device, around):
        model = network(device)
        act = rote.graph(lambda x: model(x))

        def make(call):
            def run(x):
                with torch.autocast(device.type, dtype=torch.bfloat16):
                    y = call(x)
                return y, call(x)

            return run

        f = torch.compile(make(act), backend=around, fullgraph=True)
        for _ in range(CALLS):
            x = torch.randn(3, 8, device=device)
            (low, high), expected = f(x), make(model)(x)
            assert (low.dtype, high.dtype) == (torch.bfloat16, torch.float32)
            torch.testing.assert_close((low, high), expected)
            torch.testing.assert_close(
                torch.autograd.grad(low.float().sum() + high.sum(), [*model.parameters()]),
                torch.autograd.grad(expected[0].float().sum() + expected[1].sum(), [*model.parameters()]),
                rtol=2e-2,
                atol=2e-2,
            )
        assert act.report().replayed >= REPLAYED

    @pytest.mark.parametrize("around", AROUND)
    def test_no_gradients_in_a_part(self, device, around):
        model = network(device)
        act = rote.graph(lambda x: model(x))

        def make(call):
            def run(x):
                with torch.no_grad():
                    y = call(x)
                return y + call(x)

            return run

        f, plain = torch.compile(make(act), backend=around, fullgraph=True), make(model)
        for _ in range(CALLS):
            x = torch.randn(3, 8, device=device)
            got, expected = f(x), plain(x)
            torch.testing.assert_close(got, expected)
            torch.testing.assert_close(
                torch.autograd.grad(got.sum(), [*model.parameters()]),
                torch.autograd.grad(expected.sum(), [*model.parameters()]),
            )

    @pytest.mark.parametrize("around", AROUND)
    def test_gradients_that_the_callable_switches_off(self, device, around):
        model = network(device)

        def plain(x):
            with torch.no_grad():
                y = model(x)
            return y, model[0](x)

        act = rote.graph(plain)
        f = torch.compile(lambda x: act(x), backend=around, fullgraph=True)
        for _ in range(CALLS):
            x = torch.randn(3, 8, device=device)
            (off, on), expected = f(x), plain(x)
            assert (off.requires_grad, on.requires_grad) == (False, True)
            torch.testing.assert_close((off, on), expected)

    @pytest.mark.parametrize("around", AROUND)
    def test_random_numbers_are_those_of_eager(self, device, around):
        act = rote.graph(lambda x: nn.functional.dropout(x, 0.5) + torch.rand_like(x))

        def make(call):
            return lambda x: call(x) + torch.rand_like(x) + call(x)

        f = torch.compile(make(act), backend=around, fullgraph=True)
        plain = make(lambda x: nn.functional.dropout(x, 0.5) + torch.rand_like(x))
        for seed in range(CALLS):
            x = torch.ones(16, device=device)
            torch.manual_seed(seed)
            got, behind = f(x), torch.rand(2, device=device)
            torch.manual_seed(seed)
            assert_same((got, behind), (plain(x), torch.rand(2, device=device)))
        assert act.report().replayed >= REPLAYED

    def test_evaluation_and_training_mode(self, device):
        model = network(device, nn.Dropout(0.5))
        act = rote.graph(model)
        f = torch.compile(surrounded(act), backend="eager")
        for n in range(3 * CALLS):
            model.train(n % 4 < 2)
            x = torch.randn(3, 8, device=device)
            torch.manual_seed(n)
            got = f(x)
            torch.manual_seed(n)
            assert_same(got, surrounded(model)(x))


class Steps(nn.Module):
    def __init__(self):
        super().__init__()
        self.count, self.last = 0, None
        self.register_buffer("seen", torch.zeros(8))


def reads_a_value(x):
    return x * x.sum().item()


def prints(x):
    print("x", end="")
    return x * 2


def picks(x):
    return x[x > 0] * 2


def writes_its_argument(x):
    x.add_(1)
    return x * 2


def returns_a_view(x):
    return x[0]


def draws_in_python(x):
    return x * 2 if torch.rand(1).item() < 2 else x


class TestBreaks:
    """Where the graph does not hold the call it breaks, and the callable replays all the same."""

    def check(self, device, act, make, plain, *, replays=True, inputs=None, around="aot_eager"):
        inputs = inputs or (lambda n: (torch.randn(3, 8, device=device).abs() * (n + 1) ** 0,))
        compare(device, act, plain, make, around=around, fullgraph=False, inputs=inputs, calls=2 * CALLS)
        assert act.report().calls > 0
        if replays:
            assert act.report().replayed >= REPLAYED
        with pytest.raises(torch._dynamo.exc.Unsupported):
            torch._dynamo.reset()
            torch.compile(make(act), backend=around, fullgraph=True)(*inputs(0))

    @pytest.mark.parametrize(
        ("plain", "replays"),
        [(reads_a_value, False), (prints, True), (writes_its_argument, True), (returns_a_view, True)],
    )
    def test_in_the_callable(self, device, plain, replays):
        self.check(device, rote.graph(plain), surrounded, plain, replays=replays)

    def test_result_whose_shape_depends_on_values(self, device):
        self.check(
            device, rote.graph(picks), surrounded, picks, inputs=lambda n: (torch.ones(8, device=device),)
        )

    def test_reason_is_in_the_message(self, device):
        act = rote.graph(writes_its_argument)
        with pytest.raises(
            torch._dynamo.exc.Unsupported, match=r"rote: writes_its_argument .* it writes a tensor"
        ):
            torch.compile(surrounded(act), backend="eager", fullgraph=True)(torch.ones(3, device=device))

    def test_buffers_that_it_writes(self, device):
        model = network(device, nn.BatchNorm1d(16))
        plain = copy.deepcopy(model)
        act = rote.graph(model)
        f = torch.compile(surrounded(act), backend="aot_eager")
        for _ in range(CALLS):
            x = torch.randn(6, 8, device=device)
            assert_same(f(x), surrounded(plain)(x))
        assert_same([*model.buffers()], [*plain.buffers()])
        assert act.report().replayed == REPLAYED

    def test_state_that_the_compiled_function_changed_before(self, device):
        state = Steps().to(device)
        act = rote.graph(lambda x: x * state.count)

        def step(x):
            state.count = state.count + 1 if state.count < 3 else state.count
            return act(x) + 1

        f = torch.compile(step, backend="aot_eager")
        for n in range(2 * CALLS):
            x = torch.randn(3, 8, device=device)
            assert_same(f(x), x * min(n + 1, 3) + 1)
        assert act.report().replayed >= REPLAYED

    def test_buffer_that_the_compiled_function_wrote_before(self, device):
        state = Steps().to(device)
        act = rote.graph(lambda x: x + state.seen)

        def step(x):
            state.seen.add_(1)
            return act(x) * 2

        f = torch.compile(step, backend="aot_eager")
        for n in range(CALLS):
            x = torch.randn(3, 8, device=device)
            assert_same(f(x), (x + (n + 1)) * 2)
        assert act.report().replayed == REPLAYED

    def test_buffer_that_the_compiled_function_writes_behind(self, device, around):
        state = Steps().to(device)
        act = rote.graph(lambda x: x + state.seen)

        def step(x):
            y = act(x)
            state.seen.add_(1)
            return y * 2 + act(x)

        f = torch.compile(step, backend=around)
        for n in range(CALLS):
            x = torch.randn(3, 8, device=device)
            torch.testing.assert_close(f(x), (x + n) * 2 + x + n + 1)

    def test_state_that_it_changes(self, device):
        state = Steps().to(device)

        def remember(x):
            state.last = x * 2
            return x * 3

        act = rote.graph(remember)

        def step(x):
            y = act(x)
            return y + state.last

        f = torch.compile(step, backend="aot_eager")
        for _ in range(CALLS):
            x = torch.randn(3, 8, device=device)
            torch.testing.assert_close(f(x), x * 3 + x * 2)
            torch.testing.assert_close(state.last, x * 2)
        assert act.report().replayed == REPLAYED

    def test_list_that_it_fills(self, device):
        act = rote.graph(lambda x, found: (found.append(x * 2), x * 3)[1])

        def step(x):
            found = []
            y = act(x, found)
            return y + found[0], len(found)

        f = torch.compile(step, backend="aot_eager")
        for _ in range(CALLS):
            x = torch.randn(3, 8, device=device)
            got, number = f(x)
            torch.testing.assert_close(got, x * 5)
            assert number == 1

    def test_object_that_is_new_in_each_call(self, device):
        act = rote.graph(lambda batch: batch.value * 2)

        def make(call):
            return lambda x: call(Features(x, "name", [])) + 1

        self.check(device, act, make, lambda batch: batch.value * 2)

    def test_context_that_a_call_does_not_repeat(self, device):
        act = rote.graph(lambda x: x + torch.ones(8))

        def make(call):
            def run(x):
                with torch.device(device):
                    return call(x)

            return run

        compare(device, act, lambda x: x + torch.ones(8), make, fullgraph=False)

    def test_exceptions(self, device, around):
        def plain(x, fails):
            if fails:
                raise ValueError("not this one")
            return x * 2

        act = rote.graph(plain)

        def step(x, fails):
            y = x + 1
            try:
                return act(y, fails)
            except ValueError as error:
                return str(error)

        f = torch.compile(step, backend=around)
        for n in range(2 * CALLS):
            x = torch.randn(3, device=device)
            assert_same(f(x, n % 2 == 1), step(x, n % 2 == 1))
        through = torch.compile(lambda x: act(x + 1, True), backend=around)
        with pytest.raises(ValueError, match="not this one"):
            through(torch.ones(3, device=device))


class TestCompilations:
    def test_nothing_is_compiled_again(self, device):
        model = network(device)
        act = rote.graph(lambda x: model(x))
        f = torch.compile(surrounded(act), backend="eager", fullgraph=True)
        with torch._dynamo.config.patch(error_on_recompile=True):
            for _ in range(4 * CALLS):
                f(torch.randn(3, 8, device=device))
                act(torch.randn(3, 8, device=device))
        assert compiled_graphs() == 1

    def test_another_graphed_callable_in_the_same_place(self, device):
        f = torch.compile(lambda call, x: call(x) + 1, backend="aot_eager", fullgraph=True)
        for scale in range(4):
            act = rote.graph(lambda x, scale=scale: x * scale)
            for _ in range(CALLS):
                x = torch.randn(3, device=device)
                assert_same(f(act, x), x * scale + 1)
            assert act.report().replayed == REPLAYED

    def test_what_is_compiled_does_not_keep_it_alive(self, device):
        f = torch.compile(lambda call, x: call(x) + 1, backend="aot_eager", fullgraph=True)
        act = rote.graph(lambda x: x * 2)
        for _ in range(CALLS):
            f(act, torch.ones(3, device=device))
        there = weakref.ref(act)
        del act
        gc.collect()
        assert there() is None

    def test_strict_mode_raises_at_the_call(self, device):
        act = rote.graph(lambda x: x * 2, strict=True)
        f = torch.compile(lambda x: act(x) + 1, backend="aot_eager", fullgraph=True)
        for _ in range(CALLS):
            f(torch.ones(3, device=device))
        with pytest.raises(rote.NotReplayedError, match="would not be replayed"):
            torch.compile(lambda x: act(x) + 1, backend="aot_eager", fullgraph=True)(
                torch.ones(5, device=device)
            )
