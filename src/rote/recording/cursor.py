"""Where a traced call is: the node and event it has come to, and what it does with the next operation.

A call *follows* what has just been replayed, *records*, or *observes*; see :mod:`.tracer`. Each event is
compared here with what earlier calls did at the same place.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection
from enum import Enum
from typing import Any, NamedTuple

import torch

from ..backends.aliases import OWNING, Aliases
from ..base.errors import MisuseError
from ..base.location import Site, Sites
from ..hazards import rules
from ..hazards.rules import Reason, reason
from .events import CAPTURED, Event, first_difference
from .generators import Generators
from .gradients import GradientWatch
from .ledger import Ledger, Origin
from .tape import Place, SegmentTape
from .tree import Node
from .unseen import Unseen
from .unwritten import Unwritten


class Mode(Enum):
    """What happens with the next operation."""

    FOLLOW = "follow"
    RECORD = "record"
    OBSERVE = "observe"


class Lent(NamedTuple):
    """A tensor over the memory of an array that the call has made.

    Attributes:
        tensor: The tensor.
        kept: What it held when it was made.
        site: The user's line.
    """

    tensor: torch.Tensor
    kept: torch.Tensor
    site: Site


class Cursor(Place):
    """A place in the tree, and how the call goes on from it.

    Args:
        root: First node of the tree.
        ledger: Storages of the call, inputs registered.
        device: Device whose operations are captured.
        follow: Start by following what has already been replayed.
        path: Values of the branches to follow, from the root. Past the last one the call is followed up to
            the next branch, whose value is then read.
        stop: Follow up to this event instead (everything before it has run).
        tape: Where recorded steps go; None if nothing may be recorded.
        warmup: Agreeing observations a node needs before it is recorded.
        watch: The gradient slots before the call, weakly: they keep parameters.
        split: Names of operations that run between segments.
        generators: Random generators that the call draws from.

    Attributes:
        left: Whether all gradients had left their slots when the host first read a value or a shape.
    """

    def __init__(
        self,
        root: Node,
        ledger: Ledger,
        device: torch.device,
        *,
        follow: bool = False,
        path: list[Any] | None = None,
        stop: tuple[Node, int] | None = None,
        tape: SegmentTape | None,
        warmup: int,
        watch: weakref.ref[GradientWatch] | None = None,
        split: Collection[str] = (),
        generators: Generators | None = None,
        has_made: Callable[[int], bool] | None = None,
    ) -> None:
        self.node = root
        self.index = 0
        self.ledger = ledger
        self.tape = tape
        self.path: list[Any] = []
        self.nodes: list[Node] = [root]
        self.difference: Reason | None = None
        self.unseen: Unseen | None = None
        self.blockers: list[Reason] = []
        self.arrays: dict[int, Site] = {}
        self.written_inputs: set[int] = set()
        self.write_sites: dict[Origin, Site] = {}
        self.counted: set[Origin] = set()
        self.written_externals: set[int] = set()
        self.generators = generators or Generators()
        self.devices: set[torch.device] = set()
        self.unwritten = Unwritten(ledger)
        self.split = split
        self._sites = Sites()
        self._device = device
        self._on_host = device.type == "cpu"
        self._constants: set[Origin] = set()
        self._over_arrays: set[Origin] = set()  # constants that lie in arrays which the call has made
        self._has_made = has_made
        self._lent: list[Lent] = []
        self._follow = list(path or ())
        self._stop = stop
        self._warmup = warmup
        self._watch, self.left = watch, False
        self._memory: dict[int, torch.UntypedStorage] = {}
        self._suspended = False
        if tape is not None:
            tape.place = self
        self.mode = Mode.FOLLOW if follow else self._next_mode(root)
        if self.mode is Mode.FOLLOW:
            self._memory = self._held_at_stop(root, self._follow, stop)
            self._check_stop()
        elif self.mode is Mode.RECORD:
            self._start_recording(root)

    @property
    def aliases(self) -> Aliases:
        """How the recording holds tensors that it did not make."""
        return self.tape.aliases if self.tape is not None else OWNING

    def _next_mode(self, node: Node) -> Mode:
        ready = self.tape is not None and node.seen >= self._warmup and node.complete
        return Mode.RECORD if ready and self.difference is None else Mode.OBSERVE

    @staticmethod
    def _held_at_stop(
        root: Node, path: list[Any], stop: tuple[Node, int] | None
    ) -> dict[int, torch.UntypedStorage]:
        node, held = root, dict(root.held)
        for value in path:
            node = node.edges[value]
            held.update(node.held)
        if stop is not None:
            held.update(stop[0].held)
        return held

    def remembered(self) -> set[int]:
        """Numbers of the storages that the recording of the followed path holds."""
        return set(self._memory)

    def _check_stop(self) -> None:
        """Leave FOLLOW when the last operation that ran has been passed."""
        if self._stop is not None and self.node is self._stop[0] and self.index == self._stop[1]:
            node = self._stop[0]
            self.mode = Mode.RECORD if self.tape is not None else Mode.OBSERVE
            if self.mode is Mode.RECORD:
                assert self.tape is not None
                self.tape.resume(node)

    def _start_recording(self, node: Node) -> None:
        assert self.tape is not None
        self.tape.start(node)

    def _enter(self, value: Any) -> None:
        """Go along an edge, making it if it is new."""
        if len(self.nodes) == 1 and self._watch is not None:
            watch = self._watch()
            self.left = watch is not None and watch.have_left()
        child = self.node.edges.get(value)
        if child is None:
            known = self.node.edges and self.difference is None and not self.blockers
            if known and self.unseen is None:
                self.unseen = Unseen.of(self.node, self.node.events[self.index - 1], value)
            child = self.node.edges[value] = Node()
        self.path.append(value)
        self.node, self.index = child, 0
        self.nodes.append(child)

    def _meet(self, event: Event) -> None:
        """Compare an event with what was seen here before; remember it if nothing was."""
        node, index = self.node, self.index
        events = node.events
        self.index = index + 1
        if self.difference is not None or self.blockers:
            if self.difference is not None:
                events.append(event)
            return
        was = events[index] if index < len(events) else None
        if was is None and index == len(events) and not node.complete:
            events.append(event)
            return
        if (
            was is not None
            and was.operation == event.operation
            and was.operands == event.operands
            and was.results == event.results
        ):
            return
        self._differ(was, event)
        node.forget(index)
        events.append(event)

    def _differ(self, was: Event | None, now: Event) -> None:
        text = first_difference(was, now) if was is not None else None
        if text is not None:
            self.difference = reason(rules.OPERAND_DIFFERS, text, now.site)
            return
        before = was.operation if was is not None else "the end of the call"
        text = f"the call ran {now.operation} where earlier calls had {before}"
        self.difference = reason(rules.OPERATIONS_DIFFER, text, now.site)

    def quietly(self, call: Callable[[], Any]) -> Any:
        """Run something that is no part of the call and launches nothing."""
        before, self._suspended = self._suspended, True
        try:
            return call()
        finally:
            self._suspended = before

    def block(self, why: Reason) -> None:
        """Note a reason why nothing of this call can be kept."""
        if why not in self.blockers:
            self.blockers.append(why)

    def complete(self) -> None:
        """The callable returned: the last node is complete."""
        node = self.node
        if self.mode is Mode.FOLLOW:
            raise MisuseError(
                "the callable returned before the end of the recorded path on the same inputs; what it "
                "depends on is neither an argument nor state that rote can see"
            )
        if self.blockers:
            return
        if self.difference is None and self.index < len(node.events):
            end = Event("end", "the end of the call", (), (), "none", node.events[self.index].site)
            self._differ(node.events[self.index], end)
            node.forget(self.index)
        node.complete = True

    def last_captured(self) -> Event | None:
        """The last operation of the current stretch that was captured."""
        done = [event for event in self.node.events[: self.index] if event.kind == CAPTURED]
        return done[-1] if done else None
