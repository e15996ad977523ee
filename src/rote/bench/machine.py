"""The machine and the versions that figures belong to."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

CPUINFO = Path("/proc/cpuinfo")
CLOCKS = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw")


def versions(on_gpu: bool) -> dict[str, Any]:
    """The versions of rote and of all that it runs on."""
    driver = _smi("driver_version") if on_gpu else []
    return {
        "rote": version("rote"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": version("triton"),
        "cuda": torch.version.cuda,
        "driver": driver[0] if driver else None,
        "processor": processor(),
    }


def state(on_gpu: bool) -> dict[str, Any]:
    """Time, load and a GPU's clocks now; they may explain a result far off the others."""
    time = datetime.now(UTC).isoformat(timespec="seconds")
    found: dict[str, Any] = {"time": time, "load_average": os.getloadavg()[0]}
    return found | dict(zip(CLOCKS, _smi(*CLOCKS) if on_gpu else [], strict=False))


def processor() -> str:
    """The processor's name."""
    found = re.search(r"model name\s*:\s*(.+)", CPUINFO.read_text()) if CPUINFO.exists() else None
    return found.group(1) if found else platform.processor() or platform.machine()


def _smi(*fields: str) -> list[str]:
    """The first GPU's answers to an nvidia-smi query; empty where there is none."""
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    lines = answer.strip().splitlines()
    return [part.strip() for part in lines[0].split(",")] if lines else []


def version(package: str) -> str | None:
    """The version of an installed package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
