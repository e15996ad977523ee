"""How much memory a process holds: of the device on CUDA, resident memory on a CPU."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any, NamedTuple

import torch

STATUS = Path("/proc/self/status")


class Memory(NamedTuple):
    """Bytes.

    Attributes:
        held: In use now. On CUDA: tensors, and all of the private pools of graphs, which nobody else can use.
            On a CPU: resident memory.
        peak: The most there was at a time. On CUDA: memory of tensors. On a CPU: resident memory.
    """

    held: int
    peak: int


def read(device: torch.device) -> Memory | None:
    """The memory of this process; None where the system does not say."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        segments = torch.cuda.memory_snapshot()
        return Memory(sum(map(held, segments)), torch.cuda.max_memory_allocated(device))
    return resident(STATUS.read_text()) if STATUS.exists() else None


def held(segment: dict[str, Any]) -> int:
    """Bytes of one of the allocator's segments that nobody else can use."""
    private = tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0)
    return segment["total_size"] if private else segment["allocated_size"]


def resident(status: str) -> Memory | None:
    """From the text of ``/proc/self/status``; ``ru_maxrss`` would count the parent's memory at the fork."""
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    if "VmRSS" not in fields or "VmHWM" not in fields:
        return None
    held, peak = (int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
    return Memory(held, peak)
