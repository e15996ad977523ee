"""The compilers of a process: each distinct source is compiled once, elsewhere, and the program goes on.

Nothing here waits but :meth:`Job.wait` and :meth:`Compilers.wait`, and nothing raises into a user's call:
what goes wrong is a failure of the sources that it concerns, for good. The state moves on when somebody
submits something or asks how it stands, on the thread that does so; a thread that finds another one at it
goes on.

A fork of the program has compilers of its own: the parent's may have been locked when it was made, and its
processes are none of the fork's. A job that was submitted before is done there, with failures.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from ...base import CompileSettings, InternalError, in_one_line, read_compile_settings
from .process import CompileProcess, Outcome
from .source import SHELVES, Binary, CompileFailure, KernelSource

_SHORTEST_S, _LONGEST_S = 0.001, 0.02
_PATIENCE_S = 5.0


class Job:
    """Sources that were submitted together."""

    __slots__ = ("_compilers", "_found", "_sources")

    def __init__(self, compilers: Compilers, sources: Iterable[KernelSource]) -> None:
        self._compilers = compilers
        self._sources = tuple(dict.fromkeys(sources))
        self._found: Mapping[KernelSource, Outcome] | None = None

    @property
    def done(self) -> bool:
        """Whether every source is compiled, or has failed."""
        if self._found is None:
            self._found = self._compilers.outcomes(self._sources)
        return self._found is not None

    def results(self) -> Mapping[KernelSource, Outcome]:
        """What came out of each source.

        Raises:
            InternalError: The job is not done.
        """
        if not self.done or self._found is None:
            raise InternalError("the results of a job were asked for before it was done; ask Job.done first")
        return self._found

    def wait(self, timeout_s: float) -> bool:
        """Wait for at most so many seconds; whether it is done."""
        return _wait(lambda: self.done, timeout_s)


class Compilers:
    """Compiles sources in other processes, several at a time."""

    def __init__(self, settings: CompileSettings) -> None:
        self._settings = settings
        self._program = os.getpid()
        self._workers = _workers(settings)
        self._lock = threading.Lock()  # of what is below; never waited for
        self._submitted: dict[KernelSource, object] = {}
        self._outcomes: dict[KernelSource, Outcome] = {}
        self._waiting: deque[KernelSource] = deque()
        self._process: CompileProcess | None = None
        self._leaving: list[CompileProcess] = []

    def submit(self, sources: Sequence[KernelSource]) -> Job:
        """Let sources be compiled, those that have not been submitted before. Does not wait."""
        job = Job(self, sources)
        if self._program == os.getpid():
            for source in sources:
                mark = object()
                if self._submitted.setdefault(source, mark) is mark:  # another thread may submit it, too
                    found = SHELVES.find(source)
                    if found is not None:
                        self._outcomes[source] = found
                    else:
                        self._waiting.append(source)
            self._advance()
        return job

    def outcomes(self, sources: Sequence[KernelSource]) -> Mapping[KernelSource, Outcome] | None:
        """What came out of sources that were submitted; None if some are not done."""
        if self._program != os.getpid():
            why = "the process was forked after the kernel had been submitted"
            return {source: CompileFailure(source, why) for source in sources}
        if not all([source in self._outcomes for source in sources]):
            self._advance()
        try:
            return {source: self._outcomes[source] for source in sources}
        except KeyError:
            return None

    def wait(self, timeout_s: float) -> bool:
        """Wait, for at most so many seconds, for all that was submitted so far; whether it is done."""
        return Job(self, tuple(self._submitted)).wait(timeout_s)

    def close(self) -> None:
        """End what is at work, and wait a moment for that. What is not done fails; more can be submitted."""
        if self._program != os.getpid():
            return
        with self._lock:
            self._collect()
            self._fail("compiling was ended")
            _wait(self._all_left, _PATIENCE_S)

    # ------------------------------------------------------------------ by whoever has the lock

    def _advance(self) -> None:
        """Take what has come out, and hand out what waits."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._collect()
            self._hand_out()
        except Exception as error:
            self._fail(in_one_line(error))
        except BaseException:  # an interrupt: it is the caller's, and nothing may be lost
            if self._process is not None:
                self._process.rewind()
            raise
        finally:
            self._lock.release()

    def _collect(self) -> None:
        if self._leaving:
            self._all_left()
        process = self._process
        if process is None:
            return
        for outcome in process.take():
            self._outcomes[outcome.source] = outcome
            if isinstance(outcome, Binary):
                SHELVES.keep(outcome)
        if process.ended:
            failed, others = process.left()
            self._outcomes.update({failure.source: failure for failure in failed})
            self._waiting.extendleft(reversed(others))
            self._leave(process)

    def _hand_out(self) -> None:
        if not self._waiting:
            return
        if not self._workers:
            self._fail("compiling is switched off by ROTE_COMPILE_WORKERS=0")
            return
        if self._process is None:
            self._process = CompileProcess(self._settings, self._workers, self._waiting)
            self._waiting.clear()
        while self._waiting:
            self._process.give(self._waiting[0])
            self._waiting.popleft()

    def _fail(self, why: str) -> None:
        """Nothing that waits or is being compiled will be."""
        self._waiting.clear()
        for source in list(self._submitted):
            if source not in self._outcomes:
                self._outcomes[source] = CompileFailure(source, why)
        if self._process is not None:
            self._leave(self._process)

    def _leave(self, process: CompileProcess) -> None:
        self._leaving.append(process)
        self._process = None
        self._all_left()

    def _all_left(self) -> bool:
        self._leaving = [process for process in self._leaving if not process.has_left()]
        return not self._leaving


def _workers(settings: CompileSettings) -> int:
    """How many kernels are compiled at once: at most half as many as there are cores to run on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    most = max(1, cores // 2)
    return most if settings.most is None else min(settings.most, most)


def _wait(is_done: Callable[[], bool], timeout_s: float) -> bool:
    end, pause = time.monotonic() + timeout_s, _SHORTEST_S
    while not is_done():
        left = end - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_S)
    return True


class CompilersOfProcess:
    """The compilers of this process, made when first asked for."""

    def __init__(self) -> None:
        self._made: Compilers | None = None
        self._hooked = False

    def get(self) -> Compilers:
        """The compilers of this process. Reads the environment the first time."""
        made = self._made
        if made is None:
            if not self._hooked and hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=self._forget)
                self._hooked = True
            made = self._made = Compilers(read_compile_settings())
        return made

    def _forget(self) -> None:
        self._made = None


COMPILERS = CompilersOfProcess()
"""The one place where compilers are kept: cores are of a process, whoever records."""
