"""How much memory a process holds: of the device on CUDA, resident memory on a CPU."""

from __future__ import annotations

import contextlib
import gc
from pathlib import Path
from typing import Any

import torch

STATUS = Path("/proc/self/status")
CLEAR_REFS = Path("/proc/self/clear_refs")
CPU = torch.device("cpu")


def held(device: torch.device) -> int | None:
    """Bytes in use now; None where the system does not say.

    On CUDA: tensors, and all of the private pools of graphs, which nobody else can use. On a CPU: resident
    memory, which includes what libraries and the allocator keep.
    """
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        return sum(map(segment_bytes, torch.cuda.memory_snapshot()))
    return resident("VmRSS")


def begin_peak(device: torch.device) -> None:
    """Forget the peak so far; on a CPU where the system lets a process do so."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with contextlib.suppress(OSError):
            CLEAR_REFS.write_text("5")  # proc_pid_clear_refs(5): sets VmHWM to VmRSS


def peak(device: torch.device) -> int | None:
    """The most bytes there were at a time, counted as in :func:`held`.

    On CUDA, what private pools keep for their graphs and is not in use now is added to the peak of tensors.
    """
    if device.type != "cuda":
        return resident("VmHWM")
    segments = torch.cuda.memory_snapshot()
    idle = sum(segment_bytes(each) - each["allocated_size"] for each in segments)
    return torch.cuda.max_memory_allocated(device) + idle


def segment_bytes(segment: dict[str, Any]) -> int:
    """Bytes of one of the allocator's segments that nobody else can use."""
    private = tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0)
    return segment["total_size"] if private else segment["allocated_size"]


def resident(name: str, status: Path = STATUS) -> int | None:
    """A field of ``/proc/self/status`` in bytes; ``ru_maxrss`` would count the parent's memory as well."""
    lines = status.read_text().splitlines() if status.exists() else []
    found = next((line for line in lines if line.startswith(f"{name}:")), None)
    return int(found.split()[1]) * 1024 if found is not None else None
