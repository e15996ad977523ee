"""A GPU's trace, written by hand: what overlaps, what launched what, and how long the host waited."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote.base.location import Site
from rote.bench.profile.costs import PAST, by_name, in_marked, inside, sums
from rote.bench.profile.mode import AskedOperation, AskingMode
from rote.bench.profile.trace import ProfilerTrace, TraceSpan, covered, outermost, read


def event(category: str, name: str, start: float, length: float, number: int, tid: int = 1) -> dict[str, Any]:
    about = {"External id": number}
    return dict(ph="X", cat=category, name=name, ts=start, dur=length, pid=1, tid=tid, args=about)


EVENTS = [
    {"ph": "M", "name": "process_name"},
    event("user_annotation", "rote::call", 0, 100, 1),
    event("cpu_op", "aten::linear", 1, 30, 2),
    event("user_annotation", "rote::operation 0", 2, 10, 3),
    event("cpu_op", "aten::addmm", 3, 8, 4),
    event("cpu_op", "aten::copy_", 4, 2, 5),
    event("user_annotation", "rote::operation 1", 15, 10, 6),
    event("cpu_op", "aten::relu", 16, 6, 7),
    event("user_annotation", "rote::operation 2", 16, 10, 8, tid=2),
    event("cpu_op", "aten::mul", 17, 6, 9, tid=2),
    event("cuda_runtime", "cudaStreamSynchronize", 40, 25, 2),
    event("cuda_runtime", "cudaLaunchKernel", 35, 1, 2),
    event("gpu_memcpy", "Memcpy DtoD", 20, 5, 5, tid=7),
    event("kernel", "gemm", 30, 20, 4, tid=7),
    event("kernel", "relu", 45, 10, 7, tid=8),
    event("kernel", "mul", 60, 4, 9, tid=7),
    event("kernel", "triton_poi", 70, 3, 1, tid=7),
]


def test_a_kernel_that_only_knows_its_launch():
    launch = event("cuda_runtime", "cudaLaunchKernel", 0, 1, 5)
    launch["args"]["correlation"] = 77
    kernel = event("kernel", "gemm", 2, 1, 0)
    kernel["args"] = {"correlation": 77}
    stray = event("kernel", "stray", 4, 1, 0)
    stray["args"] = {}
    assert [span.id for span in read([kernel, stray, launch]).device] == [5, 0]


@pytest.fixture
def trace() -> ProfilerTrace:
    return read(EVENTS)


def test_events_are_sorted_by_what_they_are(trace):
    assert [span.name for span in trace.device] == ["Memcpy DtoD", "gemm", "relu", "mul", "triton_poi"]
    assert [(span.name, span.length) for span in trace.waits] == [("cudaStreamSynchronize", 25)]
    assert [span.name for span in outermost(trace.operations)] == ["aten::linear", "aten::mul"]


def test_device_time_that_overlaps_counts_once(trace):
    assert covered(trace.device) == 5 + 25 + 4 + 3
    assert covered([]) == 0


def test_a_window(trace):
    inside = trace.window(30, 60)
    assert [span.name for span in inside.device] == ["gemm", "relu", "mul"] and len(inside.waits) == 1


def test_operations_belong_to_the_mark_around_them_in_their_thread(trace):
    assert trace.owners() == {3: 0, 4: 0, 5: 0, 6: 1, 7: 1, 8: 2, 9: 2}


def test_costs_by_line_and_operation(trace):
    mode = AskingMode()
    mode.asked = [
        AskedOperation("aten::addmm", Site("model.py", 3, "f"), 10, 20),
        AskedOperation("aten::relu", Site("model.py", 3, "f"), 10, 0),
        AskedOperation("aten::mul", Site("model.py", 9, "f"), 40, 10),
    ]
    mode.rest_us = 10
    found = sums(trace, mode, in_marked(trace, 3), host_us=50, on_gpu=True)
    lines = {cost.name: (cost.operations, cost.kernels, cost.busy_us, cost.host_us) for cost in found.by_line}
    assert lines == {
        "model.py:9": (1, 1, 4, 25),
        "model.py:3": (2, 3, 35, 20),
        "after the last operation": (0, 0, 0, 5),
        PAST: (0, 1, 3, 0),
    }
    assert [cost.name for cost in found.by_line][:2] == ["model.py:3", "model.py:9"]  # most of host or device
    assert {cost.name: cost.busy_us for cost in found.by_operation} == {
        "aten::addmm": 25, "aten::relu": 10, "aten::mul": 4, PAST: 3,
    }  # fmt: skip
    assert found.inside_us == 8 + 6 + 6
    assert found.labels[1] == "model.py:3 aten::relu"


def test_times_inside_are_those_of_plain_calls_where_they_can_be_found(trace):
    plain = read([
        event("cpu_op", "aten::linear", 0, 30, 1),
        event("cpu_op", "aten::addmm", 1, 5, 2),
        event("cpu_op", "aten::relu", 2, 1, 3),  # inside of another
        event("cpu_op", "aten::relu", 10, 4, 4),
        event("cpu_op", "aten::mul", 15, 1, 5),
        event("cpu_op", "aten::mul", 20, 1, 6),  # one more than in the marked call
    ])  # fmt: skip
    names = ["aten::addmm", "aten::relu", "aten::mul"]
    assert by_name(plain, set(names)) == {"aten::addmm": [5], "aten::relu": [4], "aten::mul": [1, 1]}
    asked = [AskedOperation(name, Site("model.py", 3, "f"), 0, 0) for name in names]
    assert in_marked(trace, 3) == [8, 6, 6]
    assert inside([plain], trace, asked) == [5, 4, 6]
    assert inside([plain, trace], trace, asked) == [5, 4, 6]


def test_the_least_times_of_calls_that_ask_for_the_same():
    def mode(rest, *asked):
        found = AskingMode()
        found.rest_us = rest
        found.asked = [AskedOperation(name, Site("model.py", 3, "f"), *times) for name, *times in asked]
        return found

    ours = mode(5, ("aten::add", 9, 2), ("aten::mul", 1, 8))
    ours.take_least([mode(7, ("aten::add", 4, 3), ("aten::mul", 2, 6)), mode(0, ("aten::add", 0, 0))])
    assert ours.rest_us == 5
    assert [(each.waited_us, each.took_us) for each in ours.asked] == [(4, 2), (1, 6)]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=12))
def test_covered_time_is_that_of_the_union(pairs):
    spans = sorted(
        (TraceSpan("k", float(start), float(start + length)) for start, length in pairs),
        key=lambda s: s.start,
    )
    assert covered(spans) == len({at for start, length in pairs for at in range(start, start + length)})
    apart = outermost(spans)
    assert all(a.end <= b.start for a, b in pairwise(apart))
    assert covered(apart) <= covered(spans)
