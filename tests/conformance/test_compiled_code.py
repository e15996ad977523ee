"""``rote.graph`` over code under ``torch.compile``: compiled code is recorded, and Dynamo's guards hold."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn
from torch._functorch import config as autograd_config

import rote
from rote.testing import assert_same

pytestmark = pytest.mark.usefixtures("compiles_afresh")
CALLS = 8
REPLAYED = CALLS - 3
"""The first call compiles; the second is observed, the third recorded."""
BACKEND = "aot_eager"


def compiled(function, **keywords):
    return torch.compile(function, backend=keywords.pop("backend", BACKEND), **keywords)


def codes(graphed):
    return {reason.code for reason in graphed.report().reasons}


def replayed(graphed):
    return graphed.report().replayed


class Doubling:
    """A backend whose code gives twice what the code as written gives: it shows which of them ran."""

    def __call__(self, graph, inputs):
        def run(*args):
            return tuple([each * 2 if isinstance(each, torch.Tensor) else each for each in graph(*args)])

        return run


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)
        self.scale = 2.0

    def forward(self, x):
        return self.last(torch.tanh(self.first(x))) * self.scale


@pytest.fixture
def net(device):
    torch.manual_seed(1)
    return Net().to(device)


class TestWhatRuns:
    def test_compiled_code_is_what_is_recorded(self, device):
        g = rote.graph(compiled(lambda x: x + 1, backend=Doubling()))
        for n in range(CALLS):
            assert_same(g(torch.full((3,), n, device=device)), torch.full((3,), 2 * (n + 1), device=device))
        assert replayed(g) == REPLAYED, g.explain()

    def test_so_it_is_inside_of_a_callable(self, device):
        double = compiled(lambda x: x + 1, backend=Doubling())
        g = rote.graph(lambda x: double(x * 3) - 1)
        for n in range(CALLS):
            assert_same(g(torch.full((3,), n, device=device)), torch.full((3,), 6 * n + 1, device=device))
        assert replayed(g) == REPLAYED, g.explain()

    @pytest.mark.parametrize(
        "context",
        [torch.no_grad, torch.enable_grad, lambda: torch.autocast("cpu", torch.bfloat16)],
        ids=["no_grad", "enable_grad", "autocast"],
    )
    def test_in_a_context_of_the_call(self, device, context):
        """Guards look at what the call has set where the compiled code runs, not at what is set outside."""
        double = compiled(lambda x: (x @ x) + 1, backend=Doubling())
        keeps = context is torch.enable_grad

        def fn(x):
            with context():
                return (double(x * 3) - 1).detach()

        g = rote.graph(fn)
        for _ in range(CALLS):
            x = torch.randn(3, 3, device=device)
            with torch.no_grad() if keeps else torch.enable_grad():
                assert_same(g(x), fn(x))
        assert replayed(g) == REPLAYED, g.explain()

    @pytest.mark.parametrize("way", ["wrapped", "in_place", "forward", "method", "decorated"])
    def test_ways_of_compiling(self, device, net, way):
        x = torch.randn(3, 8, device=device)
        with torch.no_grad():
            expected = net(x) * 2
        if way == "wrapped":
            g = rote.graph(compiled(net, backend=Doubling()))
        elif way == "in_place":
            net.compile(backend=Doubling())
            g = rote.graph(lambda x: net(x))
        elif way == "forward":
            net.forward = compiled(net.forward, backend=Doubling())
            g = rote.graph(lambda x: net(x))
        elif way == "method":
            g = rote.graph(compiled(net.forward, backend=Doubling()))
        else:

            @torch.compile(backend=Doubling())
            def act(x):
                return net(x)

            g = rote.graph(act)
        with torch.no_grad():
            for _ in range(CALLS):
                assert_same(g(x), expected)
        assert replayed(g) == REPLAYED, g.explain()

    def test_nothing_is_compiled_that_a_plain_call_does_not_compile(self, device, net):
        act = compiled(net)
        g = rote.graph(lambda x: act(x) + 1)
        with torch.no_grad():
            x = torch.randn(3, 8, device=device)
            act(x)
            with torch._dynamo.config.patch(error_on_recompile=True):
                for _ in range(CALLS):
                    assert_same(g(x), act(x) + 1)
        assert replayed(g) == REPLAYED + 1  # the first call had nothing to compile

    def test_names_that_a_trace_replaces_are_what_guards_know(self, device):
        """Attention asks ``torch.overrides.has_torch_function``, and its guards look at that function."""
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True).to(device)

        def run(x):
            return layer(x) + layer(x * 2)

        act, again = compiled(run), compiled(run)
        with torch.no_grad(), torch._dynamo.config.patch(error_on_recompile=True):
            act(torch.ones(1, 4, 16, device=device))
            g = rote.graph(again)
            for _ in range(CALLS):
                x = torch.randn(1, 4, 16, device=device)
                assert_same(g(x), act(x))
        assert replayed(g) == REPLAYED + 1, g.explain()

    def test_pieces_around_graph_breaks(self, device):
        def act(x):
            y = x * 2
            torch._dynamo.graph_break()
            return y - x.sin()

        g = rote.graph(compiled(act, backend=BACKEND))
        for _ in range(CALLS):
            x = torch.randn(4, device=device)
            assert_same(g(x), x * 2 - x.sin())
        assert replayed(g) == REPLAYED, g.explain()

    def test_a_value_read_between_pieces_is_a_branch(self, device):
        def act(x):
            return x + 1 if x.sum() > 0 else x - 1

        g = rote.graph(compiled(act))
        for n in range(4 * CALLS):
            x = torch.full((4,), 1.0 if n % 2 else -1.0, device=device)
            assert_same(g(x), act(x))
        assert replayed(g) >= 2 * CALLS

    def test_functions_that_are_left_alone_run_as_written(self, device):
        @torch._dynamo.disable
        def outside(x):
            return x + 1

        def act(x):
            return outside(x * 3) * 5

        g = rote.graph(compiled(act, backend=Doubling()))
        for _ in range(CALLS):
            assert_same(g(torch.ones(2, device=device)), torch.full((2,), 70.0, device=device))
        assert replayed(g) == REPLAYED, g.explain()

    def test_two_backends_over_one_function(self, device):
        def act(x):
            return x + 1

        one, two = compiled(act), compiled(act, backend=Doubling())
        g = rote.graph(lambda x: (one(x), two(x), act(x)))
        x = torch.ones(2, device=device)
        for _ in range(CALLS):
            assert_same(g(x), (x + 1, (x + 1) * 2, x + 1))
        assert replayed(g) == REPLAYED, g.explain()

    def test_compiled_code_that_calls_compiled_code(self, device):
        inner = compiled(lambda x: x.sin())
        g = rote.graph(compiled(lambda x: inner(x) * 2))
        for _ in range(CALLS):
            x = torch.randn(3, device=device)
            assert_same(g(x), x.sin() * 2)
        assert replayed(g) == REPLAYED, g.explain()

    def test_functions_that_c_calls(self, device):
        act = compiled(lambda x: x * 2)
        g = rote.graph(lambda x: list(map(act, (x, x + 1))))
        for _ in range(CALLS):
            x = torch.randn(3, device=device)
            assert_same(g(x), [x * 2, (x + 1) * 2])
        assert replayed(g) >= REPLAYED - 2

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning")
    def test_kernels_of_inductor_are_kept_bit_for_bit(self, device, net):
        act = torch.compile(net)
        g = rote.graph(act)
        with torch.no_grad():
            for _ in range(CALLS):
                x = torch.randn(3, 8, device=device)
                assert_same(g(x), act(x))
        assert replayed(g) == REPLAYED, g.explain()


class TestGuards:
    def test_a_number_of_the_module(self, device, net):
        g = rote.graph(compiled(net))
        x = torch.randn(3, 8, device=device)
        with torch.no_grad():
            for n in range(3 * CALLS):
                net.scale = 2.0 if n < CALLS or n >= 2 * CALLS else 3.0
                assert_same(g(x), net(x))
        assert replayed(g) >= 3 * (REPLAYED - 1)
        assert "RT302" in codes(g)

    @pytest.mark.parametrize("change", ["in_place", "data", "bound_anew"])
    def test_weights(self, device, net, change):
        g = rote.graph(compiled(net))
        x = torch.randn(3, 8, device=device)
        with torch.no_grad():
            for n in range(3 * CALLS):
                if n == CALLS:
                    weight = net.last.weight
                    if change == "in_place":
                        weight.mul_(2)
                    elif change == "data":
                        weight.data = weight.data * 2
                    else:
                        net.last.weight = nn.Parameter(weight * 2)
                assert_same(g(x), net(x))
        assert replayed(g) >= 2 * REPLAYED

    def test_globals_and_closures(self, device):
        held = [2.0]

        def make(by):
            def act(x):
                return x * by * held[0]

            return act

        act = make(3.0)
        g = rote.graph(compiled(act))
        x = torch.randn(3, device=device)
        for n in range(3 * CALLS):
            if n == CALLS:
                held[0] = 5.0
            if n == 2 * CALLS:
                act.__closure__[0].cell_contents = 7.0
            assert_same(g(x), act(x))
        assert replayed(g) >= 2 * REPLAYED

    def test_functions_that_share_compiled_code_have_lists_of_their_own(self, device):
        """Their guards are the same, and look at what each of them holds."""

        def make(held):
            return lambda x: x * held[0]

        one, two = [2.0], [2.0]
        acts = compiled(make(one)), compiled(make(two))
        g = rote.graph(lambda x: [act(x) for act in acts])
        x = torch.randn(3, device=device)
        for n in range(2 * CALLS):
            two[0] = 2.0 if n < CALLS else 5.0
            assert_same(g(x), [x * one[0], x * two[0]])
        assert replayed(g) >= REPLAYED

    def test_a_counter_of_the_module_is_an_effect(self, device):
        class Counting(nn.Module):
            calls = 0

            def forward(self, x):
                self.calls = self.calls + 1
                return x * 2

        module = Counting()
        g = rote.graph(compiled(module, backend=BACKEND))
        for n in range(CALLS):
            x = torch.randn(3, device=device)
            assert_same(g(x), x * 2)
            assert module.calls == n + 1
        assert replayed(g) == 0

    def test_objects_among_the_variables(self, device):
        class Config:
            by = 2.0

        config = Config()
        act = compiled(lambda x, config: x * config.by)
        g = rote.graph(act)
        x = torch.ones(3, device=device)
        for n in range(3 * CALLS):
            config.by = 2.0 if n < CALLS else 4.0
            if n == 2 * CALLS:
                config = Config()
                config.by = 4.0
            assert_same(g(x, config), x * config.by)
        assert replayed(g) >= CALLS

    def test_containers_among_the_variables(self, device):
        act = compiled(lambda batch, scales: batch["x"] * scales[0] + batch["more"][1])
        g = rote.graph(act)
        for n in range(2 * CALLS):
            x = torch.randn(3, device=device)
            scales = [2.0 if n < CALLS else 3.0]
            assert_same(g({"x": x, "more": (x, x + 1)}, scales), x * scales[0] + (x + 1))
        assert replayed(g) >= 2 * (REPLAYED - 1)

    def test_sizes(self, device):
        act = compiled(lambda x: x.sin() * x.shape[0])
        g = rote.graph(act)
        for n in range(6 * CALLS):
            x = torch.randn(2 + n % 3, 4, device=device)
            assert_same(g(x), x.sin() * x.shape[0])
        assert replayed(g) >= 3 * CALLS

    def test_what_was_compiled_is_dropped(self, device, net):
        g = rote.graph(compiled(net))
        x = torch.randn(3, 8, device=device)
        with torch.no_grad():
            for n in range(2 * CALLS):
                if n == CALLS:
                    torch._dynamo.reset()
                assert_same(g(x), net(x))
        assert replayed(g) >= 2 * (REPLAYED - 1)

    def test_modes_around_the_call(self, device, net):
        g = rote.graph(compiled(net))
        x = torch.randn(3, 8, device=device)
        for n in range(4 * CALLS):
            with (
                torch.set_grad_enabled(bool(n % 2)),
                torch.autocast(x.device.type, torch.bfloat16, n % 4 > 1),
            ):
                assert_same(g(x), net(x))

    def test_no_module_is_kept_alive(self, device):
        import gc
        import weakref

        net = Net().to(device)
        act = compiled(lambda net, x: net(x))
        g = rote.graph(act)
        with torch.no_grad():
            for _ in range(CALLS):
                g(net, torch.ones(3, 8, device=device))
        gone = weakref.ref(net)
        del net
        g.reset()
        torch._dynamo.reset()
        gc.collect()
        assert gone() is None


class TestStances:
    def test_no_stance_is_changed(self, device):
        seen = []

        def act(x):
            seen.append(torch._dynamo.eval_frame._stance.stance)
            return inner(x)

        inner = compiled(lambda x: x * 2)
        g = rote.graph(act)
        for _ in range(CALLS):
            g(torch.ones(3, device=device))
        assert {*seen} == {"default"}

    def test_the_users_stance_is_kept(self, device):
        g = rote.graph(compiled(lambda x: x + 1, backend=Doubling()))
        x = torch.zeros(2, device=device)
        for n in range(3 * CALLS):
            written = CALLS <= n < 2 * CALLS
            if written:
                with torch.compiler.set_stance("force_eager"):
                    assert_same(g(x), x + 1)
            else:
                assert_same(g(x), (x + 1) * 2)
        assert replayed(g) >= 2 * (REPLAYED - 1)

    def test_compiled_code_on_other_threads(self, device):
        """It runs, and is compiled anew, while this thread is traced."""
        act = compiled(lambda x: x + 1, backend=Doubling())
        failures, done = [], threading.Event()

        def work():
            n = 0
            while not done.is_set() or not n:
                n += 1
                x = torch.ones(1 + n % 5, device=device)
                try:
                    if not torch.equal(act(x), (x + 1) * 2):
                        failures.append("wrong")
                except Exception as error:
                    failures.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            for n in range(CALLS):
                g = rote.graph(lambda x, n=n: act(x) * n)
                for _ in range(4):
                    x = torch.ones(3, device=device)
                    assert_same(g(x), x * 4 * n)
        finally:
            done.set()
            thread.join()
        assert not failures


class TestGradients:
    def test_whole_steps(self, device):
        def trained(act, model):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

            def step(x):
                optimizer.zero_grad()
                loss = act(x).square().mean()
                loss.backward()
                optimizer.step()
                return loss.detach()

            return step

        torch.manual_seed(1)
        one = Net().to(device)
        two = Net().to(device)
        two.load_state_dict(one.state_dict())
        plain, g = trained(one, one), rote.graph(trained(compiled(two), two))
        for _ in range(2 * CALLS):
            x = torch.randn(3, 8, device=device)
            assert_same(g(x), plain(x))
        assert_same([*one.parameters()], [*two.parameters()])
        assert replayed(g) >= CALLS

    def test_a_backward_that_may_run_once_is_named(self, device, net):
        g = rote.graph(compiled(net))
        for _ in range(CALLS):
            g(torch.randn(3, 8, device=device)).sum().backward()
        assert replayed(g) == 0
        assert "donated_buffer" in g.explain()

    @autograd_config.patch(donated_buffer=False)
    def test_gradients_taken_outside(self, device, net):
        g = rote.graph(compiled(net))
        for _ in range(2 * CALLS):
            x = torch.randn(3, 8, device=device, requires_grad=True)
            net.zero_grad()
            g(x).sum().backward()
            found = [x.grad, *[each.grad for each in net.parameters()]]
            net.zero_grad()
            y = x.detach().clone().requires_grad_()
            net(y).sum().backward()
            assert_same(found, [y.grad, *[each.grad for each in net.parameters()]])
        assert replayed(g) >= CALLS

    def test_random_numbers(self, device):
        act = compiled(lambda x: nn.functional.dropout(x, 0.5))
        g = rote.graph(act)
        x = torch.ones(64, device=device)
        for n in range(CALLS):
            torch.manual_seed(n)
            found = g(x)
            torch.manual_seed(n)
            assert_same(found, act(x))
        assert replayed(g) == REPLAYED, g.explain()

    def test_arguments_that_are_written(self, device):
        def add(total, x):
            total.add_(x)
            return total * 2

        g = rote.graph(compiled(add))
        total, expected = torch.zeros(4, device=device), torch.zeros(4, device=device)
        for _ in range(CALLS):
            x = torch.randn(4, device=device)
            assert_same(g(total, x), add(expected, x))
            assert_same(total, expected)
        assert replayed(g) == REPLAYED, g.explain()

    def test_an_error_is_the_callables_own(self, device):
        def act(x, fail):
            y = x * 2
            if fail:
                raise ValueError("no")
            return y

        g = rote.graph(compiled(act))
        x = torch.ones(3, device=device)
        for n in range(2 * CALLS):
            if n % 5 == 4:
                with pytest.raises(ValueError, match="no"):
                    g(x, True)
            else:
                assert_same(g(x, False), x * 2)
        assert replayed(g) >= CALLS


class TestThreads:
    def test_another_thread_compiles_what_is_being_traced(self, device):
        """It waits, and compiles the functions as they are written."""
        found, begun = [], threading.Event()

        def helper(x):
            return x * 3

        @torch.compile(backend=BACKEND, fullgraph=True)
        def elsewhere(x):
            return helper(x) + 1

        def work():
            begun.wait()
            try:
                found.append(elsewhere(torch.ones(2, device=device)))
            except Exception as error:
                found.append(error)

        thread = threading.Thread(target=work)
        thread.start()

        def act(x):
            y = helper(x)
            begun.set()
            for _ in range(2000):
                y = helper(x)
            return y

        g = rote.graph(act)
        assert_same(g(torch.ones(2, device=device)), torch.full((2,), 3.0, device=device))
        thread.join()
        assert_same(found, [torch.full((2,), 4.0, device=device)])

    def test_a_call_that_waits_for_a_compilation_goes_on(self, device, monkeypatch):
        monkeypatch.setattr("rote.runtime.reads.bytecode.turns.PATIENCE_S", 0.05)

        def helper(x):
            return x * 3

        @torch.compile(backend=BACKEND, fullgraph=True)
        def elsewhere(x):
            return helper(x) + 1

        def act(x):
            results = [helper(x)]
            thread = threading.Thread(target=lambda: results.append(elsewhere(x)))
            thread.start()
            thread.join()
            return results

        g = rote.graph(act)
        x = torch.ones(2, device=device)
        for _ in range(3):
            assert_same(g(x), [x * 3, x * 3 + 1])
        assert replayed(g) == 0
