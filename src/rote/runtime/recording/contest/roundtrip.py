"""What a timed call costs: the call itself, and the walk back through its results, if somebody makes it.

The walk is found by hooks on autograd's nodes, the same for a replay and for a plain call:

- it *begins* where the first node that made a result is about to run;
- it *ends* where the first node that made an argument is about to run, or with the backward pass where there
  is none. Autograd runs younger nodes first, and accumulates into leaves before anything else. So by then the
  walk has left the call, and the parameters have their gradients.

Only calls that are timed have hooks, none on a tensor or a leaf, and none returns anything. A node of a
result holds its hook, the hook holds the round trip, and that holds nothing of the graph. So a hook that has
died says that the results died unwalked, and that the call was all there was. ``docs/design.md`` says which
calls are no samples.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from enum import Enum
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch.compiler import is_dynamo_compiling

from ...arguments import TENSOR, Call, leaves_of, tracing
from ...autograd.graph import Node, newest_age
from ...backends.protocol import Backend, Timing
from ...conditions import reached
from ...program import after_pass, current_pass, history_of, node_age
from ...pytorch import plain_functions

MOST_INSIDE = 1024
"""Objects that are looked at within a result; what holds more than a result should is not searched."""

_ENDS = frozenset({type, types.FunctionType, types.MethodType, types.ModuleType})


class Kind(Enum):
    """What was timed."""

    THERE = "a call through whose results nobody walked back"
    BACK = "a call with the walk back through its results"
    OPEN = "a call through whose results somebody may still walk back"
    QUEUED = "a call, or a walk, that the device has not done"
    VOID = "nothing that could be compared"


class Cost(NamedTuple):
    """What a timed call came to, and its seconds if it can be compared."""

    kind: Kind
    seconds: float = 0.0


class Upstream(NamedTuple):
    """Where a walk leaves a call.

    Attributes:
        nodes: The nodes that made arguments.
        ends: Those of them that autograd runs after all nodes of the call.
        newest: The age of the youngest node that was there before the call.
    """

    nodes: frozenset[Node]
    ends: tuple[Node, ...]
    newest: int

    @classmethod
    def of(cls, call: Call, device: torch.device) -> Upstream:
        """What is behind the arguments of a call that has not run; another device has a queue of its own."""
        made = [
            (node, leaf.device)
            for leaf, kind in zip(call.leaves, call.kinds, strict=True)
            if kind is TENSOR and (node := history_of(leaf)) is not None
        ]
        newest = newest_age()  # another thread may number its nodes higher
        if not made:
            return cls(frozenset(), (), newest)
        ends = {node: None for node, where in made if where == device and node_age(node) <= newest}
        return cls(frozenset([node for node, _ in made]), tuple(ends), newest)


class Stage(Enum):
    """How far the walk is."""

    AHEAD, UNDER_WAY, DONE, SPOILT = range(4)


class TimedCall:
    """One timed call through whose results nobody can walk back."""

    def __init__(self, call: Timing) -> None:
        self._call = call

    def cost(self) -> Cost:
        """What it came to."""
        call = self._call.seconds()
        return Cost(Kind.QUEUED) if call is None else Cost(Kind.THERE, call)

    def call_seconds(self) -> float | None:
        """Those of the call alone."""
        return self._call.seconds()

    def close(self) -> None:
        """It has been judged."""


class RoundTrip(TimedCall):
    """One timed call, from its return on; a walk leaves it ``upstream``."""

    def __init__(self, call: Timing, backend: Backend, value: Any, upstream: Upstream) -> None:
        super().__init__(call)
        self._backend = backend
        self._walk: Timing | None = None
        self._pass: int | None = None
        self._stage = Stage.AHEAD
        begin, end = _Begin(self), _End(self)
        self._begin = weakref.ref(begin)
        nodes = _nodes_of(value, upstream)
        hooks: list[tuple[Node, Callable[[Any], None]]] = [(node, begin) for node in nodes]
        if hooks:
            hooks += [(node, end) for node in upstream.ends]
        self._handles = [node.register_prehook(hook) for node, hook in hooks]

    def begin(self) -> None:
        """A node that made a result is about to run."""
        number = current_pass()
        if self._stage is Stage.UNDER_WAY and number == self._pass:
            return  # another result of the same walk
        if self._stage is not Stage.AHEAD or number is None or self._is_blind():
            self._stage = Stage.SPOILT
            return
        after_pass(self.end)
        self._pass, self._stage = number, Stage.UNDER_WAY
        self._walk = self._backend.start_timing()

    def end(self) -> None:
        """The walk has left the call, or the pass has ended."""
        if self._stage is not Stage.UNDER_WAY or current_pass() != self._pass or self._walk is None:
            return
        if self._is_blind():
            self._stage = Stage.SPOILT
            return
        self._walk.stop()
        self._stage = Stage.DONE

    def _is_blind(self) -> bool:
        """Whether the device cannot be asked: it would become part of what somebody captures or observes."""
        return tracing.get() or self._backend.is_capturing()

    def cost(self) -> Cost:
        """What it came to."""
        if self._stage is Stage.SPOILT:
            return Cost(Kind.VOID)
        if self._stage is Stage.UNDER_WAY or (self._stage is Stage.AHEAD and self._begin() is not None):
            return Cost(Kind.OPEN)
        call = self._call.seconds()
        walk = self._walk.seconds() if self._walk is not None else 0.0
        if call is None or walk is None:
            return Cost(Kind.QUEUED)
        return Cost(Kind.THERE if self._walk is None else Kind.BACK, call + walk)

    def close(self) -> None:
        """It has been judged: nobody needs to look out any longer."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


class _Begin:
    """Held by the nodes of the results, and by nobody else."""

    __slots__ = ("__weakref__", "_trip")

    def __init__(self, trip: RoundTrip) -> None:
        self._trip = trip

    def __call__(self, gradients: Any) -> None:
        if not is_dynamo_compiling():
            self._trip.begin()


class _End:
    """Held by nodes of the caller's, which may live long."""

    __slots__ = ("_trip",)

    def __init__(self, trip: RoundTrip) -> None:
        self._trip = weakref.ref(trip)

    def __call__(self, gradients: Any) -> None:
        trip = self._trip() if not is_dynamo_compiling() else None
        if trip is not None:
            trip.end()


def _nodes_of(value: Any, upstream: Upstream) -> set[Node]:
    """The nodes that made the results, also those within objects of other libraries."""
    with plain_functions():
        leaves = leaves_of(value)
        objects = [leaf for leaf in leaves if not isinstance(leaf, torch.Tensor)]
        inside = islice(reached(objects, _ENDS), MOST_INSIDE) if objects else ()
        nodes = {history_of(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)}
        nodes |= {
            node
            for each in inside
            if isinstance(each, torch.Tensor)
            and (node := history_of(each)) is not None
            and node_age(node) > upstream.newest
        }
    return {node for node in nodes if node is not None} - upstream.nodes
