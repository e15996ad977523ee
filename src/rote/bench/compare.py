"""Contenders side by side: processes that live together and are measured in turns.

Clocks, neighbours and drivers move absolute times by more than the differences of interest. So all contenders
are measured in one run, in rounds: each has a short turn in every round, and each round reverses the order.
Only one works at a time. Each is a process of its own: one that crashes, hangs or runs out of memory costs
its own row and nothing else. One that ran out of memory beside the others is tried once more, alone.

What this does not see: the contexts of idle processes take some hundred MB of a GPU each, and a contender may
need more memory in a process that does other work as well.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from . import machine as bench_machine
from .crew import BenchPlan, Crew
from .process import START_S, WorkerFailure
from .report import NO_GPU, BenchReport, BenchRow
from .worker import EAGER, Contender, together

FIRST_CALLS = 8
"""These are compared with eager, call by call. rote replays from the fourth on, if nothing has to settle."""

MOST_ROUNDS = 10
CALLS_OF_TURN = 5
"""The fewest calls of a turn, untimed ones included."""


class Bench:
    """One run of a plan; ``say`` gets its progress."""

    def __init__(self, plan: BenchPlan, say: Callable[[str], None] = lambda text: None) -> None:
        self._plan = plan
        self._say = say
        self.report = BenchReport(plan.target, list(plan.arguments), seconds=plan.seconds)

    def run(self) -> BenchReport:
        """Measure.

        Raises:
            MisuseError: The target cannot be built, or its callable fails in eager.
            EnvironmentError_: The target needs a GPU that is not there.
        """
        with tempfile.TemporaryDirectory(prefix="rote-bench-", ignore_cleanup_errors=True) as folder:
            self._crew = Crew(self._plan, self.report, Path(folder), self._say)
            try:
                self._start()
                waiting = self._prepare()
                self._measure()
                self._finish()
                self._crew.stop()
                self._alone(waiting)
                self._check_eager()
            finally:
                self._crew.stop()
        return self.report

    # ------------------------------------------------------------------ the stages

    def _start(self) -> None:
        """Start all processes at once: imports and builds take seconds, and are not timed."""
        has_gpu = torch.cuda.is_available()
        self.report.rows = [BenchRow(each.name, each.title) for each in self._plan.contenders]
        self._say("starting")
        for contender in self._plan.contenders:
            if contender.needs_gpu and not has_gpu:
                self._crew.row(contender).fail("there is no GPU", NO_GPU)
            else:
                self._crew.spawn(contender)

    def _prepare(self) -> list[Contender]:
        """Build everywhere, then make the first calls in turn; returns the contenders that lacked memory."""
        waiting: list[Contender] = []
        for stage in (self._await_target, self._warm, self._settle):
            for contender in self._plan.contenders:
                if contender.needs_gpu and not self.report.on_gpu and contender in self._crew:
                    self._crew.drop(contender).fail("the target is on the CPU", NO_GPU)
                elif contender in self._crew:
                    failure = self._crew.attempt(contender, stage, spare=True)
                    if failure is not None and contender is EAGER:
                        return self._eager_alone()
                    if failure is not None and failure.memory:
                        waiting.append(contender)
        return waiting

    def _eager_alone(self) -> list[Contender]:
        """Run eager first and alone: beside the others it had no memory. They wait."""
        waiting = self._crew.members()
        self._crew.stop()
        self._crew.row(EAGER).begin_again()
        self._crew.spawn(EAGER)
        for stage in (self._await_target, self._warm):
            self._crew.attempt(EAGER, stage)  # it is settled as it is
        return waiting

    def _measure(self) -> None:
        """Give every contender a turn in each round."""
        contenders = self._crew.members()
        one_each = sum(self._crew.row(contender).first_calls_s[-1] for contender in contenders)
        rounds = int(min(MOST_ROUNDS, max(1, self._plan.seconds / (one_each * CALLS_OF_TURN))))
        turns: dict[Contender, list[dict[str, Any]]] = {contender: [] for contender in contenders}
        seconds = self._plan.seconds / rounds / len(contenders)

        def take_turn(contender: Contender) -> None:
            turns[contender].append(self._turn(contender, seconds))

        for number in range(rounds):
            self._say(f"round {number + 1} of {rounds}")
            for contender in contenders if number % 2 == 0 else reversed(contenders):
                if contender in self._crew:
                    self._crew.attempt(contender, take_turn)
        self.report.rounds = rounds
        for contender in self._crew.members():
            self._crew.row(contender).time(turns[contender])
        self.report.find_fast_calls()

    def _finish(self) -> None:
        """Compare once more and count: both would disturb the timing."""
        self.report.machine["after"] = bench_machine.state(self.report.on_gpu)
        self._compare_eager_again()
        for contender in self._crew.members() if self.report.compared_again else ():
            if contender is not EAGER:
                self._crew.attempt(contender, self._compare_again)
        for contender in self._crew.members():
            self._say(f"{contender.title}: counting launches")
            self._count(contender)

    def _alone(self, waiting: list[Contender]) -> None:
        """Measure the contenders that had no memory beside the others."""
        for contender in waiting:
            row = self._crew.row(contender)
            if contender.needs_gpu and not self.report.on_gpu:
                row.fail("the target is on the CPU", NO_GPU)
                continue
            row.begin_again()
            self._crew.spawn(contender)
            if self._crew.attempt(contender, self._measure_alone) is None:
                row.notes.append("measured alone, after the others: beside them memory ran out")
            self._crew.stop()

    def _measure_alone(self, contender: Contender) -> None:
        self._await_target(contender)
        self._warm(contender)
        self._settle(contender)
        seconds = self._plan.seconds / len(self._plan.contenders)
        self._crew.row(contender).time([self._turn(contender, seconds)])
        self.report.find_fast_calls()
        if self.report.compared_again:
            self._compare_again(contender)
        self._count(contender)

    def _check_eager(self) -> None:
        """Ask whether eager repeats itself, where rote differs from it."""
        rote = self.report.row("rote")
        if rote is None or not rote.differs:
            return
        self._say("rote differs from eager: does eager repeat itself?")
        self._crew.spawn(EAGER)
        try:
            self._await_target(EAGER)
            self.report.repeats = self._first_calls(EAGER, keep=False)["equality"]
        except WorkerFailure as failure:
            rote.notes.append(f"eager could not be run once more: {failure.reason}")

    # ------------------------------------------------------------------ one contender

    def _await_target(self, contender: Contender) -> None:
        process, report = self._crew.living[contender], self.report
        self._say(f"{contender.title}: building the target")
        process.wait_until_ready()
        built = process.receive(START_S)
        if contender is EAGER and not report.device_name:
            report.device = built["device"]
            report.device_name = built["gpu"] or bench_machine.processor()
            report.threads = built["threads"]
            report.versions = bench_machine.versions(report.on_gpu)
            report.machine["before"] = bench_machine.state(report.on_gpu)

    def _warm(self, contender: Contender) -> None:
        row = self._crew.row(contender)
        self.report.first_calls = FIRST_CALLS
        answer = self._first_calls(contender, keep=contender is EAGER)
        row.first_calls_s, row.equality = answer["seconds"], answer["equality"]
        row.held_bytes, row.peak_bytes = answer["held_bytes"], answer["peak_bytes"]
        if contender is EAGER:
            self.report.draws = answer["draws"]

    def _settle(self, contender: Contender) -> None:
        """Call until nothing is on its way that makes calls faster."""
        row, seconds = self._crew.row(contender), min(self._plan.settle_s, self._plan.limit_s / 2)
        answer = self._crew.ask(contender, {"do": "settle", "seconds": seconds})
        row.settled = answer["settled"]
        if answer["calls"]:
            row.settled_after_s = sum(row.first_calls_s) + answer["seconds"]
            row.held_bytes = answer["held_bytes"]

    def _first_calls(self, contender: Contender, *, keep: bool) -> dict[str, Any]:
        return self._crew.ask(contender, {"do": "warm", "calls": FIRST_CALLS, "keep": keep})

    def _compare_eager_again(self) -> None:
        """Find out whether the first calls can be made again: a target may keep state."""
        try:
            self.report.compared_again = self._compare_again(EAGER)["bitwise"]
        except WorkerFailure as failure:
            self._crew.row(EAGER).notes.append(f"its first calls could not be made again: {failure.reason}")

    def _compare_again(self, contender: Contender) -> dict[str, Any]:
        """Compare the first calls, made now: a wrong recording may be wrong late."""
        self._say(f"{contender.title}: comparing once more")
        found = self._crew.ask(contender, {"do": "again", "calls": FIRST_CALLS})["equality"]
        row = self._crew.row(contender)
        assert row.equality is not None
        if contender is not EAGER or found["bitwise"]:
            row.equality = together(row.equality, found)
        return found

    def _turn(self, contender: Contender, seconds: float) -> dict[str, Any]:
        return self._crew.ask(contender, {"do": "turn", "seconds": seconds})

    def _count(self, contender: Contender) -> None:
        """Take notes and counts; a profiler that fails costs only them."""
        row = self._crew.row(contender)
        try:
            row.notes += self._crew.ask(contender, {"do": "notes"})["notes"]
            row.launches = self._crew.ask(contender, {"do": "count"})["launches"]
        except WorkerFailure as failure:
            row.notes.append(f"launches could not be counted: {failure.reason}")
