"""The hot path: place the inputs, launch the segments, run the islands, hand the result out.

Nothing here looks at Python state; the guard has already held. The tree is walked by the values the host
reads on the way. Where a value leads nowhere recorded, the caller of :func:`replay` goes on from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple

from ...base import InternalError, Site
from ...hazards import rules
from ...hazards.rules import Reason, reason
from ..arguments import Call
from ..autograd import Backward
from ..backends.protocol import Backend, Segment, Timing, refill
from ..program import COUNTS_ALL, INPUT_VIEW, Counted, Template
from ..recording import ON_HOST, Branch, Node, Own, Recording, StaticInputs, Step, hand_out


class TimedStep(NamedTuple):
    """A step of a replay, with what it took."""

    node: Node
    step: Step | Branch
    timing: Timing
    operations: list[tuple[str, float]]


class ReplayClock:
    """Times the steps of the replays that are made in its context, see :data:`STEP_CLOCK`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.steps: list[TimedStep] = []

    def run(self, node: Node, step: Step) -> None:
        """Run a step."""
        timing, operations = self._backend.start_timing(), list[tuple[str, float]]()
        if isinstance(step, ON_HOST):
            step.replay()
        else:
            operations = step.replay_timed()
        timing.stop()
        self.steps.append(TimedStep(node, step, timing, operations))

    def read(self, node: Node, branch: Branch) -> tuple[Any, Sequence[Any]]:
        """Read what the host reads at the end of a stretch."""
        timing = self._backend.start_timing()
        found = _go_on(branch)
        timing.stop()
        self.steps.append(TimedStep(node, branch, timing, []))
        return found


STEP_CLOCK: ContextVar[ReplayClock | None] = ContextVar("rote_clock", default=None)
"""What times replays in this context."""


class Replayed(NamedTuple):
    """How far a replay came.

    Attributes:
        node: The last node that was replayed.
        path: The values that the host read on the way.
        template: The result; None if ``node`` ends in a value that leads nowhere recorded.
    """

    node: Node
    path: list[Any]
    template: Template | None
    unseen: Any = None


def replay(root: Node) -> Replayed:
    """Replay from the root as far as the recording goes; the inputs have been placed."""
    node, steps = root, root.steps or []
    path: list[Any] = []
    clock = STEP_CLOCK.get()
    while True:
        for step in steps:
            if clock is None:
                step.replay()
            else:
                clock.run(node, step)
        if node.branch is None:
            return Replayed(node, path, node.template)
        value, parts = _go_on(node.branch) if clock is None else clock.read(node, node.branch)
        child = node.edges.get(value)
        if child is None or child.steps is None:
            return Replayed(node, path, None, value)
        if parts:
            for recorded, fresh in zip(child.arrivals, parts, strict=False):
                refill(recorded, fresh)
        path.append(value)
        node, steps = child, child.steps


def _go_on(branch: Branch) -> tuple[Any, Sequence[Any]]:
    """The edge along which a replay goes on, and for shapes the fresh results."""
    return branch.read() if branch.number is None else (branch.number.edge(), ())


def repeats(recording: Recording, backend: Backend) -> bool:
    """Whether a replay in which an operation raises has changed nothing, so the call can be made plainly.

    The callable may catch the error there. On a device that runs behind the host, no operation raises but
    those between two segments.
    """
    outside = recording.accesses.written or recording.accesses.writes or recording.gradients.effects
    pure = all(node.pure for node in recording.root.walk())
    return pure and not outside and (not backend.capabilities.asynchronous or bool(recording.islands()))


def takes_back(recording: Recording, error: BaseException) -> bool:
    """Undo a replay in which an operation raised; whether all that it did could be undone.

    The plain call raises there, too, behind all that stands before it in Python, and a handler may catch it.
    What ran between two segments is not undone, nor what stands behind a value that the host has read, nor
    what puts a little into something large.
    """
    if recording.acts or isinstance(error, InternalError) or not isinstance(error, Exception):
        return False
    done = list[Segment]()
    for step in recording.root.steps or ():
        if isinstance(step, ON_HOST):
            return False
        done.append(step)
        if step.raised and not any([segment.stays for segment in done]):
            for segment in reversed(done):
                segment.take_back()
            return True
    return False


def raised(
    recording: Recording, backend: Backend, error: BaseException, site: Site, *, undone: bool
) -> Reason:
    """Why a call is made plainly: an operation of its replay raised, as with an index out of range.

    Raises:
        BaseException: The error, where the call cannot be made again, or where it is a bug of rote.
    """
    again = undone or (isinstance(error, Exception) and repeats(recording, backend))
    if isinstance(error, InternalError) or not again:
        raise error
    text = f"an operation of a replay raised {type(error).__name__} ({error}), so the call was made plainly"
    return reason(rules.OPERATION_RAISES, text, site)


def result_of(
    template: Template,
    inputs: StaticInputs,
    call: Call,
    backward: Backward | None = None,
    counted: Counted = COUNTS_ALL,
    own: Own | None = None,
) -> Any:
    """Copy mutated inputs back and hand the result of a finished call out.

    Args:
        counted: The tensors whose version the call changes.
        own: The callable's own result, if it has just run.
    """
    if inputs.written:
        inputs.copy_back(call.leaves, counted)
    starts: dict[int, int] = {}
    if any(leaf.kind == INPUT_VIEW for leaf in template.leaves):
        starts = inputs.starts(call.leaves)
    attach = partial(backward.attach, call) if backward is not None else None
    return hand_out(template, call.leaves, starts, attach, call.branches, own)
