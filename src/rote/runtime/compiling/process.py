"""A process that compiles, as the program sees it: started, given sources, asked what has come out.

Nothing here waits. Requests and replies lie in two files without a name and in memory, so neither side waits
for the other to read; what is left in them goes with the last process that has them open. There are no
threads, so a program that forks meanwhile is one without threads, and nothing has to be joined when it exits.

A process costs its program 1 to 2 ms to start. It is a direct child, in a session of its own: it gets no
signals of a terminal. A program that waits for *any* child (``os.wait()``) may come to see it.
"""

from __future__ import annotations

import base64
import importlib.util
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...base import CompileSettings, EnvironmentError_
from .source import Binary, CompileFailure, KernelSource
from .worker import Records, record, remove, write_whole

_SCRIPT = str(Path(__file__).with_name("worker.py"))
LONGEST_S = 300.0
"""Seconds that a kernel may take; one that takes longer fails."""

_FIRST = 3  # descriptors below are standard streams, also in a program that has closed its own

Outcome = Binary | CompileFailure


class _Child(subprocess.Popen[bytes]):
    """A child that says nothing when it is dropped, whether it has ended or not, here or in a fork."""

    def __del__(self) -> None:
        pass


class CompileProcess:
    """One process that compiles.

    Args:
        workers: How many kernels at once.
        sources: What it finds when it begins; with nothing to do it would end.

    Raises:
        EnvironmentError_: There is no interpreter, or nowhere to write.
        OSError: The system refused.
    """

    def __init__(self, settings: CompileSettings, workers: int, sources: Sequence[KernelSource]) -> None:
        self._directory = os.path.join(tempfile.gettempdir(), f"rote-{os.getpid()}-{secrets.token_hex(8)}")
        self._sources: list[KernelSource] = []
        self._begun: dict[int, int] = {}  # the processes at work on sources, by the sources' numbers
        self._finished: set[int] = set()
        self._status: int | None = None
        self._requests, self._replies, self._alive = -1, -1, -1
        try:
            self._requests, self._replies = _nameless_file(), _nameless_file()
            self._write(_order(settings, workers, self._directory))
            for source in sources:
                self.give(source)
            self._read = Records(self._replies)
            theirs, self._alive = _pipe()
            try:
                self._child = self._start(settings.variables, theirs)
            finally:
                os.close(theirs)
        except BaseException:
            self._close()
            raise

    def _start(self, variables: Mapping[str, str], stdin: int) -> _Child:
        files = self._requests, self._replies
        command = [_interpreter(), "-I", "-S", "-B", _SCRIPT, *map(str, files), str(os.getpid())]
        places = dict.fromkeys(("TMPDIR", "TRITON_HOME", "TRITON_CACHE_DIR"), self._directory)
        return _Child(
            command,
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={**variables, **places, "LC_ALL": "C"},
            pass_fds=files,
            start_new_session=True,
        )

    def _write(self, value: Any) -> None:
        write_whole(self._requests, record(value))

    def give(self, source: KernelSource) -> None:
        """Let it compile a source. It may have ended by now; then :meth:`left` has that source."""
        self._sources.append(source)
        number, language = len(self._sources) - 1, source.language.value
        self._write({**asdict(source), "number": number, "language": language})

    def take(self) -> list[Outcome]:
        """What has come out since the last time; :attr:`ended` tells whether more will."""
        if self._status is None:
            self._status = self._child.poll()
        found: list[Outcome] = []
        for reply in self._read.take():
            number: int = reply["number"]
            if "process" in reply:
                self._begun[number] = reply["process"]
            else:
                self._finished.add(number)
                found.append(_outcome(self._sources[number], reply))
        return found

    def rewind(self) -> None:
        """Let :meth:`take` begin anew: somebody was interrupted before he had noted what it gave."""
        self._read.rewind()

    @property
    def ended(self) -> bool:
        """Whether it has ended, as far as :meth:`take` has seen."""
        return self._status is not None

    def left(self) -> tuple[list[CompileFailure], list[KernelSource]]:
        """Of a process that has ended: what failed because of that, and what nobody has begun."""
        why = f"the compiling process ended ({_cause(self._status or 0)}) before the kernel was done"
        idle = not (self._begun or self._finished)  # another one would do no better
        failed: list[CompileFailure] = []
        others: list[KernelSource] = []
        for number, source in enumerate(self._sources):
            if number in self._begun.keys() - self._finished or idle:
                failed.append(CompileFailure(source, why))
            elif number not in self._finished:
                others.append(source)
        return failed, others

    def has_left(self) -> bool:
        """Let go of it, so that it ends with whatever it has not done; whether it has. May be repeated."""
        self._close()
        if self._status is None:
            self._status = self._child.poll()
        if self._status is None:
            return False
        if os.path.lexists(self._directory):  # it was ended before it could do this itself
            for number in self._begun.keys() - self._finished:
                _end_orphans(self._begun[number], session=self._child.pid)
            remove(self._directory, tries=5)
        return True

    def _close(self) -> None:
        for descriptor in (self._requests, self._replies, self._alive):
            if descriptor >= 0:
                os.close(descriptor)
        self._requests = self._replies = self._alive = -1


def _end_orphans(process: int, *, session: int) -> None:
    with suppress(OSError):
        if os.getsid(process) == session:  # it is not another process with the same number
            os.killpg(process, signal.SIGKILL)


def _cause(status: int) -> str:
    return f"status {status}" if status >= 0 else f"signal {-status}"


def _interpreter() -> str:
    """The Python interpreter.

    Raises:
        EnvironmentError_: The program is something else, which would be started again in its place.
    """
    path = sys.executable or ""
    if getattr(sys, "frozen", False) or not Path(path).name.startswith(("python", "pypy")):
        raise EnvironmentError_(f"sys.executable is {path!r}, which is no Python interpreter to compile with")
    return path


def _nameless_file() -> int:
    """A file in memory, or where there is none of those, one without a name."""
    if hasattr(os, "memfd_create"):
        with suppress(OSError):
            return _moved(os.memfd_create("rote"))
    with tempfile.TemporaryFile() as file:
        return _moved(os.dup(file.fileno()))


def _pipe() -> tuple[int, int]:
    read, write = os.pipe()
    try:
        return _moved(read), _moved(write)
    except BaseException:
        os.close(write)
        raise


def _moved(descriptor: int) -> int:
    """The descriptor, or another one for it that is no standard stream."""
    if descriptor >= _FIRST:
        return descriptor
    try:
        return _moved(os.dup(descriptor))
    finally:
        os.close(descriptor)


def _order(settings: CompileSettings, workers: int, directory: str) -> dict[str, Any]:
    return {
        "workers": workers,
        "directory": directory,
        "paths": [*_home_of_triton(), *[path for path in sys.path if os.path.isabs(path)]],
        "compiler": settings.compiler,
        "longest_s": LONGEST_S,
    }


def _home_of_triton() -> list[str]:
    """The folder in which Triton lies, if an import finds it in another way than by the path."""
    try:
        spec = importlib.util.find_spec("triton")
    except (ImportError, ValueError):
        return []
    folders: Sequence[str] = (spec and spec.submodule_search_locations) or ()
    return [str(Path(folder).parent) for folder in folders][:1]


def _outcome(source: KernelSource, reply: Mapping[str, Any]) -> Outcome:
    if "why" in reply:
        return CompileFailure(source, reply["why"])
    return Binary(source, base64.b64decode(reply["code"]), reply["symbol"], reply["shared_bytes"])
