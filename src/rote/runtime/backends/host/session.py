"""One recording in progress on the host.

Operations run when they are captured, in ordinary memory, and what is no operation of an open segment is not
seen. The rest is bookkeeping: refuse what CUDA would refuse, write down the others, and at the end give every
storage that died a place in the pool.

An operation without a kernel of its own (``linear`` in inference mode, where no autograd layer takes it
apart) runs under a mode that hands its parts back to :meth:`HostSession.run`. To record it whole would work,
but would hide host reads inside it.

``abort`` has nothing to restore: the aborted operations ran for real, so tensors and random number
generators are where the plain callable would have left them. What they made counts as foreign from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from itertools import chain
from typing import Any

import torch

from ....base import InternalError, MemoryShortageError
from ...operators import tensors_in
from ...pytorch import DispatchMode, leaves_lazy, resolve_lazily, undispatched, unseen_functions
from ..protocol import (
    OWNING,
    Aliases,
    KernelLaunch,
    NumberCell,
    Session,
    cells_of,
    check_apart,
    first_line,
    holds,
    is_shortage,
    replaced,
)
from .journal import Journal, is_dear, may_raise, touched
from .kernels import HostKernel
from .lowering import bound, lower
from .memory import HostMemory, idle_literals
from .operations import Catalog
from .pool import HostPool, Lease
from .program import Modes, ReplayStep
from .refusals import check_call, check_operation
from .segment import HostSegment, SessionState, SessionStep, after
from .storages import Block, SessionStorages
from .tape import Entry, LaunchEntry, Tape, look_at
from .torch_private import OpOverload, mode_counters

_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
_OPEN = SessionState.OPEN


class HostSession(Session):
    """A recording on CPU tensors. Used under the backend's lock."""

    def __init__(
        self,
        pool: HostPool,
        catalog: Catalog,
        aliases: Aliases = OWNING,
        *,
        exclusive: bool,
        tenant: Hashable = None,
    ) -> None:
        self._pool = pool
        self._catalog = catalog
        self._aliases = aliases
        self._exclusive = exclusive
        self._tenant = tenant
        self.state = SessionState.IDLE
        self._storages = SessionStorages()
        self._tape = self._new_tape()
        self._before = 0  # blocks, when the open segment began
        self._functions, self._dispatches = mode_counters
        self._segments: list[HostSegment] = []
        self._lease: Lease | None = None

    def _new_tape(self) -> Tape:
        return Tape(self._storages, self._aliases)

    def begin(self, expected: int | None = None, *, numbers: bool = False) -> None:
        """Open a segment."""
        del expected, numbers
        self.state = after(self.state, SessionStep.BEGIN)
        self._tape = self._new_tape()
        self._before = len(self._storages.blocks)

    def run(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one ATen operation, capture it into the open segment, and return what it returned.

        Where there was no memory for a result the segment stays open, and an operation that writes no operand
        may be tried again.
        """
        if self.state is not _OPEN:
            self.state = after(self.state, SessionStep.RUN)
        if type(func) is not OpOverload:
            check_operation(func)
        if leaves_lazy():  # then one would look like any other
            resolve_lazily()
        operation = self._catalog.operation(func)
        if operation.facts.hidden:
            return func(*args, **kwargs)
        operands = tensors_in(kwargs.values(), tensors_in(args, [])) if kwargs else tensors_in(args, [])
        # No mode and no subclass would see or change a look at these tensors.
        bare = not (self._functions() or self._dispatches()) and _PLAIN.issuperset(map(type, operands))
        noted, options = args, kwargs
        if holds(NumberCell, args, kwargs):
            if operation.composite is not None:
                raise InternalError(f"{func.name()} is taken apart, and has a number that changes")
            args, kwargs = replaced(NumberCell, "value", args, kwargs)
        check_call(operation, func, args, kwargs)
        given = look_at(func, operands) if bare else _unseen(look_at, func, operands)
        if operation.composite is not None:
            with _Parts(self):
                return operation.composite(*args, **kwargs)
        try:
            out = operation.call(*args, **kwargs)
        except (RuntimeError, MemoryError) as error:
            if is_shortage(error):
                raise MemoryShortageError(f"no memory for {func.name()}: {first_line(error)}") from error
            raise
        if noted is not args:
            bound(cells_of(noted, options), (*operands, *tensors_in([out], [])))
        if bare:
            self._tape.record(operation, noted, options, operands, given, out)
        else:
            _unseen(self._tape.record, operation, noted, options, operands, given, out)
        return out

    def takes(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Every operation takes its numbers when it runs."""
        return True

    def fill(self, storage: torch.UntypedStorage, nbytes: int) -> None:
        """Give memory to a storage from outside: it counts as made here."""
        storage.resize_(nbytes)
        self._storages.add(storage, self._storages.key(storage))

    def disown(self, storage: torch.UntypedStorage) -> None:
        """It is about to lose that memory."""
        self._storages.end(storage)

    def launch(self, launch: KernelLaunch) -> None:
        """Run a compiled kernel, and capture that into the open segment."""
        if self.state is not _OPEN:
            self.state = after(self.state, SessionStep.RUN)
        if not isinstance(launch.kernel, HostKernel):
            raise InternalError(
                f"kernel {launch.kernel.source.name} was not loaded by the backend of the host"
            )
        _unseen(self._launch, launch.kernel, launch)

    def _launch(self, kernel: HostKernel, launch: KernelLaunch) -> None:
        check_apart(launch)
        kernel(launch.tensors, launch.reals, launch.integers)
        self._tape.record_launch(kernel, launch)

    def end(self) -> HostSegment | None:
        """Close the open segment; None if it captured no operation."""
        self.state = after(self.state, SessionStep.END)
        entries, self._tape = self._tape.entries, self._new_tape()
        if not entries:
            return None
        segment = HostSegment(entries)
        self._segments.append(segment)
        return segment

    @property
    def capturing(self) -> bool:
        """Whether a segment is open."""
        return self.state is _OPEN

    def abort(self) -> None:
        """Throw the open segment away. Idempotent."""
        was, self.state = self.state, after(self.state, SessionStep.ABORT)
        if was is _OPEN:
            self._tape = self._new_tape()
            self._storages.forget(self._before)

    def finish(self) -> None:
        """Freeze the recording.

        Raises:
            CaptureError: A storage that is still held was shrunk behind the operations that use it.
            RuntimeError: There is no memory for a chunk; nothing changed, so it may be tried again.
        """
        following = after(self.state, SessionStep.FINISH)
        with torch.inference_mode(False), unseen_functions(), undispatched():
            self._storages.settle()
            entries = list(chain.from_iterable(segment.entries for segment in self._segments))
            constants = idle_literals(entries)
            memory = HostMemory(self._storages.blocks, constants)
            self._lease = memory.bind(self._pool, exclusive=self._exclusive, tenant=self._tenant)
            self._freeze(memory, constants)
        self._storages.close()
        self.state = following

    def _freeze(self, memory: HostMemory, constants: Mapping[Block, torch.Tensor]) -> None:
        """Give each segment its steps. What stands before one that may raise can be taken back."""
        later = False
        for segment in reversed(self._segments):
            kept = [each for each in segment.entries if not _is_constant(each, constants)]
            steps = [(each.modes, lower(each, memory.tensor)) for each in kept]
            raising = [place for place, each in enumerate(kept, 1) if may_raise(each)]
            end = len(kept) if later else max(raising, default=0)
            journal = Journal() if end else None
            if journal is not None:
                for place, entry in enumerate(kept[:end]):
                    steps[place] = _undone(journal, entry, steps[place], memory)
            segment.freeze(steps, [each.name for each in kept], journal, keeps=later)
            later = later or bool(raising)

    def regions(self) -> tuple[Hashable, ...]:
        """The chunk, and what is kept beside it."""
        return tuple(self._lease.regions()) if self._lease is not None else ()

    def release(self) -> None:
        """Give all memory of the recording back. Idempotent."""
        self.state = after(self.state, SessionStep.RELEASE)
        for segment in self._segments:
            segment.release()
        self._segments.clear()
        self._tape = self._new_tape()
        self._storages.close()
        if self._lease is not None:
            self._pool.give_back(self._lease)
            self._lease = None


def _unseen(call: Callable[..., Any], *args: Any) -> Any:
    """Look at tensors in a way that no mode and no subclass sees or changes."""
    with unseen_functions(), undispatched():
        return call(*args)


def _undone(
    journal: Journal, entry: Entry, step: tuple[Modes, ReplayStep], memory: HostMemory
) -> tuple[Modes, ReplayStep]:
    """A step that can be taken back."""
    outside, shown, generators = touched(entry)
    modes, call = step
    tensors = [*outside, *map(memory.tensor, shown)]
    if is_dear(entry, call, tensors):
        return modes, journal.without(call)
    return modes, journal.before(call, modes, tensors, generators)


def _is_constant(entry: Entry, constants: Mapping[Block, torch.Tensor]) -> bool:
    if isinstance(entry, LaunchEntry):
        return False
    return entry.literal is not None and entry.products[0].place.block in constants


class _Parts(DispatchMode):
    """Hands the parts of a composite operation back to the session."""

    def __init__(self, session: HostSession) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self._session = session

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        resolve_lazily()
        return self._session.run(func, args, kwargs or {})
