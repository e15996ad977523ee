"""What a profile says of callables whose cost is known. Only shares, counts and orders are asserted."""

from __future__ import annotations

import gzip
import json
import threading
import time
from dataclasses import replace

import pytest
import torch
from torch import nn

import rote
from rote.base.errors import MisuseError, OptionError
from rote.bench.profile.measure import profile_calls


def chain(x: torch.Tensor, *, times: int = 10) -> torch.Tensor:
    for _ in range(times):
        x = x + 1
    return x


@torch.library.custom_op("rote_profile::slow", mutates_args=())
def slow(x: torch.Tensor) -> torch.Tensor:
    time.sleep(0.05)  # long enough for a busy machine
    return x.clone()


def test_operations_are_counted(device):
    found = rote.profile(chain, torch.zeros(4, device=device), times=7)
    assert found.operations == 7
    assert found.by_operation[0].name == "aten::add" and found.by_operation[0].operations == 7
    assert found.kernels == (7 if device.type == "cuda" else 0)
    assert found.backend == ("cuda" if device.type == "cuda" else "host")
    assert 0 < found.busy_us <= found.total_us <= found.p99_us
    assert found.gain == pytest.approx(found.total_us / found.busy_us)


def test_lines_and_operations_share_the_same_time(device, where):
    found = rote.profile(chain, torch.zeros(4, device=device))
    line = found.by_line[0]
    assert line.name == where(chain, "x = x + 1") and line.text == "x = x + 1" and line.operations == 10
    assert sum(cost.host_us for cost in found.by_line) == pytest.approx(found.host_us)
    busy = [sum(cost.busy_us for cost in costs) for costs in (found.by_line, found.by_operation)]
    assert busy[0] == pytest.approx(busy[1])


def test_a_wait_between_operations_is_launch_bound(where):
    def waiting(x):
        x = x + 1
        time.sleep(0.02)
        return x * 2

    found = rote.profile(waiting, torch.zeros(4))
    assert found.launch_bound and found.idle_share > 0.9 and found.gain > 10
    assert found.verdict.startswith("Launch-bound: Python and dispatch between the operations take ")
    assert found.by_line[0].name == where(waiting, "return x * 2")
    assert found.by_line[0].host_us > 0.8 * found.host_us > found.by_line[0].busy_us


def test_a_wait_inside_an_operation_is_not():
    found = profile_calls(lambda x: slow(slow(x)) + 1, (torch.zeros(4),), {}, calls=8)
    assert 9.9e4 <= found.busy_us <= found.total_us  # two waits
    assert replace(found, total_us=found.busy_us / 0.9).verdict.startswith(
        "Not launch-bound: 90% of a call is work inside the operations; "
    )
    assert found.by_operation[0].name == "rote_profile::slow" and found.by_operation[0].operations == 2


def test_a_wait_at_the_end_belongs_to_no_operation():
    def waiting(x):
        y = x + 1
        time.sleep(0.02)
        return y

    assert rote.profile(waiting, torch.zeros(4)).by_line[0].name == "after the last operation"


def test_inference_mode_runs_the_same_operations(device):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).to(device)
    found = [
        rote.profile(mode()(lambda x: model(x)), torch.zeros(2, 4, device=device))
        for mode in (torch.no_grad, torch.inference_mode)
    ]
    names = [sorted((cost.name, cost.operations) for cost in each.by_operation) for each in found]
    assert names[0] == names[1] and found[0].operations == found[1].operations >= 2


def test_no_operations():
    found = rote.profile(lambda: 3)
    assert found.operations == 0 and not found.launch_bound
    assert "there is nothing to record" in found.verdict


def test_views_are_no_work_of_a_graph(device):
    found = rote.profile(lambda x: (x.t().unsqueeze(0) + 1, x.split(1)), torch.zeros(4, 4, device=device))
    busy = {cost.name: cost.busy_us for cost in found.by_operation}
    assert {name for name in busy if busy[name]} == {"aten::add"} and found.operations == 4
    found = rote.profile(lambda x: x.t(), torch.zeros(4, 4, device=device))
    assert (found.busy_us, found.launch_bound) == (0.0, False)
    assert found.verdict.endswith(
        "no tensor operations but views in its own thread: there is nothing to record."
    )


def test_least_times_are_of_many_short_calls_and_of_few_long_ones():
    """Of two calls, the shorter one has cold caches still: a tiny call has no gap at all then."""
    found = rote.profile(chain, torch.zeros(4))
    assert found.calls_made == 3 + 20 + 20 + 2
    found = profile_calls(lambda x: slow(slow(slow(x))), (torch.zeros(4),), {}, calls=5)
    assert found.calls_made < 3 + 5 + 20 + 2


def test_the_slowest_call_of_few_is_called_so():
    labels = [profile_calls(chain, (torch.zeros(4),), {}, calls=calls).summary()[1][0] for calls in (5, 100)]
    assert labels == ["per call, slowest of 5", "per call, 99th percentile"]


def test_backward_belongs_to_the_line_that_asked_for_it(device, where):
    model = nn.Linear(4, 4).to(device)

    def step(x):
        model.zero_grad()
        model(x).sum().backward()

    found = rote.profile(step, torch.zeros(2, 4, device=device))
    assert {cost.name for cost in found.by_line} - {"after the last operation"} <= {
        where(step, "zero_grad"),
        where(step, "backward"),
    }


def test_state_is_what_so_many_plain_calls_leave(device):
    def train():
        torch.manual_seed(3)
        model = nn.Linear(4, 4).to(device)
        made = []

        def step(x):
            made.append(None)
            loss = (model(x) * torch.rand(4, device=device)).sum()
            loss.backward()

        return model, made, step

    x = torch.ones(2, 4, device=device)
    model, made, step = train()
    found = profile_calls(step, (x,), {}, calls=5)
    assert found.calls_made == len(made) and found.calls_timed == 5
    after = torch.rand(3, device=device)
    plain, _, plain_step = train()
    for _ in range(found.calls_made):
        plain_step(x)
    assert torch.equal(after, torch.rand(3, device=device))
    assert torch.equal(model.weight.grad, plain.weight.grad)


@pytest.mark.parametrize("good_calls", [0, 2, 5, 10, 12])
def test_an_exception_passes_unchanged_and_leaves_nothing_on(good_calls):
    left = [good_calls]

    def failing(x):
        left[0] -= 1
        if left[0] < 0:
            raise ValueError("no more")
        return x + 1

    with pytest.raises(ValueError, match="no more"):
        profile_calls(failing, (torch.zeros(2),), {}, calls=6)
    assert not torch.autograd._profiler_enabled()
    assert torch._C._len_torch_dispatch_stack() == 0
    assert rote.profile(chain, torch.zeros(2)).operations == 10


async def waiting():
    return torch.zeros(2) + 1


def test_work_of_other_threads_is_not_denied():
    def threaded(x):
        thread = threading.Thread(target=lambda: x + 1)
        thread.start()
        thread.join()

    found = rote.profile(threaded, torch.zeros(4))
    assert "no tensor operations in its own thread" in found.verdict


def test_what_cannot_be_profiled():
    with pytest.raises(MisuseError, match=r"takes a callable and its arguments, not a Tensor"):
        rote.profile(torch.zeros(2))
    with pytest.raises(MisuseError, match=r"give it the plain callable, __wrapped__"):
        rote.profile(rote.graph(chain), torch.zeros(2))
    with pytest.raises(MisuseError, match=r"returned a generator, which has run nothing yet: measure"):
        rote.profile(lambda x: (y for y in x), torch.zeros(2))
    with pytest.raises(MisuseError, match=r"returned a coroutine, which .* asyncio\.run\(fn\(\*args\)\)"):
        rote.profile(waiting)  # and nothing is said about one that nobody awaited
    with pytest.raises(OptionError, match=r"calls=0: at least one"):
        profile_calls(chain, (), {}, calls=0)
    with (
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as profiler,
        pytest.raises(MisuseError, match="a profiler is running, and there can be only one"),
    ):
        rote.profile(chain, torch.zeros(2))
    assert profiler.events() is not None


def test_text_json_trace_and_picture(tmp_path, where):
    found = rote.profile(chain, torch.zeros(4))
    text = str(found)
    assert found.verdict in text and "aten::add" in text and "per call, median" in text
    figures = json.loads(found.to_json())
    assert figures["operations"] == 10 and figures["verdict"] == found.verdict
    assert figures["by_line"][0]["text"] == "x = x + 1"

    found.save_trace(tmp_path / "trace.json")
    found.save_trace(tmp_path / "trace.json.gz")
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert trace == json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))
    names = [event["name"] for event in trace["traceEvents"]]
    line = where(chain, "x = x + 1")
    watched = names.count("rote::call")
    assert watched + 25 == found.calls_made and names.count(f"{line} aten::add") == 20

    pytest.importorskip("matplotlib")
    found.save_plot(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
