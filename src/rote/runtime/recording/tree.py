"""The tree of a recording: segments and islands, joined by the values the host saw.

A node is a stretch of a call without a host read. Its operations are known from observation; once recorded it
also has steps that replay them. It ends either in a branch (the host reads a value or a shape, and each value
leads to another node) or in a leaf (the callable returned). The same tree holds what was only observed and
what was recorded: a node is recorded when it has been observed often enough, so a value seen once costs
nothing but the observation.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from ...base import Site
from ...hazards.rules import Reason
from ..arguments import read_switches
from ..autograd import Backward
from ..backends.protocol import ResultSizeError, Segment, refill
from ..operators import is_region_named
from ..program import (
    COUNTS_ALL,
    NUMBER,
    Counted,
    GradientEffect,
    Looks,
    Operation,
    Origin,
    Reseed,
    Template,
)
from ..program.operations import CAPTURED, ISLAND, VIEWED
from ..pytorch import LeftForwards


class KernelModes(NamedTuple):
    """What kernels look at besides their operands.

    Attributes:
        grad: Grad mode; some kernels choose their arithmetic by it.
        tracked: Which of the tensor operands require grad, in grad mode; some kernels choose by that, too.
    """

    grad: bool
    inference: bool
    dtype: torch.dtype
    switches: tuple[Any, ...]
    tracked: tuple[int, ...]

    @classmethod
    def now(cls, operands: Sequence[torch.Tensor] = ()) -> KernelModes:
        """Those of this thread, for an operation on these tensors."""
        grad = torch.is_grad_enabled()
        modes = grad, torch.is_inference_mode_enabled(), torch.get_default_dtype()
        tracked = [number for number, each in enumerate(operands) if each.requires_grad] if grad else []
        return cls(*modes, read_switches(), tuple(tracked))


@dataclass(frozen=True)
class CapturedSegment:
    """One segment of a stretch.

    Attributes:
        modes: The operations that were captured into it, by index, each with the modes that it ran under.
    """

    segment: Segment
    modes: Mapping[int, KernelModes]


@dataclass(frozen=True)
class CapturedStretch:
    """The segments of a recorded stretch, and the memory that was there when it ended.

    Attributes:
        storages: Storages that were made outside or in the call, by origin, not kept alive: whatever reads
            the memory of the recording besides its segments keeps it alive.
    """

    segments: tuple[CapturedSegment, ...]
    storages: Mapping[Origin, weakref.ref[torch.UntypedStorage]]


@dataclass(eq=False)
class Island:
    """An operation that runs between two segments; its results go where the next segment reads them.

    Attributes:
        call: Runs the operation and returns its results in order.
        results: The recorded results; None where a result is an operand (written in place).
        code: Code of the rule that says why it is an island.
        receives: What other processes have filled when it is done.
        noted: Copies of that, of the last replay; None where nobody wants them.
    """

    call: Callable[[], list[Any]]
    results: list[torch.Tensor | None]
    operation: str
    site: Site
    code: str
    receives: list[torch.Tensor] = field(default_factory=list[torch.Tensor])
    noted: list[torch.Tensor] | None = None

    def replay(self) -> None:
        """Run the operation and copy its results into the recorded ones."""
        for recorded, fresh in zip(self.results, self.call(), strict=True):
            if recorded is not None:
                ResultSizeError.check(self.operation, recorded.shape, fresh)
                refill(recorded, fresh)
        if self.noted is not None:
            self.noted = [each.clone() for each in self.receives]


@dataclass(eq=False)
class InFlight:
    """A collective that has begun, in the call or replay of now.

    Attributes:
        work: Its handle of work; None once it was waited for.
        captured: It lies in a segment.
        handed: What the operator returns in the place of a handle, if it has none.
        direct: Begins it in a replay, faster than its operator does; returns the handle.
        fresh: The tensors that it fills and has made itself, until they were waited for.
        waits: Which of them nobody has waited for.
        first: What it returned when it was recorded.
        recorded: Where these tensors lie for the rest of the recording; copied there once they are filled.
    """

    work: Any = None
    captured: bool = False
    handed: Any = None
    direct: Callable[[], Any] | None = None
    fresh: list[torch.Tensor | None] = field(default_factory=list[torch.Tensor | None])
    waits: list[bool] = field(default_factory=list[bool])
    first: Any = None
    recorded: list[torch.Tensor] = field(default_factory=list[torch.Tensor])

    def end(self) -> None:
        """Nobody waits any more: hold nothing that belongs to other processes as well."""
        self.work, self.fresh = None, []


Step = Segment | Island | Reseed | LeftForwards
"""What a replay does, one after the other."""
ON_HOST = (Island, Reseed, LeftForwards)
"""Those that are no segments."""


class OperationCall(NamedTuple):
    """An operation with its operands."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class NumberBranch:
    """How a replay goes on from a number that changes, with which the host computes.

    Attributes:
        read: Reads it again.
        way: Computes what depends on it, and says on which way the call goes on.
        order: How many such were read before.
    """

    read: Callable[[], Any]
    way: Callable[[Any], int]
    order: int

    def edge(self) -> tuple[Any, ...]:
        """The edge along which this replay goes on."""
        return NUMBER, self.order, self.way(self.read())


@dataclass(frozen=True, eq=False)
class Branch:
    """Where the host reads something that decides how the call goes on.

    Attributes:
        read: Reads again; returns the edge and, for shapes, the fresh results.
        number: How a replay goes on instead, if it is a number that changes.
    """

    read: Callable[[], tuple[Any, list[Any]]]
    operation: str
    site: Site
    code: str
    number: NumberBranch | None = None


@dataclass(eq=False)
class Node:
    """A stretch of a call, from a branch (or the start) to the next branch or the end.

    Attributes:
        complete: Whether the end of the stretch was reached.
        seen: Agreeing observations in a row.
        edges: Continuations by observed value.
        template: How to hand out the result, if the stretch ends the call.
        effects: Gradient slots that the call replaces, if the stretch ends it.
        effects_key: What two observations of the effects are compared by.
        arrivals: Recorded results of the branch that led here (shapes), to copy fresh ones into.
        steps: What replays the stretch; None while it is not recorded.
        branch: The end of a recorded stretch that does not end the call.
        captured: How it was captured, if it is recorded.
        held: Storages alive at the branch, by number: what the continuation may read.
        constants: Hoisted host data, by the index of the operation.
        made: What makes tensors of numbers that change, likewise.
        stands: Generators drawn from instead of those that the call makes; see :mod:`..program.generators`.
        refused: Indices of operations found to be refused by a capture.
        backward: The graph of the result, if the stretch ends the call and backward may be called on it.
        pure: The stretch writes nothing but its own memory and draws no random number, nor do its islands.
        acts: It has collectives: nothing may run it once more or leave it out.
        flights: The collectives that its steps begin, by their number in the call.
        counted: What the way to the end of the call writes with a change of version.
        looks: What tensors look like in the calls of the tree, if this is its root.
        excess: What to say if too many values are read at its end, if more is known than that.
    """

    operations: list[Operation] = field(default_factory=list[Operation])
    complete: bool = False
    seen: int = 0
    edges: dict[Any, Node] = field(default_factory=dict[Any, "Node"])
    template: Template | None = None
    effects: list[GradientEffect] = field(default_factory=list[GradientEffect])
    effects_key: Any = None
    arrivals: list[torch.Tensor] = field(default_factory=list[torch.Tensor])
    steps: list[Step] | None = None
    branch: Branch | None = None
    captured: CapturedStretch | None = None
    held: dict[int, torch.UntypedStorage] = field(default_factory=dict[int, torch.UntypedStorage])
    constants: dict[int, torch.Tensor] = field(default_factory=dict[int, torch.Tensor])
    made: dict[int, OperationCall] = field(default_factory=dict[int, OperationCall])
    stands: dict[int, torch.Generator] = field(default_factory=dict[int, torch.Generator])
    refused: set[int] = field(default_factory=set[int])
    backward: Backward | None = None
    pure: bool = True
    acts: bool = False
    flights: dict[int, InFlight] = field(default_factory=dict[int, InFlight])
    counted: Counted = COUNTS_ALL
    excess: Reason | None = None
    looks: Looks = field(default_factory=Looks)

    @property
    def recorded(self) -> bool:
        """Whether the stretch can be replayed."""
        return self.steps is not None

    def short_runs(self, least: int) -> frozenset[int]:
        """Indices of what would be captured in segments of fewer operations than that, views included."""
        found, run, count = set[int](), list[int](), 0
        for index, operation in enumerate(self.operations):
            kind = operation.kind if index not in self.refused else ISLAND
            if kind == ISLAND:
                found.update(run if count < least else ())
                run, count = [], 0
            elif kind in (CAPTURED, VIEWED):
                run.append(index)
                # How many kernels compiled code launches is not known, and more than one as a rule.
                count += least if is_region_named(operation.name) else kind == CAPTURED
        found.update(run if count < least else ())
        return frozenset(found)

    def forget(self, index: int) -> None:
        """Drop what was observed from an operation on: a later call did something else."""
        del self.operations[index:]
        self.complete = False
        self.seen = 0
        self.edges = {}
        self.template = None
        self.effects_key = None
        self.unrecord()

    def unrecord(self) -> None:
        """Drop the recorded form of this node and of everything below it."""
        for node in self.walk():
            node._drop_recorded()
            if node is not self:
                node.arrivals = []

    def _drop_recorded(self) -> None:
        self.steps = None
        self.branch = None
        self.captured = None
        self.held = {}
        self.constants, self.made = {}, {}
        self.stands = {}
        self.flights = {}
        if self.backward is not None:
            self.backward.release()
            self.backward = None
        self.effects = []
        if self.template is not None:
            self.template = self.template.bare()

    def bare(self) -> Node:
        """A copy of what was observed from here on, to be recorded on its own."""
        copies: dict[int, Node] = {}
        for node in reversed(self.walk()):
            edges = {value: copies[id(child)] for value, child in node.edges.items()}
            copies[id(node)] = node._bare(edges)
        return copies[id(self)]

    def _bare(self, edges: dict[Any, Node]) -> Node:
        template = self.template.bare() if self.template is not None else None
        return Node(
            operations=list(self.operations),
            complete=self.complete,
            seen=self.seen,
            edges=edges,
            template=template,
            effects_key=self.effects_key,
            refused=set(self.refused),
            pure=self.pure,
            acts=self.acts,
            looks=self.looks,
        )

    def paths(self) -> int:
        """Number of observed ways from here to an end."""
        return sum([not node.edges for node in self.walk()])

    def walk(self) -> list[Node]:
        """This node and all below it, depth first. A call may read the host thousands of times in a row."""
        found: list[Node] = []
        left: list[Node] = [self]
        while left:
            node = left.pop()
            found.append(node)
            left.extend(reversed(node.edges.values()))
        return found
