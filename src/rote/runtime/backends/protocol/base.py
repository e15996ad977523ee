"""What the runtime asks of a device: sessions that capture segments, and segments that replay.

A *session* is one recording in progress on one device. Between :meth:`Session.begin` and
:meth:`Session.end` every operation handed to :meth:`Session.run` becomes part of a *segment*.
After ``end`` has returned, the memory of every tensor that the segment wrote holds the values that the plain
operations would have written, and :meth:`Segment.replay` writes them to the same addresses again, from
whatever its inputs then hold. Operations that run between two segments (islands) are not shown to the
session: they run on the session's stream, in ordinary memory.

The protocol knows nothing of calls, keys or guards. Where a device cannot imitate CUDA it says so in
:class:`Capabilities`, never by ``isinstance``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from math import isfinite
from time import thread_time
from typing import Any, NamedTuple, Protocol, cast

import torch

from ....base import MemoryShortageError, Site
from ...compiling import Binary
from ...operators import CapturedAlone
from .aliases import OWNING, Aliases
from .kernels import KernelLaunch, LoadedKernel


class Magnitudes(NamedTuple):
    """A range of the magnitudes of numbers.

    Attributes:
        endless: Infinities and NaN are among them.
    """

    smallest: float
    largest: float
    endless: bool = False

    def have(self, value: Any) -> bool:
        """Whether a number is one of them."""
        return self.smallest <= abs(value) <= self.largest or (self.endless and not isfinite(value))

    def shared_with(self, other: Magnitudes) -> Magnitudes:
        """What is in both ranges."""
        smallest, largest = max(self.smallest, other.smallest), min(self.largest, other.largest)
        return Magnitudes(smallest, largest, self.endless and other.endless)


class NumberCell:
    """Where the replays of a segment find a number.

    It stands for the number among the operands that :meth:`.Session.run` is given, or in a list of numbers
    there, where the session takes it (:meth:`.Session.takes`), and among those of an operation that runs
    between two segments. The operation takes the number that lies here when it runs.
    """

    __slots__ = ("_bound", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self._bound: Magnitudes | None = None

    def hold(self, value: Any) -> None:
        """A call that is no replay has another number."""
        self.value = value

    def fill(self, value: Any) -> None:
        """The next replay has another number, of the same type.

        Raises:
            OverflowError: It is not a number that replays can have.
        """
        if self._bound is not None and not self._bound.have(value):
            raise OverflowError(f"{value!r} is out of range: replays have numbers of {self._bound}")
        self.value = value

    def bound(self, known: Magnitudes) -> None:
        """Replays have numbers of these magnitudes alone."""
        self._bound = known if self._bound is None else self._bound.shared_with(known)

    def __repr__(self) -> str:
        return f"{self.value!r}, for now"


def holds(kind: type, args: Iterable[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether an operand, or a member of a list among the operands, is of a kind."""
    return any([
        type(each) is kind or (type(each) is list and any([type(part) is kind for part in each]))
        for each in (*args, *kwargs.values())
    ])  # fmt: skip


def cells_of(args: Iterable[Any], kwargs: Mapping[str, Any]) -> list[NumberCell]:
    """The cells among operands, those in lists as well."""
    opened = [
        part
        for each in (*args, *kwargs.values())
        for part in (cast("list[Any]", each) if type(each) is list else [each])
    ]
    return [each for each in opened if type(each) is NumberCell]


def replaced(
    kind: type, name: str, args: Iterable[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Operands with an attribute of each that is of a kind in its place, in lists as well."""

    def other(operand: Any) -> Any:
        if type(operand) is list:
            return [getattr(each, name) if type(each) is kind else each for each in operand]
        return getattr(operand, name) if type(operand) is kind else operand

    return tuple([other(each) for each in args]), {key: other(each) for key, each in kwargs.items()}


class Timing:
    """What one call costs, from its making on. This one is for a device that queues nothing.

    Its time is that of the thread: what else runs on the machine would be taken for a part of the call.
    """

    __slots__ = ("_seconds", "_start")

    def __init__(self, spent: float = 0.0) -> None:
        self._seconds = 0.0
        self._start = thread_time() - spent

    def stop(self) -> None:
        """The call has returned. Does not wait for the device."""
        self._seconds = max(thread_time() - self._start, 0.0)

    def seconds(self) -> float | None:
        """The larger of the host's time and the device's; None while the device is not done.

        The device's is the time from the end of the work queued before the call to the end of its own.
        """
        return self._seconds


@dataclass(frozen=True)
class Capabilities:
    """What a backend's device can do.

    Attributes:
        asynchronous: Work is queued on streams; a host read has to wait for the device.
        executes_while_capturing: Operations run when they are captured (host), not when the segment ends
            (CUDA).
    """

    asynchronous: bool
    executes_while_capturing: bool


@dataclass(frozen=True)
class Sharing:
    """With which other recordings one shares memory.

    Attributes:
        tenant: Only recordings of one tenant share memory.
        slab: Bytes from which a shared region takes no more recordings, where memory can only be given back
            by the region; None for no bound.
        demand: Bytes that the recording is expected to need.
    """

    tenant: Hashable = None
    slab: int | None = None
    demand: int = 0

    @property
    def too_large(self) -> bool:
        """Whether the recording would fill a slab by itself."""
        return self.slab is not None and self.demand > self.slab


SHARED = Sharing()
"""Memory is shared with every other recording of the process."""


Launch = Callable[[int], int]
"""Runs a segment on the current stream, given what :meth:`Backend.enter_call` returned. Anything but 0
says that the device refused, and nothing has run."""


class CopyingSegment(Protocol):
    """A segment that may copy a caller's tensors in before it runs, and results out when it has run."""

    @property
    def inputs(self) -> int:
        """The number of copies before: those asked for, or none."""
        ...

    @property
    def outputs(self) -> Sequence[Callable[[], torch.Tensor]]:
        """Of each copy behind what makes a tensor for the caller: those asked for, or none."""
        ...

    @property
    def known(self) -> MutableMapping[tuple[int, ...], Launch]:
        """What launches it with the caller's tensors at some addresses: inputs, then outputs.

        Some may be taken out of it: they are aimed at again.
        """
        ...

    def aim(self, addresses: tuple[int, ...]) -> Launch | None:
        """What launches it with the caller's tensors at other addresses; None if the device refused.

        What others have been given for other addresses may not be used any more; :attr:`known` says which.
        """
        ...


class Segment(Protocol):
    """A run of captured operations with fixed addresses."""

    operations: int

    def replay(self) -> None:
        """Run the operations again, on the current stream, into the same memory."""

    @property
    def raised(self) -> bool:
        """Whether an operation raised in its last replay, which :meth:`take_back` can undo."""
        return False

    @property
    def stays(self) -> bool:
        """Whether its last replay has done what is not undone."""
        return False

    def take_back(self) -> None:
        """Undo its last replay, as far as others than the recording see it: memory, random generators."""

    def replay_timed(self) -> list[tuple[str, float]]:
        """:meth:`replay`, with name and seconds of each operation; none where the device runs them as one."""
        ...

    def with_copies(
        self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
    ) -> CopyingSegment | None:
        """The segment with copies as a part of it; None if the device has only :meth:`replay`.

        Args:
            inputs: Tensors to be filled, dense and not empty, on the device.
            outputs: Tensors to be copied, likewise.
        """
        return None


class Session(Protocol):
    """One recording in progress. Not reentrant, used under the backend's lock.

    What it has to say of streams here is right where nothing is queued.
    """

    def begin(self, expected: int | None = None, *, numbers: bool = False) -> None:
        """Open a segment, of at most so many operations if that is known.

        Args:
            numbers: Some of them may have numbers that change.
        """

    def expect(self, collective: CapturedCollective) -> None:
        """A collective is about to be captured."""

    def run(self, func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Capture one ATen operation into the open segment and return its output tensors.

        Raises:
            CaptureError: The device refused the operation. The open segment is lost; call ``abort``.
            MemoryShortageError: There was no memory for it.
        """
        ...

    def takes(self, func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether :meth:`run` takes an operation with :class:`NumberCell` among its operands."""
        return False

    def fill(self, storage: torch.UntypedStorage, nbytes: int) -> None:
        """Give memory to a storage from outside: it counts as made here. A segment is open, and captures all.

        Raises:
            MemoryShortageError: There was no memory for it.
        """

    def disown(self, storage: torch.UntypedStorage) -> None:
        """A storage is about to lose its memory; does nothing if that was not made here."""

    def launch(self, launch: KernelLaunch) -> None:
        """Capture a launch of a compiled kernel into the open segment; the kernel is held until the release.

        Raises:
            CaptureError: The device refused the launch. The open segment is lost; call ``abort``.
            MemoryShortageError: There was no memory for it.
            InternalError: The tensors or numbers are not those of the kernel; nothing was launched.
        """
        ...

    def end(self) -> Segment | None:
        """Close the open segment, whose results are in memory then; None if it captured no operation.

        Raises:
            CaptureError: The device refused the segment as a whole; everything was restored.
            MemoryShortageError: There was no memory for it as a whole; it has not run.
        """
        ...

    @property
    def capturing(self) -> bool:
        """Whether a segment is open."""
        return False

    def abort(self) -> None:
        """Throw the open segment away and restore stream, random state and allocator. Idempotent."""

    def finish(self) -> None:
        """Freeze the recording. Its segments must not be replayed before.

        Storages made in the session that are still alive keep the memory they have; the memory of
        the others is planned and may be shared with other recordings of the same pool.
        """

    def regions(self) -> tuple[Hashable, ...]:
        """The regions of memory that the recording lies in; see :meth:`Backend.regions`."""
        return ()

    def release(self) -> None:
        """Give all memory of the recording back. Its segments must not be replayed again. Idempotent."""

    def let_go(self, storages: Iterable[torch.UntypedStorage]) -> None:
        """It was released without a replay: storages of the call that live on get memory of their own.

        Where a pool is shared they may lie in memory that other recordings write.
        """

    def stream(self, *, operations_alone: bool = False) -> AbstractContextManager[Any]:
        """The context in which the callable runs while the session is open.

        Args:
            operations_alone: On a GPU, the callable stays on the stream of its caller, and operations alone
                are captured. Otherwise it runs on the stream that is captured, with all that it launches.
        """
        return nullcontext()

    @property
    def captures_all(self) -> bool:
        """Whether all is captured that the callable launches, and not operations alone."""
        return True

    def capture_all(self) -> None:
        """From now on all is. No segment is open."""

    def come_home(self) -> AbstractContextManager[Any] | None:
        """What an operation of that callable runs in, if another stream than the call's is current."""
        return None

    def aside(self) -> AbstractContextManager[Any]:
        """A context in which operations run at once although a segment is open."""
        return nullcontext()

    def fork(self) -> AbstractContextManager[Any]:
        """A context whose operations may run while those captured behind it run, up to :meth:`join`.

        No memory that either of them uses may be given back before that.
        """
        return nullcontext()

    def join(self) -> None:
        """What is captured from now on runs after what was captured in :meth:`fork`."""


@dataclass(frozen=True)
class CapturedCollective:
    """A collective in a segment, in which a replay may wait for other ranks.

    Attributes:
        limit_s: The time limit of its group.
        rank: Of this process, among all.
    """

    name: str
    site: Site
    limit_s: float
    rank: int


class OwnStreams:
    """The streams and events that a traced call uses besides the current stream: none, on the host."""

    def leaves_event(self) -> bool:
        """Whether an event is still alive that the call has recorded."""
        return False


class Lock(AbstractContextManager[Any], Protocol):
    """A reentrant lock."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock, or say that somebody else has it."""
        ...

    def release(self) -> None:
        """Give it back."""


def _nothing() -> None:
    """A segment without operations does nothing."""


class Backend:
    """A device on which sessions can be opened. What it has to say here is right where nothing is queued.

    Attributes:
        name: ``"host"`` or ``"cuda"``.
        device: The device whose operations are captured.
        lock: Held from the first guard of a call until its outputs are handed out.
        tracing: A callable runs under observation on some thread; others run theirs plainly instead of
            waiting.
        entered: The stream, by its handle, for which :meth:`enter_call` has nothing to do; None if it has.
        current_stream: Reads the handle of the current stream; None where there are none, so nothing to
            order.
    """

    name: str
    capabilities: Capabilities

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.lock: Lock = threading.RLock()
        self.tracing = False
        self.entered: int | None = 0
        self.current_stream: Callable[[], int] | None = None

    def open(
        self,
        *,
        exclusive: bool,
        generators: tuple[torch.Generator, ...] = (),
        sharing: Sharing = SHARED,
        aliases: Aliases = OWNING,
    ) -> Session:
        """Start a recording.

        Args:
            exclusive: Give the recording memory that no other recording writes. Needed when values
                in it must outlive the call (gradients left in ``.grad``).
            generators: Generators, besides the default one, that the callable draws from.
            sharing: With which recordings memory is shared, if not ``exclusive``.
            aliases: How the recording holds tensors that it did not make.
        """
        raise NotImplementedError

    @contextmanager
    def alone(
        self, func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Generator[CapturedAlone]:
        """An operation in a segment of its own, which has run once, for as long as the context is open.

        Raises:
            CaptureError: The device refused it.
            MemoryShortageError: There was no memory for it.
        """
        session = self.open(exclusive=True)
        try:
            session.begin()
            results = session.run(func, args, kwargs)
            segment = session.end()
            session.finish()
            yield CapturedAlone(results, segment.replay if segment is not None else _nothing)
        finally:
            session.release()

    def load(self, binary: Binary) -> LoadedKernel:
        """Make a compiled kernel ready to run on this device. It is unloaded with its last holder.

        Raises:
            EnvironmentError_: It cannot be loaded here.
            InternalError: It was compiled for another device.
        """
        raise NotImplementedError

    def generator(self) -> torch.Generator:
        """The generator from which operations on the device draw that are given none."""
        return torch.default_generator

    def synchronize(self) -> None:
        """Wait for the work queued on the current stream."""

    def start_timing(self, spent: float = 0.0) -> Timing:
        """Time a call that begins now, and for which the host has taken some seconds already."""
        return Timing(spent)

    def is_capturing(self) -> bool:
        """Whether somebody else captures the current stream."""
        return False

    def free_memory(self) -> int | None:
        """Bytes that the device has left for anybody; None if it is not asked: the system makes room."""
        return None

    def check_process(self) -> None:
        """Called once in a process that was forked.

        Raises:
            EnvironmentError_: The device does not work there.
        """

    def enter_call(self) -> int:
        """Order this call after the last replay on the device, whatever stream that used.

        Returns:
            A handle of the current stream; 0 where there are none: the lock keeps calls apart.
        """
        return 0

    def leave_call(self) -> None:
        """The work of this call has been queued."""

    def call_streams(self, *, recorded: bool) -> AbstractContextManager[OwnStreams]:
        """The context of a traced call, outside of that of its session.

        Args:
            recorded: The call has a session.
        """
        return nullcontext(OwnStreams())

    def regions(self) -> Mapping[Hashable, int]:
        """Bytes of each region of pool memory that live recordings hold.

        A region is memory that is given back as a whole, when the last recording in it is released.
        """
        raise NotImplementedError

    def bytes_held(self) -> int:
        """Bytes of pool memory held by live recordings (shared memory counted once)."""
        return sum(self.regions().values())

    def trim(self) -> None:
        """Give memory that no recording needs any more back to the device. May be slow."""


@contextmanager
def unwaited(backend: Backend) -> Generator[None]:
    """While the callable runs, other threads do not wait for the backend's lock."""
    before, backend.tracing = backend.tracing, True
    try:
        yield
    finally:
        backend.tracing = before


_TEXTS = (
    "can't allocate memory",
    "cuda error: out of memory",
    "cuda out of memory",
    "cublas_status_alloc_failed",
)


def is_shortage(error: BaseException) -> bool:
    """Whether an allocation failed: an error of its own, or a ``RuntimeError`` with a known text."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError, MemoryShortageError)):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error).lower() for text in _TEXTS)


def first_line(error: BaseException) -> str:
    """The first line of an exception's text; its class if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
