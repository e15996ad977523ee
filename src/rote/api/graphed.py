"""The callable that takes the place of the user's own."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import get_ident
from time import perf_counter
from types import FrameType
from typing import Any

import torch
from torch.compiler import is_compiling, is_dynamo_compiling

from ..base import MisuseError, NotReplayedError, Site, read_settings, user_site
from ..enclosed import enclose, leave_alone
from ..hazards import Findings, findings_of, rules
from ..hazards.rules import Reason, reason
from ..inspect import (
    CallReport,
    OutputReport,
    Report,
    ShownCallable,
    explain,
    explain_ranks,
    page_of,
    save_trace,
)
from ..plans import PLANS, PlanStore
from ..runtime.arguments import (
    NOT_MINE,
    Call,
    Openings,
    bind,
    explain_key,
    is_captured,
    remedy_of_key,
    tracing,
)
from ..runtime.backends import PROCESS
from ..runtime.compiling import COMPILERS, SHELVES
from ..runtime.engine import (
    FREE_TRACES,
    WARMING,
    Answer,
    Ledger,
    Mark,
    Pace,
    Specialization,
    State,
    Subject,
    Timed,
    Umpire,
    strict_reasons,
)
from ..runtime.memory import Account, parse_size
from ..runtime.program import PLAINLY, RECORDED, REPLAYED, BackwardLog, Result
from ..runtime.pytorch import foreign_modes, is_kept_out, is_wrapper
from ..runtime.reads import MODULE_CALL
from ..runtime.recording import Recording
from ..runtime.replay import Counts
from ..runtime.state import ExecutedCode
from .bound import BoundWeakly, GraphedMethod, Kept
from .callables import dress, lasting_name, name_of, place_of, takes_any_keyword
from .compiled import CompiledFrom
from .exclusion import Exclusion, SizesOf, of_first_tensor
from .keys import Keys
from .options import Options
from .parts import Parts
from .paths import Paths
from .reasons import ReasonCounts
from .recordings import output_reports, recording_reports

LOOKS = 8
"""Calls in a row that are looked at in vain before a wrapper with recordings rests."""

LONG_VAIN = LOOKS + 4
"""Calls in a row that are looked at in vain before the hot paths are not asked either while it rests."""

_FIRST = object()
"""Stands for the key of the first call of compiled code."""

LONG_REST = 64
"""A rest of so many calls is too long to keep replaced state."""


@dataclass(frozen=True)
class HeldKey:
    """The key of one call, which can run further, uncounted calls, and the arguments.

    ``answer`` makes the call, counts it and returns its value, or PLAINLY if the function has to be called.
    """

    entry: Specialization
    call: Call
    answer: Callable[[], Any]


class Graphed:
    """A callable that records itself and replays, made by :func:`..graph`.

    Attributes that it does not have itself are those of the wrapped callable, so a wrapped module still
    answers as a module does. The methods of a class share an account of memory and a ledger of costs.
    Where a compiler made the callable, ``compiled`` has what it says of it.
    ``sizes_of`` and ``keeps_all`` are those of :class:`.Exclusion`, ``ordered`` that of :class:`.Limits`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        options: Options,
        account: Account | None = None,
        ledger: Ledger | None = None,
        *,
        compiled: CompiledFrom | None = None,
        sizes_of: SizesOf = of_first_tensor,
        keeps_all: str | None = None,
        ordered: bool = False,
    ) -> None:
        settings = read_settings()
        self._function = function
        self._options = options
        self._enabled = options.enabled and not settings.disable
        self._strict = options.strict or settings.strict
        self._name = name_of(function)
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._executed = ExecutedCode()
        self._tally = ReasonCounts()
        self._counts = Counts()
        self._recorded = self._credited = self._looks = 0
        self._last_reasons: list[Reason] = []
        self._warm = False
        self._verifier, checks = options.verifiers()
        self._compiled = compiled
        self._account = account or Account(self._name, parse_size(options.budget, "budget"))
        self._backwards = BackwardLog(self._tally, self._strict, checks, graphs=options.backward)
        self._exclusion = Exclusion(options, sizes_of, keeps_all)
        limits = replace(options.limits(self._account, strict=self._strict), ordered=ordered)
        self._plan = self._open_plan(os.fsdecode(options.plans or settings.plans))
        self._ledger = ledger or Ledger(bounded=not limits.keep)
        self._subject = Subject(
            function,
            self._name,
            self._executed,
            limits,
            functools.partial(PROCESS.choose, options.backend),  # not a method: that would be a cycle
            self._backwards,
            self._ledger,
            ((self._name, function),),
            inputs=compiled.inputs if compiled is not None else None,
            store=self._plan,
        )
        self._openings = Openings()
        self._keys = Keys(
            self._subject, options, self._tally, self._ledger, self._openings,
            shares=ledger is not None,
            most_sets=compiled.max_parameter_sets if compiled is not None else None,
        )  # fmt: skip
        self._sorts = not takes_any_keyword(function)  # the order of keywords does not matter
        self._paths = Paths(self, function, self._lock, self._counts, sorts=self._sorts)
        self._parts: Parts | None = None
        self._has_parts = options.parts and compiled is None and self._verifier is None and not self._strict
        self._has_parts = self._has_parts and options.capture_sizes is None
        self._begin_pace()
        self._umpire = Umpire(self._counts, self._tally, self._paths.finish)
        self._bound: dict[int, tuple[weakref.ref[Any], Callable[[], Graphed | None]]] = {}
        self._executed.add_function(inspect.unwrap(getattr(function, "__func__", function)))
        dress(self, function)
        self._built = True

    def _open_plan(self, path: str) -> PlanStore | None:
        """Where what calls come to is kept, if anywhere."""
        if not path or not self._enabled:
            return None
        directory = PLANS.of(path)
        if directory.shelf is not None:
            SHELVES.add(directory.shelf)
        return PlanStore(directory, lasting_name(self._function), self._options.changed())

    # ------------------------------------------------------------------ calling

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the callable, from a recording where there is one.

        Raises:
            EnvironmentError_: In a forked process that cannot use the device.
            NotReplayedError: In strict mode, if the call would not be replayed wholly from graphs.
            VerificationError: With ``verify``, if a replay did not give what the plain call gives.
            Exception: What the callable raises, unchanged.
        """
        if is_dynamo_compiling():
            return self.call_in_trace(args, kwargs)
        paths = self._paths
        alone = paths.alone
        if alone.left > 0 and not tracing.get():  # as Rest.call has it, which takes as long as all of this
            alone.left -= 1
            return paths.plain(*args, **kwargs)
        paths.left -= 1
        if paths.left < 0 and self._turn():
            return self._function(*args, **kwargs)
        value = paths.newest.call(args, kwargs)
        if value is NOT_MINE:
            value = paths.answer(args, kwargs)
        if value is not NOT_MINE:
            return paths.plain(*args, **kwargs) if value is PLAINLY else value
        # Where PyTorch compiles without its interpreter of frames, modes keep the paths above from answering.
        if self.stands_aside():
            if self._enabled and is_kept_out() and not foreign_modes():
                self._count_kept_out(user_site(sys._getframe(1)))
            return self._function(*args, **kwargs)
        if self._compiled is not None and self._is_first(sys._getframe(1)):
            return self._function(*args, **kwargs)
        self._check_process()
        if self._sorts and len(kwargs) > 1:
            kwargs = dict(sorted(kwargs.items()))
        if not PROCESS.take(self._lock):
            self._count_plainly(self._beside(sys._getframe(1)))
            return self._function(*args, **kwargs)
        try:
            value = self._call(args, kwargs, sys._getframe(1))
        finally:
            self._lock.release()
        if type(value) is Timed:
            return value.run(self._function, args, kwargs)
        return self.call_plainly(args, kwargs) if value is PLAINLY or value is WARMING else value

    @property
    def traced(self) -> tuple[Callable[..., Any], bool]:
        """What Dynamo traces in the place of a call, and whether the call is enclosed."""
        return self._function, self._enabled

    def call_in_trace(self, args: tuple[Any, ...], kwargs: dict[str, Any], instance: Any = None) -> Any:
        """Call the callable in a function that Dynamo traces; ``instance`` is that of a graphed method."""
        return call_traced(self, self._function, args, kwargs, instance, encloses=self._enabled)

    def call_plainly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the callable itself, or that with its parts graphed, and enter its time in the ledger."""
        if self._has_parts and self._parts is None and self._needs_parts():
            self._begin_parts()
        parts, began = self._parts, perf_counter()
        taken_s = parts.taken_s if parts is not None else 0.0
        try:
            return self._paths.plain(*args, **kwargs)
        finally:  # a call that raises is one: else such calls would be looked at for ever
            own_s = perf_counter() - began
            if parts is not None:  # what its parts have learned is no time of the call
                own_s -= parts.taken_s - taken_s
            self._ledger.add_plain(max(own_s, 0.0))

    def _begin_pace(self) -> None:
        self._pace, self._paced = Pace(), dict[str, list[Reason]]()
        if self._enabled and self._ledger.is_paced:
            self._paths.left = self._pace.left

    def _turn(self) -> bool:
        """Find out whether calls follow each other faster plainly; whether this one is to run so."""
        if self.stands_aside() or not PROCESS.take(self._lock):
            return False
        try:
            pace, paths = self._pace, self._paths
            self._catch_up()
            paths.resume()
            others = self._ledger.lessons + self._counts.compared
            others += self._parts.lessons if self._parts is not None else 0
            pace.turn(Mark(self._counts.calls, PROCESS.time(), others, get_ident(), self._ledger.alone_s))
            paths.left = pace.left - 1
            if pace.plainly:
                reasons = self._paced_by(pace.lost or "a plain call was made, to compare replays with")
                self._counts.calls += 1
                self._tally.add(reasons)
                if pace.left > 1:
                    paths.left = 0
                    paths.pause(pace.left - 1, reasons)
            if not pace.is_in_round and pace.saved_s is not None:
                share = self._counts.replayed / self._counts.calls
                self._ledger.note_saved(pace.saved_s / max(share, 0.01))
            pace.go_on(PROCESS.time())
            return pace.plainly
        finally:
            self._lock.release()

    def _paced_by(self, text: str) -> list[Reason]:
        """Why calls run plainly; the line that calls is looked for in the first of them."""
        if text not in self._paced:
            self._paced = {text: [reason(rules.SLOWER, text, user_site(sys._getframe(3)))]}
        return self._paced[text]

    def _needs_parts(self) -> bool:
        """Whether calls run plainly, and not only since nothing was recorded yet."""
        if self._is_kept_out() or self._keys.any_replays():
            return False
        spared = any([entry.earlier.spares for entry in [*self._keys.entries.values()]])
        return spared or self._counts.calls >= FREE_TRACES or not self._ledger.is_free or self.is_eager()

    def _begin_parts(self) -> None:
        """Have modules graphed by themselves from now on."""
        if not PROCESS.take(self._lock):
            return
        try:
            if self._parts is None:
                make = functools.partial(
                    _graph_module, replace(self._options, parts=False), self._account,
                    ordered=not is_wrapper(self._function),
                )  # fmt: skip
                over = functools.partial(_end_parts, weakref.ref(self))
                self._parts = Parts(self._function, make, self._ledger, over)
                self._paths.meet_parts(self._parts.call)
        finally:
            self._lock.release()

    def stands_aside(self) -> bool:
        """Whether a call runs plainly, uncounted: switched off, or while others trace or capture."""
        if is_dynamo_compiling() or is_compiling():
            return True
        aside = tracing.get() or is_kept_out() or foreign_modes() or is_captured()
        return not self._enabled or bool(aside)

    def _count_kept_out(self, site: Site) -> None:
        """Count a call within :func:`..no_graphs`."""
        if PROCESS.take(self._lock):
            try:
                self._counts.calls += 1
                self._tally.add([reason(rules.KEPT_OUT, "the call was made within rote.no_graphs()", site)])
            finally:
                self._lock.release()

    def _is_first(self, caller: FrameType) -> bool:
        """Whether PyTorch sets compiled code up in this call, which tells nothing of those that follow."""
        if self._counts.calls or self._exclusion.keeps_all:
            return False
        self._counts.calls += 1
        why = reason(rules.NOT_YET, "the first call of compiled code sets it up", user_site(caller))
        self._tally.add([why], _FIRST)
        return True

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            for made in PROCESS.made():
                made.check_process()
            self._process = os.getpid()

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any], caller: FrameType) -> Any:
        """Make a call, with the wrapper's lock held; PLAINLY or a Timed if it has to run as it is."""
        since = perf_counter()
        self._catch_up()
        self._paths.end_rest()
        value = self._look(args, kwargs, caller, since)
        if value is PLAINLY and not self._is_kept_out():
            self._leave_alone(since)
        return value

    def _is_kept_out(self) -> bool:
        """Whether the last call was kept out by an option, which is no look in vain."""
        return bool(self._last_reasons) and self._last_reasons[0].code == rules.KEPT_OUT.code

    def _catch_up(self) -> None:
        """Enter in ledger and report what happened since the last call that came here."""
        for reasons, calls in self._paths.rested():
            self._tally.add(reasons, calls=calls)
            self._ledger.add_rest(calls)
        replays, self._credited = self._counts.replayed - self._credited, self._counts.replayed
        self._ledger.add_replays(replays)
        if replays:
            self._looks = 0

    def _leave_alone(self, since: float) -> None:
        """Decide how many calls to leave alone, after a look in vain that began at ``since``."""
        ledger, replays = self._ledger, self._keys.any_replays()
        ledger.add_look(perf_counter() - since)
        if not replays and ledger.rest() >= LONG_REST:
            self._keys.drop_abandoned()
        self._looks += 1
        if replays and self._looks < LOOKS and not ledger.owes:
            return
        calls = ledger.rest_from_looks() if replays else ledger.rest()
        if calls:
            if self._looks >= LONG_VAIN or not (replays or ledger.completes):
                self._paths.forget_expected()
            covers = not self._paths.expects and (not replays or self._looks >= LONG_VAIN)
            self._paths.rest(calls, self._last_reasons, covers=covers)

    def _look(self, args: tuple[Any, ...], kwargs: dict[str, Any], caller: FrameType, since: float) -> Any:
        """Find the key of a call, and replay or trace it; PLAINLY or a Timed if it has to run as it is."""
        try:
            found = self._find(args, kwargs, caller)
        except RecursionError:  # a container that contains itself
            return PLAINLY
        if isinstance(found, Reason):
            return self._count_plainly(found)
        (entry, call), shapes = found, self._paths.look(args, kwargs)
        self._counts.calls += 1
        if self._strict:
            self._check_strict(entry, call, user_site(caller))
        backend = entry.prepare(call)
        if not PROCESS.take(backend.lock):
            self._counts.calls -= 1
            return self._count_plainly(self._beside(caller))
        try:
            value = self._umpire.run(entry, call, args, kwargs, caller, since)
            if value is not NOT_MINE:
                return value
            result = self._run(entry, call, caller)
            value, recording = self.finish(entry, result), result.recording
            if result.how == REPLAYED:
                self._ledger.time_replay(perf_counter() - since)
            else:
                self._learn_openings()
                if entry.is_idle and self._has_parts:
                    self._keys.leave_idle(user_site(caller))
            if result.how == RECORDED or (value is not PLAINLY and entry.is_observed):
                self._paths.expect(shapes)
            if result.how == REPLAYED and recording is not None and self._is_quick(recording):
                self._paths.learn(entry, recording, call, shapes)
            elif value is PLAINLY and self._is_unwatched() and not self._strict:
                first = None if self._keys.any_replays() else FREE_TRACES if self._may_learn() else 0
                pays = self._ledger.rest_from_paths()
                self._paths.learn_plain(entry, call, self._tally, shapes, first=first, pays=pays)
            return value
        except BaseException:
            self._paths.clear()
            raise
        finally:
            backend.lock.release()

    def _learn_openings(self) -> None:
        """The call was more than a replay: later keys have what it has shown."""
        names = self._openings.learn()
        if names:
            self._paths.clear()
            self._keys.carry(names)

    def _find(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], caller: FrameType
    ) -> tuple[Specialization, Call] | Reason:
        """The key of a call, perhaps a new one, or why there is none."""
        why = self._exclusion.why_all(caller) or self._keys.idle
        if why is not None:
            return why
        call = self._bind(args, kwargs)
        if call.foreign is not None:
            text = f"{call.foreign_name()} is {call.foreign}"
            return reason(rules.UNSUPPORTED_TENSOR, text, user_site(caller))
        why = self._exclusion.why(call, caller)
        if why is not None:
            return why
        entry = self._keys.find(call)
        for learns in (self._keys.opens, self._keys.varies, self._tells_apart):
            if entry is None and learns(call):
                call = self._bind(args, kwargs)
                entry = self._keys.find(call)
        if entry is not None and self._keys.fixes(call, entry):
            call = self._bind(args, kwargs)
            entry = self._keys.find(call)
        if entry is None:
            why = self._keys.refuse(call)
            if why is not None:
                return why
            entry = self._keys.make(call, caller, tell=not self._strict)  # strict mode says so itself
        return entry, call

    def _tells_apart(self, call: Call) -> bool:
        found = self._keys.tells_apart(call)
        if found:
            self._paths.clear()
        return found

    def _run(self, entry: Specialization, call: Call, caller: FrameType) -> Answer:
        if self._verifier is None:
            return entry.run(call, caller)
        return self._verifier.run(entry, call, caller, self._keys.entries.values())

    @contextmanager
    def hold(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], caller: FrameType
    ) -> Generator[HeldKey | None]:
        """Hold the key of a call and its locks, for a wrapper that has to know what will answer the call.

        Nothing is called and nothing is counted. The key is None where a call would run plainly.

        Raises:
            NotReplayedError: In strict mode, if the call would not be replayed wholly from graphs.
        """
        self._check_process()
        if not PROCESS.take(self._lock):
            yield None
            return
        try:
            self._catch_up()
            kwargs = dict(sorted(kwargs.items())) if self._sorts else kwargs
            found = self._find(args, kwargs, caller)
            if isinstance(found, Reason):
                yield None
                return
            entry, call = found
            if self._strict:
                self._counts.calls += 1  # a refused call is one
                self._check_strict(entry, call, user_site(caller))
                self._counts.calls -= 1
            backend = entry.prepare(call)
            if not PROCESS.take(backend.lock):
                yield None
                return
            try:
                yield HeldKey(entry, call, functools.partial(self._answer, entry, call, caller))
            except BaseException:
                self._paths.clear()
                raise
            finally:
                backend.lock.release()
        finally:
            self._lock.release()

    def _answer(self, entry: Specialization, call: Call, caller: FrameType) -> Any:
        self._counts.calls += 1
        return self.finish(entry, self._run(entry, call, caller))

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Take the arguments apart, and the objects among them that are open."""
        openings, inputs = self._openings, self._subject.inputs or ()
        try:
            return bind(args, kwargs, openings, inputs)
        except RecursionError:
            if not openings.open:
                raise
            openings.close_all("it contains itself")
            return bind(args, kwargs, openings, inputs)

    @staticmethod
    def _beside(caller: FrameType) -> Reason:
        """Why a call waits no longer for another thread's traced call."""
        text = "another thread runs a callable that is being traced"
        return reason(rules.NOT_YET, text, user_site(caller))

    def _count_plainly(self, why: Reason) -> Any:
        """Count a call that runs as it is; in strict mode it raises after the warm-up."""
        self._counts.calls += 1
        self._last_reasons = [why]
        self._tally.add(self._last_reasons)
        if self._strict and self._warm and not self._is_kept_out():
            text = f"{self._name} would not be replayed (strict mode):\n  {why}"
            raise NotReplayedError(text, findings_of([why], self._name))
        return PLAINLY

    def finish(self, entry: Specialization, result: Result) -> Any:
        """Count a result and return its value."""
        if result.how == REPLAYED:
            self._counts.replayed += 1
        else:
            self._last_reasons = result.reasons
            self._recorded += result.how == RECORDED
            self._tally.add(result.reasons, None if entry.settled else entry.key)
            if result.value is not PLAINLY:
                self._paths.clear()
                self._keys.tell_gradients()
                self._keys.drop_abandoned(entry)
            if result.how == RECORDED:
                ShownCallable(self._function, self._name).note_recording(entry)
            if result.how == RECORDED and not entry.settled:
                entry.settled = True
                self._tally.settle(entry.key)
                self._tally.settle(_FIRST)
        self._warm = self._warm or entry.calls >= self._options.warmup + 2
        return result.value

    def _is_quick(self, variant: Recording) -> bool:
        """Whether replays need no checks, and have no islands that may raise."""
        return self._is_unwatched() and not (self._strict and strict_reasons(variant, self._subject.limits))

    def _is_unwatched(self) -> bool:
        """Whether calls need no checks, after the warm-up."""
        return self._verifier is None and self._warm

    def _may_learn(self) -> bool:
        """Whether the next call is looked at, since it may be another one, and tracing costs nothing yet."""
        early = not self._ledger.bounded or self._counts.calls < FREE_TRACES
        return self._ledger.is_free and (early or not self.is_eager())

    def is_eager(self) -> bool:
        """Whether all keys that were met run eagerly for good."""
        entries = [*self._keys.entries.values()]
        return bool(entries) and all([entry.life.state is State.EAGER for entry in entries])

    # ------------------------------------------------------------------ strict mode

    def _check_strict(self, entry: Specialization, call: Call, site: Site) -> None:
        warm_calls = self._options.warmup + 2
        if not self._warm or (0 < entry.calls < warm_calls):
            return
        reasons: list[Reason]
        if entry.calls == 0:
            self._keys.drop(call.key)
            known = next(iter(self._keys.entries.values()), None)
            text = (
                explain_key(known.key, call, known.places) if known is not None else "no key was seen before"
            )
            remedy = remedy_of_key(known.key, call) if known is not None else ""
            reasons = [reason(rules.NEW_KEY, text, site, remedy)]
        else:
            variant, reasons = entry.would_replay(call)
            if variant is not None and not reasons:
                return
        self._tally.add(reasons)
        codes = {why.code for why in reasons}
        earlier = [
            f"earlier: {found.code} at {found.where or 'an unknown line'}: {found.message}. {found.remedy} "
            f"({found.count} calls)"
            for found in self._tally.reports()
            if found.code not in codes
        ]
        earlier += self._plan.report().reasons if self._plan is not None else ()
        listed = "\n  ".join([*map(str, reasons), *earlier])
        text = f"would not be replayed wholly from graphs (strict mode, call {self._counts.calls} at {site})"
        raise NotReplayedError(f"{self._name} {text}:\n  {listed}", self.findings())

    # ------------------------------------------------------------------ reporting

    def report(self) -> Report:
        """All that happened so far, as a frozen object."""
        with self._lock:
            self._catch_up()
            return Report(
                name=self._name,
                calls=self._counts.calls,
                replayed=self._counts.replayed,
                eager=self._counts.calls - self._counts.replayed,
                recorded=self._recorded,
                backwards=self._backwards.calls,
                backwards_replayed=self._backwards.replayed,
                backwards_verified=self._backwards.verified,
                verified=self._verifier.verified if self._verifier is not None else 0,
                recordings=recording_reports(self._keys.entries.values(), self._account),
                budget=self._account.limit,
                reasons=self._tally.reports(),
                output=self._output(),
                kernels=self._compiled.kernels if self._compiled is not None else "",
                parts=tuple(self._parts.reports()) if self._parts is not None else (),
                plan=self._plan.report() if self._plan is not None else None,
            )

    def _output(self) -> tuple[OutputReport, ...]:
        """What recorded calls write, and those of parts: without their whole reports, which are told once."""
        parts = self._parts.graphed() if self._parts is not None else []
        inside = dict.fromkeys(each for part in parts for each in part._output())
        return output_reports(self._keys.entries.values()) + tuple(inside)

    def explain(self) -> str:
        """Text: what replays, what does not, why, where, and what to do about it."""
        return explain(self.report(), len(self._bound))

    def explain_ranks(self, group: Any = None) -> str:
        """Text: what this callable did on all ranks, and what on some of them. Every rank has to call it.

        Args:
            group: The process group whose ranks are asked; None for all.

        Returns:
            The same on every rank; :meth:`explain` where there is one process.
        """
        distributed = torch.distributed
        if not (distributed.is_available() and distributed.is_initialized()):
            return self.explain()
        reports: list[Any] = [None] * distributed.get_world_size(group)
        distributed.all_gather_object(reports, self.report(), group)
        return explain_ranks(reports)

    def save_report(
        self,
        path: str | os.PathLike[str],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Write the report as one page of HTML, that needs no network and runs no script.

        With arguments a call is made and timed step by step. Without, what the page shows of a call has no
        times.

        Args:
            path: Of the page.
            args: The positional arguments of a call; None, with ``kwargs``, for no call.
            kwargs: Its keyword arguments.

        Returns:
            What the call returned; None without one.

        Raises:
            EnvironmentError_: jinja2 is not installed.
        """
        value, call, _ = self._shown_call(args, kwargs, sys._getframe(1))
        Path(path).write_text(page_of(self.report(), call), encoding="utf-8")
        return value

    def trace(
        self,
        path: str | os.PathLike[str],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Write what a call does as a trace, for Perfetto (ui.perfetto.dev) or ``chrome://tracing``.

        Each operation has its operator, module, line and tier. With arguments a call is made and timed: on
        the host each operation, on a GPU each segment, whose operations share its time by their bytes.
        Without, the operations of the recording with most replays share the time of a replay.

        Args:
            path: Of the file, in JSON; compressed if it ends in ``.gz``.
            args: The positional arguments of a call; None, with ``kwargs``, for no call.
            kwargs: Its keyword arguments.

        Returns:
            What the call returned; None without one.

        Raises:
            MisuseError: Nothing is recorded, and no call was to be made.
        """
        value, call, replay_us = self._shown_call(args, kwargs, sys._getframe(1))
        if call is None:
            text = f"{self._name}.trace: nothing is recorded yet. Call it first, or give trace() arguments."
            raise MisuseError(text)
        save_trace(path, call, replay_us)
        return value

    def _shown_call(
        self, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None, caller: FrameType
    ) -> tuple[Any, CallReport | None, float | None]:
        """Make a call and time its steps; without arguments, a call of the recording with most replays.

        Returns:
            The value, what is shown of the call, and for one that was not made the time of a replay.
        """
        shown = ShownCallable(self._function, self._name)
        if args is None and kwargs is None:
            with self._lock:
                call, replay_us = shown.most_replayed(self._keys.entries.values())
                return None, call, replay_us
        given, named = tuple(args or ()), dict(kwargs or {})
        value, call = PLAINLY, shown.plain(0.0)
        if not self.stands_aside():
            with self.hold(given, named, caller) as held:
                if held is not None:
                    backend = held.entry.prepare(held.call)
                    value, call = shown.timed(held.entry, backend, held.answer)
        if value is PLAINLY:
            began = perf_counter()
            value = self.call_plainly(given, named)
            call = shown.plain(perf_counter() - began)
        return value, call, None

    def wait_until_optimized(self, timeout_s: float) -> bool:
        """Wait for compilers, and say whether calls like the last one will not become faster any more.

        Calls observe, record, prove and capture compiled kernels, and time them. So, before something is
        measured::

            for _ in range(2000):
                if g.wait_until_optimized(timeout_s=60):
                    break
                g(*args)

        Args:
            timeout_s: The longest time to wait for compilers, in seconds.

        Returns:
            Whether such calls run plainly for good, or by recordings that are as they will stay: none has
            kernels on their way, or two tiers of which it is not known which is faster, or has yet to be
            looked at.

        Raises:
            MisuseError: The time is negative.
        """
        if timeout_s < 0:
            text = f"wait_until_optimized: timeout_s={timeout_s!r} is negative; give 0 to look only"
            raise MisuseError(text)
        if not self._enabled:
            return True
        with self._lock:
            last = next(reversed(self._keys.entries.values()), None)
            bound = [known for _, ref in self._bound.values() if (known := ref()) is not None]
            bound += self._parts.graphed() if self._parts is not None else []
        others = [each.wait_until_optimized(timeout_s) for each in bound]
        if last is None:
            return bool(others) and all(others)
        tiers = [each.tiers for each in last.recordings if each.recorded]
        if any([each.idle for one in tiers for each in one.waiting]) and not COMPILERS.get().wait(timeout_s):
            return False
        settled = last.life.state is State.EAGER or last.earlier.spares or bool(tiers)
        return settled and all(others) and all([each.final for each in tiers])

    def findings(self) -> Findings:
        """The obstacles to replays wholly from graphs, in the form of :func:`..check`."""
        return self.report().findings()

    def reset(self) -> None:
        """Free all recordings and forget all observations."""
        with self._lock:
            self._catch_up()  # else calls that were left alone would be counted later
            self._keys.clear()
            self._umpire.clear()
            if self._parts is not None:
                self._parts.clear()
                self._paths.meet_parts(self._function)
                self._parts = None
            for bound in [known() for _, known in self._bound.values()]:
                if bound is not None:
                    bound.reset()
            self._tally.clear()
            self._backwards.clear()
            self._counts.calls = self._counts.replayed = self._recorded = self._credited = 0
            self._paths.clear()
            self._paths.resume()
            self._begin_pace()
            self._warm = False
            if self._verifier is not None:
                self._verifier.verified = 0

    # ------------------------------------------------------------------ answering as the wrapped callable

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """As a method, it gives each instance a graphed callable of its own, dropped with the instance.

        Raises:
            MisuseError: The instance cannot be referenced weakly.
        """
        if instance is None:
            return self
        if is_dynamo_compiling():
            return method_in_trace(self, instance)
        known = self._bound.get(id(instance))
        bound = known[1]() if known is not None and known[0]() is instance else None
        if bound is not None:
            return GraphedMethod(bound, instance)
        table, key = self._bound, id(instance)
        try:
            alive = weakref.ref(instance, lambda _: table.pop(key, None))
        except TypeError:
            raise MisuseError(
                f"{self._name} is graphed as a method, but {type(instance).__name__} cannot be referenced "
                "weakly (it has __slots__ without __weakref__); graph the bound method: "
                "rote.graph(instance.method)"
            ) from None
        function = BoundWeakly(self._function, alive)
        made = Graphed(function, self._options, self._account, self._ledger)
        kept = Kept.by(instance)
        if kept is not None:
            kept.methods.append(made)
        table[key] = (alive, weakref.ref(made) if kept is not None else lambda: made)
        return GraphedMethod(made, instance)

    def __getattr__(self, name: str) -> Any:
        function = self.__dict__.get("_function")
        if function is None:
            raise AttributeError(name)
        return getattr(function, name)

    def __repr__(self) -> str:
        with self._lock:
            self._catch_up()
        return f"<rote.graph of {self._name}: {self._counts.calls} calls, {self._counts.replayed} replayed>"

    def __reduce__(self) -> Any:
        """Copy and pickle the callable, graphed with the same options and without recordings."""
        name, found = place_of(self._function)  # by name, as functions are pickled
        return name if found is self else (type(self), (self._function, self._options))

    def __del__(self, ends: Callable[[], bool] = sys.is_finalizing) -> None:
        keys = self.__dict__.get("_keys")
        if keys is not None and not ends():  # by then the names of this module may be gone
            keys.release()


def _graph_module(
    options: Options, account: Account, alive: weakref.ref[torch.nn.Module], ledger: Ledger, *, ordered: bool
) -> Graphed:
    """The graphed callable of a part."""
    return Graphed(BoundWeakly(MODULE_CALL, alive), options, account, ledger, ordered=ordered)


def _end_parts(graphed: weakref.ref[Graphed]) -> None:
    """Nothing has come of the parts of a callable: it is called as it is."""
    wrapper = graphed()
    if wrapper is not None:
        wrapper._paths.meet_parts(wrapper._function)


def call_traced(
    wrapper: Any,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    instance: Any = None,
    *,
    encloses: bool,
) -> Any:
    """Call a wrapper in a function that Dynamo traces.

    Args:
        instance: That of a method which was graphed in a class.
        encloses: The wrapper is called when compiled code runs, not the plain callable.
    """
    if encloses:
        return enclose(wrapper, function, args, kwargs, instance)
    leave_alone()
    given = args if instance is None else (instance, *args)
    return function(*given, **kwargs)


def method_in_trace(wrapper: Any, instance: Any) -> Callable[..., Any]:
    """The method of an instance, where Dynamo traces the function that calls it."""
    leave_alone()
    return functools.partial(_call_method, wrapper, instance)


def _call_method(wrapper: Any, instance: Any, /, *args: Any, **kwargs: Any) -> Any:
    if not is_dynamo_compiling():  # behind a graph break
        return wrapper.__get__(instance)(*args, **kwargs)
    return wrapper.call_in_trace(args, kwargs, instance)
