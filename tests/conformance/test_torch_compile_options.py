"""What is kept out of graphs in ``torch.compile(backend="rote")``, by rote's options and by PyTorch's own."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch._inductor import config as inductor_config

import rote
from rote import OptionError, Options
from rote.integrations.torch_compile import Wishes, backend
from rote.testing import assert_same

pytestmark = [
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),
    pytest.mark.usefixtures("compiles_afresh"),
]

ATEN = {"kernels": "aten"}
CALLS = 8
REPLAYED = CALLS - 3
KEPT_OUT = "RT319"
OVERRIDES = pytest.mark.skipif(
    not hasattr(torch._dynamo, "override_cudagraphs"), reason="torch._dynamo has no override_cudagraphs"
)


def reports():
    return {each.report().name: each.report() for each in backend.graphed()}


def network(device):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).to(device)


def train(step, model, device):
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    torch.manual_seed(2)
    for _ in range(CALLS):
        optimizer.zero_grad()
        loss = step(torch.randn(3, 8, device=device)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, [each.detach().clone() for each in model.parameters()]


def trained(device, **options):
    """Train compiled and by the backend that compiles nothing; the reports by name."""
    model = network(device)
    plain = copy.deepcopy(model)
    got = train(torch.compile(model, backend=backend, options={**ATEN, **options}), model, device)
    found = reports()
    assert_same(got, train(torch.compile(plain, backend="aot_eager"), plain, device))
    return found


def kept_out(report):
    return [each.message for each in report.reasons if each.code == KEPT_OUT]


class TestDirections:
    def test_forward_alone(self, device):
        (report,) = trained(device, backward=False).values()
        assert (report.replayed, report.backwards_replayed) == (REPLAYED, 0)
        assert kept_out(report) == ["a backward pass ran plainly: backward=False"]

    def test_backward_alone(self, device):
        forward, backward = trained(device, forward=False).values()
        assert (forward.name, backward.name) == ("torch.compile [0/0]", "torch.compile [0/0], backward")
        assert (forward.calls, forward.replayed) == (CALLS, 0)
        assert kept_out(forward) == ["forward=False keeps calls out of graphs"]
        assert backward.replayed == REPLAYED
        assert {forward.kernels, backward.kernels} == {"aten"}

    @pytest.mark.slow
    def test_backward_alone_with_compiled_kernels(self, device):
        model = network(device)
        plain = copy.deepcopy(model)
        step = torch.compile(model, backend=backend, options={"forward": False})
        got = train(step, model, device)
        found = reports()
        assert_same(got, train(torch.compile(plain), plain, device))
        assert [report.replayed for report in found.values()] == [0, REPLAYED]
        assert {report.kernels for report in found.values()} == {"inductor"}

    def test_two_walks_back(self, device):
        model = network(device)
        act = torch.compile(model, backend=backend, options={**ATEN, "forward": False})
        for _ in range(CALLS):
            x = torch.randn(3, 8, device=device)
            loss = act(x).sum()
            once = torch.autograd.grad(loss, [*model.parameters()], retain_graph=True)
            assert_same(once, torch.autograd.grad(loss, [*model.parameters()]))
            assert_same(once, torch.autograd.grad(model(x).sum(), [*model.parameters()]))
        assert [*reports().values()][1].replayed

    @OVERRIDES
    def test_code_may_say_so_itself(self, device):
        for keywords, replayed in (({"bwd": False}, REPLAYED), ({"fwd": False}, 0)):
            torch._dynamo.reset()

            @torch.compile(backend=backend, options=ATEN)
            def act(x, keywords=keywords):
                with torch._dynamo.override_cudagraphs(**keywords):
                    y = x.sin()
                return y * 2

            for _ in range(CALLS):
                x = torch.randn(3, device=device, requires_grad=True)
                assert_same(torch.autograd.grad(act(x).sum(), x)[0], x.detach().cos() * 2)
            (report,) = reports().values()
            assert (report.replayed, report.backwards_replayed) == (replayed, 0)
            assert len(kept_out(report)) == 1


class TestRegions:
    def test_calls_within_run_plainly(self, device):
        model = network(device)
        act = torch.compile(model, backend=backend, options=ATEN)
        with torch.no_grad():
            for _ in range(CALLS):
                act(torch.randn(3, 8, device=device))
            with rote.no_graphs():
                for _ in range(CALLS):
                    x = torch.randn(3, 8, device=device)
                    assert_same(act(x), model(x))
            (report,) = reports().values()
            assert (report.calls, report.replayed) == (2 * CALLS, REPLAYED)
            act(x)
        (report,) = reports().values()
        assert report.replayed == REPLAYED + 1

    @OVERRIDES
    def test_compiled_code_within_is_not_recorded(self, device):
        @rote.no_graphs()
        def decorated(x):
            return x.sin()

        def region(x):
            y = x * 2
            with rote.no_graphs():
                y = y.sin()
            return y * 2

        for fn in (region, lambda x: decorated(x) * 2):
            torch._dynamo.reset()
            act = torch.compile(fn, backend=backend, options=ATEN, fullgraph=True)
            for _ in range(CALLS):
                x = torch.randn(3, device=device)
                assert_same(act(x), fn(x))
            (report,) = reports().values()
            assert report.replayed == 0
            assert kept_out(report) == ["the code is within override_cudagraphs(fwd=False)"]


class TestSizes:
    @pytest.mark.parametrize("name", ["capture_sizes", "triton.cudagraph_capture_sizes"])
    def test_sizes_that_change(self, device, name):
        act = torch.compile(
            lambda x: (x * 2).sum(0), backend=backend, dynamic=True, options={**ATEN, name: (4, (5, 3))}
        )
        for _ in range(CALLS):
            for shape in ((3, 2), (4, 2), (5, 2), (5, 3)):
                x = torch.randn(shape, device=device)
                assert_same(act(x), (x * 2).sum(0))
        (report,) = reports().values()
        assert report.calls - report.replayed == 2 * CALLS + 2 * 2 and len(report.recordings) == 2
        assert [each.count for each in report.reasons if each.code == KEPT_OUT] == [2 * CALLS - 1]

    def test_sizes_that_do_not_change_are_those_of_the_first_tensor(self, device):
        model = nn.BatchNorm1d(8).to(device).eval()
        for size, replayed in ((3, REPLAYED), (8, 0)):
            torch._dynamo.reset()
            act = torch.compile(model, backend=backend, options={**ATEN, "capture_sizes": (size,)})
            with torch.no_grad():
                for _ in range(CALLS):
                    act(torch.randn(3, 8, device=device))
            assert [report.replayed for report in reports().values()] == [replayed]

    @pytest.mark.parametrize("name", ["skip_dynamic_graphs", "triton.cudagraph_skip_dynamic_graphs"])
    def test_code_for_sizes_that_change_may_be_kept_out(self, device, name):
        act = torch.compile(lambda x: (x * 2).sum(0), backend=backend, options={**ATEN, name: True})
        for n in range(4 * CALLS):
            x = torch.randn(3 + (n >= CALLS) * (1 + n % 3), 2, device=device)
            assert_same(act(x), (x * 2).sum(0))
        static, dynamic = reports().values()
        assert static.replayed == REPLAYED
        assert (dynamic.calls, dynamic.replayed) == (3 * CALLS, 0)
        assert kept_out(dynamic) == [
            "skip_dynamic_graphs=True keeps code for sizes that change out of graphs"
        ]


class TestStaticParts:
    """With ``skip_dynamic_graphs``, what needs no size that changes is recorded all the same."""

    @staticmethod
    def run(fn, calls, **keywords):
        act = torch.compile(fn, backend=backend, options={**ATEN, "skip_dynamic_graphs": True}, **keywords)
        for number, given in enumerate(calls):
            torch.manual_seed(number)
            ours = act(*given)
            torch.manual_seed(number)
            assert_same(ours, fn(*given))
        found = reports()
        return found.pop("torch.compile [0/0]"), [*found.values()]

    @pytest.mark.parametrize("captures", [True, False])
    def test_shapes_that_values_decide(self, device, captures):
        weight = torch.randn(40, 40, device=device)

        def fn(x):
            y = (x * 2).sin() @ weight
            kept = y[x > 0] + 1
            z = (y.exp() + 1).log()
            return kept.sum(0) * 2, z.cos(), kept

        calls = [(torch.randn(40, 40, device=device),) for _ in range(2 * CALLS)]
        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=captures):
            whole, parts = self.run(fn, calls)
        if captures:
            (part,) = parts
            assert (whole.calls, whole.replayed, part.name) == (
                2 * CALLS, 0, "torch.compile [0/0], static part"
            )  # fmt: skip
            (recording,) = part.recordings
            assert (recording.operations, recording.islands) == (8, ())
            assert part.replayed == 2 * CALLS - 4
            assert part.kernels == "aten"
        else:  # what precedes the break is a graph of its own, and so is what follows
            (part,) = [report for report in parts if "static part" in report.name]
            assert whole.replayed == 2 * CALLS - 3
            assert part.recordings[0].operations == 4 and part.replayed >= CALLS

    def test_backwards_have_static_parts(self, device):
        model = nn.Linear(6, 6).to(device)

        def fn(x):
            hidden = model(x).tanh()
            picked = hidden[hidden.detach().sum(1) > 0]
            return hidden.square().sum() * 2 + picked.sum()

        act = torch.compile(fn, backend=backend, options={**ATEN, "skip_dynamic_graphs": True})
        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
            for _ in range(CALLS):
                x = torch.randn(9, 6, device=device)
                ours = torch.autograd.grad(act(x), [*model.parameters()])
                for mine, other in zip(ours, torch.autograd.grad(fn(x), [*model.parameters()]), strict=True):
                    torch.testing.assert_close(mine, other)
        found = reports()
        assert found["torch.compile [0/0]"].replayed == 0
        assert found["torch.compile [0/0], static part"].replayed == CALLS - 4
        assert found["torch.compile [0/0], static part of the backward"].replayed == REPLAYED

    @pytest.mark.parametrize("direction", ["forward", "backward"])
    def test_they_are_kept_out_as_the_whole_would_be(self, device, direction):
        model = nn.Linear(6, 6).to(device)

        def fn(x):
            hidden = model(x).tanh()
            return hidden.square().sum() * 2 + hidden[hidden.detach().sum(1) > 0].sum()

        options = {**ATEN, "skip_dynamic_graphs": True, direction: False}
        act = torch.compile(fn, backend=backend, options=options)
        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
            for _ in range(CALLS):
                act(torch.randn(9, 6, device=device)).backward()
        found = reports()
        forward, backward = (
            found[f"torch.compile [0/0], static part{end}"] for end in ("", " of the backward")
        )
        assert (bool(forward.replayed), bool(backward.replayed)) == (
            direction == "backward", direction == "forward"
        )  # fmt: skip
        assert len(kept_out(forward)) == (direction == "forward")
        assert len(kept_out(backward)) == (direction == "backward")

    def test_writes_stay_in_their_place(self, device):
        def fn(x, total):
            kept = x[x > 0]
            total.add_(kept.sum())
            return total * 2, (x + 1).sin(), total[0] + x

        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
            ours, theirs = torch.zeros(5, device=device), torch.zeros(5, device=device)
            options = {**ATEN, "skip_dynamic_graphs": True}
            act = torch.compile(fn, backend=backend, options=options)
            for _ in range(CALLS):
                x = torch.randn(5, device=device)
                assert_same(act(x, ours), fn(x, theirs))
                assert_same(ours, theirs)
        assert any(report.replayed for report in reports().values())

    @pytest.mark.parametrize("behind", [False, True])
    def test_random_numbers_come_in_order(self, device, behind):
        def fn(x):
            noise = torch.rand_like(x)
            kept = (x * noise)[x > 0]
            return kept, torch.rand_like(kept) if behind else kept * 2, noise.sin(), torch.rand_like(x)

        calls = [(torch.randn(12, device=device),) for _ in range(CALLS)]
        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
            _, parts = self.run(fn, calls)
        assert all(part.replayed for part in parts)

    def test_several_results_of_one_operator(self, device):
        def fn(x):
            mean = torch.var_mean(x, 0)
            values, places = x.sort()
            first, second = x.split(2)
            return mean, values[x > 0], places, first + second, None, 3

        calls = [(torch.randn(4, 3, device=device),) for _ in range(CALLS)]
        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
            _, (part,) = self.run(fn, calls)
        assert part.replayed


class TestOperators:
    @pytest.mark.parametrize("name", ["split_ops", "custom_should_partition_ops"])
    def test_operators_run_between_segments(self, device, name):
        act = torch.compile(network(device), backend=backend, options={**ATEN, name: ["aten::tanh"]})
        with torch.no_grad():
            for _ in range(CALLS):
                act(torch.randn(3, 8, device=device))
        (recording,) = next(iter(reports().values())).recordings
        assert [(each.code, each.operation) for each in recording.islands] == [("RT131", "aten::tanh")]
        assert recording.segments == 2

    @pytest.mark.slow
    def test_compiled_code_with_such_an_operator_runs_as_a_whole(self, device):
        for name, segments in (("aten::mm", 0), ("aten::cos", 1)):
            torch._dynamo.reset()
            act = torch.compile(lambda x: (x @ x).tanh() + 1, backend=backend, options={"split_ops": (name,)})
            plain = torch.compile(lambda x: (x @ x).tanh() + 1)
            for _ in range(CALLS):
                x = torch.randn(4, 4, device=device)
                assert_same(act(x), plain(x))
            (recording,) = next(iter(reports().values())).recordings
            assert (recording.segments, len(recording.islands)) == (segments, 1 - segments)

    @pytest.mark.slow
    def test_the_same_in_a_graphed_callable_around_compiled_code(self, device):
        compiled = torch.compile(lambda x: (x @ x).tanh() + 1)
        for name, segments in (("aten::tanh", 2), ("aten::cos", 1)):
            g = rote.graph(lambda x: compiled(x * 2).exp(), split_ops=(name,))
            for _ in range(CALLS):
                x = torch.randn(4, 4, device=device)
                assert_same(g(x), compiled(x * 2).exp())
            (recording,) = g.report().recordings
            assert recording.segments == segments, g.explain()
            g.reset()

    def test_short_segments(self, device):
        for name, least, segments in (
            ("min_segment_size", 3, 1),
            ("triton.cudagraph_min_partition_size", 9, 0),
        ):
            torch._dynamo.reset()
            act = torch.compile(network(device), backend=backend, options={**ATEN, name: least})
            with torch.no_grad():
                for _ in range(CALLS):
                    act(torch.randn(3, 8, device=device))
            (report,) = reports().values()
            assert [recording.segments for recording in report.recordings] == [1] * segments
            assert bool(kept_out(report)) is not bool(segments)


@pytest.mark.skipif(
    not hasattr(inductor_config.triton, "cudagraph_min_partition_size"), reason="not in this version"
)
class TestWishes:
    def test_settings_of_the_process_count(self):
        with inductor_config.patch({
            "triton.cudagraph_capture_sizes": (1, 2),
            "triton.cudagraph_min_partition_size": 3,
            "triton.cudagraph_skip_dynamic_graphs": True,
            "custom_should_partition_ops": ["mylib::op"],
        }):  # fmt: skip
            wishes = Wishes.of(None, {**ATEN, "min_segment_size": 4})
        assert wishes.recording.capture_sizes == (1, 2)
        assert wishes.recording.min_segment_size == 4
        assert wishes.recording.split_ops == ["mylib::op"]
        assert wishes.skip_dynamic_graphs is True

    def test_what_inductor_minds_itself_is_left_to_it_where_it_compiles_for_graphs(self):
        with inductor_config.patch({
            "triton.cudagraph_capture_sizes": (1, 2),
            "triton.cudagraph_min_partition_size": 3,
            "triton.cudagraph_skip_dynamic_graphs": True,
            "custom_should_partition_ops": ["mylib::op"],
        }):  # fmt: skip
            wishes = Wishes.of(None, None, for_graphs=True)
        assert wishes.recording.capture_sizes == (1, 2)
        assert (wishes.recording.min_segment_size, wishes.recording.operators()) == (
            Options().min_segment_size, Options().operators()
        )  # fmt: skip
        assert wishes.skip_dynamic_graphs is False

    def test_a_backward_alone_follows_its_own_option(self):
        wishes = Wishes.of(None, {"forward": False, "capture_sizes": (1,)}).of_backward()
        assert (wishes.recording.forward, wishes.recording.capture_sizes, wishes.kept_out) == (
            True, None, None
        )  # fmt: skip
        wishes = Wishes.of(None, {"backward": False}).of_backward()
        assert wishes.kept_out == "backward=False keeps it out of graphs"

    def test_impossible_values(self):
        for name, text in (
            ("skip_dynamic_graphs", "must be True or False"),
            ("capture_sizes", "must hold sizes"),
        ):
            with pytest.raises(OptionError, match=f"{name}=3 {text}"):
                Wishes.of(None, {**ATEN, name: 3})
