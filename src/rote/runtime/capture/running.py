"""How an operation is run in a traced call: as in eager, into the open segment, or between two."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...base import CaptureError, MemoryShortageError
from ...hazards import rules
from ...hazards.rules import reason
from ..autograd.graph import seeds_on_host
from ..backends.protocol import holds, raw_call, replaced
from ..numbers import Computed
from ..operators import Placement, facts_of, rule_of, tensors_of
from ..program import Operation
from ..program import operations as ops
from ..pytorch import Running, is_kept_out
from ..state import get_profile, set_profile
from .overloads import Overload
from .path import Cursor, Mode, ResizedStorages, RestartError, SegmentTape
from .stores import without_copies

_OBSERVE = Mode.OBSERVE  # to look a member up takes ten times as long, in Python 3.11
_CAPTURED, _ANYWHERE = Placement.CAPTURED, Placement.ANYWHERE
_SYNCHRONIZE = "rote_transfers::synchronize"


class Runner:
    """Runs operations.

    Attributes:
        profiler: Watches the callable's code, and must not see the recorder's own.
        running: The operator that runs, if its kernel may be Python code.
    """

    def __init__(self, cursor: Cursor, resized: ResizedStorages, profiler: Any) -> None:
        self.profiler = profiler
        self.running: Running | None = None
        self._cursor = cursor
        self._resized = resized

    def seen(self, call: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Run what may be the user's code in sight of the profiler; see :mod:`..state.executed`."""
        profiler = self.profiler
        if profiler is None or get_profile() is not None:
            return call(*args, **kwargs)
        set_profile(profiler)
        try:
            return call(*args, **kwargs)
        finally:
            if get_profile() is profiler:
                set_profile(None)

    def run(
        self,
        operation: Operation,
        known: Overload,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        placement: Placement,
    ) -> Any:
        """Observe or record an operation."""
        self.running = known.running
        try:
            if self._cursor.mode is not _OBSERVE and placement is not _ANYWHERE:
                return self._recorded(operation, known, args, kwargs, placement)
            if holds(Computed, args, kwargs):
                args, kwargs = replaced(Computed, "value", args, kwargs)
            if known.seeds:
                args, kwargs = seeds_on_host(known.func, args, kwargs)
            return self.seen(known.raw, *args, **kwargs) if known.seen else known.raw(*args, **kwargs)
        except Exception as error:  # the callable may go on from it, and no recording could
            text = f"{operation.name} raised {type(error).__name__}"
            self._cursor.block(reason(rules.OPERATION_RAISES, text, operation.site))
            raise

    def _recorded(
        self,
        operation: Operation,
        known: Overload,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        placement: Placement,
    ) -> Any:
        cursor, func = self._cursor, known.func
        tape = cursor.recorder
        plain = placement is _CAPTURED and not known.seeds and not holds(Computed, args, kwargs)
        short = plain and cursor.is_short
        if plain and (known.alias or (short and cursor.node.operations[cursor.index].kind == ops.VIEWED)):
            return known.raw(*args, **kwargs)  # it launches nothing, and what it gives is no new memory
        if placement is _CAPTURED and not short:
            try:
                if not (cursor.on_host or known.facts.transfers):
                    capture = partial(tape.capture, cursor)
                    func, args = without_copies(known.facts, args, cursor.device, capture)
                if tape.executes or not known.seen:  # a replay that executes runs Python code again
                    return tape.capture(cursor, func, args, kwargs)
                return self.seen(tape.capture, cursor, func, args, kwargs)
            except MemoryShortageError as error:
                return self._without_memory(tape, error, func, args, kwargs)
            except CaptureError:
                cursor.node.refused.add(cursor.index)
                if not tape.executes:
                    raise RestartError(operation.name) from None
        # Where what was captured so far has run, a refused operation ends a segment.
        refused = known.apart or cursor.index in cursor.node.refused
        kept_out = short or (placement is Placement.ISLAND and not refused and is_kept_out())
        code = rules.KEPT_OUT.code
        if operation.computes:
            code = rules.OPERAND_DIFFERS.code
        elif known.facts.transfers:
            code = (rules.SYNCHRONIZE if known.facts.name == _SYNCHRONIZE else rules.COLLECTIVE).code
        elif not kept_out:
            code = rule_of(func, placement, refused, tensors_of(args, kwargs)).code
        if not known.quiet:
            cursor.node.pure = False
        self._resized.stay(operation)
        return self.seen(
            tape.island, cursor, operation, func, args, kwargs, code, early=placement is Placement.EARLY
        )

    def _without_memory(
        self, tape: SegmentTape, error: MemoryShortageError, func: Any, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """There was no memory for an operation: make room and try once more, else record no further.

        Where captured operations have not run, the call goes back to the start of the segment. Elsewhere the
        operation itself is tried again, if it only makes its result. If that fails, too, the rest of the call
        runs as in eager, where it may still find memory.
        """
        if not tape.executes:
            tape.shortage = str(error)
            raise RestartError(tape.shortage) from None
        cursor, facts = self._cursor, facts_of(func)
        if facts.mutable or facts.written or facts.seeded:
            raise (error.__cause__ or error) from None
        if tape.make_room():
            try:
                return tape.capture(cursor, func, args, kwargs)
            except MemoryShortageError as again:
                error = again
        tape.shortage = str(error)
        tape.abort(cursor)
        cursor.stop_recording()
        return self.seen(raw_call(func), *args, **kwargs)
