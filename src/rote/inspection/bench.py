"""Contenders side by side: processes that live together and are measured in turns.

Clocks, neighbours and drivers move absolute times by more than the differences of interest, so all contenders
are measured in one run, in rounds: each has a short turn in every round, and the order is reversed from one
round to the next. Only one works at a time. Each is a process of its own, so one that crashes, hangs or runs
out of memory costs its own row and nothing else; one that ran out of memory beside the others is tried once
more, alone.

What the arrangement does not see: contexts of the idle processes take some hundred MB of a GPU each; and
memory that a contender would need in a process that does other work as well.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..base.errors import EnvironmentError_, MisuseError
from . import bench_machine
from .bench_process import Process, WorkerFailure
from .bench_report import NO_GPU, BenchReport, Row
from .bench_results import together
from .contenders import EAGER, Contender

FIRST_CALLS = 8
"""Compared with eager, call by call. rote replays from the fourth on, if nothing has to settle."""

MOST_ROUNDS = 10
CALLS_OF_TURN = 5
"""The fewest calls of a turn, those included that are not timed."""

OWN = "MisuseError: "
"""So begins what is wrong with a target, where that was said in full."""

Command = Callable[[str, Path], Sequence[str]]
"""Gives the command line of a worker, for a contender and the folder of eager's results."""


@dataclass(frozen=True)
class Plan:
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


class Bench:
    """One run.

    Args:
        plan: What to measure.
        say: Called with what it is at.
    """

    def __init__(self, plan: Plan, say: Callable[[str], None] = lambda text: None) -> None:
        self._plan = plan
        self._say = say
        self._living: dict[str, Process] = {}
        self.report = BenchReport(plan.target, list(plan.arguments), seconds=plan.seconds)

    def run(self) -> BenchReport:
        """Measure.

        Raises:
            MisuseError: The target cannot be built, or its callable fails in eager.
            EnvironmentError_: The target needs a GPU that is not there.
        """
        with tempfile.TemporaryDirectory(prefix="rote-bench-", ignore_cleanup_errors=True) as folder:
            self._folder = Path(folder)
            (self._folder / "results").mkdir()
            try:
                self._start()
                waiting = self._prepare()
                self._measure()
                self._finish()
                self._stop()
                self._alone(waiting)
                self._check_eager()
            finally:
                self._stop()
        return self.report

    # ------------------------------------------------------------------ the stages

    def _start(self) -> None:
        """Start all processes at once: to import and to build takes seconds, and is not timed."""
        has_gpu = torch.cuda.is_available()
        self.report.rows = [Row(each.name, each.title) for each in self._plan.contenders]
        self._say("starting")
        for contender in self._plan.contenders:
            if contender.needs_gpu and not has_gpu:
                self._row(contender).fail("there is no GPU", NO_GPU)
            else:
                self._spawn(contender)

    def _prepare(self) -> list[Contender]:
        """Build everywhere, then make the first calls in turn; returns those that lacked memory."""
        waiting: list[Contender] = []
        for stage in (self._await_target, self._warm):
            for contender in self._plan.contenders:
                if contender.needs_gpu and not self.report.on_gpu and contender.name in self._living:
                    self._drop(contender).fail("the target is on the CPU", NO_GPU)
                elif contender.name in self._living:
                    failure = self._attempt(
                        contender, lambda run=stage, each=contender: run(each), spare=True
                    )
                    if failure is not None and contender is EAGER:
                        return self._eager_alone()
                    if failure is not None and failure.memory:
                        waiting.append(contender)
        return waiting

    def _eager_alone(self) -> list[Contender]:
        """Where memory does not even last for eager beside the others, they have to wait."""
        waiting = [each for each in self._plan.contenders if each.name in self._living]
        self._stop()
        self._row(EAGER).begin_again()
        self._spawn(EAGER)
        for stage in (self._await_target, self._warm):
            self._attempt(EAGER, lambda run=stage: run(EAGER))
        return waiting

    def _measure(self) -> None:
        """Give every contender a turn in each round."""
        slowest = sum(self._row(name).first_calls_s[-1] for name in self._living)
        rounds = int(min(MOST_ROUNDS, max(1, self._plan.seconds / (slowest * CALLS_OF_TURN))))
        turns: dict[str, list[dict[str, Any]]] = {name: [] for name in self._living}
        contenders = [each for each in self._plan.contenders if each.name in self._living]
        seconds = self._plan.seconds / rounds / len(contenders)

        def turn(contender: Contender) -> dict[str, Any]:
            return self._turn(contender, seconds)

        for number in range(rounds):
            self._say(f"round {number + 1} of {rounds}")
            for contender in contenders if number % 2 == 0 else reversed(contenders):
                if contender.name in self._living:
                    self._attempt(contender, lambda each=contender: turns[each.name].append(turn(each)))
        self.report.rounds = rounds
        for name in self._living:
            self._row(name).time(turns[name])

    def _finish(self) -> None:
        """What is only asked when no time is taken any more."""
        self.report.machine["after"] = bench_machine.state(self.report.on_gpu)
        self._compare_eager_again()
        for contender in self._plan.contenders:
            if self.report.compared_again and contender is not EAGER and contender.name in self._living:
                self._attempt(contender, lambda each=contender: self._compare_again(each))
        for contender in self._plan.contenders:
            if contender.name in self._living:
                self._say(f"{contender.title}: counting launches")
                self._count(contender)

    def _alone(self, waiting: list[Contender]) -> None:
        """Measure those that had no memory beside the others."""
        for contender in waiting:
            row = self._row(contender)
            if contender.needs_gpu and not self.report.on_gpu:
                row.fail("the target is on the CPU", NO_GPU)
                continue
            row.begin_again()
            self._spawn(contender)
            if self._attempt(contender, lambda each=contender: self._measure_alone(each)) is None:
                row.notes.append("measured alone, after the others: beside them memory ran out")
            self._stop()

    def _measure_alone(self, contender: Contender) -> None:
        self._await_target(contender)
        self._warm(contender)
        seconds = self._plan.seconds / len(self._plan.contenders)
        self._row(contender).time([self._turn(contender, seconds)])
        if self.report.compared_again:
            self._compare_again(contender)
        self._count(contender)

    def _check_eager(self) -> None:
        """Where rote differs: does eager repeat itself?"""
        rote = self.report.row("rote")
        if rote is None or not rote.differs:
            return
        self._say("rote differs from eager: does eager repeat itself?")
        self._spawn(EAGER)
        try:
            self._await_target(EAGER)
            answer = self._living[EAGER.name].ask(_first_calls(keep=False))
            self.report.repeats = answer["equality"]
        except WorkerFailure as failure:
            rote.notes.append(f"eager could not be run once more: {failure.reason}")

    # ------------------------------------------------------------------ one contender

    def _await_target(self, contender: Contender) -> None:
        process, report = self._living[contender.name], self.report
        self._say(f"{contender.title}: building the target")
        process.wait_until_ready()
        built = process.receive()
        if contender is EAGER and not report.device_name:
            report.device = built["device"]
            report.device_name = built["gpu"] or bench_machine.processor()
            report.versions = bench_machine.versions(report.on_gpu)
            report.machine["before"] = bench_machine.state(report.on_gpu)

    def _warm(self, contender: Contender) -> None:
        row = self._row(contender)
        self.report.first_calls = FIRST_CALLS
        answer = self._living[contender.name].ask(_first_calls(keep=contender is EAGER))
        row.first_calls_s, row.equality = answer["seconds"], answer["equality"]
        row.held_bytes, row.peak_bytes = answer["held_bytes"], answer["peak_bytes"]
        if contender is EAGER:
            self.report.draws = answer["draws"]

    def _compare_eager_again(self) -> None:
        """Whether the first calls can be made again: not where a target keeps state."""
        try:
            self.report.compared_again = self._compare_again(EAGER)["bitwise"]
        except WorkerFailure as failure:
            self._row(EAGER).notes.append(f"its first calls could not be made again: {failure.reason}")

    def _compare_again(self, contender: Contender) -> dict[str, Any]:
        """Compare what is given now, after so many calls: a recording that is wrong may be wrong late."""
        self._say(f"{contender.title}: comparing once more")
        found = self._living[contender.name].ask({"do": "again", "calls": FIRST_CALLS})["equality"]
        row = self._row(contender)
        assert row.equality is not None
        if contender is not EAGER or found["bitwise"]:
            row.equality = together(row.equality, found)
        return found

    def _turn(self, contender: Contender, seconds: float) -> dict[str, Any]:
        return self._living[contender.name].ask({"do": "turn", "seconds": seconds})

    def _count(self, contender: Contender) -> None:
        """Notes and counts; a profiler that fails costs only them."""
        row, process = self._row(contender), self._living[contender.name]
        try:
            row.notes += process.ask({"do": "notes"})["notes"]
            row.launches = process.ask({"do": "count"})["launches"]
        except WorkerFailure as failure:
            row.notes.append(f"launches could not be counted: {failure.reason}")

    def _attempt(
        self, contender: Contender, work: Callable[[], object], *, spare: bool = False
    ) -> WorkerFailure | None:
        """Do something that only this contender may fail at; without eager there is nothing to compare.

        Args:
            contender: Which one.
            work: What.
            spare: Go on even if it is eager, where it only had no memory beside the others.
        """
        try:
            work()
        except WorkerFailure as failure:
            self._drop(contender).fail(failure.reason)
            if contender is EAGER and not (spare and failure.memory and self._living):
                raise _hopeless(self._plan.target, failure) from failure
            return failure
        return None

    def _spawn(self, contender: Contender) -> None:
        folder = self._folder / contender.name
        folder.mkdir(exist_ok=True)
        caches = {"TORCHINDUCTOR_CACHE_DIR": str(folder), "TRITON_CACHE_DIR": str(folder / "triton")}
        self._living[contender.name] = Process(
            self._plan.command(contender.name, self._folder / "results"),
            folder / "log.txt",
            caches if self._plan.cold else {},
            self._plan.limit_s,
            lambda text: self._say(f"{contender.title}: {text}"),
        )
        self._living[contender.name].send({"do": "build"})

    def _row(self, which: Contender | str) -> Row:
        row = self.report.row(which if isinstance(which, str) else which.name)
        assert row is not None
        return row

    def _drop(self, contender: Contender) -> Row:
        self._living.pop(contender.name).stop()
        return self._row(contender)

    def _stop(self) -> None:
        for process in self._living.values():
            process.stop()
        self._living.clear()


def _first_calls(*, keep: bool) -> dict[str, Any]:
    return {"do": "warm", "calls": FIRST_CALLS, "keep": keep}


def _hopeless(target: str, failure: WorkerFailure) -> MisuseError | EnvironmentError_:
    """What is said where not even eager works."""
    explained = failure.reason.startswith(OWN)
    reason = failure.reason.removeprefix(OWN)
    if not torch.cuda.is_available() and ("CUDA" in reason or "NVIDIA" in reason):
        return EnvironmentError_(
            f"{target} needs a GPU, and torch.cuda.is_available() is False here: {reason}"
        )
    return MisuseError(reason if explained else f"{target} does not run in eager: {reason}")
