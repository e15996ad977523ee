"""What a plan has to fit: versions, the device, the options, and the files whose code was run."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Mapping
from functools import cache
from types import CodeType
from typing import Any

import torch

from ..base import __version__

MOST_FILES, MOST_BYTES = 256, 1 << 22


def around(options: Mapping[str, str]) -> dict[str, str]:
    """What calls run on and with; the options are those that are not as they are by default."""
    told = ", ".join([f"{name}={value}" for name, value in sorted(options.items())])
    return {
        "rote": __version__,
        "torch": str(torch.__version__),
        "Python": platform.python_version(),
        "the device": _device(),
        "the options": told or "none",
    }


def _device() -> str:
    """The GPU, if one is in use; it is not looked for."""
    if not torch.cuda.is_initialized():
        return processor()
    major, minor = torch.cuda.get_device_capability()
    return f"{torch.cuda.get_device_name()} ({major}.{minor})"


@cache
def processor() -> str:
    """The processor, with a digest of what it can do."""
    flags = name = ""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = dict(line.split(":", 1) for line in file.read(1 << 16).splitlines() if ":" in line)
        known = {key.strip(): value.strip() for key, value in lines.items()}
        name, flags = known.get("model name", ""), known.get("flags", known.get("Features", ""))
    except OSError:
        name = platform.processor()
    able = " ".join(sorted(flags.split()))
    vectors = torch.backends.cpu.get_cpu_capability()
    return f"{platform.machine()} {name} {vectors} {hashlib.sha256(able.encode()).hexdigest()[:12]}".strip()


def difference(was: Mapping[str, str], now: Mapping[str, str]) -> str:
    """The first thing that is not as it was; empty if nothing is."""
    for name, value in now.items():
        if was.get(name) != value:
            return f"{name} was {was.get(name, 'unknown')} and is {value}"
    return ""


class Sources:
    """Digests of source files, each read once as long as it stays as it is."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, int], str] = {}

    def of(self, codes: Mapping[CodeType, Mapping[str, Any]]) -> dict[str, str]:
        """The files of some code, by its globals where it was made by other code.

        Where there is no such file there is no digest either, so that nothing is known.
        """
        files = sorted({_file_of(code, namespace) for code, namespace in codes.items()})
        return {name: self.digest(name) for name in files[:MOST_FILES]}

    def difference(self, files: Mapping[str, str]) -> str:
        """What of some files is not as it was; empty if all are."""
        for name, was in files.items():
            if not was:
                return f"{name} is no file, so it is not known whether its code is as it was"
            if self.digest(name) != was:
                return f"{name} has changed"
        return ""  # without any, it was PyTorch's alone

    def digest(self, name: str) -> str:
        """The digest of a file; empty if it cannot be read."""
        try:
            found = os.stat(name)
            key = (name, found.st_mtime_ns, found.st_size)
            if key not in self._known:
                if found.st_size > MOST_BYTES or not os.path.isfile(name):
                    return ""
                with open(name, "rb") as file:
                    self._known[key] = hashlib.sha256(file.read(MOST_BYTES)).hexdigest()[:32]
            return self._known[key]
        except (OSError, ValueError):
            return ""


def _file_of(code: CodeType, namespace: Mapping[str, Any]) -> str:
    name = code.co_filename
    return str(namespace.get("__file__") or name) if name.startswith("<") else name


@cache
def tools() -> str:
    """What compiled kernels and proofs depend on besides their text."""
    built = (str(torch.version.git_version), torch.__config__.show())
    return "\n".join([sys.version, __version__, *built, processor()])
