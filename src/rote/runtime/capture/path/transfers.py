"""Collectives of a traced call: operations that replays issue again, and that nothing may run twice or drop.

A collective begins, and is waited for later. Both are operations of the call, and both run between two
segments. What lies between them may run while data travel, in a replay as well. That is not only for speed:
to wait earlier than the call does can make ranks wait for each other for ever, where a call begins on
several groups.

Where a call is followed, its collectives have run, and no others. A wait that has not run finds what was
begun by the number of the collective in the call.

What a functional collective makes is not copied to where the recording has it until somebody waits for it.

What does not work: a collective that is not waited for when the call ends (the call is not recorded), and
whatever else a handle of work is asked, as whether it has completed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from threading import get_ident
from typing import Any, NamedTuple

import torch

from ....base import EnvironmentError_, captures_apart, user_site
from ....hazards import rules
from ....hazards.rules import Reason, reason
from ...backends.protocol import CapturedCollective, refill
from ...operators import Placement, synchronize_operator, tensors_of, wait_operator, written_operands
from ...program import results_of
from ...pytorch import (
    DoneWork,
    GroupCall,
    SeenWork,
    WeakGroup,
    group_named,
    has_memory,
    nccl_limit_s,
    work_in,
)
from ...recording import InFlight
from .cursor import Cursor, Mode
from .follower import Follower

_HERE = "Wait for it in the same call, by work.wait() and nothing else."
_REGISTERED = (
    "capture_collectives=True needs NCCL_GRAPH_REGISTER=0 in the environment of all ranks, before the first "
    "process group is made, and no NCCL_GRAPH_MIXING_SUPPORT=0. Otherwise NCCL registers the memory of "
    "captured collectives with all ranks at once: a rank that runs plainly meanwhile hangs them, and memory "
    "of expandable_segments cannot be registered."
)
_WAIT = "_c10d_functional::wait_tensor"
_WRAP = "_c10d_functional::_wrap_tensor_autograd"
"""Makes a tensor that waits where it is used first; no collective, and no operation."""
_HANDLES = "c10d"
"""The namespace of the collectives that return a handle of work."""


class Steps(NamedTuple):
    """What is done with an operation of a traced call.

    Attributes:
        before: Notes it before it runs.
        after: Notes it once it has run.
    """

    before: Callable[..., Any]
    run: Callable[..., Any]
    after: Callable[..., Any]


class Transfers:
    """Runs the collectives of one traced call, or of one attempt at it.

    Args:
        follower: Finds what has run.
        called: The method of a group that has led to the collective, if it is known.
        leads: Whether a collective that no Python has begun is one of a reducer's.
    """

    def __init__(
        self,
        cursor: Cursor,
        follower: Follower,
        called: Callable[[], GroupCall | None],
        leads: Callable[[str, list[torch.Tensor]], bool],
    ) -> None:
        self._cursor, self._follower, self._called, self._leads = cursor, follower, called, leads
        self._is_led = False  # by a reducer, the collective that is met
        self._told: GroupCall | None = None  # what leads to the collective that is met
        self._flights: list[InFlight] = []  # by number
        self._led: dict[int, tuple[list[torch.Tensor], int]] = {}  # what C++ waits for itself, by storage
        # C++ may hold them without keeping what they are in Python
        self._handles: list[SeenWork | DoneWork] = []
        self._made: dict[int, tuple[InFlight, int]] = {}  # what functional collectives fill, by storage
        self._thread = get_ident()

    def sees(self, known: Any, args: tuple[Any, ...]) -> bool:
        """Whether it is known who begins a collective: C++ may ask a handle of work what no Python gives."""
        if known.func.namespace != _HANDLES:
            return True
        told = self._called()
        self._told = told if told is not None and _is_that(told, args) else None
        self._is_led = self._told is None and self._leads(known.facts.name, tensors_of(args, {}))
        return self._told is not None or self._is_led or self._cursor.mode is Mode.FOLLOW

    def arriving(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Iterator[tuple[list[torch.Tensor], int]]:
        """What has to be waited for before an operation, of what a reducer has begun: it is not told when."""
        if not self._led:
            return
        lost = self._cursor.blockers and self._cursor.mode is Mode.OBSERVE
        for each in tensors_of(args, kwargs):
            found = self._led.get(each.untyped_storage()._cdata) if has_memory(each) else None
            if found is not None:
                for other in found[0]:
                    self._led.pop(other.untyped_storage()._cdata, None)
                if lost:  # nothing of this call is kept
                    _wait(self._flights[found[1]])
                else:
                    yield found

    def meet(self, steps: Steps, known: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a collective, or wait for one; ``known`` is what is known of its overload."""
        func = known.func
        if func is wait_operator().overload:
            flight = self._flights[args[1]]
            there = Placement.CAPTURED if flight.captured else Placement.ISLAND
            self._step(steps, known, args, kwargs, partial(_wait, flight), there=there)
            return None
        if func is synchronize_operator().overload:
            self._step(steps, known, args, kwargs, known.raw)
            return None
        if known.facts.name == _WRAP:
            return known.raw(*args)
        if known.facts.name == _WAIT:
            found = self._made.get(args[0].untyped_storage()._cdata)
            call = known.raw if found is None else partial(_arrive, found[0], found[1], known.raw)
            captured = found is not None and found[0].captured
            there = Placement.CAPTURED if captured else Placement.ISLAND
            return self._step(steps, known, args, kwargs, call, args[0], there)
        self._cursor.node.acts = True
        flight = self._begun(len(self._flights))
        self._flights.append(flight)
        if func.namespace == _HANDLES:
            return self._with_handle(steps, known, flight, args, kwargs)
        return self._functional(steps, known, flight, args, kwargs)

    def finish(self) -> list[Reason]:
        """The call has returned: why it cannot be recorded, as far as its collectives tell."""
        left = [each for each in self._flights if each.work is not None or any(each.waits)]
        self.end()
        text = "the call begins a collective and does not wait for it"
        return [reason(rules.COLLECTIVE, text, user_site(), _HERE)] if left else []

    def end(self) -> None:
        """Hold nothing any more."""
        self._handles.clear()
        self._made.clear()
        self._led.clear()
        self._told = None

    # ------------------------------------------------------------------ beginning

    def _begun(self, number: int) -> InFlight:
        """What begins now, or has begun in the replay that is followed."""
        cursor = self._cursor
        if cursor.mode is Mode.FOLLOW:
            return next((n.flights[number] for n in cursor.nodes if number in n.flights), InFlight())
        flight = InFlight()
        if cursor.mode is Mode.RECORD:
            cursor.node.flights[number] = flight
        return flight

    def _with_handle(
        self, steps: Steps, known: Any, flight: InFlight, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        weakly = tuple([WeakGroup.instead(each) for each in args])
        told, there = self._told, self._there(known, args, kwargs)
        flight.captured = there is Placement.CAPTURED
        self._step(steps, known, weakly, kwargs, partial(_begin, flight, known.func._op), there=there)
        again = told is not None and told.repeats and not flight.captured
        if told is not None and again and self._cursor.mode is Mode.RECORD:
            flight.direct = told.again(self._cursor.aliases.keep_all)
        returns = len(known.func._schema.returns)
        handle = flight.handed
        if handle is None and returns:
            number, tensors = len(self._flights) - 1, written_operands(known.facts, args, kwargs)
            if self._is_led:
                self._led.update((each.untyped_storage()._cdata, (tensors, number)) for each in tensors)
                work = DoneWork(tensors)
            else:
                work = SeenWork(flight.work, partial(self._wait_for, number, tensors), self._ask)
            self._handles.append(work)
            handle = work.handed
        return None if not returns else handle if returns == 1 else (args[0], handle)

    def _there(self, known: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Placement:
        """Where a collective runs: in a segment, if nothing comes between it and the wait for it."""
        cursor = self._cursor
        if not cursor.captures_collectives or cursor.index in cursor.node.refused:
            return Placement.ISLAND
        if cursor.mode is Mode.FOLLOW:
            known_ones = cursor.node.operations
            kind = known_ones[cursor.index].kind if cursor.index < len(known_ones) else ""
            return Placement.CAPTURED if kind == Placement.CAPTURED.value else Placement.ISLAND
        limit_s = self._limit_s(known, args, kwargs)
        if limit_s is None:
            return Placement.ISLAND
        if not captures_apart():
            raise EnvironmentError_(_REGISTERED)
        cursor.node.pure = False
        if cursor.mode is Mode.RECORD:
            name = known.facts.name.partition("::")[2].strip("_")
            expected = CapturedCollective(name, user_site(), limit_s, torch.distributed.get_rank())
            cursor.recorder.session.expect(expected)
        return Placement.CAPTURED

    def _limit_s(self, known: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float | None:
        """The time limit of a collective that a capture may have; None if it may not.

        To wait earlier than the call does is no choice: ranks that begin two collectives in different orders
        would wait for each other.
        """
        cursor = self._cursor
        if known.func.namespace == _HANDLES:
            told = self._told
            ends = told is not None and not told.gives_handle(known.func, args, kwargs)
            return nccl_limit_s(told.group) if ends and told is not None else None
        if cursor.mode is Mode.RECORD:
            following = cursor.node.operations[cursor.index + 1 : cursor.index + 2]
            if not following or following[0].name != _WAIT:
                cursor.node.refused.add(cursor.index)
                return None
        group = group_named(args[-1]) if isinstance(args[-1], str) else None
        return nccl_limit_s(group) if group is not None else None

    def _functional(
        self, steps: Steps, known: Any, flight: InFlight, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        cursor, there = self._cursor, self._there(known, args, kwargs)
        flight.captured = there is Placement.CAPTURED
        operation, tensors, tokens, _ = steps.before(known, args, kwargs, there)
        if cursor.mode is Mode.FOLLOW:
            out = self._follower.run(operation, known.func, args, kwargs, tensors)
            parts = results_of(out)[1]
        elif cursor.mode is Mode.RECORD and flight.captured:
            call = partial(_fill_now, known.raw)
            out = steps.run(operation, replace(known, func=call, raw=call), args, kwargs, there)
            parts = results_of(out)[1]
            steps.after(operation, known.facts, tensors, tokens, out)
        else:
            call = partial(_begin_filling, flight, known.raw)
            steps.run(operation, replace(known, func=call, raw=call), args, kwargs, there)
            out = flight.first
            parts = results_of(out)[1]
            if cursor.mode is Mode.RECORD:
                flight.recorded = [cursor.aliases.keep(each) for each in parts]
            flight.first = None
            steps.after(operation, known.facts, tensors, tokens, out)
        for index, part in enumerate(parts):
            if not any([part is each for each in tensors]):
                self._made[part.untyped_storage()._cdata] = flight, index
        return out

    def _step(
        self,
        steps: Steps,
        known: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        call: Callable[..., Any],
        out: Any = None,
        there: Placement = Placement.ISLAND,
    ) -> Any:
        """Run an operation whose replays make a call; it has no results but operands."""
        cursor = self._cursor
        operation, tensors, tokens, _ = steps.before(known, args, kwargs, there)
        if cursor.mode is Mode.FOLLOW:
            cursor.expect(operation)
            cursor.passed()
        else:
            steps.run(operation, replace(known, func=call, raw=call), args, kwargs, there)
            if cursor.mode is Mode.RECORD and there is Placement.ISLAND:
                cursor.recorder.receive(written_operands(known.facts, args, kwargs))
            steps.after(operation, known.facts, tensors, tokens, out)
        return out

    # ------------------------------------------------------------------ waiting

    def _wait_for(self, number: int, tensors: list[torch.Tensor]) -> None:
        """Somebody waits by a handle of work."""
        cursor = self._cursor
        if get_ident() != self._thread:
            self._ask("Work.wait on another thread")
        lost = cursor.blockers and cursor.mode is Mode.OBSERVE
        if lost or cursor.suspended or not self._handles:  # the call may be over
            _wait(self._flights[number])
        else:
            wait_operator().overload(tensors, number)

    def _ask(self, what: str) -> None:
        self._cursor.block(reason(rules.COLLECTIVE, f"the call asks {what}", user_site(), _HERE))


def _is_that(told: GroupCall, operands: tuple[Any, ...]) -> bool:
    """Whether a call of a group's method is what has led to these operands."""
    groups = [WeakGroup.instead(each) for each in operands]
    tensors = zip(tensors_of(told.args, told.kwargs), tensors_of(operands, {}), strict=False)
    same = [each.alive() is told.group for each in groups if isinstance(each, WeakGroup)]
    return all([*same, *[one is other for one, other in tensors]])


def _begin(flight: InFlight, call: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    if flight.direct is not None:
        flight.work = flight.direct()
        return
    out = call(*map(WeakGroup.again, args), **kwargs)
    flight.work = work_in(out)
    if flight.work is None:  # as NCCL does for collectives that are waited for on the stream
        flight.handed = out[-1] if type(out) is tuple and out else out


def _wait(flight: InFlight, *args: Any) -> None:
    """Wait by the handle of the call or replay of now, if nobody has."""
    work, flight.work = flight.work, None
    if work is not None:
        work.wait()


def _begin_filling(
    flight: InFlight, call: Callable[..., Any], *args: Any, **kwargs: Mapping[str, Any]
) -> None:
    out = call(*args, **kwargs)
    parts = results_of(out)[1]
    given = tensors_of(args, kwargs)
    flight.fresh = [None if any([each is one for one in given]) else each for each in parts]
    flight.waits = [each is not None for each in flight.fresh]
    if not flight.recorded:
        flight.first = out


def _fill_now(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Begin and wait, as the call does with its next operation."""
    out = call(*args, **kwargs)
    for each in results_of(out)[1]:
        torch.ops._c10d_functional.wait_tensor(each)
    return out


def _arrive(flight: InFlight, index: int, wait: Callable[..., Any], *args: Any) -> None:
    """Wait for a result of a functional collective, and put it where the recording has it."""
    fresh = flight.fresh[index] if flight.fresh else None
    if fresh is None:
        return
    flight.fresh[index], flight.waits[index] = None, False
    wait(fresh)
    if flight.recorded and flight.recorded[index].data_ptr() != fresh.data_ptr():
        refill(flight.recorded[index], fresh)
