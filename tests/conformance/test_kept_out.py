"""What users keep out of graphs: regions, directions, sizes, and segments that are too short."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

import rote
from rote.testing import assert_same, compare

CALLS = 8
WARM = rote.Options().warmup + 1
KEPT_OUT = "RT319"


def calls(device, *shape):
    return [(torch.randn(*(shape or (4,)), device=device),) for _ in range(CALLS)]


def islands(g):
    (recording,) = g.report().recordings
    return [(each.code, each.operation) for each in recording.islands], recording.segments


class TestRegionsAroundCalls:
    def test_calls_run_plainly_and_recordings_stay(self, device, reason):
        ran = []

        def fn(x):
            ran.append(None) if len(ran) < 0 else None
            return x * 2

        g = rote.graph(fn)
        for (x,) in calls(device):
            g(x)
        before = g.report()
        with rote.no_graphs():
            for (x,) in calls(device):
                assert_same(g(x), x * 2)
        during = g.report()
        assert (during.calls, during.replayed) == (before.calls + CALLS, before.replayed)
        assert during.recordings == before.recordings
        found = reason(g, KEPT_OUT)
        assert (found.count, found.message) == (CALLS, "the call was made within rote.no_graphs()")
        g(torch.ones(4, device=device))
        assert g.report().replayed == before.replayed + 1

    def test_nothing_is_observed(self, device):
        g = rote.graph(lambda x: x * 2)
        with rote.no_graphs():
            for (x,) in calls(device):
                g(x)
        for n, (x,) in enumerate(calls(device)):
            g(x)
            assert g.report().replayed == max(0, n - 1)

    def test_python_code_runs_in_every_call(self, device):
        lines = []

        @rote.graph
        def fn(x):
            lines.append(None)
            return x + 1

        with rote.no_graphs():
            for (x,) in calls(device):
                fn(x)
        assert len(lines) == CALLS

    def test_regions_nest_and_end_by_exceptions(self, device):
        g = rote.graph(lambda x: x * 2)
        region = rote.no_graphs()
        with region, region:
            with pytest.raises(ValueError, match="mine"), rote.no_graphs():
                raise ValueError("mine")
            g(torch.ones(3, device=device))
        assert g.report().calls == 1
        for (x,) in calls(device):
            g(x)
        assert g.report().replayed == CALLS - WARM

    def test_decorated_functions(self, device):
        g = rote.graph(lambda x: x * 2)

        @rote.no_graphs()
        def evaluate(x, *, more=0):
            """Evaluates."""
            return g(x) + more

        assert evaluate.__doc__ == "Evaluates."
        for (x,) in calls(device):
            assert_same(evaluate(x, more=1), x * 2 + 1)
        assert g.report().replayed == 0
        for (x,) in calls(device):
            g(x)
        assert g.report().replayed == CALLS - WARM

    def test_other_threads_replay(self, device):
        g = rote.graph(lambda x: x * 2)
        for (x,) in calls(device):
            g(x)
        before = g.report().replayed
        with rote.no_graphs():
            worker = threading.Thread(target=lambda: g(torch.ones(4, device=device)))
            worker.start()
            worker.join()
        assert g.report().replayed == before + 1

    def test_backward_passes_run_plainly(self, device, reason):
        layer = nn.Linear(4, 4, device=device)
        g = rote.graph(layer)
        for (x,) in calls(device, 2, 4):
            g(x).sum().backward()
        before = g.report()
        layer.zero_grad()
        y = g(torch.ones(2, 4, device=device)).sum()
        with rote.no_graphs():
            y.backward()
        assert_same(layer.weight.grad, torch.full((4, 4), 2.0, device=device))
        after = g.report()
        assert (after.backwards, after.backwards_replayed) == (
            before.backwards + 1,
            before.backwards_replayed,
        )
        assert reason(g, KEPT_OUT).message == (
            "a backward pass ran plainly: it was started within rote.no_graphs()"
        )

    def test_strict_mode_allows_them(self, device):
        g = rote.graph(lambda x: x * 2, strict=True)
        for (x,) in calls(device):
            g(x)
        with rote.no_graphs():
            assert_same(g(torch.ones(7, device=device)), torch.full((7,), 2.0, device=device))

    def test_padded_calls_run_plainly(self, device):
        g = rote.padded(lambda x: x * 2, axes={"x": {0: [4, 8]}})
        for n in range(4 * CALLS):
            x = torch.randn(3 + n % 5, device=device)
            g(x)
        before = g.report().graphed.replayed
        with rote.no_graphs():
            assert_same(g(torch.ones(3, device=device)), torch.full((3,), 2.0, device=device))
        assert g.report().graphed.replayed == before


class TestRegionsInsideCalls:
    def test_operations_run_between_segments(self, device, where):
        def fn(x):
            y = x * 2
            with rote.no_graphs():
                z = y.sin()
                z.add_(1)
            return z.view(2, 2).cos() * y.view(2, 2)

        g = compare(fn, calls(device))
        assert islands(g) == ([(KEPT_OUT, "aten::sin"), (KEPT_OUT, "aten::add_.Tensor")], 2)
        assert g.report().recordings[0].islands[0].where == where(fn, "y.sin()")
        assert g.report().replayed == CALLS - WARM

    def test_regions_of_functions_that_are_called(self, device):
        @rote.no_graphs()
        def apart(x):
            return x.exp()

        g = compare(lambda x: apart(x + 1) - 1, calls(device))
        assert islands(g) == ([(KEPT_OUT, "aten::exp")], 2)

    def test_random_numbers_are_drawn_in_order(self, device):
        def fn(x):
            y = torch.rand_like(x)
            with rote.no_graphs():
                z = torch.rand_like(x)
            return y, z, torch.rand_like(x)

        g = compare(fn, calls(device))
        assert g.report().replayed == CALLS - WARM

    def test_host_reads_inside(self, device):
        def fn(x):
            with rote.no_graphs():
                if (x.sum() > 0).item():
                    return x * 2
            return x * 3

        signs = [(torch.full((3,), 1.0 if n % 2 else -1.0, device=device),) for n in range(2 * CALLS)]
        g = compare(fn, signs)
        assert g.report().replayed >= CALLS

    def test_inference_mode_inside(self, device):
        def fn(x):
            with torch.inference_mode():
                with rote.no_graphs():
                    y = (x * 2).tanh()
                places = (y > -2).nonzero()
                z = y.sin()
            return z.clone(), places + 1

        g = compare(fn, calls(device))
        assert g.report().replayed == CALLS - WARM

    def test_backwards_inside(self, device):
        layer = nn.Linear(4, 4, device=device)

        def step(x):
            layer.zero_grad()
            loss = layer(x).tanh().sum()
            with rote.no_graphs():
                loss.backward()
            return layer.weight.grad.clone()

        g = rote.graph(step)
        for (x,) in calls(device, 2, 4):
            assert_same(g(x), step(x))
        found, segments = islands(g)
        assert (KEPT_OUT, "aten::tanh_backward") in found and segments

    @pytest.mark.slow
    def test_compiled_code_inside(self, device):
        compiled = torch.compile(lambda x: x.sin() + 1)

        def fn(x):
            with rote.no_graphs():
                y = compiled(x * 2)
            return y.cos()

        g = rote.graph(fn)
        for (x,) in calls(device):
            assert_same(g(x), fn(x))
        found, segments = islands(g)
        assert [code for code, _ in found] == [KEPT_OUT] * 2 and segments == 1
        assert found[1][1].startswith("rote_compiled::")

    def test_graphed_callables_inside_are_not_counted(self, device):
        inner = rote.graph(lambda x: x * 2)

        def fn(x):
            with rote.no_graphs():
                return inner(x) + 1

        g = compare(fn, calls(device))
        assert g.report().replayed == CALLS - WARM
        with rote.no_graphs():
            fn(torch.ones(4, device=device))
        assert inner.report().calls == CALLS + 1, "compare() calls it plainly, and the graphed one inside"

    def test_a_region_that_the_call_does_not_end(self, device):
        regions = []

        def fn(x):
            region = rote.no_graphs()
            region.__enter__()
            regions.append(region)
            return x * 2

        g, other = rote.graph(fn), rote.graph(lambda x: x + 1)
        for (x,) in calls(device):
            assert_same(g(x), x * 2)
            regions.pop().__exit__(None, None, None)
            other(x)
        assert g.report().replayed == 0
        assert {why.code for why in g.report().reasons} & {"RT201", "RT210"}
        assert other.report().replayed == CALLS - WARM

    def test_a_call_that_begins_and_ends_regions_in_turn(self, device):
        def fn(x):
            with rote.no_graphs():
                with rote.no_graphs():
                    y = x * 2
                y = y + 1
            return y.sin()

        g = compare(fn, calls(device))
        assert islands(g)[0] == [(KEPT_OUT, "aten::mul.Tensor"), (KEPT_OUT, "aten::add.Tensor")]
        assert g.report().recordings[0].segments == 1


class TestDirections:
    @staticmethod
    def train(device, wrap, count=CALLS):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to(device)
        act, losses = wrap(model), []
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(count):
            optimizer.zero_grad()
            loss = act(torch.randn(3, 4, device=device)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return act, losses

    def test_backward_alone_is_kept_out(self, device, reason):
        g, losses = self.train(device, lambda model: rote.graph(model, backward=False))
        assert_same(losses, self.train(device, lambda model: model)[1])
        report = g.report()
        assert report.replayed >= CALLS - WARM - 1
        assert report.backwards and not report.backwards_replayed
        assert reason(g, KEPT_OUT).message == "a backward pass ran plainly: backward=False"

    def test_a_forward_of_its_own_has_to_be_recorded(self):
        with pytest.raises(rote.OptionError, match=r"forward=False is for torch.compile"):
            rote.graph(torch.relu, forward=False)
        with pytest.raises(rote.OptionError, match="leave nothing to record; use enabled=False"):
            rote.Options(forward=False, backward=False)


class TestSizes:
    @pytest.mark.parametrize(("sizes", "kept"), [((2, 4), {2, 4}), (((2, 3), 4), {2, 4}), ([(3, 9)], set())])
    def test_only_named_sizes_are_recorded(self, device, sizes, kept, reason):
        g = rote.graph(lambda x, y: x * y, capture_sizes=sizes)
        shapes = (2, 3, 4)
        for n in range(3 * CALLS):
            x = torch.randn(shapes[n % 3], 3, device=device)
            assert_same(g(x, y=3.0), x * 3.0)
        report = g.report()
        ahead = len(kept) > 1  # the first call at the second of two sizes is recorded
        assert report.replayed == len(kept) * (CALLS - WARM) + ahead
        found = reason(g, KEPT_OUT)
        assert found.count == (3 - len(kept)) * CALLS
        assert f"and capture_sizes={sizes!r} has none that fit" in found.message

    def test_they_run_plainly_from_the_first_call_on(self, device):
        ran = []

        @rote.graph(capture_sizes=(1,))
        def fn(x):
            ran.append(torch._C._len_torch_dispatch_stack())
            return x + 1

        for (x,) in calls(device):
            fn(x)
        assert ran == [0] * CALLS

    def test_parameters_are_not_looked_at(self, device):
        weight = nn.Parameter(torch.randn(4, 4, device=device))
        g = rote.graph(lambda w, x: x @ w, capture_sizes=(2,))
        for (x,) in calls(device, 2, 4):
            g(weight, x)
        assert g.report().replayed == CALLS - WARM

    def test_strict_mode_allows_other_sizes(self, device):
        g = rote.graph(lambda x: x + 1, capture_sizes=(4,), strict=True)
        for (x,) in calls(device):
            g(x)
        assert_same(g(torch.ones(5, device=device)), torch.full((5,), 2.0, device=device))
        with pytest.raises(rote.NotReplayedError):
            g(torch.ones(4, 2, device=device))

    @pytest.mark.parametrize("sizes", [4, "4", ("4",), (1.0,), (-1,), (True,), ((1, -2),), ((),), ([1],)])
    def test_impossible_sizes(self, sizes):
        with pytest.raises(rote.OptionError, match="must hold sizes, as"):
            rote.graph(torch.relu, capture_sizes=sizes)


class TestShortSegments:
    @staticmethod
    def long_and_short(x):
        y = (x + 1).sin().cos()
        n = y.nonzero()  # its shape is always the same here
        z = y * 2
        return z.view(-1)[: len(n)] + 1, x.exp().log().abs()

    def run(self, device, least):
        g = rote.graph(self.long_and_short, min_segment_size=least)
        for _ in range(CALLS):
            x = torch.rand(4, device=device) + 0.1
            assert_same(g(x), self.long_and_short(x))
        return g

    @pytest.mark.parametrize(("least", "segments", "short"), [(0, 2, 0), (3, 2, 0), (4, 1, 3), (5, 1, 3)])
    def test_short_ones_run_one_by_one(self, device, least, segments, short):
        found, count = islands(self.run(device, least))
        assert (count, len([code for code, _ in found if code == KEPT_OUT])) == (segments, short)

    def test_nothing_is_recorded_where_all_are_short(self, device, reason):
        g = self.run(device, 6)
        report = g.report()
        assert not report.recordings and not report.replayed
        found = reason(g, KEPT_OUT)
        assert found.message == "no segment of the call has 6 operations (min_segment_size)"
        assert found.count == CALLS - WARM + 1

    def test_writes_views_and_random_numbers(self, device):
        def fn(x, total):
            y = torch.rand_like(x).view(2, 2)
            y.add_(1)
            total.add_(y.sum())
            (y > -1).nonzero()
            z = y.t().contiguous().sin().cos().exp()
            z[0].zero_()
            return z, y[1], total * 2

        g = compare(fn, [(x, torch.zeros((), device=device)) for (x,) in calls(device)], min_segment_size=6)
        assert g.report().replayed and g.report().recordings[0].segments == 1

    def test_backwards_that_are_too_short(self, device, reason):
        layer = nn.Linear(4, 1, device=device)

        def fn(x):
            y = layer(x).sum()
            with torch.no_grad():
                z = x.sin().cos().exp().log().abs().tanh().sin().cos().exp()
            return y, z

        g = rote.graph(fn, min_segment_size=9)
        for (x,) in calls(device, 2, 4):
            ours, theirs = g(x)[0], fn(x)[0]
            found = torch.autograd.grad(ours, layer.weight)
            assert_same(found, torch.autograd.grad(theirs, layer.weight))
        report = g.report()
        assert report.replayed == CALLS - WARM and report.backwards and not report.backwards_replayed
        assert reason(g, KEPT_OUT).message.startswith("no segment of the call has 9 operations")

    def test_backwards(self, device):
        layer = nn.Linear(4, 4, device=device)
        g = rote.graph(lambda x: layer(x).tanh(), min_segment_size=100)
        for (x,) in calls(device, 2, 4):
            ours = torch.autograd.grad(g(x).sum(), layer.weight)
            assert_same(ours, torch.autograd.grad(layer(x).tanh().sum(), layer.weight))
        assert not g.report().recordings
