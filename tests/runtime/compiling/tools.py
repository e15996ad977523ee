"""Sources, compilers that are shell scripts, and programs without PyTorch that compile."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from rote.runtime.compiling import KernelSource, Language, Programs

SOURCE = Path(__file__).resolve().parents[3] / "src" / "rote"

COPIES = """#!/bin/sh
for last; do :; done  # what follows -o
printf 'compiled' > "$last"
"""
"""Compiles anything at once."""

SLEEPS = """#!/bin/sh
sleep 600 &
echo $! > "$NOTE.part" && mv "$NOTE.part" "$NOTE"
wait
"""
"""Never comes to an end, and has a process of its own, as ``g++`` has."""

ALONE = f"""
import os, signal, sys, threading, time, types
for name, path in (("rote", {str(SOURCE)!r}), ("rote.runtime", {str(SOURCE / "runtime")!r})):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
from rote.runtime.compiling import COMPILERS, KernelSource, Language, Programs

def cpp(text):
    return KernelSource(Language.CPP, "kernel", text, (), ())

def said(job):
    return [getattr(found, "why", None) or "compiled" for found in job.results().values()]

def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "waited for in vain"
        time.sleep(0.005)

compilers = COMPILERS.get()
"""
"""How a program begins that has the room and not the rest, so that it starts in a tenth of a second."""


def cpp(text: str) -> KernelSource:
    """A kernel for the host; scripts compile whatever its text is."""
    return KernelSource(Language.CPP, "kernel", text, (), ())


def triton(text: str) -> KernelSource:
    """A kernel for a GPU of one tensor, not aligned, and one integer."""
    return KernelSource(Language.TRITON, "kernel", text, ("fp32",), (False,), 0, 1, Programs(1, 2), 90)


def script(folder: Path, text: str, name: str = "compiler") -> str:
    """A program of the shell; returns its path."""
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


class Program:
    """A Python program in a folder of its own, and what is left of it.

    Args:
        folder: Its temporary files lie in ``folder/tmp``.
        variables: Of its environment, besides those of this process.
    """

    def __init__(self, folder: Path, **variables: str) -> None:
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.note = folder / "note"
        # One that names this folder tells its processes from all others.
        own = {"TMPDIR": str(self.temporary), "NOTE": str(self.note), **variables}
        self.environment = {**os.environ, **own}

    def run(self, text: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        return subprocess.run(
            [sys.executable, *options, "-c", ALONE + text],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def processes(self) -> list[int]:
        """Those with its environment."""
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    mine = f"NOTE={self.note}".encode() in (entry / "environ").read_bytes().split(b"\0")
                except OSError:
                    continue
                if mine:
                    found.append(int(entry.name))
        return found

    def assert_nothing_left(self) -> None:
        """No process, and no file."""
        until(lambda: not self.processes() and not list(self.temporary.iterdir()))


def until(condition) -> None:
    """Wait for something that has to come."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "waited for in vain"
        time.sleep(0.005)
