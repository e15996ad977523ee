"""Captures segments as CUDA graphs, on one side stream and in *relaxed* mode.

``docs/design.md`` says what a failed capture leaves behind in PyTorch, and what is done about it.

Out of memory during a capture comes as an ``OutOfMemoryError`` from an operation (while a capture is open the
allocator gives no cached memory back, so this happens earlier than in eager), or as a ``RuntimeError`` from
instantiating or first launching the graph. It may also show as an invalidated capture, if the allocator tried
``cudaFree`` (seen in PyTorch's issue tracker, #159594); then it cannot be told from other refusals.

A recording has no warm-up of its own. The call was observed before, so kernels are loaded, algorithms chosen
and code compiled; what belongs to a stream is shared by all recordings of a device, because they are captured
on one side stream and by whoever holds the backend's lock: the handles of the libraries, and the workspace
that a matrix product uses there, whose address is in every later graph. That is safe, since calls take turns:
a replay on another stream waits for the last one (:meth:`~.stream.Streams.enter_call`).

The device is waited for where something needs it and nowhere else: before the host reads a value
(:meth:`.CudaBackend.synchronize`), after an operation beside an open capture, and before graphs are
destroyed. Neither the collector nor the allocator's cache is emptied before a capture, as
``torch.cuda.graph`` does: a full collection takes 65 ms in a process that has done no more than import
PyTorch, and a pool that needs memory takes it from the device while it captures.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Sequence
from contextlib import AbstractContextManager
from ctypes import c_void_p
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from ....base import CaptureError, EnvironmentError_, InternalError, MemoryShortageError
from ...pytorch import stop_routing, undispatched, unseen_functions
from ..protocol import (
    CapturedCollective,
    CopyingSegment,
    KernelLaunch,
    NumberCell,
    cells_of,
    check_apart,
    first_line,
    holds,
    is_shortage,
    raw_call,
    replaced,
)
from .graphs import (
    MOST_OPERATIONS,
    NO_CONTEXT,
    OUT_OF_MEMORY,
    CopyingGraph,
    DriverError,
    KnownWords,
    PatchedInstance,
    PatchedKernel,
    PlainGraph,
    Round,
    driver,
    find_words,
    known_driver,
    launched_between,
    launcher,
    roles_of,
)
from .kernel import CudaKernel
from .pool import Pool

if TYPE_CHECKING:
    from .backend import CudaBackend

States = list[tuple[torch.Generator, torch.Tensor]]
"""Generators and what they were set to."""

_RELEASED = "a segment was replayed after its recording had been released"
_EMPTY = "The CUDA Graph is empty"
_NOTES_STREAM = torch.ops.aten.record_stream.default


@dataclass(frozen=True)
class TriedOperation:
    """An operation with numbers, and where they are in its kernels, if that is known."""

    func: Any
    cells: Sequence[NumberCell]
    words: KnownWords | None

    def is_of(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether an operation is this one."""
        cells = cells_of(args, kwargs)
        return func is self.func and list(map(id, cells)) == list(map(id, self.cells))


class CudaSegment:
    """One instantiated CUDA graph; ``random`` if it draws random numbers."""

    raised = stays = False  # no operation raises in a graph

    def __init__(
        self,
        graph: torch.cuda.CUDAGraph,
        operations: int,
        device: torch.device,
        numbered: Sequence[PatchedKernel],
        *,
        kept: bool,
    ) -> None:
        self.operations = operations
        self._graph: torch.cuda.CUDAGraph | None = graph
        self._device = device
        self._kept = kept
        self._wanted: Any = None
        self._launcher: CopyingGraph | PlainGraph | None = None
        self._numbers: PatchedInstance | None = None
        self.replay = graph.replay
        if numbered:
            self._numbers = PatchedInstance(
                known_driver(), c_void_p(int(graph.raw_cuda_graph_exec())), numbered
            )
            self.replay = self._replay_with_numbers
        self.random = False

    def _replay_with_numbers(self) -> None:
        numbers, graph = self._numbers, self._graph
        if numbers is None or graph is None:
            raise InternalError(_RELEASED)
        status = numbers.set()
        if status == NO_CONTEXT:
            torch.cuda.mem_get_info(self._device)  # makes one, and is allowed beside any capture
            status = numbers.set()
        if status:
            raise EnvironmentError_(f"the driver refused a number in a graph: it returned {status}")
        graph.replay()

    def replay_timed(self) -> list[tuple[str, float]]:
        """Launch the graph; nobody sees its nodes one by one."""
        self.replay()
        return []

    def take_back(self) -> None:
        """Nothing is undone on a device."""

    def with_copies(
        self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
    ) -> CopyingSegment | None:
        """The segment with copies as nodes of its graph, where there can be such; see :mod:`.nodes`."""
        if self._graph is None or self.random or torch.cuda.current_device() != self._device.index:
            return None
        wanted = ([_place(tensor) for tensor in inputs], [_place(tensor) for tensor in outputs])
        if self._launcher is None:
            kept, self._kept = self._kept, False  # from now on it is not what was captured
            self._wanted = wanted
            self._launcher = launcher(self._graph, self._device, inputs, outputs, self._numbers, kept=kept)
        return self._launcher if wanted == self._wanted else None

    def release(self) -> None:
        """Destroy the graph."""
        if self._launcher is not None:
            self._launcher.release()
            self._launcher = None
        if self._graph is not None:
            self._graph.reset()
            self._graph = self._numbers = None
            self.replay = _released


def _released() -> None:
    raise InternalError(_RELEASED)


class CudaSession:
    """One recording in progress on a CUDA device."""

    def __init__(self, backend: CudaBackend, pool: Pool, generators: tuple[torch.Generator, ...]) -> None:
        self.pool = pool
        self.pools = [pool]
        self._backend = backend
        self._idle: list[torch.cuda.CUDAGraph] = []  # empty or aborted; they keep the pool's handle valid
        self._generators = generators
        self._segments: list[CudaSegment] = []
        self._kernels: set[CudaKernel] = set()  # those that the graphs launch stay loaded
        self._graph: torch.cuda.CUDAGraph | None = None
        self._operations = 0
        self._small = self._keeps = False
        self._numbered: list[PatchedKernel] = []
        self._tried: TriedOperation | None = None
        self._random: States = []

    # ------------------------------------------------------------------ segments

    def begin(self, expected: int | None = None, *, numbers: bool = False) -> None:
        """Open a segment; one that is known to be small, or has numbers, is kept as it was captured."""
        if self._graph is not None:
            raise InternalError("a segment is already open")
        default = torch.cuda.default_generators[self._backend.index]
        self._random = [(found, found.get_state()) for found in (default, *self._generators)]
        self._small = expected is not None and expected <= MOST_OPERATIONS and driver() is not None
        self._keeps = self._small or (numbers and driver() is not None)
        self._numbered = []
        graph = torch.cuda.CUDAGraph(keep_graph=self._keeps)
        for generator in self._generators:
            graph.register_generator_state(generator)
        self._operations = 0
        with self._backend.streams.switch():
            graph.capture_begin(pool=self.pool.handle, capture_error_mode="relaxed")
        self._graph = graph
        self._backend.capturing = True

    def expect(self, collective: CapturedCollective) -> None:
        """A collective is about to be captured."""
        self._backend.expect(self, collective)

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Capture one operation."""
        if self._graph is None:
            raise InternalError("an operation was captured with no segment open")
        if func is _NOTES_STREAM:  # one stream reads captured memory; noted for another, it is never reused
            return None
        try:
            with self._backend.streams.switch():
                if holds(NumberCell, args, kwargs):
                    out = self._run_with_numbers(func, args, kwargs)
                else:
                    out = raw_call(func)(*args, **kwargs)
        except (RuntimeError, MemoryError) as error:
            if is_shortage(error):
                raise MemoryShortageError(f"no memory for {_name(func)}: {first_line(error)}") from error
            if is_refusal(error):
                raise CaptureError(f"{_name(func)} cannot be captured: {first_line(error)}") from error
            raise
        except DriverError as error:
            raise CaptureError(f"{_name(func)} cannot be captured with numbers: {error}") from error
        self._operations += 1
        return out

    def _run_with_numbers(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Capture an operation whose kernels have numbers that change.

        Raises:
            DriverError: Where they have them is not known.
        """
        tried, self._tried = self._tried, None
        if tried is not None and tried.is_of(func, args, kwargs):
            known = tried.words
        else:
            known = self._words(func, args, kwargs)
        if known is None or not self._keeps:
            raise DriverError("where they are in its kernels is not known")
        api, stream = known_driver(), self._backend.streams.current()
        args, kwargs = replaced(NumberCell, "value", args, kwargs)
        before = api.last_captured(stream)
        out = raw_call(func)(*args, **kwargs)
        launched = launched_between(api, before, api.last_captured(stream))
        self._numbered += known.in_graph(launched)
        return out

    def takes(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether it is known where the numbers of an operation are in its kernels."""
        if self._graph is not None and not self._keeps:
            return False
        self._tried = TriedOperation(func, cells_of(args, kwargs), self._words(func, args, kwargs))
        return self._tried.words is not None

    def _words(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> KnownWords | None:
        roles, api = roles_of(func, args, kwargs), driver()
        if roles is None or api is None:
            return None
        with unseen_functions(), undispatched(), self._backend.streams.tried() as stream:
            return find_words(api, stream, partial(_called_with, func, args, kwargs), roles)

    def fill(self, storage: torch.UntypedStorage, nbytes: int) -> None:
        """Give a storage memory of the pool, where the allocator looks while a segment is open."""
        if self._graph is None or not self.captures_all:
            raise InternalError("a storage was given memory beside a capture")
        try:
            storage.resize_(nbytes)
        except RuntimeError as error:
            if is_shortage(error):
                raise MemoryShortageError(f"no memory for a storage: {first_line(error)}") from error
            raise

    def disown(self, storage: torch.UntypedStorage) -> None:
        """The allocator takes it back."""

    def launch(self, launch: KernelLaunch) -> None:
        """Capture a launch of a compiled kernel."""
        kernel = launch.kernel
        if self._graph is None:
            raise InternalError("a kernel was captured with no segment open")
        if not isinstance(kernel, CudaKernel) or kernel.device != self._backend.device:
            raise InternalError(f"kernel {kernel.source.name} was not loaded by the backend of the device")
        self._kernels.add(kernel)
        try:
            # Tensors are only looked at.
            with unseen_functions(), undispatched(), self._backend.streams.switch():
                check_apart(launch)
                kernel.run(launch.tensors, launch.reals, launch.integers)
        except DriverError as error:
            refusal = MemoryShortageError if error.status == OUT_OF_MEMORY else CaptureError
            raise refusal(f"kernel {kernel.source.name} cannot be captured: {error}") from error
        self._operations += 1

    def end(self) -> CudaSegment | None:
        """Close the segment and run it once, so that its results are in memory."""
        graph = self._graph
        if graph is None:
            raise InternalError("no segment is open")
        try:
            with warnings.catch_warnings(record=True) as caught, self._backend.streams.switch():
                warnings.simplefilter("always")
                graph.capture_end()
        except RuntimeError as error:
            self._recover(error)
            raise _refused(error) from error
        self._close()
        random, self._random = self._random, []
        if any(_EMPTY in str(warning.message) for warning in caught):
            self._idle.append(graph)
            return None
        try:
            if self._keeps:  # otherwise it was instantiated when the capture ended
                graph.instantiate()
        except RuntimeError as error:
            self._discard(graph, random)
            raise _refused(error) from error
        segment = CudaSegment(graph, self._operations, self._backend.device, self._numbered, kept=self._small)
        try:
            segment.random = self._run_first(segment)
        except RuntimeError as error:  # the first launch takes memory of its own on the device
            if not is_shortage(error):
                raise
            self._discard(graph, random)
            raise MemoryShortageError(f"the segment was not launched: {first_line(error)}") from error
        self._segments.append(segment)
        return segment

    def _run_first(self, segment: CudaSegment) -> bool:
        """Launch what was captured; returns whether that used up random numbers."""
        generators = (torch.cuda.default_generators[self._backend.index], *self._generators)
        before = [generator.get_offset() for generator in generators]
        with self._backend.streams.at_home():
            segment.replay()
        return before != [generator.get_offset() for generator in generators]

    def _discard(self, graph: torch.cuda.CUDAGraph, random: States) -> None:
        """The capture has ended well, but its graph is not used."""
        self._idle.append(graph)
        self._restore(random)

    @property
    def capturing(self) -> bool:
        """Whether a segment is open."""
        return self._graph is not None

    def abort(self) -> None:
        """Throw the open segment away. Idempotent."""
        graph = self._graph
        if graph is None:
            return
        try:
            with warnings.catch_warnings(), self._backend.streams.switch():
                warnings.simplefilter("ignore")
                graph.capture_end()
        except RuntimeError as error:
            self._recover(error)
            return
        self._close()
        self._discard(graph, self._random)

    def _close(self) -> None:
        self._graph = None
        self._backend.capturing = False

    def _recover(self, error: BaseException) -> None:
        """The capture could not be ended: restore what PyTorch left in between."""
        self._close()
        stop_routing(self._backend.index, self.pool.handle)
        if is_shortage(error):
            torch.cuda.empty_cache()  # what follows captures, and takes a little memory for it
        self.pool = self._backend.replace_pool(self.pool)
        self.pools.append(self.pool)
        self._backend.repair_generators(self._generators)
        self._restore(self._random)

    def _restore(self, random: States) -> None:
        for generator, state in random:
            generator.set_state(state)
        self._random = []

    # ------------------------------------------------------------------ the whole recording

    def finish(self) -> None:
        """Nothing to do: graphs were instantiated when their segments ended."""

    def regions(self) -> tuple[Hashable, ...]:
        """The pools captured into."""
        return tuple(tuple(pool.handle) for pool in self.pools)

    def release(self) -> None:
        """Destroy the graphs, which gives their memory back to the pool. Idempotent.

        Garbage collection may call this on any thread and in the middle of another capture, which destroying
        a graph would spoil; then it happens at the next call on the device.
        """
        if self._graph is not None:
            self.abort()
        if not self._backend.begin_release():
            self._backend.release_later(self)
            return
        try:
            self._destroy()
        finally:
            self._backend.lock.release()

    def _destroy(self) -> None:
        if self._segments:  # what they write is given back to the pool, and may still be written by a replay
            torch.cuda.synchronize(self._backend.device)
        for segment in self._segments:
            segment.release()
        for graph in self._idle:
            graph.reset()
        self._segments, self._idle = [], []
        self._kernels.clear()
        self._backend.forget(self)

    def let_go(self, storages: Iterable[torch.UntypedStorage]) -> None:
        """Move what has been captured out of the pool.

        The allocator gives the memory of a living tensor to no later capture. Earlier ones may have had it,
        for a tensor that has died since, and their replays write it.
        """
        with unseen_functions(), undispatched():
            for storage in storages:
                if storage.device == self._backend.device and storage.resizable() and storage.nbytes():
                    kept = storage.clone()
                    storage.resize_(0)
                    storage.resize_(kept.nbytes())
                    storage.copy_(kept)

    def stream(self, *, operations_alone: bool = False) -> AbstractContextManager[Any]:
        """The stream that is captured, or that of the caller."""
        return self._backend.streams.recording(operations_alone=operations_alone)

    @property
    def captures_all(self) -> bool:
        """Whether that is the stream that is captured."""
        return self._backend.streams.captures_all

    def capture_all(self) -> None:
        """From now on that is the stream that is captured."""
        self._backend.streams.capture_all()

    def come_home(self) -> AbstractContextManager[Any] | None:
        """That stream, for an operation for which another one is current."""
        return self._backend.streams.come_home()

    def aside(self) -> AbstractContextManager[Any]:
        """A stream beside the one being captured."""
        return self._backend.streams.beside()

    def fork(self) -> AbstractContextManager[Any]:
        """Another stream that is captured."""
        return self._backend.streams.fork()

    def join(self) -> None:
        """The stream being captured follows that one."""
        self._backend.streams.join()


def _called_with(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], numbers: Round) -> Any:
    def other(operand: Any) -> Any:
        if type(operand) is list:
            return [numbers[each] if type(each) is NumberCell else each for each in operand]
        return numbers[operand] if type(operand) is NumberCell else operand

    named = {name: other(each) for name, each in kwargs.items()}
    return raw_call(func)(*[other(each) for each in args], **named)


def _name(func: Any) -> str:
    return func.name() if isinstance(func, torch._ops.OpOverload) else "a collective"


def _refused(error: RuntimeError) -> CaptureError | MemoryShortageError:
    kind = MemoryShortageError if is_shortage(error) else CaptureError
    return kind(f"the segment was refused: {first_line(error)}")


def _place(tensor: torch.Tensor) -> Any:
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def is_refusal(error: BaseException) -> bool:
    """Whether an exception says that a capture did not allow something, not that the call was wrong."""
    text = str(error).lower()
    return "captur" in text or "operation not permitted" in text
