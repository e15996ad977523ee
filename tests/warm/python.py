"""A Python that has imported PyTorch: programs of tests begin in a tenth of a second instead of two."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
START_S = 120.0


@contextmanager
def started() -> Iterator[str]:
    """The path of an executable file that takes the arguments of Python's, as long as it is entered."""
    if not hasattr(os, "pidfd_open"):  # not Linux
        yield sys.executable
        return
    with tempfile.TemporaryDirectory(prefix="warm-") as name:
        folder = Path(name)
        address, launcher = folder / "socket", folder / "python"
        command = [sys.executable, "-IS", str(HERE / "client.py"), sys.executable, str(address)]
        launcher.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        launcher.chmod(0o755)
        command = [sys.executable, str(HERE / "server.py"), str(address), str(launcher)]
        server = subprocess.Popen(command, stdin=subprocess.PIPE)
        assert server.stdin is not None
        end = time.monotonic() + START_S
        while not Path(f"{address}.json").exists():
            assert server.poll() is None and time.monotonic() < end, "the server has not started"
            time.sleep(0.02)
        try:
            yield str(launcher)
        finally:
            server.stdin.close()
            server.wait(START_S)
