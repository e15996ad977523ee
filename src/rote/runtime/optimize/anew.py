"""Captures a shortened stretch anew, from its operations as data.

None of the user's code runs, but that of operators of libraries. Those are functional by their schema and
their own word, and what a call with them leaves behind outside makes a stretch stay as it is.

Each operation that is left is called as the tracer would have called it, with tensors made of tokens: a
storage, and how to look at it. The storages are of four kinds:

- *outside*: arguments, state, and what islands and earlier stretches have made. They lie where the recording
  has them.
- *own*: what the stretch makes. The session captures their making, so they lie in the memory of the
  recording's pool, and die after their last reader, as in the first capture.
- *computed once*: what depends on nothing. It is no part of the pool: what lies there for good may have been
  free when other graphs of the pool were captured, and their replays write to it.
- *shown*: storages that somebody reads besides the stretch's segments. An island, a read of the host, the
  template of the result and the backends' copies hold their addresses; so do ``.grad``, and what an autograd
  graph has saved. So each segment ends with copies of what it has made or written to where they lie; kernels
  of ours store there at once. The alternative is to tell all readers of other addresses: then every holder of
  memory would have to be known here, and a stretch could not go back.

To capture is to run once, so it takes place right after a replay of the stretch (``docs/design.md``).
Equality is by construction, and looked at nevertheless: a kernel that the program does not know of, an
operator that the table is wrong about, or a kernel that reads where its operands lie shows before anybody
depends on it.

Collectives are not issued for that, since other processes take no part in it. The replay has noted what each
of them filled, and that is put where they fill it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from ..backends.protocol import Backend, KernelLaunch, LoadedKernel, Segment, Session, replaced
from ..capture import without_copies
from ..fusion import Written, kernels_of
from ..numbers import Computed
from ..operators import tensors_of
from ..program import NEW, Number, Operand, Operation, Origin, Token, results_of
from ..program.operations import HOST
from ..pytorch import below_autograd, undispatched, unseen_functions
from ..recording import KernelModes, Node
from .alternatives import Alternative
from .before import Before, as_bytes
from .copies import as_elements
from .effects import LeftAloneError, OtherBitsError
from .forks import Concurrent, Joint, forks, indices_of
from .gate import Look
from .regions import Item, Schedule, targets_of
from .running import AlternativeRunner, RanOperation, RunningSession
from .shortening import ShortStretch

_aten = torch.ops.aten
_POISON = 0xFF
_NONE: Mapping[int, Alternative] = {}


class Place(NamedTuple):
    """Memory from outside: a storage, and the byte from which offsets count."""

    storage: torch.UntypedStorage
    start: int = 0


class CapturedAnew(NamedTuple):
    """What replays a stretch now."""

    segments: tuple[Segment | None, ...]
    kept: tuple[torch.UntypedStorage, ...]


class Shown(NamedTuple):
    """Memory that others read, with the bytes that a replay has left there; without origin, one outside."""

    origin: Origin | None
    memory: torch.Tensor
    was: torch.Tensor

    @property
    def is_as_it_was(self) -> bool:
        """Whether the bytes are there again."""
        return torch.equal(self.memory, self.was)


Received = Mapping[int, Sequence[tuple[torch.Tensor, torch.Tensor]]]
"""What collectives have filled before each segment, in order, with copies of what was in it then."""


class Recapture:
    """Captures what is left of a stretch that has just been replayed."""

    def __init__(
        self,
        session: Session,
        short: ShortStretch,
        node: Node,
        modes: Mapping[int, KernelModes],
        outside: Mapping[Origin, Place],
        backend: Backend,
        before: Before | None,
        schedule: Schedule,
        kernels: Mapping[Written, LoadedKernel],
        received: Received,
        alternatives: Mapping[int, Alternative] = _NONE,
        joint: Sequence[Joint] = (),
        look: Look | None = None,
        *,
        near: bool = False,
    ) -> None:
        self._session = session
        self._received = received
        self._alternatives = alternatives
        self._joint = {index: each for each in joint for index in each}
        self._near = near
        self._look_at = look
        self._short = short
        self._schedule = schedule
        self._kernels = kernels
        self._node = node
        self._modes = modes
        self._outside = outside
        self._backend = backend
        self._before = before
        self._device = backend.device
        self._own: dict[Origin, torch.UntypedStorage] = {}
        self._stored = schedule.stored(short)
        self._last = self._last_readers()
        self._step = 0

    def run(self) -> CapturedAnew:
        """Capture it."""
        shown = [self._look(origin) for run in self._short.runs for origin in run.shown]
        changed: list[Shown] = []
        generator = self._backend.generator()
        # Operators of libraries may draw, and no schema says so: what was drawn is put back in any case.
        states = [(each, each.get_state()) for each in {generator, torch.default_generator}]
        try:
            for each in shown:
                each.memory.fill_(_POISON)
            self._go_back(changed, generator if self._short.effects.draws else None)
            with self._session.stream(), _plainly(self._device):
                for index in self._short.once:
                    self._operation(index, RunningSession())
                    self._forget()
                made: list[Segment | None] = []
                for items, run in zip(self._schedule.runs, self._short.runs, strict=True):
                    self._receive(len(made))
                    made.append(self._segment(items, self._short.copies(run, self._stored)))
                self._receive(len(made))
            mine = self._addresses(self._short.effects.changes)
            left = [each for each in changed if each.memory.data_ptr() in mine]
            different = [each for each in (*shown, *left) if not each.is_as_it_was]
        finally:  # nobody has read it meanwhile
            for each in (*shown, *changed):
                each.memory.copy_(each.was)
            for each, state in states:
                each.set_state(state)
        if different and not self._near:
            raise OtherBitsError(f"{self._told(different[0].origin)} is not equal to the bit")
        return CapturedAnew(tuple(made), tuple(self._own.values()))

    def _receive(self, number: int) -> None:
        """Fill what collectives before a segment have filled: other processes take no part in this."""
        for memory, was in self._received.get(number, ()):
            with torch.inference_mode(False), torch.no_grad():
                memory.copy_(was)
        effects = self._short.effects
        for index, origins in effects.received:
            if number == len(effects.runs) or any([index < each for each in effects.runs[number]]):
                for origin in origins:
                    self._own.pop(origin, None)

    def _go_back(self, changed: list[Shown], generator: torch.Generator | None) -> None:
        """Have arguments, state and generator as the replay found them; notes what it has left there.

        That is what all of its stretches have written: the first one reads what later ones write.
        """
        before = self._before
        if before is None:
            if generator is not None:
                raise LeftAloneError("it draws random numbers, and the host reads values before it begins")
            return
        if before.missing is not None:
            raise LeftAloneError(before.missing)
        known = {memory.data_ptr() for memory, _ in before.changed}
        if not self._addresses(self._short.effects.changes) <= known:
            raise LeftAloneError("what it writes is not what was looked at before the replay")
        for memory, was in before.changed:  # a stretch may go back more than once
            changed.append(Shown(None, memory, memory.clone()))
            memory.copy_(was)
        if generator is not None and before.state is not None:
            generator.set_state(before.state)

    def _addresses(self, origins: Iterable[Origin]) -> set[int]:
        return {self._outside[origin].storage.data_ptr() for origin in origins}

    def _told(self, origin: Origin | None) -> str:
        effects = self._short.effects
        if origin is None:
            return "what is left in an argument or in state"
        operation = effects.operations[effects.made[origin]]
        return f"what {operation.name} gives at {operation.site}"

    def _look(self, origin: Origin) -> Shown:
        memory = as_bytes(self._outside[origin].storage, self._reach(origin))
        return Shown(origin, memory, memory.clone())

    def _reach(self, origin: Origin) -> int:
        """How many bytes of a storage others can see that the stretch makes."""
        return min(self._short.effects.reach[origin], self._outside[origin].storage.nbytes())

    # ------------------------------------------------------------------ segments

    def _segment(self, items: Sequence[Item], shown: Sequence[Sequence[Origin]]) -> Segment | None:
        """Capture one segment, which runs it."""
        session = self._session
        try:
            operations = self._short.effects.operations
            numbers = any([operations[each].computes for each in items if not isinstance(each, Written)])
            session.begin(len(items) + len(shown), numbers=numbers)
            for fork in self._forks(items):
                self._fork(fork)
            for origins in shown:
                with undispatched():
                    self._show(origins)
                self._forget()
            return session.end()
        except BaseException:
            session.abort()
            raise

    def _forks(self, items: Sequence[Item]) -> Iterable[Concurrent]:
        """The items, those together that may run at the same time."""
        found = forks(items, self._short)
        if not self._backend.capabilities.asynchronous:
            return [Concurrent((*each.first, *each.second)) for each in found]
        return found

    def _fork(self, fork: Concurrent) -> None:
        """Capture items, and let die what only they have read."""
        for joint in dict.fromkeys([self._joint[item] for item in indices_of(fork) if item in self._joint]):
            self._jointly(joint)
        first, second = [self._alone(items) for items in fork]
        if second:
            with self._session.fork():
                self._items(second)
        self._items(first)
        if second:
            self._session.join()
        for _ in (*fork.first, *fork.second):
            self._forget()

    def _alone(self, items: Iterable[Item]) -> list[Item]:
        """Those that are not calculated together with others."""
        return [item for item in items if isinstance(item, Written) or item not in self._joint]

    def _jointly(self, indices: Joint) -> None:
        """Capture operations that an alternative calculates together."""
        operations = [self._short.effects.operations[index] for index in indices]
        modes, alternative = self._modes[indices[0]], self._alternatives[indices[0]]
        if alternative.together is None or any([self._modes[index] != modes for index in indices]):
            raise LeftAloneError("operations that are to be calculated together run under different modes")
        with _under(modes):
            with undispatched():
                calls = [
                    self._call_of(index, operation, self._modes[index].tracked, self._session)
                    for index, operation in zip(indices, operations, strict=True)
                ]
            runner = AlternativeRunner(self._session, kernels_of(self._backend))
            given = [(args, kwargs) for _, args, kwargs in calls]
            results = runner.together(alternative.together, operations, given)
        for operation, result in zip(operations, results, strict=True):
            self._taken(operation, [result, *[None for _ in operation.results[1:]]])

    def _items(self, items: Iterable[Item]) -> None:
        for item in items:
            if isinstance(item, Written):
                self._launch(item)
            else:
                self._operation(item, self._session)

    def _operation(self, index: int, session: Session) -> None:
        operation = self._short.effects.operations[index]
        modes, alternative = self._modes[index], self._alternatives.get(index)
        with _under(modes):
            with undispatched():
                func, args, kwargs = self._call_of(index, operation, modes.tracked, session)
                results = list[Any]()
                if alternative is None:
                    ran = RanOperation(index, operation, args, kwargs, session.run(func, args, kwargs))
                    self._looked_at(ran)
                    results = results_of(ran.result)[1]
            if alternative is not None:  # its code is seen by a mode
                runner = AlternativeRunner(session, kernels_of(self._backend))
                results = runner.calculated(alternative, operation, args, kwargs)
        self._taken(operation, results)

    def _taken(self, operation: Operation, results: Sequence[Any]) -> None:
        """Note the memory of the results of an operation."""
        for result, token in zip(results, operation.results, strict=True):
            if isinstance(token, Token) and token.origin in self._last:
                self._take(operation, result, token)

    def _looked_at(self, ran: RanOperation) -> None:
        """Tell of an operation, unless somebody reads more than the first of its results."""
        others = [token.origin for token in ran.operation.results[1:] if isinstance(token, Token)]
        if self._look_at is not None and self._last.keys().isdisjoint(others):
            self._look_at(ran)

    def _call_of(
        self, index: int, operation: Operation, tracked: Sequence[int], session: Session
    ) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """What is called for an operation, and with what."""
        if operation.kind == HOST:
            func, args, kwargs = self._node.made[index]
            return func, *replaced(Computed, "cell", args, kwargs)
        if not operation.is_of_aten:
            return _aten.clone.default, (self._node.constants[index],), {}
        return self._operands(operation, tracked, session)

    def _operands(
        self, operation: Operation, tracked: Sequence[int], session: Session
    ) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        args, kwargs = operation.arguments(self._operand)
        func = operation.overload
        if self._device.type != "cpu" and any([each.is_cpu for each in tensors_of(args, kwargs)]):
            func, args = without_copies(operation.facts, args, self._device, session.run)
        operands = tensors_of(args, kwargs)
        for number in tracked:
            operands[number].requires_grad_()
        return func, args, kwargs

    def _launch(self, kernel: Written) -> None:
        """Capture the launch of a kernel that calculates several operations."""
        given = [_whole_of(self._place(origin), dtype) for origin, dtype in kernel.reads]
        tokens = targets_of(kernel, self._short)
        with torch.inference_mode(False), torch.no_grad(), undispatched():
            made = [self._target(token) for token in tokens]
            _check_reach(kernel, given)
            flat = [each.as_strided((each.numel(),), (1,), 0) for each in made]
            loaded = self._kernels[kernel]
            self._session.launch(KernelLaunch(loaded, given, flat, kernel.reals, kernel.integers))
        for token, tensor in zip(tokens, made, strict=True):
            if token.origin in self._last and not self._is_there(token.origin):
                self._own[token.origin] = tensor.untyped_storage()  # perhaps in place of an earlier version

    def _is_there(self, origin: Origin) -> bool:
        """Whether a storage is there before a kernel writes it."""
        return self._short.is_shown(origin) or origin not in self._short.effects.made

    def _target(self, token: Token) -> torch.Tensor:
        """Where a kernel stores a result: where it is read or written, or in memory that is made for it."""
        if self._is_there(token.origin):
            if self._reach(token.origin) < self._short.effects.reach[token.origin]:
                raise LeftAloneError("a storage has become smaller")
            self._own.pop(token.origin, None)  # an earlier version, which the kernel may read
            return self._tensor(token)
        options = {"dtype": token.dtype, "device": self._device}
        return self._session.run(_aten.empty_strided.default, (token.shape, token.stride), options)

    def _take(self, operation: Operation, result: torch.Tensor, token: Token) -> None:
        """Note the memory of a result that somebody reads."""
        found = (result.dtype, tuple(result.shape), result.stride(), result.storage_offset())
        if found != (token.dtype, tuple(token.shape), token.stride, token.offset):
            raise LeftAloneError(f"{operation.name} at {operation.site} gives another layout")
        if token.origin[0] is NEW and token.origin in self._short.effects.made:
            self._own.setdefault(token.origin, result.untyped_storage())

    def _show(self, origins: Sequence[Origin]) -> None:
        """Copy storages to where others read them."""
        targets: list[torch.Tensor] = []
        sources: list[torch.Tensor] = []
        for origin in origins:
            target, nbytes = self._outside[origin].storage, self._short.effects.reach[origin]
            source = self._place(self._short.home(origin)).storage
            if min(source.nbytes(), target.nbytes()) < nbytes:
                raise LeftAloneError("a storage has become smaller")
            targets.append(as_elements(target, nbytes))
            sources.append(as_elements(source, nbytes))
        if len(origins) > 1:
            self._session.run(_aten._foreach_copy_.default, (targets, sources), {})
        else:
            self._session.run(_aten.copy_.default, (targets[0], sources[0]), {})

    # ------------------------------------------------------------------ tensors

    def _operand(self, operand: Operand) -> Any:
        if type(operand) is Number:
            return operand.value
        if type(operand) is Computed:
            return operand.cell
        return self._tensor(operand) if type(operand) is Token else operand

    def _tensor(self, token: Token) -> torch.Tensor:
        storage, start = self._place(self._short.home(token.origin))
        with torch.inference_mode(False):
            tensor = torch.empty(0, dtype=token.dtype, device=storage.device)
            offset = token.offset + start // tensor.itemsize
            return tensor.set_(storage, offset, token.shape, token.stride)

    def _place(self, origin: Origin) -> Place:
        own = self._own.get(origin)
        place = Place(own) if own is not None else self._outside.get(origin)
        if place is None:
            raise LeftAloneError("memory that it reads is gone")
        return place

    # ------------------------------------------------------------------ lifetimes

    def _steps(self) -> Iterator[Iterable[Origin]]:
        """What each step reads, in the order in which :meth:`_forget` counts them."""
        short, touched = self._short, self._short.effects.touched
        for index in short.once:
            yield [short.home(token.origin) for token in touched[index].reads]
        for items, run in zip(self._schedule.runs, short.runs, strict=True):
            for item in items:
                if isinstance(item, Written):
                    yield [origin for origin, _ in item.reads]
                else:
                    yield [short.home(token.origin) for token in touched[item].reads]
            for origins in short.copies(run, self._stored):
                yield list(map(short.home, origins))

    def _last_readers(self) -> dict[Origin, int]:
        """The last step that reads each storage; what was computed once is kept if a replay reads it."""
        steps, once = list(self._steps()), len(self._short.once)
        last = {origin: step for step, origins in enumerate(steps) for origin in origins}
        touched = self._short.effects.touched
        kept = {origin for index in self._short.once for origin in touched[index].makes}
        return {origin: -1 if origin in kept and step >= once else step for origin, step in last.items()}

    def _forget(self) -> None:
        """A step is done: storages that no later one reads may die."""
        step, self._step = self._step, self._step + 1
        dead = [origin for origin in self._own if self._last[origin] == step]
        for origin in dead:
            del self._own[origin]


def _whole_of(place: Place, dtype: torch.dtype) -> torch.Tensor:
    """Memory from outside as elements of one type."""
    storage, start = place
    with torch.inference_mode(False):
        tensor = torch.empty(0, dtype=dtype, device=storage.device)
        count = (storage.nbytes() - start) // tensor.itemsize
        return tensor.set_(storage, start // tensor.itemsize, (count,), (1,))


def _check_reach(kernel: Written, given: Sequence[torch.Tensor]) -> None:
    """A kernel gets addresses alone: what it reads has to be there."""
    for most, tensor in zip(kernel.body.reach, given, strict=True):
        if most >= tensor.numel():
            raise LeftAloneError("memory that it reads has become smaller")


@contextmanager
def _plainly(device: torch.device) -> Generator[None]:
    """Nobody sees the operations; autograd and autocast, which have run before them, are off."""
    with torch.autocast(device.type, enabled=False), unseen_functions(), below_autograd():
        yield


@contextmanager
def _under(modes: KernelModes) -> Generator[None]:
    """The modes that an operation ran under; the switches are as they were."""
    default = torch.get_default_dtype()
    with torch.inference_mode(modes.inference), torch.set_grad_enabled(modes.grad):
        try:
            if default is not modes.dtype:
                torch.set_default_dtype(modes.dtype)
            yield
        finally:
            if default is not modes.dtype:
                torch.set_default_dtype(default)
