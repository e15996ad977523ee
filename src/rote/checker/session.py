"""One check from the first run to the findings, in the process that was forked for it.

The callable runs twice, as a capture would meet it after a warm-up: what only the first call does (lazy
initialisation, calibration) is no hazard, and a tensor that it keeps is worth a word. The operations,
operands, Python state, random generators and result of the second call are compared with those of the first.
If the operations differ, a third call tells whether they go on to differ, and a fourth at which lines. Each
line that got an invented truth value gets the other one in a run of its own, which meets what lies on the
other branch.

Whether comments silence something is asked of one more call, and only if there are such comments: to follow
each line would make every check slower.
"""

from __future__ import annotations

import contextlib
import inspect
import linecache
import sys
import traceback
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple

import torch

from ..base import (
    ENVIRONMENT,
    EnvironmentError_,
    MisuseError,
    Site,
    in_one_line,
    is_internal,
    traceback_site,
)
from ..hazards import Findings, Ignore, ignores_in, rules, unused
from ..hazards.rules import RULES, Finder, Finding, Remark
from ..runtime.arguments import Spec, flatten, leaves_of, paths, unflatten
from ..runtime.numbers import HostRandom
from ..runtime.objects import is_user, is_users
from ..runtime.reads import WATCH
from ..runtime.reads.trace import SlotChange
from ..runtime.state import ExecutedCode
from .compare import COUNTING, EXPLAINING, Comparison, differing
from .device import FakeStage
from .fake import script_line
from .isolation import TimeUp
from .kept import kept_tensors
from .surroundings import SurroundingEffect, Surroundings, handed_back
from .trial import CodePlace, TracedOperation, TrialNotes


class LinesRan:
    """Notes which of the wanted lines, each with its file, run while it is entered."""

    def __init__(self, wanted: set[tuple[str, int]]) -> None:
        self.ran: set[tuple[str, int]] = set()
        self._wanted = wanted
        self._files = {file for file, _ in wanted}

    def __enter__(self) -> LinesRan:
        sys.settrace(self._called)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._line if frame.f_code.co_filename in self._files else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.ran |= self._wanted & {(frame.f_code.co_filename, frame.f_lineno)}
        return self._line


def remarks(
    codes: Iterable[CodeType], findings: Iterable[Finding], run: Callable[[LinesRan], None]
) -> list[Remark]:
    """Remarks on comments that can silence nothing, and on those whose line runs without a finding.

    ``run`` calls the callable once more while the given lines are watched.
    """
    comments = unused(_comments_in(codes), findings)
    said = [each.remark(each.mistake) for each in comments if each.mistake]
    doubted = [each for each in comments if not each.mistake and Finder.TRIAL in RULES[each.code].found_by]
    if doubted:
        lines = LinesRan({(each.where.file, each.where.line) for each in doubted})
        run(lines)
        said += [
            each.remark(f"ignore[{each.code}] silences nothing, in this call at least")
            for each in doubted
            if (each.where.file, each.where.line) in lines.ran
        ]
    return said


def _comments_in(codes: Iterable[CodeType]) -> list[Ignore]:
    spans: dict[str, list[range]] = {}
    for code in codes:
        lines = [code.co_firstlineno, *(line for _, _, line in code.co_lines() if line)]
        spans.setdefault(code.co_filename, []).append(range(min(lines), max(lines) + 1))
    found: list[Ignore] = []
    for file, inside in spans.items():
        comments = ignores_in("".join(linecache.getlines(file)), file)
        found.extend(each for each in comments if any(each.where.line in span for span in inside))
    return found


class TracedCalls:
    """Traces calls of one callable, by the notes that recordings are made of.

    So a check finds the state that matters to a recording, and the line that writes it. What PyTorch and the
    standard library keep for themselves is left out.

    Attributes:
        changes: What the last call changed outside of itself.
        apart: Identities of the objects that it found there, and that no replay hands out.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.changes: list[SlotChange] = []
        self.apart: set[int] = set()
        self._function = function
        self._executed = ExecutedCode()

    @property
    def codes(self) -> list[CodeType]:
        """The code outside of PyTorch and the standard library that calls have run."""
        return list(self._executed.globals)

    @contextmanager
    def call(self, roots: list[tuple[str, Any]]) -> Generator[None]:
        """The call runs here; ``roots`` are named objects that it is given."""
        executed = self._executed
        trace = executed.followed = WATCH.begin(
            self._function, [*roots, *executed.owners()], executed.apart()
        )
        try:
            with executed:
                yield
            self.changes = list(filter(_matters, trace.changes()))
            outside = trace.outside
            self.apart = outside.keys() - outside.told_by_slots() - outside.anchored
        finally:
            executed.followed = None
            executed.note_apart(WATCH.end(trace).late)


def _matters(change: SlotChange) -> bool:
    """Whether a change is one of the user's state or of the environment, not of what a library keeps."""
    held = (*change.owners, change.container)
    return any(each is ENVIRONMENT for each in held) or all(map(_is_users, held))


def _is_users(holder: Any) -> bool:
    """Whether something is no function, class, module or namespace of a module, or one of the user's."""
    if isinstance(holder, dict) and isinstance(holder.get("__name__"), str) and "__spec__" in holder:
        return is_user(holder["__name__"])
    return is_users(holder) if isinstance(holder, (FunctionType, ModuleType, type)) else True


Work = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]

_FORKED = "fork-based multiprocessing"
_AFTER_BACKWARD = (
    "a backward on a GPU has started autograd's threads in this process, and a check, which forks it, cannot "
    "run another one: check before the first backward, or from the command line (rote check)"
)

RETRIES = 6
"""Runs with other truth values when the callable raised after one was invented."""

BRANCHES = 16
"""Lines, at most, that get the other truth value in a run of their own."""

DRAWS = 5
"""Runs of a callable that draws host random numbers, until they make a difference."""


class Run(NamedTuple):
    """One call.

    ``changes`` is what it changes outside of itself, ``random`` the host's generators before and after it,
    and ``value`` the plain leaves of the result.
    """

    notes: TrialNotes
    trace: list[TracedOperation]
    changes: list[SlotChange]
    random: tuple[HostRandom, HostRandom]
    value: list[Any]
    effects: list[SurroundingEffect]


class FailedError(Exception):
    """The callable raised ``__cause__``."""


class CheckSession:
    """Runs a callable several times."""

    def __init__(self, stage: FakeStage, work: Work) -> None:
        self._stage = stage
        self._function, args, kwargs = work
        self._traced = TracedCalls(self._function)
        self._leaves: list[Any] = []
        self._spec: Spec = flatten((args, kwargs), self._leaves)
        shape_args, shape_kwargs = self._spec[3]
        self._names = paths(shape_args, "args") + paths(shape_kwargs, "kwargs")
        self._noted: list[TrialNotes] = []

    def findings(self) -> Findings:
        """Run, compare, and say what was found, with what comments silence."""
        incomplete, operations = "", 0
        try:
            self._leaves = self._stage.prepare(self._function, self._leaves, self._names)
            runs = self._runs()
            operations = len(runs[-1].trace)
            notes = self._compared(runs)
            self._look_elsewhere(notes)
        except FailedError as failure:
            if _FORKED in str(failure.__cause__):
                raise EnvironmentError_(_AFTER_BACKWARD) from failure
            notes = self._so_far()
            incomplete = _failure(notes, failure.__cause__ or failure, self._line())
        except TimeUp as error:
            notes = self._so_far()
            incomplete = f"{error} at {traceback_site(error.__traceback__)}"
        found = notes.findings(self._line())
        said = [] if incomplete else remarks(self._traced.codes, found, self._run_watching)
        return Findings(found, incomplete=incomplete, operations=operations, remarks=said)

    def _look_elsewhere(self, notes: TrialNotes) -> None:
        """Add what the call meets where a line gets the other truth value, unless it raises there."""
        inventor = self._stage.inventor
        for site in list(dict.fromkeys(inventor.asked))[:BRANCHES]:
            inventor.flip(site)
            with contextlib.suppress(Exception, KeyboardInterrupt, SystemExit):
                notes.found = {**self._attempt().notes.found, **notes.found}
            inventor.flip(site)

    def _so_far(self) -> TrialNotes:
        """The notes of all runs, of a check that cannot be finished."""
        notes = TrialNotes()
        for each in self._noted:
            notes.found.update(each.found)
        return notes

    # ------------------------------------------------------------------ runs

    def _runs(self) -> list[Run]:
        runs = [self._run(traced=True), self._run(traced=True)]
        if runs[0].trace != runs[1].trace:
            runs.append(self._run(traced=True))
        while self._stage.drawn and runs[-2].trace == runs[-1].trace and len(runs) < DRAWS:
            runs.append(self._run(traced=True))  # two draws may give the same number
        return runs

    def _run(self, **how: Any) -> Run:
        """The answers to some questions may be other ones where the callable raises; see :meth:`_attempt`."""
        for left in reversed(range(RETRIES + 1)):
            try:
                return self._attempt(**how)
            except (Exception, KeyboardInterrupt, SystemExit) as error:
                if isinstance(error, MisuseError) or not left or not self._stage.inventor.flip_last():
                    raise FailedError from error
        raise AssertionError

    def _run_watching(self, lines: LinesRan) -> None:
        with contextlib.suppress(FailedError, TimeUp):
            self._run(lines=lines)

    def _attempt(
        self, *, traced: bool = False, lines: LinesRan | None = None, wanted: frozenset[int] = frozenset()
    ) -> Run:
        self._stage.begin(wanted)
        trial = self._stage.trial
        self._noted.append(trial.notes)
        args, kwargs = unflatten(self._spec, iter(self._leaves))
        surroundings = Surroundings(self._spec, self._leaves, self._names)
        tracing = self._traced.call(self._roots()) if traced else contextlib.nullcontext()
        with lines or contextlib.nullcontext(), tracing, self._stage.modes():
            value = run_once(self._function, args, kwargs)
        trial.notes.add_caught()
        effects = list(surroundings.effects(args, kwargs, value))
        effects += handed_back(value, self._traced.apart)
        random = (surroundings.random, HostRandom.read(of_devices=False))
        plain = [leaf for leaf in leaves_of(value) if isinstance(leaf, (bool, int, float, str, complex))]
        return Run(trial.notes, trial.trace, self._traced.changes, random, plain, effects)

    def _roots(self) -> list[tuple[str, Any]]:
        """What the callable finds, with names."""
        named = list(zip(self._names, self._leaves, strict=True))
        if inspect.isfunction(self._function) or inspect.ismethod(self._function):
            return named
        kind: type = type(self._function)
        return [(kind.__name__, self._function), *named]

    # ------------------------------------------------------------------ comparison

    def _compared(self, runs: list[Run]) -> TrialNotes:
        last, earlier = runs[-1], runs[-2]
        notes, line = last.notes, self._line()
        comparison = Comparison(notes, self._traced.codes, line)
        comparison.state(last.changes)
        roots = (self._function, getattr(self._function, "__self__", None))
        comparison.kept(kept_tensors(roots, self._stage.storages, runs[0].changes, last.changes))
        comparison.random_numbers(last.random, self._stage.drawn)
        for each in dict.fromkeys(effect for run in runs for effect in run.effects):
            notes.add(each.rule, each.text, place=line, severity=each.severity)
        comparison.results(earlier.value, last.value)
        positions = differing(earlier.trace, last.trace)
        codes = {code for code, *_ in notes.found}
        if not positions or codes & COUNTING:
            return notes
        explained = bool(codes & EXPLAINING)
        with contextlib.suppress(FailedError):
            self._run(wanted=frozenset(positions))
        for index in positions:
            place = self._stage.trial.places.get(index)
            known = explained or (place is None and rules.HOST_RANDOM.code in codes)
            comparison.traces(earlier.trace, last.trace, index, place, known)
        return notes

    def _unwrapped(self) -> Any:
        return inspect.unwrap(getattr(self._function, "__func__", self._function))

    def _line(self) -> CodePlace:
        """Where the callable is defined."""
        target = self._unwrapped()
        scripted = script_line(target)
        if scripted is not None:
            return CodePlace(Site(*scripted, "forward"), 0, ())
        if isinstance(target, torch.nn.Module):  # not by getattr: a traced one has a descriptor that raises
            target = inspect.getattr_static(type(target), "forward")
        code = getattr(target, "__code__", None)
        if code is None:
            call: Any = vars(type(target)).get("__call__")
            code = getattr(call, "__code__", None)
        site = Site(code.co_filename, code.co_firstlineno, code.co_name) if code is not None else None
        return CodePlace(site or Site("<unknown>", 0, "<unknown>"), 0, ())


def run_once(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the callable; call paths begin below this frame."""
    return function(*args, **kwargs)


def _failure(notes: TrialNotes, error: BaseException, line: CodePlace) -> str:
    """Note that the callable raised, at the line that did or where it is defined; returns a sentence."""
    found = traceback_site(error.__traceback__)
    site = found if found.line else line.site
    frames = [
        Site(frame.f_code.co_filename, line, frame.f_code.co_name)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    path = tuple(frame for frame in frames if not is_internal(frame.file))
    message = in_one_line(error)
    place = CodePlace(site, 0, path)
    notes.add(rules.RAISES, f"the callable raises {message}", place=place)
    return f"the callable raised {message} at {site}"
