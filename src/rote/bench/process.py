"""The handle on a worker process: questions in, answers out, and a crash or a hang is an answer too."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base import ENVIRONMENT

ROOT = Path(__file__).resolve().parents[2]
"""The folder in which ``rote`` lies."""

START_S = 180.0
"""Seconds for imports and for the build of the target, where the limit for an answer is shorter."""

PATIENCE_S = 5.0
"""Seconds in which a process has to end once its output has."""


class WorkerFailure(Exception):  # noqa: N818  (a result of the measurement)
    """A contender could not answer: the reason in one line, and whether memory ran out.

    A process that was killed counts as out of memory: a system that has none left kills.
    """

    def __init__(self, reason: str, *, memory: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.memory = memory


class Process:
    """A worker.

    ``log`` gets all that it prints. ``environment`` adds to the variables of this process. One answer may
    take ``limit_s`` seconds. ``say`` gets its progress.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str],
        limit_s: float,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._log = log
        self._limit_s = limit_s
        self._say = say
        self._at = "starting"
        self._pending = b""
        self._stopped = False
        # Installed packages must not come before the standard library.
        own = "" if ROOT.name in ("site-packages", "dist-packages") else str(ROOT)
        paths = os.pathsep.join(filter(None, [own, ENVIRONMENT.get("PYTHONPATH", "")]))
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                list(command),
                env={**ENVIRONMENT, **environment, "PYTHONPATH": paths},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,  # so that what it starts can be stopped with it
            )

    def wait_until_ready(self) -> None:
        """Wait for the first sign of life; see :meth:`ask`."""
        self._read(START_S)

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """Ask, and wait for the answer.

        Raises:
            WorkerFailure: The answer is an error, or the process died or took too long. It is stopped then.
        """
        self.send(question)
        return self.receive()

    def send(self, question: dict[str, Any]) -> None:
        """Ask, and let it work; a process that was stopped raises a WorkerFailure."""
        assert self._process.stdin is not None
        self._at = question["do"]
        if self._stopped:
            raise WorkerFailure(f"the process was stopped ({self._at})")
        with contextlib.suppress(BrokenPipeError):  # reading says how it died
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()

    def receive(self, least_s: float = 0.0) -> dict[str, Any]:
        """Wait for the answer, for ``least_s`` seconds at least; see :meth:`ask`."""
        answer = self._read(least_s)
        if "error" in answer:
            self.stop()
            raise WorkerFailure(answer["error"], memory=answer["memory"])
        return answer

    def _read(self, least_s: float) -> dict[str, Any]:
        """The next line that is no progress."""
        limit_s = max(least_s, self._limit_s)
        deadline = time.monotonic() + limit_s
        while True:
            line = self._line(deadline)
            if line is None:
                self.stop()
                raise WorkerFailure(f"no answer in {limit_s:g} s ({self._at})")
            if not line:
                fate, killed = self._fate(), self._process.returncode == -signal.SIGKILL
                raise WorkerFailure(f"the process died: {fate} ({self._at})", memory=killed)
            answer: dict[str, Any] = json.loads(line)
            if "at" not in answer:
                return answer
            self._at = answer["at"]
            self._say(self._at)

    def _line(self, deadline: float) -> bytes | None:
        """The next line: empty at the end of the stream, None if it did not come in time."""
        stream = self._process.stdout
        assert stream is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    return None
                piece = os.read(stream.fileno(), 1 << 16)
                if not piece:
                    return b""
                self._pending += piece
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _fate(self) -> str:
        try:
            code = self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:  # it closed its end and lives on
            self.stop()
            return "it closed its output"
        how = f"exit status {code}" if code >= 0 else signal.Signals(-code).name
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return f"{how}, after {lines[-1].strip()[:120]!r}" if lines else how

    def stop(self) -> None:
        """End the process and what it started."""
        if self._stopped:  # its number may be somebody else's by now
            return
        self._stopped = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):  # a question that nobody read
                stream.close()
        self._process.wait()
