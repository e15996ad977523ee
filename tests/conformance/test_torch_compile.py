"""``torch.compile(backend="rote")``: what the backend ``inductor`` gives, replayed."""

from __future__ import annotations

import copy
from importlib.metadata import entry_points

import pytest
import torch
from torch import nn
from torch._inductor import config as inductor_config

from rote import NotReplayedError, OptionError
from rote.integrations.torch_compile import Wishes, backend
from rote.testing import assert_same

pytestmark = pytest.mark.usefixtures("compiles_afresh")
ATEN = {"kernels": "aten"}
CALLS = 8
REPLAYED = CALLS - 3
"""The first call of compiled code does what no other does; the second is observed, the third recorded."""


def graphed(function, **keywords):
    keywords.setdefault("options", ATEN)
    return torch.compile(function, backend=backend, **keywords)


def replays():
    return [each.report().replayed for each in backend.graphed()]


class Network(nn.Module):
    def __init__(self, *more):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 16), *more, nn.Tanh(), nn.Linear(16, 4)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def network(device, *more):
    torch.manual_seed(1)
    return Network(*more).to(device)


def train(step, model, inputs):
    """Losses and parameters of some training steps."""
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    for x in inputs:
        optimizer.zero_grad()
        loss = step(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, [each.detach().clone() for each in model.parameters()], [*model.buffers()]


class TestCalls:
    @pytest.mark.skipif(not entry_points(name="rote", group="torch_dynamo_backends"), reason="not installed")
    def test_name_is_found_by_pytorch(self):
        act = torch.compile(lambda x: x * 2, backend="rote", options=ATEN)
        for _ in range(CALLS):
            assert_same(act(torch.ones(3)), torch.full((3,), 2.0))
        assert replays() == [REPLAYED]

    def test_inference_replays_and_held_results_stay(self, device):
        model = network(device)
        act = graphed(model)
        with torch.no_grad():
            inputs = [torch.randn(3, 8, device=device) for _ in range(CALLS)]
            held = [act(x) for x in inputs]
            assert_same(held, [model(x) for x in inputs])
        assert replays() == [REPLAYED]

    def test_module_compiles_itself(self, device):
        model = network(device)
        plain = copy.deepcopy(model)
        model.compile(backend=backend, options=ATEN, fullgraph=True)
        with torch.no_grad():
            for _ in range(CALLS):
                x = torch.randn(3, 8, device=device)
                assert_same(model(x), plain(x))
        assert replays() == [REPLAYED]

    def test_written_inputs_are_written(self, device):
        def count(x, total):
            total.add_(x)
            return total * 2

        act, total, expected = graphed(count), torch.zeros(4, device=device), torch.zeros(4, device=device)
        for _ in range(CALLS):
            x = torch.randn(4, device=device)
            assert_same(act(x, total), count(x, expected))
            assert_same(total, expected)
        assert replays() == [REPLAYED]

    def test_frames_behind_a_graph_break_replay_each(self, device):
        def clipped(x):
            y = x * 2
            return y + 1 if y.sum() > 0 else y - 1

        act = graphed(clipped)
        for n in range(4 * CALLS):
            x = torch.full((4,), 1.0 if n % 2 else -1.0, device=device)
            assert_same(act(x), clipped(x))
        assert len(replays()) == 3
        assert all(replays())

    def test_sizes_that_change_have_recordings_each(self, device):
        def total(x):
            return (x * 2).sum(0)

        act = graphed(total, dynamic=True)
        for n in range(3 * CALLS):
            x = torch.randn(3 + n % 3, 4, device=device)
            assert_same(act(x), total(x))
        (report,) = [each.report() for each in backend.graphed()]
        assert len(report.recordings) == 3

    def test_views_of_inputs_are_views(self, device):
        act = graphed(lambda x: (x[1:], x.t()))
        for _ in range(CALLS):
            x = torch.randn(4, 4, device=device)
            rest, turned = act(x)
            x.add_(1)
            assert_same(rest, x[1:])
            assert_same(turned, x.t())

    def test_random_numbers_go_on(self, device):
        act = graphed(lambda x: nn.functional.dropout(x, 0.5))
        seen = [tuple(act(torch.ones(64, device=device)).tolist()) for _ in range(CALLS)]
        assert len(set(seen)) == CALLS
        assert replays() == [REPLAYED]

    def test_weights_that_move_are_read_where_they_are(self, device):
        model = network(device)
        act = graphed(model)
        with torch.no_grad():
            for n in range(2 * CALLS):
                if n == CALLS:
                    model.layers[0].weight = nn.Parameter(torch.randn(16, 8, device=device))
                x = torch.randn(3, 8, device=device)
                assert_same(act(x), model(x))
        assert sum(replays()) >= REPLAYED + 4

    def test_modules_of_one_class_share_compiled_code_and_have_recordings_each(self, device):
        """One compiled region is called with the parameters of each."""
        models = [network(device) for _ in range(3)]
        with torch.no_grad():
            for number, model in enumerate(models):
                for each in model.parameters():
                    each.mul_(number + 1)

        act = graphed(lambda model, x: model(x))
        with torch.no_grad():
            for _ in range(CALLS):
                for model in models:
                    x = torch.randn(3, 8, device=device)
                    assert_same(act(model, x), model(x))
        assert sum(replays()) >= 3 * (REPLAYED - 1)

    def test_marks_of_steps_do_no_harm(self, device):
        act = graphed(lambda x: x * 2)
        for _ in range(CALLS):
            torch.compiler.cudagraph_mark_step_begin()
            x = torch.randn(3, device=device)
            assert_same(act(x), x * 2)
        assert replays() == [REPLAYED]

    def test_two_arguments_on_one_memory(self, device):
        def shift(a, b):
            a.add_(1)
            return a + b

        act = graphed(shift)
        for _ in range(CALLS):
            base, other = torch.zeros(6, device=device), torch.zeros(6, device=device)
            assert_same(act(base[:4], base[2:]), shift(other[:4], other[2:]))
            assert_same(base, other)

    def test_an_error_in_compiled_code_is_that_of_the_call(self, device):
        act = graphed(lambda x, at: x[at])
        for _ in range(CALLS):
            act(torch.ones(3, device=device), torch.tensor([0, 2], device=device))
        if device.type == "cpu":  # on a GPU it would be the end of the process
            with pytest.raises(IndexError):
                act(torch.ones(3), torch.tensor([0, 7]))
        assert_same(
            act(torch.ones(3, device=device), torch.tensor([1, 2], device=device)).cpu(), torch.ones(2)
        )

    @pytest.mark.parametrize("change", ["data", "copy", "load", "swap"])
    def test_weights_that_change_in_place_or_lie_elsewhere(self, device, change):
        model = network(device)
        act = graphed(model)
        weight = model.layers[0].weight
        with torch.no_grad():
            for n in range(3 * CALLS):
                new = torch.randn(16, 8, device=device)
                if n % CALLS == CALLS - 1:
                    if change == "data":
                        weight.data = new
                    elif change == "copy":
                        weight.copy_(new)
                    elif change == "load":
                        model.load_state_dict({**model.state_dict(), "layers.0.weight": new})
                    else:
                        model.load_state_dict({**model.state_dict(), "layers.0.weight": new}, assign=True)
                x = torch.randn(3, 8, device=device)
                assert_same(act(x), model(x))
        assert any(replays())


class TestTraining:
    def test_steps_replay_both_ways(self, device):
        model = network(device, nn.BatchNorm1d(16))
        plain = copy.deepcopy(model)
        inputs = [torch.randn(6, 8, device=device) for _ in range(CALLS)]
        got = train(graphed(model), model, inputs)
        assert_same(got, train(torch.compile(plain, backend="aot_eager"), plain, inputs))
        (report,) = [each.report() for each in backend.graphed()]
        assert report.replayed == REPLAYED
        assert report.backwards_replayed >= REPLAYED - 1

    @pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # Dynamo looks
    def test_whole_steps_with_a_graph_break_at_the_backward(self, device):
        model = network(device)
        plain = copy.deepcopy(model)

        def steps(model, wrap):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

            def step(x):
                optimizer.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                optimizer.step()
                return loss.detach()

            run = wrap(step)
            return [run(torch.full((3, 8), float(n), device=device)) for n in range(2 * CALLS)]

        expected = steps(plain, lambda step: torch.compile(step, backend="aot_eager"))
        assert_same(steps(model, graphed), expected)
        assert_same([*model.parameters()], [*plain.parameters()])
        assert any(replays())

    def test_a_second_walk_back_is_that_of_eager(self, device):
        model = network(device)
        act = graphed(model)
        for _ in range(CALLS):
            x = torch.randn(3, 8, device=device)
            loss, expected = act(x).sum(), model(x).sum()
            once = torch.autograd.grad(loss, [*model.parameters()], retain_graph=True)
            again = torch.autograd.grad(loss, [*model.parameters()])
            assert_same(once, again)
            assert_same(again, torch.autograd.grad(expected, [*model.parameters()]))


class TestInductor:
    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")
    def test_steps_have_the_bits_of_the_backend_inductor(self, device):
        model = network(device, nn.Dropout(0.5))
        plain = copy.deepcopy(model)
        inputs = [torch.randn(6, 8, device=device) for _ in range(CALLS)]
        torch.manual_seed(4)
        got = train(graphed(model, options=None), model, inputs)
        torch.manual_seed(4)
        (report,) = [each.report() for each in backend.graphed()]
        assert_same(got, train(torch.compile(plain), plain, inputs))
        assert report.replayed == REPLAYED
        assert report.backwards_replayed >= REPLAYED - 1
        assert report.recordings[0].operations == 1, "compiled code is one operation"
        assert not report.recordings[0].islands


class TestWishes:
    def test_strict_raises_where_nothing_can_be_replayed(self, device):
        act = graphed(lambda x: torch.nonzero(x), options={**ATEN, "strict": True})
        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
            for _ in range(3):
                act(torch.ones(3, device=device))
            with pytest.raises(NotReplayedError, match="nonzero"):
                for _ in range(4):
                    act(torch.ones(3, device=device))

    @pytest.mark.parametrize(
        "mode", ["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
    )
    def test_modes_say_nothing_of_graphs(self, mode):
        assert Wishes.of(mode, None).patches["triton.cudagraphs"] is False

    @pytest.mark.parametrize(
        ("keywords", "text"),
        [
            ({"options": {"kernels": "mine"}}, "kernels='mine' is not one of 'inductor', 'aten'"),
            ({"options": {"warmpu": 1}}, "'warmpu': .* is no option of rote.graph, of this backend"),
            ({"options": {"warmup": 0}}, "warmup=0 must be a whole number of at least 1"),
            ({"options": {**ATEN, "max_autotune": True}}, "'max_autotune': .* is Inductor's"),
            ({"mode": "fast", "options": None}, "mode='fast' is not one of"),
        ],
    )
    def test_what_is_unknown_is_an_error(self, keywords, text):
        with pytest.raises(OptionError, match=text):
            Wishes.of(keywords.get("mode"), keywords["options"])

    def test_an_error_where_graphs_were_demanded_means_strict(self):
        assert Wishes.of(None, ATEN).recording.strict is False
        with inductor_config.patch({"triton.cudagraph_or_error": True}):
            assert Wishes.of(None, ATEN).recording.strict is True
            assert Wishes.of(None, {**ATEN, "strict": False}).recording.strict is False

    def test_reset_frees_what_was_recorded(self, device):
        act = graphed(lambda x: x * 2)
        for _ in range(CALLS):
            act(torch.ones(3, device=device))
        assert replays() == [REPLAYED]
        torch._dynamo.reset()
        assert replays() == []
