"""From raw figures to those of a row: counts of a trace, memory, times."""

import mmap
from dataclasses import asdict

import pytest
import torch

from rote.bench.profile.measure import p99
from rote.bench.report import COLD_US, BenchReport, BenchRow, first_fast_call
from rote.bench.table import cells, columns, headline, remarks
from rote.bench.worker import memory as bench_memory
from rote.bench.worker.launches import counted

# Up to 32 MiB, glibc may give memory again that was freed before and is resident still (mallopt(3),
# M_MMAP_THRESHOLD).
FRESH_BYTES = 128 * 2**20

EQUAL = {"calls": 8, "bitwise": True, "largest": None, "what": "", "unseen": ""}

TRACE = [
    {"ph": "M", "name": "process_name"},
    {"cat": "cuda_runtime", "name": "cudaLaunchKernel"},
    {"cat": "cuda_runtime", "name": "cudaLaunchKernelExC_v11060"},
    {"cat": "cuda_driver", "name": "cuLaunchKernelEx"},
    {"cat": "cuda_runtime", "name": "cudaGraphLaunch_v10000"},
    {"cat": "cuda_runtime", "name": "cudaMemcpyAsync"},
    {"cat": "cuda_runtime", "name": "cudaMemsetAsync"},
    {"cat": "cuda_runtime", "name": "cudaMalloc"},
    {"cat": "cuda_runtime", "name": "cudaDeviceSynchronize"},
    *[{"cat": "kernel", "name": f"kernel_{i}"} for i in range(9)],
    {"cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)", "args": {"bytes": 100}},
    {"cat": "gpu_memcpy", "name": "Memcpy DtoD (Device -> Device)", "args": {"bytes": 6}},
    {"cat": "gpu_memset", "name": "Memset (Device)", "args": {"bytes": 50}},
]


def test_a_trace_is_counted_per_call():
    found = counted(TRACE, 2)
    assert (found.kernels, found.graphs, found.copies, found.total) == (1.5, 0.5, 1.0, 3.0)
    assert (found.kernels_run, found.copies_run) == (4.5, 1.0)
    assert found.bytes_copied == {"HtoD": 50.0, "DtoD": 3.0}


def test_launches_that_are_not_in_the_trace_are_known_by_their_work():
    """The profiler records few of the driver's own functions, and not the one that launches a graph."""

    def work(kind, correlation, **about):
        return {"cat": kind, "name": "Memcpy DtoD", "args": {"correlation": correlation, **about}}

    asked = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": {"correlation": 1}}
    graph = [work("kernel", 2), work("kernel", 2), work("gpu_memcpy", 2, bytes=64)]
    trace = [asked, work("kernel", 1), *graph, work("kernel", 3, **{"graph id": 7}), work("gpu_memset", 4)]
    found = counted(trace, 1)
    assert (found.kernels, found.graphs, found.copies, found.total) == (1, 2, 1, 4)
    assert (found.kernels_run, found.copies_run, found.bytes_copied) == (4, 1, {"DtoD": 64})


def test_an_empty_trace():
    found = counted([], 2)
    assert found.total == 0 and found.bytes_copied == {}


def test_private_pools_are_held_as_a_whole():
    default = {"total_size": 100, "allocated_size": 30, "segment_pool_id": (0, 0)}
    private = {"total_size": 100, "allocated_size": 30, "segment_pool_id": (0, 4)}
    assert [bench_memory.segment_bytes(each) for each in (default, private)] == [30, 100]


def test_resident_memory(tmp_path):
    status = tmp_path / "status"
    status.write_text("Name:\tVmRSS\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n")
    assert bench_memory.resident("VmHWM", status) == 2048 * 1024
    assert bench_memory.resident("VmRSS", status) == 1024 * 1024
    assert bench_memory.resident("VmSwap", status) is None
    assert bench_memory.resident("VmRSS", tmp_path / "missing") is None


def fresh(count, device):
    """A tensor of so many bytes in memory that is new to the process; an allocator gives what was freed."""
    if device.type == "cuda":
        return torch.ones(count // 4, device=device)
    return torch.frombuffer(mmap.mmap(-1, count), dtype=torch.float32).fill_(1)


def test_memory_of_this_process(device):
    before = bench_memory.held(device)
    if before is None:
        pytest.skip("no /proc/self/status")
    bench_memory.begin_peak(device)
    kept = fresh(FRESH_BYTES, device)
    after, peak = bench_memory.held(device), bench_memory.peak(device)
    assert after - before >= kept.nbytes * 0.9 and peak >= kept.nbytes


def test_the_peak_of_a_call_is_not_that_of_what_was_before(device):
    before = fresh(2 * FRESH_BYTES, device)
    del before
    held = bench_memory.held(device)
    if held is None:
        pytest.skip("no /proc/self/status")
    bench_memory.begin_peak(device)
    kept = fresh(FRESH_BYTES, device)
    assert 0.9 * kept.nbytes <= bench_memory.peak(device) - held <= 1.5 * kept.nbytes


@pytest.mark.parametrize(
    "seconds, median_us, expected",
    [
        ([1.0, 0.2, 0.01, 0.01], 10_000, 1.21),
        ([0.01, 0.01], 10_000, 0.01),
        ([1.0, 0.00025, 0.00012], 40, 1.00037),  # between the first calls caches are cold
        ([1.0, 0.2, 0.19], 10_000, None),
    ],
)
def test_the_first_fast_call(seconds, median_us, expected):
    assert first_fast_call(seconds, median_us, COLD_US) == (expected and pytest.approx(expected))


def test_what_cold_caches_cost_eager_they_may_cost_others():
    """Between the first calls results are compared, after which a short call takes several times as long."""
    report = BenchReport("p.py:b", [], rows=[measured("eager"), measured("rote")])
    for row, seconds in zip(report.rows, ([3e-3, 0.9e-3], [0.2, 1.5e-3]), strict=True):
        row.first_calls_s = seconds
    report.find_fast_calls()
    assert [row.first_fast_call_s for row in report.rows] == [pytest.approx(3.9e-3), pytest.approx(0.2015)]
    report.rows[1].first_calls_s = [0.2, 0.1]
    report.find_fast_calls()
    assert report.rows[1].first_fast_call_s is None


def measured(name, **figures):
    row = BenchRow(name, name.title())
    row.first_calls_s = [0.5, 0.0005]
    row.equality = EQUAL.copy()
    row.peak_bytes, row.held_bytes = 3 * 2**20, -512
    row.time([{"latency_us": [100.0, 200.0, 1000.0], "host_us": [10.0, 12.0, 14.0]}])
    row.first_fast_call_s = 0.5005
    vars(row).update(figures)
    return row


@pytest.mark.parametrize("calls, slow, expected", [(20, 1, 9.0), (100, 1, 1.0), (100, 2, 9.0), (1, 0, 1.0)])
def test_99_of_100_calls_are_not_slower(calls, slow, expected):
    assert p99([9.0] * slow + [1.0] * (calls - slow)) == expected


def test_a_row_on_a_gpu():
    launches = asdict(counted(TRACE, 1))
    report = BenchReport("p.py:b", ["n=1"], device="cuda", device_name="H200", rows=[measured("eager")])
    report.rows[0].launches, report.rows[0].settled_after_s = launches, 2.5
    report.versions = {"torch": "2.11", "triton": None}
    assert cells(report, report.rows[0]) == [
        "500.50 ms", "2.50 s", "200.0 us", "1.00 ms", "12.0 us", "6", "1", "3.0 MiB", "-512 B", "106 B",
        "reference",
    ]  # fmt: skip
    assert len(columns(report)) == 11
    assert headline(report) == "p.py:b (n=1) on H200, torch 2.11"


def test_a_row_on_a_cpu():
    report = BenchReport("p.py:b", [], rows=[measured("eager"), measured("rote", median_us=50.0)])
    report.rows[1].equality = EQUAL | {"bitwise": False, "largest": 0.125, "what": "call 1: it differs"}
    row = cells(report, report.rows[1])
    assert row == ["2,502 x", "-", "0.25 x", "5.00 x", "3.0 MiB", "-512 B", "differ by 0.12"]
    assert len(row) == len(columns(report))
    assert "rote: call 1: it differs" in remarks(report)


def test_results_that_cannot_be_compared_are_not_called_equal():
    report = BenchReport("p.py:b", [], rows=[measured("eager"), measured("rote", median_us=1.0)])
    for row in report.rows:
        row.equality = EQUAL | {"unseen": "result[0] (policy.Distribution)"}
    assert cells(report, report.rows[1])[2::4] == ["0.005 x", "equal as far as seen"]
    assert "Only the type is compared of result[0] (policy.Distribution)." in remarks(report)


def test_threads_of_a_cpu_belong_to_its_figures():
    report = BenchReport("p.py:b", [], device_name="EPYC", threads=2, versions={"torch": "2.11"})
    assert headline(report) == "p.py:b on EPYC, 2 threads, torch 2.11"


def test_a_failed_row():
    report = BenchReport("p.py:b", [], rows=[measured("eager"), measured("compile")])
    report.rows[1].fail("RuntimeError: no compiler")
    assert cells(report, report.rows[1]) == [] and report.to_eager(report.rows[1]) is None
    assert "compile: failed: RuntimeError: no compiler" in remarks(report)
    assert report.to_dict()["rows"][1]["median_us"] is None
