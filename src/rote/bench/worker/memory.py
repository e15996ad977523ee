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

    On CUDA: tensors, and the private pools of graphs as a whole. On a CPU: resident memory, which includes
    what libraries and the allocator keep.
    """
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        return sum(map(segment_bytes, torch.cuda.memory_snapshot()))
    return resident("VmRSS")


def begin_peak(device: torch.device) -> None:
    """Forget the peak so far; on a CPU only where the system allows it."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with contextlib.suppress(OSError):
            CLEAR_REFS.write_text("5")  # proc_pid_clear_refs(5): sets VmHWM to VmRSS


def peak(device: torch.device) -> int | None:
    """The peak since :func:`begin_peak`, counted as in :func:`held`.

    On CUDA it is the peak of tensors, and what private pools keep now without using it.
    """
    if device.type != "cuda":
        return resident("VmHWM")
    segments = torch.cuda.memory_snapshot()
    idle = sum(segment_bytes(each) - each["allocated_size"] for each in segments)
    return torch.cuda.max_memory_allocated(device) + idle


def segment_bytes(segment: dict[str, Any]) -> int:
    """Bytes of an allocator's segment that nobody else can use."""
    private = tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0)
    return segment["total_size"] if private else segment["allocated_size"]


def resident(name: str, status: Path = STATUS) -> int | None:
    """A field of ``/proc/self/status`` in bytes; ``ru_maxrss`` would count the parent's memory as well."""
    lines = status.read_text().splitlines() if status.exists() else []
    found = next((line for line in lines if line.startswith(f"{name}:")), None)
    return int(found.split()[1]) * 1024 if found is not None else None
