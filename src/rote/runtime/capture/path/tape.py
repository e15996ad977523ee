"""Turns captured operations into steps: segments of the backend's session, islands and branches.

A segment opens at the first operation that is captured, so that islands in a row have no empty segments
between them. It opens at a *checkpoint*: everything before has run. If the segment is refused, the call
starts again and follows up to the checkpoint, so no operation runs twice. The checkpoint keeps the storages
alive that the rest of the call may read. So later segments do not reuse their memory, without help from the
allocator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ....base import CaptureError, MemoryShortageError
from ....hazards import rules
from ...backends.protocol import Aliases, Backend, NumberCell, Session, holds, raw_call, replaced
from ...numbers import Computed
from ...operators import tensors_of
from ...program import Operation, results_of
from ...pytorch import plain_functions
from ...recording import (
    Branch,
    CapturedSegment,
    CapturedStretch,
    Island,
    KernelModes,
    Node,
    NumberBranch,
    Step,
)

if TYPE_CHECKING:
    from .cursor import Cursor


@dataclass
class Checkpoint:
    """A moment at which everything before had run."""

    node: Node
    index: int  # operations of the node that had run
    steps: int  # steps that it had
    held: dict[int, torch.UntypedStorage]  # alive at that moment
    depth: int  # branches passed


class RestartError(BaseException):
    """The open segment was refused: the call starts again and follows what has already run.

    No ``Exception``, so that the callable's own handlers let it through.
    """


class SegmentTape:
    """Collects the steps of the nodes being recorded.

    Attributes:
        executes: Whether operations have run when they are captured.
        is_open: Whether a segment is being captured right now.
    """

    def __init__(
        self, backend: Backend, session: Session, aliases: Aliases, make_room: Callable[[], None]
    ) -> None:
        self.session = session
        self.aliases = aliases
        self.shortage: str | None = None
        self.lost = False  # a segment was thrown away whose operations have not run
        self.is_open = False
        self._make_room: Callable[[], None] | None = make_room
        self.checkpoint: Checkpoint | None = None
        self.recorded: list[Node] = []
        self.failure: str | None = None
        self._backend = backend
        self.executes = backend.capabilities.executes_while_capturing
        self._steps: list[Step] = []
        self._captured: list[CapturedSegment] = []
        self._modes: dict[int, KernelModes] = {}  # of the operations in the open segment
        self._now: KernelModes | None = None  # most operations share one object

    def start(self, node: Node) -> None:
        """Begin to record a node from its first operation."""
        self._steps, self._captured = [], []
        if node not in self.recorded:
            self.recorded.append(node)

    def resume(self, node: Node) -> None:
        """Go on after the checkpoint of a refused segment."""
        point = self.checkpoint
        kept = self._steps[: point.steps] if point is not None and point.node is node else []
        captured = [each for each in self._captured if any([each.segment is step for step in kept])]
        self.start(node)
        self._steps, self._captured = kept, captured

    def capture(self, place: Cursor, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Put one operation into the open segment, opening one if there is none."""
        if not self.is_open:
            self._begin(place)
        if holds(Computed, args, kwargs):
            args, kwargs = replaced(Computed, "cell", args, kwargs)
        out = self.session.run(func, args, kwargs)
        now = KernelModes.now(tensors_of(args, kwargs))
        if now != self._now:
            self._now = now
        self._modes[place.index] = self._now or now
        return out

    def takes(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether an operation can be captured with the numbers that replays compute for it."""
        return self.session.takes(func, *replaced(Computed, "cell", args, kwargs))

    def fill(self, place: Cursor, storage: torch.UntypedStorage, nbytes: int) -> None:
        """Give a storage from outside memory of the recording, as operations have it in the open segment.

        What the callable asked for comes behind that, once more, and has such memory for the same reason.
        """
        self.capture_all(place)
        if not self.is_open:
            self._begin(place)
        try:
            place.quietly(partial(self.session.fill, storage, nbytes))
        except MemoryShortageError as error:
            self.shortage = str(error)
            raise RestartError(self.shortage) from None

    def capture_all(self, place: Cursor) -> None:
        """From now on not only operations are captured."""
        if not self.session.captures_all:
            self.close(place)
            self.session.capture_all()

    def _begin(self, place: Cursor) -> None:
        self.checkpoint = Checkpoint(
            place.node, place.index, len(self._steps), place.storages.alive(), len(place.nodes) - 1
        )
        known = place.node.operations
        numbers = any([each.computes for each in known[place.index :]])
        try:
            place.quietly(partial(self.session.begin, len(known), numbers=numbers))
        except BaseException:  # an interrupt may come when the capture has begun
            place.quietly(self.session.abort)
            raise
        self.is_open = True
        self._modes = {}

    def close(self, place: Cursor) -> None:
        """End the open segment; afterwards its results are in memory."""
        if not self.is_open:
            return
        self.is_open = False
        try:
            segment = place.quietly(self.session.end)  # replaying a graph with random numbers fills tensors
        except MemoryShortageError as error:
            self.shortage = str(error)
            raise RestartError(self.shortage) from None
        except CaptureError as error:
            self.failure = str(error)
            raise RestartError(self.failure) from None
        except BaseException:  # an interrupt may come before the capture has ended
            self.lost = self.session.capturing and not self.executes
            place.quietly(self.session.abort)
            raise
        if segment is not None:
            self._steps.append(segment)
            self._captured.append(CapturedSegment(segment, self._modes))

    def abort(self, place: Cursor) -> None:
        """Throw the open segment away."""
        if self.is_open:
            self.is_open = False
            self.lost = not self.executes
            place.quietly(self.session.abort)

    def make_room(self) -> bool:
        """Free memory for the recording; False if the call has done so before."""
        make_room, self._make_room = self._make_room, None
        if make_room is None:
            return False
        with plain_functions():
            make_room()
        return True

    def island(
        self,
        place: Cursor,
        operation: Operation,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        code: str,
        *,
        early: bool,
    ) -> Any:
        """Run an operation between two segments, or before the open one, at each replay as well."""
        if not early:
            self.close(place)
        kwargs = {**kwargs, "non_blocking": False} if kwargs.get("non_blocking") else kwargs
        func, operands = raw_call(func), tensors_of(args, kwargs)
        if holds(Computed, args, kwargs):
            args, kwargs = replaced(Computed, "cell", args, kwargs)
            func = partial(_with_numbers, func)
        with self.session.aside() if self.is_open else nullcontext():
            out = func(*args, **kwargs)
        parts = results_of(out)[1]
        again = kept_call(func, args, kwargs, self.aliases)
        results = [
            self.aliases.keep(part)
            if isinstance(part, torch.Tensor) and not any(part is o for o in operands)
            else None
            for part in parts
        ]

        def call() -> list[Any]:
            return results_of(again())[1]

        self._steps.append(Island(call, results, operation.name, operation.site, code))
        return out

    def receive(self, tensors: Iterable[torch.Tensor]) -> None:
        """The island that has just run is one that fills tensors from other processes."""
        island = self._steps[-1]
        if isinstance(island, Island):
            island.receives = [self.aliases.keep(each) for each in tensors]

    def prepare(self, step: Step) -> None:
        """Add a step that runs on the host before the open segment."""
        self._steps.append(step)

    def rebuild(
        self,
        place: Cursor,
        operation: Operation,
        now: Callable[[], torch.Tensor],
        again: Callable[[], torch.Tensor],
        *,
        is_written: bool,
    ) -> Any:
        """Build a tensor from host memory at each replay, behind the open segment if that may write it."""
        if is_written:
            self.close(place)
            self._backend.synchronize()
        tensor = now()
        code = rules.HOST_DATA.code
        self._steps.append(Island(lambda: [again()], [tensor.detach()], operation.name, operation.site, code))
        return tensor

    def branch(
        self,
        place: Cursor,
        operation: Operation,
        run: Callable[[], Any],
        code: str,
        again: Callable[[], Any],
    ) -> Any:
        """End the node at a host read; returns what was read.

        Args:
            again: Reads at a replay, and says along which edge that goes on.
        """
        self.close(place)
        self._backend.synchronize()
        out = run()
        self.end_node(place, Branch(again, operation.name, operation.site, code))
        return out

    def count(self, node: Node, number: NumberBranch) -> None:
        """What a node has read is a number that changes."""
        if node.branch is not None:
            node.branch = replace(node.branch, number=number)

    def end_node(self, place: Cursor, branch: Branch | None) -> None:
        """The node is recorded: give it its steps."""
        self.close(place)
        node = place.node
        node.steps = self._steps
        node.branch = branch
        node.held = place.storages.alive() if branch is not None else {}
        node.captured = CapturedStretch(tuple(self._captured), place.storages.references())
        self._steps, self._captured = [], []


class _IslandModes(NamedTuple):
    """What an operator outside of a segment looks at besides its operands, as the callable has set it.

    Grad mode is not among it, which costs a microsecond to set: no operand of an island requires grad.
    """

    inference: bool
    dtype: torch.dtype

    @classmethod
    def now(cls) -> _IslandModes:
        """Those of this thread."""
        return cls(torch.is_inference_mode_enabled(), torch.get_default_dtype())

    def run(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call a function in these modes."""
        dtype = torch.get_default_dtype()
        if dtype is self.dtype and torch.is_inference_mode_enabled() is self.inference:
            return func(*args, **kwargs)
        torch.set_default_dtype(self.dtype)
        try:
            with torch.inference_mode(self.inference):
                return func(*args, **kwargs)
        finally:
            torch.set_default_dtype(dtype)


def _with_numbers(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a function with the numbers that lie in cells now."""
    args, kwargs = replaced(NumberCell, "value", args, kwargs)
    return func(*args, **kwargs)


def kept_call(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], aliases: Aliases
) -> Callable[[], Any]:
    """An operation bound to aliases of its operands, so that later changes of their metadata do no harm.

    It runs in the modes of now, which the callable may have set itself.
    """
    kept = aliases.keep_all(args)
    kept_kwargs = {key: aliases.keep_all(value) for key, value in kwargs.items()}
    modes = _IslandModes.now()
    return lambda: modes.run(func, kept, kept_kwargs)
