"""A process that compiles, as the program sees it: started, given sources, asked what has come out.

Nothing here waits. Requests and replies lie in two files without a name and in memory, so neither side waits
for the other to read; what is left in them goes with the last process that has them open. There are no
threads, so a program that forks meanwhile is one without threads, and nothing has to be joined when it exits.

A process costs its program 1 to 2 ms to start. It is a direct child, in a session of its own: it gets no
signals of a terminal. A program that waits for *any* child (``os.wait()``) may come to see it.
"""

from __future__ import annotations

import base64
import fcntl
import importlib.util
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...base import CompileSettings, EnvironmentError_
from .source import Binary, CompileFailure, KernelSource
from .worker import Records, record, remove, write_whole

_SCRIPT = str(Path(__file__).with_name("worker.py"))
_FIRST = 3  # descriptors below are standard streams, also in a program that has closed its own

Outcome = Binary | CompileFailure


class _Child(subprocess.Popen[bytes]):
    """A child that says nothing when it is dropped, whether it has ended or not, here or in a fork."""

    def __del__(self) -> None:
        pass


class CompileProcess:
    """One process that compiles.

    Args:
        settings: The environment.
        workers: How many kernels at once.

    Raises:
        EnvironmentError_: There is no interpreter, or nowhere to write.
        OSError: The system refused.
    """

    def __init__(self, settings: CompileSettings, workers: int) -> None:
        self._directory = os.path.join(tempfile.gettempdir(), f"rote-{os.getpid()}-{secrets.token_hex(8)}")
        self._sources: dict[int, KernelSource] = {}  # given, and without an outcome
        self._begun: dict[int, int] = {}  # of those, the processes at work on them
        self._given = 0
        self._status: int | None = None
        self._requests, self._replies, self._alive = -1, -1, -1
        try:
            self._requests, self._replies = _nameless_file(), _nameless_file()
            self._write(_order(settings, workers, self._directory))
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
        number, self._given = self._given, self._given + 1
        self._sources[number] = source
        self._write(_request(number, source))

    def take(self) -> list[Outcome]:
        """What has come out since the last time; :attr:`ended` tells whether more will."""
        if self._status is None:
            self._status = self._child.poll()
        found: list[Outcome] = []
        for reply in self._read.take():
            number: int = reply["number"]
            if "process" in reply:
                self._begun[number] = reply["process"]
                continue
            self._begun.pop(number, None)
            found.append(_outcome(self._sources.pop(number), reply))
        return found

    @property
    def ended(self) -> bool:
        """Whether it has ended, as far as :meth:`take` has seen."""
        return self._status is not None

    def left(self) -> tuple[list[CompileFailure], list[KernelSource]]:
        """Of a process that has ended: what failed because of that, and what nobody has begun."""
        why = f"the compiling process ended ({_cause(self._status or 0)}) before the kernel was done"
        nothing_begun = not self._begun and len(self._sources) == self._given
        failed = [n for n in self._sources if n in self._begun or nothing_begun]
        return (
            [CompileFailure(self._sources[n], why) for n in failed],
            [source for n, source in self._sources.items() if n not in failed],
        )

    def close(self) -> None:
        """Let go of it: it ends by itself, and with it whatever it has not done."""
        for process in self._begun.values() if self._status else ():
            _end_orphans(process, session=self._child.pid)
        if self._status:  # it did not come to this
            remove(self._directory)
        self._close()

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
        return fcntl.fcntl(file.fileno(), fcntl.F_DUPFD_CLOEXEC, _FIRST)


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
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST)
    finally:
        os.close(descriptor)


def _order(settings: CompileSettings, workers: int, directory: str) -> dict[str, Any]:
    return {
        "workers": workers,
        "directory": directory,
        "paths": [*_home_of_triton(), *[path for path in sys.path if os.path.isabs(path)]],
        "compiler": settings.compiler,
    }


def _home_of_triton() -> list[str]:
    """The folder in which Triton lies, if an import finds it in another way than by the path."""
    try:
        spec = importlib.util.find_spec("triton")
    except (ImportError, ValueError):
        return []
    folders: Sequence[str] = (spec and spec.submodule_search_locations) or ()
    return [str(Path(folder).parent) for folder in folders][:1]


def _request(number: int, source: KernelSource) -> dict[str, Any]:
    return {
        "number": number,
        "language": source.language.value,
        "name": source.name,
        "text": source.text,
        "tensors": source.tensors,
        "aligned": source.aligned,
        "reals": source.reals,
        "integers": source.integers,
        "warps": source.grid.warps,
        "capability": source.capability,
    }


def _outcome(source: KernelSource, reply: Mapping[str, Any]) -> Outcome:
    if "why" in reply:
        return CompileFailure(source, reply["why"])
    return Binary(source, base64.b64decode(reply["code"]), reply["symbol"], reply["shared_bytes"])
