"""What a call asks of a GPU: launches, kernels, copies and their bytes, from a trace of ``torch.profiler``.

Only CUDA activities are recorded, and the exported trace is read: only it has the bytes. This comes after all
timing: once the profiler's library is attached to a process, launches cost more.

A trace lacks most launches by the driver's own functions (``cuGraphLaunch``, which rote calls). It has what
they launched, with the number of the launch (``correlation``). So each such number without a launch counts as
one: as a graph, if it has several pieces of work or says so, else as a kernel or a copy.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

KERNEL_LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaLaunchCooperativeKernel", "cuLaunchCooperative")
TRANSFERS = ("cudaMemcpy", "cudaMemset", "cuMemcpy", "cuMemset")
FIGURES = ("kernels", "graphs", "copies", "kernels_run", "copies_run")
DIRECTIONS = ("HtoD", "DtoH", "DtoD", "HtoH", "PtoP")


@dataclass(frozen=True)
class Launches:
    """Counts per call.

    Attributes:
        total: All that the host puts into the queue: kernels, graphs, copies, fills.
        copies: Copies and fills launched one by one.
        kernels_run: Kernels that ran on the device, in graphs too.
        copies_run: Copies that ran on the device, in graphs too.
        bytes_copied: Bytes of these copies, by direction (``HtoD`` is to the device).
    """

    total: float
    kernels: float
    graphs: float
    copies: float
    kernels_run: float
    copies_run: float
    bytes_copied: dict[str, float]


def count(calls: list[Callable[[], object]], folder: Path) -> Launches:
    """Trace some calls in a row; the trace is a file in ``folder`` meanwhile."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as trace:
        for call in calls:
            call()
        torch.cuda.synchronize()
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".json") as file:
        trace.export_chrome_trace(file.name)
        events = json.loads(Path(file.name).read_text(encoding="utf-8", errors="replace"))["traceEvents"]
    found = counted(events, len(calls))
    if not found.total:
        raise RuntimeError("torch.profiler saw nothing of the GPU")
    return found


def counted(events: Iterable[dict[str, Any]], calls: int) -> Launches:
    """Count the events of an exported trace."""
    found: Counter[str] = Counter()
    moved: Counter[str] = Counter()
    asked: set[int | None] = {None}
    work: defaultdict[int | None, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        kind, name, about = event.get("cat", ""), event.get("name", ""), event.get("args", {})
        if kind in ("cuda_runtime", "cuda_driver"):
            found[_launch(name)] += 1
            asked.add(about.get("correlation"))
        elif kind in ("kernel", "gpu_memcpy", "gpu_memset"):
            work[about.get("correlation")].append(event)
        if kind == "kernel":
            found["kernels_run"] += 1
        elif kind == "gpu_memcpy":
            found["copies_run"] += 1
            moved[next((short for short in DIRECTIONS if short in name), "other")] += about.get("bytes", 0)
    for launch in work.keys() - asked:
        found[_launch_of(work[launch])] += 1
    per_call = {name: number / calls for name, number in found.items()}
    figures = {name: per_call.get(name, 0.0) for name in FIGURES}
    total = figures["kernels"] + figures["graphs"] + figures["copies"]
    return Launches(total, **figures, bytes_copied={name: number / calls for name, number in moved.items()})


def _launch(name: str) -> str:
    """The kind of launch that a function of CUDA makes."""
    if name.startswith(KERNEL_LAUNCHES):
        return "kernels"
    if "GraphLaunch" in name:
        return "graphs"
    return "copies" if name.startswith(TRANSFERS) else "other"


def _launch_of(work: list[dict[str, Any]]) -> str:
    """The kind of a launch that is not in the trace itself."""
    if len(work) > 1 or work[0]["args"].get("graph id"):
        return "graphs"
    return "kernels" if work[0]["cat"] == "kernel" else "copies"
