"""What PyTorch's own CUDA-graph runtime promises, kept under ``torch.compile(backend="rote")``."""

from __future__ import annotations

import copy
import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._inductor import config as inductor_config
from torch.testing._internal.two_tensor import TwoTensor

import rote
from rote import NotReplayedError, OptionError
from rote.integrations.torch_compile import Wishes, backend
from rote.testing import assert_same

pytestmark = pytest.mark.usefixtures("compiles_afresh")
ATEN = {"kernels": "aten"}
CALLS = 8
REPLAYED = CALLS - 3
ROOT = Path(__file__).parents[2]
ADDRESS = re.compile("0x[0-9a-f]+")


def graphed(function, **options):
    return torch.compile(function, backend=backend, options={**ATEN, **options})


def reports():
    return [each.report() for each in backend.graphed()]


def settled(report):
    """The reasons that were no warm-up."""
    return {each.code for each in report.reasons if not each.warm_up}


def process(program, **environment):
    """What a program prints as its last line, in a process of its own."""
    surroundings = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src"), **environment}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, env=surroundings, cwd=ROOT, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x):
        weight, bias = self.inner.weight, self.inner.bias
        y = nn.functional.linear(x, weight, bias)
        return y * self.scale


class TestStrict:
    def test_an_option_of_inductor_means_strict(self):
        assert Wishes.of(None, {"triton.cudagraph_or_error": True}).recording.strict is True
        with inductor_config.patch({"triton.cudagraph_or_error": True}):
            assert Wishes.of(None, {"triton.cudagraph_or_error": False}).recording.strict is False

    def test_a_call_that_is_not_replayed_raises(self, device):
        act = graphed(lambda x: torch.nonzero(x) * 2)
        with (
            inductor_config.patch({"triton.cudagraph_or_error": True}),
            torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True),
            pytest.raises(NotReplayedError, match="nonzero"),
        ):
            for _ in range(CALLS):
                act(torch.ones(3, device=device))


class TestMeta:
    def test_meta_inputs_do_not_block(self, device):
        act = graphed(lambda x, shape: (x * 2, shape + 1))
        for _ in range(CALLS):
            x = torch.randn(3, device=device)
            doubled, more = act(x, torch.empty(2, 3, device="meta"))
            assert_same(doubled, x * 2)
            assert more.is_meta
            assert more.shape == (2, 3)
        (report,) = reports()
        assert report.replayed == REPLAYED
        assert not report.recordings[0].islands

    @pytest.mark.slow
    def test_nor_do_they_beside_the_kernels_of_inductor(self, device):
        act = torch.compile(lambda x, shape: (x * 2 + 1, shape + 1), backend=backend)
        for _ in range(CALLS):
            x = torch.randn(3, device=device)
            doubled, more = act(x, torch.empty(2, 3, device="meta"))
            assert_same(doubled, x * 2 + 1)
            assert more.is_meta
            assert more.shape == (2, 3)
        (report,) = reports()
        assert report.replayed == REPLAYED
        assert report.recordings[0].segments == 1
        assert not report.recordings[0].islands


class TestParameterSets:
    def call_all(self, models, device, rounds=CALLS, **options):
        act = graphed(lambda model, x: model(x), **options)
        with torch.no_grad():
            for _ in range(rounds):
                for model in models:
                    x = torch.randn(2, 4, device=device)
                    assert_same(act(model, x), model(x))
        (report,) = reports()
        return report

    def test_each_set_has_a_recording_up_to_a_limit_and_one_warning(self, device, caplog):
        models = [Scaled().to(device) for _ in range(5)]
        with caplog.at_level(logging.WARNING, "rote"):
            report = self.call_all(models, device, max_parameter_sets=3)
        assert len(report.recordings) == 3
        assert report.replayed >= 3 * (REPLAYED - 1)
        assert settled(report) == {"RT303"}
        (reason,) = [each for each in report.reasons if each.code == "RT303"]
        assert reason.message.startswith("3 sets of parameters have recordings of this compiled graph")
        assert "max_parameter_sets" in reason.remedy
        said = [each.getMessage() for each in caplog.records if "sets of parameters" in each.getMessage()]
        assert len(said) == 1
        assert "Compile what calls these modules as one graph" in said[0]

    def test_a_set_that_is_gone_makes_room(self, device):
        act = graphed(lambda model, x: model(x), max_parameter_sets=2)
        with torch.no_grad():
            for _ in range(4):
                model = Scaled().to(device)
                for _ in range(CALLS):
                    x = torch.randn(2, 4, device=device)
                    assert_same(act(model, x), model(x))
        (report,) = reports()
        assert "RT303" not in {each.code for each in report.reasons}
        assert report.replayed >= 3 * REPLAYED

    def test_sizes_are_no_sets(self, device):
        model = Scaled().to(device)
        act = torch.compile(model, backend=backend, options={**ATEN, "max_parameter_sets": 1}, dynamic=True)
        with torch.no_grad():
            for n in range(3 * CALLS):
                x = torch.randn(2 + n % 3, 4, device=device)
                assert_same(act(x), model(x))
        (report,) = reports()
        assert "RT303" not in {each.code for each in report.reasons}
        assert len(report.recordings) == 3

    def test_the_limit_is_that_of_inductor_unless_it_is_given(self):
        assert Wishes.of(None, None).max_parameter_sets == 128
        with inductor_config.patch({"triton.cudagraph_unexpected_rerecord_limit": 7}):
            assert Wishes.of(None, None).max_parameter_sets == 7
            assert Wishes.of(None, {"max_parameter_sets": 2}).max_parameter_sets == 2
        with pytest.raises(OptionError, match="max_parameter_sets=0 must be a whole number of at least 1"):
            Wishes.of(None, {"max_parameter_sets": 0})


class TestMovedInputs:
    """A parameter or buffer that lies elsewhere is named, with both addresses and the line that uses it."""

    def move(self, device, change, read):
        model = Scaled().to(device)
        act, places, kept = graphed(model), [], []
        with torch.no_grad():
            for n in range(2 * CALLS):
                if n == CALLS:
                    places.append(read(model).data_ptr())
                    kept.append(read(model))  # so that the new one does not get its address
                    change(model)
                    places.append(read(model).data_ptr())
                x = torch.randn(2, 4, device=device)
                assert_same(act(x), model(x))
        (report,) = reports()
        assert report.replayed >= REPLAYED + 4
        return report, [f"{place:#x}" for place in places]

    def reason(self, report, code):
        (found,) = [each for each in report.reasons if each.code == code]
        return found

    def test_another_parameter(self, device, where):
        report, (was, now) = self.move(
            device,
            lambda model: setattr(model.inner, "weight", nn.Parameter(torch.randn(4, 4, device=device))),
            lambda model: model.inner.weight,
        )
        found = self.reason(report, "RT306")
        assert found.message == f"self.inner.weight was a parameter at {was} and is another one at {now}"
        assert found.where == where(Scaled.forward, "functional.linear")
        assert "copy_" in found.remedy

    def test_other_memory_of_a_parameter(self, device, where):
        report, (was, now) = self.move(
            device,
            lambda model: setattr(model.inner.weight, "data", torch.randn(4, 4, device=device)),
            lambda model: model.inner.weight.detach(),
        )
        found = self.reason(report, "RT301")
        assert found.message == f"self.inner.weight was at address {was} and is at {now}"
        assert found.where == where(Scaled.forward, "functional.linear")

    def test_another_buffer(self, device, where):
        report, (was, now) = self.move(
            device,
            lambda model: setattr(model, "scale", torch.full((4,), 3.0, device=device)),
            lambda model: model.scale,
        )
        found = self.reason(report, "RT331")
        assert found.message == f"self.scale was at {was} and is at {now}"
        assert found.where == where(Scaled.forward, "self.scale")

    def test_modules_of_pytorch_have_the_path_too(self, device):
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh()).to(device)
        act = graphed(model)
        with torch.no_grad():
            for _ in range(CALLS):
                act(torch.randn(2, 4, device=device))
        (report,) = reports()
        assert {each.name for each in report.recordings[0].inputs} >= {"self.0.weight", "self.0.bias"}

    def test_buffers_are_read_where_they_are(self, device):
        model = Scaled().to(device)
        act = graphed(model)
        with torch.no_grad():
            for _ in range(CALLS):
                model.scale.add_(1)
                x = torch.randn(2, 4, device=device)
                assert_same(act(x), model(x))
        (report,) = reports()
        (scale,) = [each for each in report.recordings[0].inputs if each.name == "self.scale"]
        assert (scale.kind, scale.placement) == ("parameter or buffer", "in place")


def add(total, x):
    total.add_(x)
    return total * 2


def add_to_views(total, x):
    total[1:3].add_(1)
    total.view(2, 2).mul_(2)
    return total + x


def add_without_grad(total, x):
    with torch.no_grad():
        total.add_(x)
    return total * 2


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4))
        self.register_buffer("steps", torch.zeros(4))

    def forward(self, x):
        with torch.no_grad():
            self.weight.add_(x)
            self.steps.add_(1)
        return self.weight * self.steps


class TestMutation:
    """Inputs that are written: results and inputs are those of the plain call, whatever is replayed."""

    @pytest.mark.parametrize(
        ("function", "make"),
        [
            pytest.param(add, lambda: torch.zeros(4), id="plain"),
            pytest.param(add, lambda: torch.zeros(8)[2:6], id="a-view"),
            pytest.param(add, lambda: torch.zeros(8)[::2], id="a-strided-view"),
            pytest.param(add_to_views, lambda: torch.zeros(4), id="through-views"),
            pytest.param(lambda a, x: a.copy_(x) + 1, lambda: torch.zeros(4), id="overwritten"),
        ],
    )
    def test_inputs(self, device, function, make):
        act = graphed(function)
        with torch.no_grad():
            ours, theirs = make().to(device), make().to(device)
            for n in range(CALLS):
                x = torch.full((4,), float(n), device=device)
                assert_same(act(ours, x), function(theirs, x))
                assert_same(ours, theirs)
        assert [each.replayed for each in reports()] == [REPLAYED]

    @pytest.mark.parametrize("grad", [True, False])
    def test_parameters_and_buffers(self, device, grad):
        ours = Counter().to(device)
        theirs, act = copy.deepcopy(ours), graphed(lambda model, x: model(x))
        for n in range(2 * CALLS):
            x = torch.full((4,), float(n), device=device)
            with torch.set_grad_enabled(grad):
                assert_same(act(ours, x).detach(), theirs(x).detach())
            assert_same([*ours.state_dict().values()], [*theirs.state_dict().values()])
        (report,) = reports()
        assert report.replayed >= REPLAYED

    def test_results_of_another_graphed_call(self, device):
        double, bump = graphed(lambda x: x * 2), graphed(lambda y: y.add_(1))
        held = []
        for n in range(CALLS):
            y = double(torch.full((4,), float(n), device=device))
            assert bump(y) is y
            held.append(y)
        assert_same(held, [torch.full((4,), 2.0 * n + 1, device=device) for n in range(CALLS)])
        assert [each.replayed for each in reports()] == [REPLAYED, REPLAYED]

    @pytest.mark.parametrize(
        "function",
        [
            pytest.param(add_without_grad, id="no-grad"),
            pytest.param(lambda total, x: (total.detach().add_(x), total * 2)[1], id="detached"),
            pytest.param(lambda total, x: (total.data.add_(x), total * 2)[1], id="data"),
        ],
    )
    def test_inputs_that_require_grad_behind_autograds_back(self, device, function):
        """They are not replayed: a graph of the caller's may have saved them."""
        act = graphed(function)
        ours, theirs = (torch.zeros(4, device=device, requires_grad=True) for _ in range(2))
        for n in range(CALLS):
            x = torch.full((4,), float(n), device=device)
            got, expected = act(ours, x), function(theirs, x)
            assert_same(got.detach(), expected.detach())
            got.sum().backward()
            expected.sum().backward()
            assert_same([ours.detach(), ours.grad], [theirs.detach(), theirs.grad])
        (report,) = reports()
        assert "RT403" in settled(report)

    @pytest.mark.parametrize(
        ("function", "make"),
        [
            pytest.param(lambda a, x: (a.t_(), a + 1)[1], lambda: torch.zeros(2, 3), id="metadata"),
            pytest.param(lambda a, x: (a.set_(x * 2), a + 1)[1], lambda: torch.zeros(4), id="storage"),
            pytest.param(
                lambda a, x: (setattr(a, "data", x * 2), a + 1)[1], lambda: torch.zeros(4), id="data"
            ),
        ],
    )
    def test_inputs_that_become_other_tensors(self, device, function, make):
        act = graphed(function)
        with torch.no_grad():
            ours, theirs = make().to(device), make().to(device)
            for n in range(2 * CALLS):
                x = torch.full((4,), float(n), device=device)
                assert_same(act(ours, x), function(theirs, x))
                assert_same(ours, theirs)

    @pytest.mark.cuda
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False")
    @pytest.mark.parametrize("kernels", ["aten", "inductor"])
    def test_inputs_on_the_host_beside_the_device(self, kernels):
        def count(total, x):
            total.add_(1)
            return x * 2

        act = torch.compile(count, backend=backend, options={"kernels": kernels})
        total = torch.zeros(4)
        for n in range(CALLS):
            x = torch.randn(4, device="cuda")
            assert_same(act(total, x), x * 2)
            assert_same(total, torch.full((4,), n + 1.0))
        assert all(each.replayed == REPLAYED for each in reports())

    @pytest.mark.slow
    def test_the_kernels_of_inductor_write_the_same(self, device):
        model = Counter().to(device)
        plain = copy.deepcopy(model)

        def step(model, total, x):
            total.add_(x)
            return model(total)

        act = torch.compile(step, backend=backend)
        ours, theirs = torch.zeros(4, device=device), torch.zeros(4, device=device)
        with torch.no_grad():
            for n in range(CALLS):
                x = torch.full((4,), float(n), device=device)
                assert_same(act(model, ours, x), step(plain, theirs, x))
                assert_same([ours, *model.state_dict().values()], [theirs, *plain.state_dict().values()])
        (report,) = reports()
        assert report.replayed == REPLAYED
        assert report.recordings[0].operations == 1


@pytest.mark.slow
def test_compiled_code_may_run_between_two_segments(device):
    """As code for two kinds of devices does; here by an option, which takes any region."""
    regions = [f"rote_compiled::region_{number}" for number in range(1000)]
    act = torch.compile(
        lambda x, total: total.add_(x) * 2, backend=backend, options={"split_ops": regions}, dynamic=True
    )
    total, expected = torch.zeros(4, device=device), torch.zeros(4, device=device)
    for _ in range(CALLS):
        x = torch.randn(4, device=device)
        assert_same(act(x, total), expected.add_(x) * 2)
        assert_same(total, expected)
    (report,) = reports()
    assert report.replayed == REPLAYED
    assert [each.operation for each in report.recordings[0].islands] != []


def test_parameters_that_stand_for_other_tensors_run_as_they_are(device):
    """PyTorch takes them apart inside of compiled code."""

    def made(value):
        return nn.Parameter(TwoTensor(*[torch.full((4,), value, device=device) for _ in range(2)]))

    weight = made(2.0)
    act, scaled = graphed(lambda x, weight: x * weight), rote.graph(lambda x: x * weight)
    with torch.no_grad():
        for _ in range(CALLS):
            x = torch.randn(4, device=device)
            for got in (act(x, weight), scaled(x)):
                assert type(got) is TwoTensor
                assert_same(got.a, x * 2)
    (report,) = reports()
    assert "RT601" in settled(report)
    assert "RT501" in settled(scaled.report())


CACHED = """
import json, torch
from torch import nn
from torch._dynamo.utils import counters
from rote.integrations.torch_compile import backend

class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("steps", torch.zeros(4))

    def forward(self, x):
        self.steps.add_(1)
        return self.linear(x).tanh() * self.steps

torch.manual_seed(1)
model = Scaled()
act, losses = torch.compile(model, backend=backend), []
for n in range(12):
    if n == 8:
        model.linear.weight.data = model.linear.weight.data.clone()
    loss = act(torch.ones(2, 4) * n).sum()
    loss.backward()
    losses.append(loss.item())
hits = [counters["aot_autograd"]["autograd_cache_hit"], counters["inductor"]["fxgraph_cache_hit"]]
reports = [each.report().to_dict() for each in backend.graphed()]
print(json.dumps({"hits": hits, "reports": reports, "losses": losses}))
"""


@pytest.mark.long
def test_a_warm_cache_gives_the_recordings_and_reasons_of_a_cold_one(tmp_path):
    def run(autograd_cache):
        surroundings = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "TORCHINDUCTOR_FX_GRAPH_CACHE": "1"}
        found = process(CACHED, **surroundings, TORCHINDUCTOR_AUTOGRAD_CACHE=autograd_cache)
        hits = found.pop("hits")
        return [bool(each) for each in hits], json.loads(ADDRESS.sub("0x0", json.dumps(found)))

    missed, cold = run("1")
    assert missed == [False, False]
    by_autograd, first = run("1")
    assert by_autograd[0]
    by_graph, second = run("0")
    assert by_graph == [False, True]
    assert first == cold
    assert second == cold
    (report,) = cold["reports"]
    assert report["replayed"] == 7
    assert {"RT301"} == {each["code"] for each in report["reasons"] if not each["warm_up"]}


class TestKernels:
    @pytest.mark.slow
    def test_the_report_tells_whose_kernels_run(self, device):
        for options, kernels, text in [
            (ATEN, "aten", "kernels: ATen's, those of eager"),
            ({}, "inductor", "kernels: Inductor's, with its rounding"),
        ]:
            torch._dynamo.reset()
            act = torch.compile(lambda x: x * 2 + 1, backend=backend, options=options)
            act(torch.ones(3, device=device))
            (found,) = backend.graphed()
            assert found.report().kernels == kernels
            assert json.loads(found.report().to_json())["kernels"] == kernels
            assert text in found.explain().splitlines()
            assert text in backend.explain()
