"""``mode="reduce-overhead"`` with rote in the place of PyTorch's own CUDA graphs.

Inductor asks a policy about code for CUDA devices only. On the host these tests let it take the CPU for one:
nothing is refused there, it has the index 0, and its kernels go into partitions.
"""

from __future__ import annotations

import copy
import gc
from contextlib import contextmanager

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch._functorch import config as autograd_config
from torch._inductor import config as inductor_config
from torch._inductor import cudagraph_utils
from torch._inductor.graph import GraphLowering
from torch._inductor.scheduler import BaseSchedulerNode, Scheduler
from torch._inductor.utils import fresh_cache

from rote import EnvironmentError_, NotReplayedError, OptionError
from rote.integrations import torch_compile
from rote.integrations.torch_compile import cudagraph_policy
from rote.testing import assert_same

CALLS = 9
HAS_POLICIES = hasattr(inductor_config, "cudagraph_policy")
compiles = pytest.mark.slow
needs_policies = pytest.mark.skipif(not HAS_POLICIES, reason="torch.compile has no policies in this version")
pytestmark = pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")


@pytest.fixture(autouse=True)
def _afresh(compiles_afresh, monkeypatch, request):
    if "device" in request.fixturenames and request.getfixturevalue("device").type == "cpu":
        stand_in_for_cuda(monkeypatch)


def stand_in_for_cuda(monkeypatch):
    """Inductor takes the CPU for a device with CUDA graphs."""
    add_device, should_partition = GraphLowering.add_device_info, Scheduler.should_partition

    def add_with_index(self, device):
        add_device(self, device)
        self.device_idxs.add(0)

    def as_on_a_device(self, node):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(BaseSchedulerNode, "is_gpu", lambda node: True)
            return should_partition(self, node)

    monkeypatch.setattr(cudagraph_utils, "check_lowering_disable_cudagraph", lambda nodes: None)
    monkeypatch.setattr(GraphLowering, "add_device_info", add_with_index)
    monkeypatch.setattr(Scheduler, "should_partition", as_on_a_device)


@contextmanager
def taking_over(partition=True, cached=False, **options):
    policy = cudagraph_policy(**options)
    uncached = autograd_config.patch(enable_autograd_cache=cached)  # the stand-in is in no key of a cache
    with (
        uncached,
        inductor_config.patch(cudagraph_policy=policy, graph_partition=partition, fx_graph_cache=cached),
    ):
        yield policy


def compiled(function, **keywords):
    return torch.compile(function, mode="reduce-overhead", **keywords)


def without_graphs(function, **keywords):
    return torch.compile(function, mode="default", **keywords)


def replays(policy):
    return {each.__qualname__: each.report().replayed for each in policy.graphed()}


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)

    def forward(self, x):
        x = nn.functional.dropout(self.norm(self.first(x)).tanh(), 0.25, self.training)
        return self.last(x)


def network(device):
    torch.manual_seed(1)
    return Network().to(device)


def train(step, model, inputs):
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    torch.manual_seed(4)
    for x in inputs:
        optimizer.zero_grad()
        loss = step(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, [each.detach().clone() for each in model.parameters()], [*model.buffers()]


@needs_policies
@compiles
@pytest.mark.parametrize("partition", [True, False])
class TestCalls:
    def test_inference_replays_and_held_results_stay(self, device, partition):
        model = network(device).eval()
        inputs = [torch.randn(3, 8, device=device) for _ in range(CALLS)]
        with torch.no_grad():
            with taking_over(partition) as policy:
                act = compiled(model)
                held = [act(x) for x in inputs]
            found = replays(policy)
            torch._dynamo.reset()
            plain = without_graphs(model)
            assert_same(held, [plain(x) for x in inputs])
        assert list(found) == ["torch.compile [0/0]"]
        assert found["torch.compile [0/0]"] >= CALLS - 4

    def test_training_replays_both_ways(self, device, partition):
        model = network(device)
        plain = copy.deepcopy(model)
        inputs = [torch.randn(6, 8, device=device) for _ in range(CALLS)]
        with taking_over(partition) as policy:
            got = train(compiled(model), model, inputs)
            found = replays(policy)
        torch._dynamo.reset()
        assert_same(got, train(without_graphs(plain), plain, inputs))
        assert {*found} == {"torch.compile [0/0]", "torch.compile [0/0] backward"}
        assert all(each >= CALLS - 4 for each in found.values())


@needs_policies
@compiles
def test_a_backward_whose_results_lie_in_what_was_saved_for_it(device):
    """Inductor lets a backward write its results over saved tensors that nobody else needs."""

    def step(x, weight, scale):
        return (x @ weight).tanh() * scale

    torch.manual_seed(1)
    weight = torch.randn(8, 8, device=device)
    inputs = [torch.randn(64, 8, device=device) for _ in range(CALLS)]
    ours, theirs = ([torch.ones(64, 8, device=device, requires_grad=True) for _ in inputs] for _ in range(2))
    with taking_over() as policy:
        act = compiled(step)
        for x, scale in zip(inputs, ours, strict=True):
            act(x, weight, scale).sum().backward()
        found = replays(policy)
    for x, scale in zip(inputs, theirs, strict=True):
        step(x, weight, scale).sum().backward()
    torch.testing.assert_close([each.grad for each in ours], [each.grad for each in theirs])
    assert found["torch.compile [0/0] backward"] >= CALLS - 4


@needs_policies
@compiles
@pytest.mark.parametrize("autograd", [True, pytest.param(False, marks=pytest.mark.long)])
def test_what_comes_out_of_a_cache_is_recorded_too(device, autograd):
    inputs, seen = [torch.randn(6, 8, device=device) for _ in range(CALLS)], []
    with fresh_cache():
        for _ in range(2):
            torch._dynamo.reset()
            counters.clear()
            model = network(device)
            with (
                taking_over(cached=True) as policy,
                autograd_config.patch(enable_autograd_cache=autograd),
            ):
                losses = train(compiled(model), model, inputs)
                seen.append((losses, replays(policy)))
    assert counters["inductor"]["fxgraph_cache_hit"] >= 2
    assert bool(counters["aot_autograd"]["autograd_cache_hit"]) is autograd
    (cold, cold_replays), (warm, warm_replays) = seen
    assert_same(warm, cold)
    assert warm_replays == cold_replays
    assert {*warm_replays} == {"torch.compile [0/0]", "torch.compile [0/0] backward"}


@needs_policies
@compiles
class TestInputs:
    def test_written_inputs_are_written(self, device):
        def count(x, total):
            total.add_(x)
            return total * 2

        with taking_over() as policy, torch.no_grad():
            act = compiled(count)
            ours, theirs = torch.zeros(4, device=device), torch.zeros(4, device=device)
            for _ in range(CALLS):
                x = torch.randn(4, device=device)
                assert_same(act(x, ours), count(x, theirs))
                assert_same(ours, theirs)
            (found,) = policy.graphed()
            report = found.report()
        assert report.replayed >= CALLS - 4
        (written,) = [each for each in report.recordings[0].inputs if each.mutated]
        assert written.kind == "another tensor"

    def test_sizes_that_change_have_recordings_each(self, device):
        with taking_over() as policy, torch.no_grad():
            act = compiled(lambda x: (x * 2).sum(0), dynamic=True)
            for n in range(3 * CALLS):
                x = torch.randn(3 + n % 3, 4, device=device)
                torch.testing.assert_close(act(x), (x * 2).sum(0))
            (found,) = policy.graphed()
            assert len(found.report().recordings) == 3

    def test_inputs_at_odd_addresses(self, device):
        """Compiled kernels expect addresses that divide by 16 where the example's did."""
        with taking_over() as policy, torch.no_grad():
            act = compiled(lambda x, total: (x * 2, total.add_(1))[0])
            for n in range(2 * CALLS):
                offset = 0 if n < CALLS else 1
                x = torch.randn(65, device=device)[offset : offset + 64]
                total = torch.zeros(65, device=device)
                assert_same(act(x, total[offset : offset + 64]), x * 2)
                assert_same(total[offset : offset + 64], torch.ones(64, device=device))
            assert sum(replays(policy).values()) >= CALLS

    def test_a_buffer_is_read_where_it_is_and_named_when_it_moved(self, device):
        model = network(device).eval()
        with taking_over() as policy, torch.no_grad():
            act = compiled(model)
            for n in range(2 * CALLS):
                if n == CALLS:
                    kept = model.norm.running_mean
                    model.norm.running_mean = torch.ones(16, device=device)
                    assert kept is not None
                x = torch.randn(3, 8, device=device)
                torch.testing.assert_close(act(x), model(x))
            (found,) = policy.graphed()
            report = found.report()
        (reason,) = [each for each in report.reasons if each.code == "RT331"]
        assert "was at 0x" in reason.message
        assert report.replayed >= CALLS

    def test_tensors_that_the_code_holds(self, device):
        """Inductor keeps a tensor of more than eight numbers, and writes fewer into its kernels."""
        numbers = [float(n) for n in range(16)]

        def look_up(x):
            return x * torch.tensor(numbers, device=x.device)

        with taking_over() as policy, torch.no_grad():
            act = compiled(look_up)
            for _ in range(CALLS):
                x = torch.randn(16, device=device)
                torch.testing.assert_close(act(x), look_up(x))
            assert all(each >= CALLS - 4 for each in replays(policy).values())


@needs_policies
@compiles
def test_each_partition_is_recorded_and_what_lies_between_runs(device):
    library = torch.library.Library("rote_policy_tests", "FRAGMENT")
    library.define("apart(Tensor x) -> Tensor", tags=[torch.Tag.cudagraph_unsafe])
    calls = []

    def apart(x):
        calls.append(1)
        return x + 1

    library.impl("apart", apart, "CompositeExplicitAutograd")
    library.impl("apart", torch.empty_like, "Meta")

    def function(x):
        return torch.ops.rote_policy_tests.apart(x * 2).tanh() * 3

    with taking_over() as policy, torch.no_grad():
        act = compiled(function)
        for n in range(CALLS):
            x = torch.randn(4, device=device)
            before = len(calls)
            got = act(x)
            assert len(calls) == before + 1, n
            torch.testing.assert_close(got, function(x))
        found = replays(policy)
    assert {*found} == {"torch.compile [0/0] part 0", "torch.compile [0/0] part 1"}
    assert all(each >= CALLS - 4 for each in found.values())


@needs_policies
@compiles
class TestReports:
    def test_explain_reset_and_whose_kernels(self, device):
        with taking_over() as policy, torch.no_grad():
            act = compiled(lambda x: x * 2)
            for _ in range(CALLS):
                act(torch.ones(3, device=device))
            text = policy.explain()
            assert "kernels: Inductor's, with its rounding" in text
            assert "torch.compile [0/0]: " in text
            policy.reset()
            assert set(replays(policy).values()) == {0}
            for _ in range(CALLS):
                assert_same(act(torch.ones(3, device=device)), torch.full((3,), 2.0, device=device))
            assert all(replays(policy).values())
        torch._dynamo.reset()
        del act
        gc.collect()
        assert policy.graphed() == []

    def test_lines_are_those_of_the_program(self, device):
        with taking_over() as policy, torch.no_grad():
            act = compiled(lambda x: x * 2)
            for _ in range(CALLS):
                act(torch.ones(3, device=device))
            (found,) = policy.graphed()
            places = {each.where for each in found.report().reasons if each.where}
        assert places
        assert all("test_torch_compile_policy.py" in each for each in places)

    def test_a_backward_that_inductor_refuses_runs_as_it_is(self, device, monkeypatch):
        """Inductor would ask its own runtime of graphs about the forward, which has never run."""
        model = network(device)
        plain = copy.deepcopy(model)
        inputs = [torch.randn(6, 8, device=device) for _ in range(CALLS)]
        with taking_over() as policy, inductor_config.patch(force_disable_cudagraph_TESTING_ONLY=False):
            should_wrap = policy.should_wrap

            def and_refuse_the_next(graph):
                inductor_config.force_disable_cudagraph_TESTING_ONLY = True
                return should_wrap(graph)

            monkeypatch.setattr(policy, "should_wrap", and_refuse_the_next)
            got = train(compiled(model), model, inputs)
            found = replays(policy)
        torch._dynamo.reset()
        assert_same(got, train(without_graphs(plain), plain, inputs))
        assert list(found) == ["torch.compile [0/0]"]
        assert all(each >= CALLS - 4 for each in found.values())

    def test_code_compiled_without_graphs_is_left_alone(self, device):
        with taking_over() as policy, torch.no_grad():
            act = without_graphs(lambda x: x * 2)
            for _ in range(CALLS):
                act(torch.ones(3, device=device))
        assert policy.graphed() == []

    def test_the_backend_needs_no_policy(self, device):
        with taking_over() as policy, torch.no_grad():
            act = torch.compile(lambda x: x * 2, backend=torch_compile.backend)
            for _ in range(CALLS):
                act(torch.ones(3, device=device))
        assert policy.graphed() == []
        assert [each.report().replayed for each in torch_compile.backend.graphed()] == [CALLS - 3]

    def test_strict_where_inductor_is_to_raise(self, device):
        with inductor_config.patch({"triton.cudagraph_or_error": True}), taking_over() as policy:
            act = compiled(lambda x: x * 2, dynamic=True)
            with torch.no_grad():
                for _ in range(CALLS):
                    act(torch.ones(3, device=device))
                with pytest.raises(NotReplayedError, match=r"float32\[5\]|was 3 and is 5"):
                    act(torch.ones(5, device=device))
            assert all(each >= CALLS - 4 for each in replays(policy).values())

    @pytest.mark.parametrize("direction", ["forward", "backward"])
    def test_one_direction_alone(self, device, direction):
        model = network(device)
        plain = copy.deepcopy(model)
        inputs = [torch.randn(6, 8, device=device) for _ in range(CALLS)]
        with taking_over(**{direction: False}) as policy:
            got = train(compiled(model), model, inputs)
            found = replays(policy)
        torch._dynamo.reset()
        assert_same(got, train(without_graphs(plain), plain, inputs))
        assert {name: bool(each) for name, each in found.items()} == {
            "torch.compile [0/0]": direction == "backward",
            "torch.compile [0/0] backward": direction == "forward",
        }

    def test_sizes_that_change_and_are_not_named_run_plainly(self, device):
        with taking_over(capture_sizes=(4,)) as policy, torch.no_grad():
            act = compiled(lambda x: x * 2, dynamic=True)
            for _ in range(CALLS):
                for size in (3, 4):
                    assert_same(act(torch.ones(size, device=device)), torch.full((size,), 2.0, device=device))
            (report,) = [each.report() for each in policy.graphed()]
        assert len(report.recordings) == 1
        assert report.replayed == CALLS - 3
        assert [each.count for each in report.reasons if each.code == "RT319"] == [CALLS - 1]


class TestPolicy:
    @needs_policies
    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"warmup": 0}, "warmup=0 must be a whole number of at least 1"),
            ({"warmpu": 1}, "'warmpu': .* is no option"),
            ({"kernels": "aten"}, "kernels says how code is compiled, which a policy does not decide"),
            ({"max_autotune": True}, "max_autotune says how code is compiled"),
            ({"skip_dynamic_graphs": True}, "skip_dynamic_graphs says how code is compiled"),
        ],
    )
    def test_what_is_no_option_is_an_error(self, options, text):
        with pytest.raises(OptionError, match=text):
            cudagraph_policy(**options)

    @needs_policies
    def test_pytorch_takes_it_for_a_policy_and_copies_it_as_itself(self):
        policy = cudagraph_policy()
        assert isinstance(policy, cudagraph_utils.CUDAGraphPolicy)
        with inductor_config.patch(cudagraph_policy=policy):
            assert inductor_config.get_config_copy()["cudagraph_policy"] is policy

    def test_where_there_are_no_policies_the_error_says_what_to_do(self, monkeypatch):
        monkeypatch.setattr(torch_compile.policy, "has_policies", lambda: False)
        with pytest.raises(EnvironmentError_, match=r'no torch\._inductor\.config\.cudagraph_policy.*"rote"'):
            cudagraph_policy()
