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
"""The folder that ``rote`` lies in."""

START_S = 180.0
"""Seconds that a process has for its imports, whatever the limit for its answers is."""

PATIENCE_S = 5.0
"""Seconds that a process has to end once its output has."""


class WorkerFailure(Exception):  # noqa: N818  (a result of the measurement)
    """A contender could not answer.

    Attributes:
        reason: Why, in one line.
        memory: Whether memory ran out. A process that was killed counts too: so does a system that has none.
    """

    def __init__(self, reason: str, *, memory: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.memory = memory


def _own_path() -> str:
    """Where the worker finds ``rote``, if it would not by itself.

    Packages that are installed must not come before the standard library, which is where ``PYTHONPATH`` is.
    """
    return "" if ROOT.name in ("site-packages", "dist-packages") else str(ROOT)


class Process:
    """A worker.

    ``log`` is a file for all that it prints. ``environment`` adds to the variables of this process. One
    answer may take ``limit_s`` seconds. ``say`` is called with what it is at.
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
        paths = os.pathsep.join(filter(None, [_own_path(), ENVIRONMENT.get("PYTHONPATH", "")]))
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
        """Wait for the first sign of life; a WorkerFailure says that there was none."""
        self._read(max(START_S, self._limit_s))

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """Ask, and wait for the answer.

        Raises:
            WorkerFailure: The answer is an error, or the process died or took too long; it is stopped then.
        """
        self.send(question)
        return self.receive()

    def send(self, question: dict[str, Any]) -> None:
        """Ask, and let it work; a WorkerFailure says that the process was stopped before."""
        assert self._process.stdin is not None
        self._at = question["do"]
        if self._stopped:
            raise WorkerFailure(f"the process was stopped ({self._at})")
        with contextlib.suppress(BrokenPipeError):  # reading says how it died
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()

    def receive_built(self) -> dict[str, Any]:
        """Wait for the target to be built, which has the time that the imports have; see :meth:`ask`."""
        return self.receive(max(START_S, self._limit_s))

    def receive(self, limit_s: float | None = None) -> dict[str, Any]:
        """Wait for the answer; see :meth:`ask`."""
        answer = self._read(self._limit_s if limit_s is None else limit_s)
        if "error" in answer:
            self.stop()
            raise WorkerFailure(answer["error"], memory=answer["memory"])
        return answer

    def _read(self, limit_s: float) -> dict[str, Any]:
        """The next line that is no progress."""
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
        """The next line; empty at the end of the stream, None if none came in time."""
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
        said = self._last_words()
        return f"{how}, after {said!r}" if said else how

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1].strip()[:120] if lines else ""

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
