"""The processes of a benchmark, one for each contender, and what becomes of those that fail."""

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
"""So begins what is wrong with a target, where that was said in full."""

Command = Callable[[str, Path], Sequence[str]]
"""Gives the command line of a worker, for a contender and the folder of eager's results."""


@dataclass(frozen=True)
class BenchPlan:
    """What to measure.

    Attributes:
        target: As the user wrote it.
        arguments: Those of the target, ``name=value``.
        contenders: Eager first.
        command: Starts a worker.
        seconds: For the timed calls of all contenders together.
        limit_s: For one answer of a contender: its first calls together, or one turn.
        cold: Compilers begin with empty caches on disk.
    """

    target: str
    arguments: tuple[str, ...]
    contenders: tuple[Contender, ...]
    command: Command
    seconds: float = 20.0
    limit_s: float = 300.0
    cold: bool = True


class Crew:
    """The living processes, by contender's name.

    Rows of the report say why a process is gone. Eager's results lie in ``results`` below ``folder``.
    """

    def __init__(
        self, plan: BenchPlan, report: BenchReport, folder: Path, say: Callable[[str], None]
    ) -> None:
        self._plan = plan
        self._report = report
        self._folder = folder
        self._say = say
        self.living: dict[str, Process] = {}
        (folder / "results").mkdir()

    def __contains__(self, contender: Contender) -> bool:
        return contender.name in self.living

    def members(self) -> list[Contender]:
        """The contenders whose processes live, in the order of the plan."""
        return [contender for contender in self._plan.contenders if contender in self]

    def ask(self, contender: Contender, question: dict[str, Any]) -> dict[str, Any]:
        """Ask one of them; a WorkerFailure says that there is no answer, or that it is an error."""
        return self.living[contender.name].ask(question)

    def attempt(
        self, contender: Contender, work: Callable[[], object], *, spare: bool = False
    ) -> WorkerFailure | None:
        """Do something that only this contender may fail at; without eager there is nothing to compare.

        With ``spare``, go on even without eager, where it only had no memory beside the others.
        """
        try:
            work()
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
        self.living[contender.name] = Process(
            self._plan.command(contender.name, self._folder / "results"),
            folder / "log.txt",
            caches if self._plan.cold else {},
            self._plan.limit_s,
            lambda text: self._say(f"{contender.title}: {text}"),
        )
        self.living[contender.name].send({"do": "build"})

    def row(self, which: Contender | str) -> BenchRow:
        """Where a contender's figures go."""
        row = self._report.row(which if isinstance(which, str) else which.name)
        assert row is not None
        return row

    def drop(self, contender: Contender) -> BenchRow:
        """Stop a process; returns the contender's row."""
        self.living.pop(contender.name).stop()
        return self.row(contender)

    def stop(self) -> None:
        """Stop all processes."""
        for process in self.living.values():
            process.stop()
        self.living.clear()


def _hopeless(target: str, failure: WorkerFailure) -> MisuseError | EnvironmentError_:
    """What is said where not even eager works."""
    explained = failure.reason.startswith(OWN)
    reason = failure.reason.removeprefix(OWN)
    if explained:
        return MisuseError(reason)
    if not torch.cuda.is_available() and ("CUDA" in reason or "NVIDIA" in reason):
        return EnvironmentError_(
            f"{target} needs a GPU, and torch.cuda.is_available() is False here: {reason}"
        )
    return MisuseError(f"{target} does not run in eager: {reason}")
