"""Where a traced call is: its node and operation, and what it does with the next operation.

A call *follows* what has just been replayed, *records*, or *observes*; see :mod:`..tracer`. Each operation is
compared here with what earlier calls did at the same place.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

from ....base import InternalError, MisuseError
from ....hazards import rules
from ....hazards.rules import Reason, reason
from ...backends.protocol import OWNING, Aliases
from ...numbers import Path
from ...operators import Facts
from ...program import GradientWatch, Operation, StorageTable, first_difference
from ...program import operations as ops
from ...recording import Node
from .tape import RestartError, SegmentTape
from .unseen import UnseenValue


class Mode(Enum):
    """What happens with the next operation."""

    FOLLOW = "follow"
    RECORD = "record"
    OBSERVE = "observe"


@dataclass(frozen=True)
class Stop:
    """Where following ends: everything before this operation of the node has run."""

    node: Node
    index: int


class Cursor:
    """A place in the tree, and how the call goes on from it.

    Args:
        storages: Storages of the call, inputs registered.
        tape: Takes the recorded steps; None if nothing may be recorded.
        warmup: Agreeing observations that a node needs before it is recorded.
        follow: Start by following what has already been replayed.
        stop: Where following ends; None for the next branch behind the followed path.
        watch: The gradient slots before the call, weakly, since they keep parameters.
        least: Operations that a segment must have.
        resolves: What earlier calls have computed of numbers that change is compared as it is in this call.
        careful: Where a recorded call comes to a stretch that is not known, it starts again.
        captures_collectives: Collectives are captured where they can be.
        at_length: The tree is that of calls at other lengths.

    Attributes:
        node: The current stretch of the call.
        index: How many of its operations have been met.
        nodes: All stretches so far.
        path: The values of the branches between them.
        mode: What happens with the next operation.
        suspended: Operations that run now are the recorder's own, no part of the call.
        difference: What no earlier call had done.
        unseen: The first value that the host has read and no earlier call had.
        blockers: Why nothing of this call can be kept.
        strayed: Such a stretch was met.
        left: Whether all gradients had left their slots when the host first read a value or a shape.
    """

    def __init__(
        self,
        root: Node,
        storages: StorageTable,
        device: torch.device,
        tape: SegmentTape | None,
        warmup: int,
        *,
        follow: bool,
        stop: Stop | None,
        watch: weakref.ref[GradientWatch] | None,
        least: int = 0,
        resolves: bool = False,
        careful: bool = False,
        captures_collectives: bool = False,
        at_length: bool = False,
    ) -> None:
        self.node = root
        self.index = 0
        self.nodes: list[Node] = [root]
        self.path: list[Any] = []
        self.storages = storages
        self.device = device
        self.on_host = device.type == "cpu"
        self.captures_collectives = captures_collectives and not self.on_host
        self.tape = tape
        self.suspended = False
        self.difference: Reason | None = None
        self.unseen: UnseenValue | None = None
        self.blockers: list[Reason] = []
        self.left = False
        self._warmup = warmup
        self._stop = stop
        self._watch = watch
        self._least = least
        self.resolves = resolves
        self._careful = careful
        self._at_length = at_length
        self.strayed = False
        self._short: frozenset[int] = frozenset()
        self.mode = Mode.FOLLOW if follow else self._next_mode()
        if follow:
            self.check_stop()
        elif self.mode is Mode.RECORD:
            self._look_for_short()
            self.recorder.start(root)

    @property
    def recorder(self) -> SegmentTape:
        """The tape of a call that records."""
        if self.tape is None:
            raise InternalError("an operation was to be recorded where nothing is")
        return self.tape

    @property
    def way(self) -> Path:
        """The edges along which the call has come here."""
        return tuple(self.path)

    @property
    def aliases(self) -> Aliases:
        """How the recording holds tensors that it did not make."""
        return self.tape.aliases if self.tape is not None else OWNING

    def tables_with(self, number: int) -> int:
        """In how many tables of the recording a storage is that the call has made."""
        tables = [node.held for node in self.nodes]
        if self.tape is not None and self.tape.checkpoint is not None:
            tables.append(self.tape.checkpoint.held)
        return len({id(table) for table in tables if number in table})

    # ------------------------------------------------------------------ what happens next

    def _next_mode(self) -> Mode:
        ready = self.tape is not None and self.node.seen >= self._warmup and self.node.complete
        return Mode.RECORD if ready and self.difference is None else Mode.OBSERVE

    def check_stop(self) -> None:
        """Stop following when the last operation that has run is passed."""
        stop = self._stop
        if stop is None or self.node is not stop.node or self.index != stop.index:
            return
        self.mode = Mode.OBSERVE
        if self.tape is not None:
            self.mode = Mode.RECORD
            self._look_for_short()
            self.tape.resume(stop.node)

    def takes_numbers(self, facts: Facts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether an operation is captured although replays compute numbers of it."""
        if self.mode is not Mode.RECORD:  # what nobody knows yet is a guess
            return self.on_host or bool(facts.parameters)
        return self.recorder.takes(facts.op, args, kwargs)

    def stop_recording(self) -> None:
        """The rest of the call runs as in eager."""
        self.tape, self.mode = None, Mode.OBSERVE

    def go_on(self, arrivals: list[torch.Tensor] | None = None) -> None:
        """Behind a branch: record what comes if it is known well enough, else observe it.

        Args:
            arrivals: Results of the branch that the stretch begins with; None keeps the known ones.
        """
        self.mode = self._next_mode()
        if self.mode is not Mode.RECORD:
            return
        if arrivals is not None:
            self.node.arrivals = arrivals
        self._look_for_short()
        self.recorder.start(self.node)

    def stray(self) -> None:
        """A recorded call has come to a stretch that is not known well enough to be recorded.

        Raises:
            RestartError: It must not go on on copies of the arguments.
        """
        if self._careful:
            self.strayed = True
            raise RestartError("code that has not run yet is not run on copies of the arguments")
        self.node.arrivals = []

    def _look_for_short(self) -> None:
        """Before a stretch is recorded: which of its segments are too short to be worth a graph."""
        self._short = self.node.short_runs(self._least) if self._least else frozenset()

    @property
    def is_short(self) -> bool:
        """Whether the next operation would be in a segment that is too short."""
        return self.index in self._short

    # ------------------------------------------------------------------ operations

    def passed(self) -> None:
        """Go past an operation that has run before."""
        self.index += 1
        self.check_stop()

    @property
    def expected(self) -> Operation | None:
        """What earlier calls did next; None where none has come that far."""
        known = self.node.operations
        return known[self.index] if self.index < len(known) else None

    def done(self) -> list[Operation]:
        """The operations of the call until now; none where it is not as the calls before it."""
        if self.difference is not None or self.blockers:
            return []
        return [
            *[each for node in self.nodes[:-1] for each in node.operations],
            *self.node.operations[: self.index],
        ]

    def expect(self, operation: Operation) -> Operation:
        """The operation that has run here, which must be this one.

        Raises:
            MisuseError: The callable took another way on the same inputs.
        """
        known = self.node.operations
        was = known[self.index] if self.index < len(known) else None
        if was is not None and (self.resolves or not operation.computes):
            was = was.resolved()
        if was is None or not self._is_called_as(was, operation):
            expected = was.name if was is not None else "the end"
            raise MisuseError(
                f"the callable took another way on the same inputs at {operation.site}: {operation.name} "
                f"where {expected} was recorded. What it depends on is neither an argument nor state that "
                "rote can see; pass it in as an argument."
            )
        return was

    def _is_called_as(self, was: Operation, operation: Operation) -> bool:
        """Whether an operation is that which has run, perhaps on arguments that lay apart there."""
        return was.is_called_as(operation) or was.seen(self.storages.as_named_here).is_called_as(operation)

    def enter(self, value: Any, out: Any = None) -> None:
        """Go along the edge of what was read, making it if it is new."""
        if len(self.nodes) == 1 and self._watch is not None:
            watch = self._watch()
            self.left = watch is not None and watch.have_left()
        child = self.node.edges.get(value)
        if child is None:
            known = self.node.edges and self.difference is None and not self.blockers
            if known and self.unseen is None:
                self.unseen = UnseenValue.of(self.node, self.node.operations[self.index - 1], value, out)
            child = self.node.edges[value] = Node()
        self.path.append(value)
        self.node, self.index = child, 0
        self.nodes.append(child)

    def meet(self, operation: Operation) -> None:
        """Compare an operation with what earlier calls did here; remember it if there is none."""
        node, index = self.node, self.index
        known = node.operations
        self.index = index + 1
        if self.difference is not None or self.blockers:
            if self.difference is not None:
                known.append(operation)
            return
        was = known[index] if index < len(known) else None
        if was is not None and self.resolves:
            was = was.resolved()
        if was is None and index == len(known) and not node.complete:
            known.append(operation)
            return
        if was is not None and was.agrees(operation):
            if operation.computes:  # of this call are the numbers that replays compute
                known[index] = operation
            return
        if was is not None and self._at_length and ops.is_like(was, operation):
            known[index] = operation
            return
        self._differ(was, operation)
        node.forget(index)
        known.append(operation)

    def _differ(self, was: Operation | None, now: Operation) -> None:
        text = first_difference(was, now) if was is not None else None
        if text is not None:
            self.difference = reason(rules.OPERAND_DIFFERS, text, now.site)
            return
        before = was.name if was is not None else "the end of the call"
        text = f"the call ran {now.name} where earlier calls had {before}"
        self.difference = reason(rules.OPERATIONS_DIFFER, text, now.site)

    def block(self, why: Reason) -> None:
        """Note a reason why nothing of this call can be kept."""
        if why not in self.blockers:
            self.blockers.append(why)

    def complete(self) -> None:
        """The callable returned: the last node is complete.

        Raises:
            MisuseError: It returned before the end of the path that has run.
        """
        node = self.node
        if self.mode is Mode.FOLLOW:
            raise MisuseError(
                "the callable returned before the end of the recorded path on the same inputs; what it "
                "depends on is neither an argument nor state that rote can see"
            )
        if self.blockers:
            return
        if self.difference is None and self.index < len(node.operations):
            was = node.operations[self.index]
            self._differ(was, Operation.called("end", "the end of the call", (), (), was.site))
            node.forget(self.index)
        node.complete = True

    def last_captured(self) -> Operation | None:
        """The last operation of the current stretch that was captured."""
        done = [each for each in self.node.operations[: self.index] if each.kind == ops.CAPTURED]
        return done[-1] if done else None

    def quietly(self, call: Callable[[], Any]) -> Any:
        """Run code that is no part of the call and launches nothing."""
        before, self.suspended = self.suspended, True
        try:
            return call()
        finally:
            self.suspended = before
