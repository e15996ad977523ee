"""The processes of a benchmark, one for each contender."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..base import EnvironmentError_, MisuseError
from .process import Process, WorkerFailure
from .report import BenchReport, BenchRow
from .worker import EAGER, Contender

OWN = "MisuseError: "
"""A reason that begins so needs no explanation."""

Command = Callable[[str, Path], Sequence[str]]
"""Gives the command line of a worker, for a contender's name and the folder of eager's results."""


@dataclass(frozen=True)
class BenchPlan:
    """What to measure.

    Attributes:
        contenders: Eager comes first.
        seconds: Time for the timed calls of all contenders together.
        limit_s: Time for one answer of a contender: its first calls together, or one turn.
        settle_s: Time a contender has, after its first calls, until its calls do not become faster any more.
        cold: Compilers begin with empty caches on disk.
    """

    target: str
    arguments: tuple[str, ...]
    contenders: tuple[Contender, ...]
    command: Command
    seconds: float = 20.0
    limit_s: float = 300.0
    settle_s: float = 60.0
    cold: bool = True


class Crew:
    """The living processes; rows of the report say why one is gone."""

    def __init__(
        self, plan: BenchPlan, report: BenchReport, folder: Path, say: Callable[[str], None]
    ) -> None:
        self._plan = plan
        self._report = report
        self._folder = folder
        self._say = say
        self.living: dict[Contender, Process] = {}
        (folder / "results").mkdir()

    def __contains__(self, contender: Contender) -> bool:
        return contender in self.living

    def members(self) -> list[Contender]:
        """The contenders whose processes live, in the order of the plan."""
        return [contender for contender in self._plan.contenders if contender in self]

    def ask(self, contender: Contender, question: dict[str, Any]) -> dict[str, Any]:
        """Ask one of them; see :meth:`.process.Process.ask`."""
        return self.living[contender].ask(question)

    def attempt(
        self, contender: Contender, work: Callable[[Contender], object], *, spare: bool = False
    ) -> WorkerFailure | None:
        """Let a contender do something; one that fails is dropped, and eager's failure ends the benchmark.

        With ``spare``, the benchmark goes on where eager only had no memory beside the others.
        """
        try:
            work(contender)
        except WorkerFailure as failure:
            self.drop(contender).fail(failure.reason)
            if contender is EAGER and not (spare and failure.memory and self.living):
                raise _hopeless(self._plan.target, failure) from failure
            return failure
        return None

    def spawn(self, contender: Contender) -> None:
        """Start a process and let it build the target."""
        folder = self._folder / contender.name
        folder.mkdir(exist_ok=True)
        caches = {"TORCHINDUCTOR_CACHE_DIR": str(folder), "TRITON_CACHE_DIR": str(folder / "triton")}
        self.living[contender] = process = Process(
            self._plan.command(contender.name, self._folder / "results"),
            folder / "log.txt",
            caches if self._plan.cold else {},
            self._plan.limit_s,
            lambda text: self._say(f"{contender.title}: {text}"),
        )
        process.send({"do": "build"})

    def row(self, contender: Contender) -> BenchRow:
        """The contender's row in the report."""
        row = self._report.row(contender.name)
        assert row is not None
        return row

    def drop(self, contender: Contender) -> BenchRow:
        """Stop a process; returns the contender's row."""
        self.living.pop(contender).stop()
        return self.row(contender)

    def stop(self) -> None:
        """Stop all processes."""
        for process in self.living.values():
            process.stop()
        self.living.clear()


def _hopeless(target: str, failure: WorkerFailure) -> MisuseError | EnvironmentError_:
    """The error that ends the benchmark, where not even eager works."""
    reason = failure.reason
    if reason.startswith(OWN):
        return MisuseError(reason.removeprefix(OWN))
    if not torch.cuda.is_available() and ("CUDA" in reason or "NVIDIA" in reason):
        return EnvironmentError_(
            f"{target} needs a GPU, and torch.cuda.is_available() is False here: {reason}"
        )
    return MisuseError(f"{target} does not run in eager: {reason}")
